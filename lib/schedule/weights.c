/* SPDX-License-Identifier: Apache-2.0 */
/* Gathered weights: which W is needed when, and gathering it ahead into values used in rotation. */
#include <stdlib.h>

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
    if (builder->status == QDR_OK)
        builder->status = qdri_list_grow((void **)&builder->uses, builder->n_uses, &builder->use_capacity,
                                         sizeof *builder->uses, "a schedule");
    if (builder->status != QDR_OK) return;
    builder->uses[builder->n_uses++] = (struct qdri_weight_use){
        .node = node, .name = name, .shard = shard, .shard_elems = shard_elems, .dtype = dtype};
}

static size_t whole_bytes(const qdri_builder *builder, const struct qdri_weight_use *use)
{
    return (size_t)use->shard_elems * (size_t)builder->position.size[QDR_Z] * qdr_dtype_bytes(use->dtype);
}

static qdri_ref whole(const qdri_builder *builder, int index)
{
    return (qdri_ref){builder->gathered[index % builder->n_turns].buffer, 0,
                      whole_bytes(builder, &builder->uses[index])};
}

/* One value more than the number of weights gathered ahead, each with room for the largest that takes its turn there.
 * They are given back at once, since a weight is not needed after its last use. */
static void take_turns(qdri_builder *builder)
{
    builder->n_turns = builder->prefetch + 1 < builder->n_uses ? builder->prefetch + 1 : builder->n_uses;
    builder->status = QDRI_NEW(builder->n_turns, "a schedule", &builder->gathered);
    for (int i = 0; i < builder->n_turns && builder->status == QDR_OK; i++) {
        builder->gathered[i] = qdri_builder_take(builder, 0);
        for (int j = i; j < builder->n_uses; j += builder->n_turns)
            qdri_builder_enlarge(builder, builder->gathered[i], whole_bytes(builder, &builder->uses[j]));
        qdri_builder_give(builder, builder->gathered[i]);
    }
}

qdri_ref qdri_next_weight(qdri_builder *builder)
{
    if (builder->status != QDR_OK) return QDRI_NO_REF;
    const int index = builder->next_use++;
    if (builder->position.size[QDR_Z] == 1) return builder->uses[index].shard;
    if (!builder->gathered) take_turns(builder);
    if (builder->status != QDR_OK) return QDRI_NO_REF;
    for (; builder->n_gathered < builder->n_uses && builder->n_gathered <= index + builder->prefetch;
         builder->n_gathered++) {
        const struct qdri_weight_use *use = &builder->uses[builder->n_gathered];
        qdri_add_collective(builder, &(qdri_task){.coll = QDR_ALL_GATHER,
                                                  .overlap_class = QDRI_CLASS_WEIGHTS,
                                                  .channel = QDR_CHANNEL_Z_GATHER,
                                                  .node = use->node,
                                                  .name = use->name,
                                                  .n_reads = 1,
                                                  .reads = {use->shard},
                                                  .n_writes = 1,
                                                  .writes = {whole(builder, builder->n_gathered)},
                                                  .count = use->shard_elems,
                                                  .traffic = 1 + (int)QDR_TRAFFIC_WEIGHT,
                                                  .dtype = use->dtype});
    }
    return whole(builder, index);
}
