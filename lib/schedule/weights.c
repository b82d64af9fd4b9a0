/* SPDX-License-Identifier: Apache-2.0 */
/* Gathered weights: which W is needed when, and gathering it ahead into slots used in rotation. */
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "schedule/schedule.h"

struct qdri_weight_use {
    int node;
    const char *name;
    qdri_ref shard;
    int64_t shard_elems;
    qdr_dtype dtype;
};

void qdri_plan_weight(qdri_builder *builder, int node, const char *name, qdri_ref shard, int64_t shard_elems,
                      qdr_dtype dtype)
{
    if (builder->status != QDR_OK) return;
    if ((builder->n_uses & (builder->n_uses - 1)) == 0) { /* full at powers of two */
        struct qdri_weight_use *uses = NULL;
        builder->status = QDRI_NEW(builder->n_uses ? 2 * builder->n_uses : 1, "a schedule", &uses);
        if (builder->status != QDR_OK) return;
        if (builder->n_uses) memcpy(uses, builder->uses, (size_t)builder->n_uses * sizeof *uses);
        free(builder->uses);
        builder->uses = uses;
    }
    builder->uses[builder->n_uses++] = (struct qdri_weight_use){
        .node = node, .name = name, .shard = shard, .shard_elems = shard_elems, .dtype = dtype};
}

/* Slots of the size of the largest gathered W, one more than the number of weights gathered ahead. */
static void make_slots(qdri_builder *builder)
{
    size_t bytes = 0;
    for (int i = 0; i < builder->n_uses; i++) {
        const struct qdri_weight_use *use = &builder->uses[i];
        const size_t need = (size_t)use->shard_elems * (size_t)builder->place.size[QDR_Z] * qdr_dtype_bytes(use->dtype);
        if (need > bytes) bytes = need;
    }
    const int n = builder->prefetch + 1 < builder->n_uses ? builder->prefetch + 1 : builder->n_uses;
    builder->status = QDRI_NEW(n, "a schedule", &builder->slots);
    if (builder->status != QDR_OK) return;
    for (int i = 0; i < n; i++) builder->slots[i] = qdri_buffers_take(builder->buffers, bytes);
    builder->n_slots = n;
}

static void gather(qdri_builder *builder, int index)
{
    const struct qdri_weight_use *use = &builder->uses[index];
    qdri_add_collective(builder, &(qdri_task){.coll = QDR_ALL_GATHER,
                                              .overlap_class = QDRI_CLASS_WEIGHTS,
                                              .channel = QDR_CHANNEL_Z_GATHER,
                                              .node = use->node,
                                              .name = use->name,
                                              .n_reads = 1,
                                              .reads = {use->shard},
                                              .n_writes = 1,
                                              .writes = {builder->slots[index % builder->n_slots]},
                                              .count = use->shard_elems,
                                              .dtype = use->dtype});
}

qdri_ref qdri_next_weight(qdri_builder *builder)
{
    if (builder->status != QDR_OK) return QDRI_NO_REF;
    const int index = builder->next_use++;
    if (builder->place.size[QDR_Z] == 1) return builder->uses[index].shard;
    if (!builder->slots) make_slots(builder);
    if (builder->status != QDR_OK) return QDRI_NO_REF;
    while (builder->n_gathered < builder->n_uses && builder->n_gathered <= index + builder->prefetch)
        gather(builder, builder->n_gathered++);
    return builder->slots[index % builder->n_slots];
}
