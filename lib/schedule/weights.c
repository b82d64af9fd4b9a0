/* SPDX-License-Identifier: Apache-2.0 */
/* Gathered weights: which W is needed when, and gathering it ahead into values that take turns. */
#include <stdlib.h>

#include "core/size.h"
#include "schedule/schedule.h"

struct qdri_weight_use {
    int node;
    const char *name;
    qdri_ref shard;
    int64_t shard_elems;
    qdr_dtype dtype;
    int turn; /* the value that holds it */
    int is_there; /* since an earlier use */
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
    const struct qdri_weight_use *use = &builder->uses[index];
    return (qdri_ref){builder->gathered[use->turn].buffer, 0, whole_bytes(builder, use)};
}

/* Where the weight of a use is since an earlier one, or the value whose last use is the longest ago. When a weight is
 * gathered ahead, that use is over: later ones have the other values. last: of each value; -1: none yet */
static void take_turn(qdri_builder *builder, int index, int *last)
{
    struct qdri_weight_use *use = &builder->uses[index];
    for (int turn = 0; turn < builder->n_turns; turn++) {
        const qdri_ref shard = last[turn] < 0 ? QDRI_NO_REF : builder->uses[last[turn]].shard;
        if (shard.buffer == use->shard.buffer && shard.offset == use->shard.offset) use->is_there = 1;
        if (use->is_there || last[turn] < last[use->turn]) use->turn = turn;
        if (use->is_there) break;
    }
    last[use->turn] = index;
    qdri_builder_enlarge(builder, builder->gathered[use->turn], whole_bytes(builder, use));
}

/* One value more than the number of weights gathered ahead, each with room for the largest that takes its turn there.
 * They are given back at once, since a weight is not needed after its last use. */
static void take_turns(qdri_builder *builder)
{
    int *last = NULL;
    builder->n_turns = builder->prefetch + 1 < builder->n_uses ? builder->prefetch + 1 : builder->n_uses;
    builder->status = QDRI_NEW(builder->n_turns, "a schedule", &builder->gathered);
    if (builder->status == QDR_OK) builder->status = QDRI_NEW(builder->n_turns, "a schedule", &last);
    if (builder->status != QDR_OK) return;
    for (int i = 0; i < builder->n_turns; i++) {
        builder->gathered[i] = qdri_builder_take(builder, 0);
        last[i] = -1;
    }
    for (int i = 0; i < builder->n_uses; i++) take_turn(builder, i, last);
    for (int i = 0; i < builder->n_turns; i++) qdri_builder_give(builder, builder->gathered[i]);
    free(last);
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
        if (use->is_there) continue;
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
