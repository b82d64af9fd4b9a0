/* SPDX-License-Identifier: Apache-2.0 */
/* Gathered weights: which W is needed when, and gathering it ahead. */
#include "core/size.h"
#include "schedule/schedule.h"

struct qdri_weight_use {
    int node;
    const char *name;
    qdri_ref shard, whole;
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

static void gather(qdri_builder *builder, struct qdri_weight_use *use)
{
    const size_t shard_bytes = (size_t)use->shard_elems * qdr_dtype_bytes(use->dtype);
    use->whole = qdri_builder_take(builder, (size_t)builder->place.size[QDR_Z] * shard_bytes);
    qdri_add_collective(builder, &(qdri_task){.coll = QDR_ALL_GATHER,
                                              .overlap_class = QDRI_CLASS_WEIGHTS,
                                              .channel = QDR_CHANNEL_Z_GATHER,
                                              .node = use->node,
                                              .name = use->name,
                                              .n_reads = 1,
                                              .reads = {use->shard},
                                              .n_writes = 1,
                                              .writes = {use->whole},
                                              .count = use->shard_elems,
                                              .dtype = use->dtype});
    qdri_builder_give(builder, use->whole); /* once it has been used */
}

qdri_ref qdri_next_weight(qdri_builder *builder)
{
    if (builder->status != QDR_OK) return QDRI_NO_REF;
    const int index = builder->next_use++;
    if (builder->place.size[QDR_Z] == 1) return builder->uses[index].shard;
    while (builder->n_gathered < builder->n_uses && builder->n_gathered <= index + builder->prefetch)
        gather(builder, &builder->uses[builder->n_gathered++]);
    return builder->uses[index].whole;
}
