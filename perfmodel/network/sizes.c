/* SPDX-License-Identifier: Apache-2.0 */
/* Extents of the tasks, from the table of docs/design.md, "One layer". */
#include "network/sizes.h"

#include <math.h>

#include "core/operands.h"
#include "core/size.h"
#include "schedule/buffer.h"
#include "schedule/network.h"
#include "schedule/ops/key_heads.h"

static double part(double width, double n_parts) { return ceil(width / n_parts); }

qdri_position qdri_plan_position(const qdr_plan *plan)
{
    const int gradients = plan->gradient_parts ? plan->gradient_parts : plan->z;
    const int state = plan->optimizer_parts ? plan->optimizer_parts : gradients;
    return (qdri_position){
        .size = {plan->x, plan->y, plan->z, plan->d}, .near = gradients / plan->z, .far = state / gradients};
}

int qdri_plan_has_levels(const qdr_plan *plan)
{
    return plan->gradient_parts > plan->z || plan->optimizer_parts > plan->z;
}

/* Shards are padded to 16 bytes, and so is each part that a level makes of them. */
static double shard(double n_elems, const qdri_position *grid, double elem_bytes)
{
    const double unit = 16 / elem_bytes * grid->near * grid->far;
    return ceil(ceil(n_elems / grid->size[QDR_Z]) / unit) * unit;
}

static double rows_on(const qdr_plan *plan, const qdri_sizes *s, int n_ranks, int whole_sequences)
{
    const double rows = s->sequences * s->context;
    if (plan->layout != QDR_SCATTERED) return rows;
    if (!whole_sequences) return part(rows, n_ranks);
    return s->sequences < n_ranks ? rows : part(s->sequences, n_ranks) * s->context;
}

/* Columns, and the shards of weights. */
static void set_columns(const qdr_network *n, const qdr_plan *plan, qdri_sizes *s)
{
    const double y = plan->y, group = (double)n->heads / (double)n->kv_heads; /* of queries, with one key head */
    const double kv_heads = part((double)n->kv_heads, y);
    const int are_together = n->kv_heads >= plan->y && n->heads % n->kv_heads == 0;
    s->heads = are_together ? kv_heads * group : part((double)n->heads, y);
    s->of[QDRI_SIZE_HIDDEN] = part((double)n->hidden, plan->x);
    s->of[QDRI_SIZE_QUERIES] = s->heads * (double)n->head_size;
    s->of[QDRI_SIZE_QKV] = (s->heads + 2 * kv_heads) * (double)n->head_size;
    s->of[QDRI_SIZE_FFN] = part((double)n->ffn, y);
    s->of[QDRI_SIZE_UP] = (1 + (n->gated != 0)) * s->of[QDRI_SIZE_FFN];
    s->of[QDRI_SIZE_VOCAB] = part((double)n->vocab, y);
    static const qdri_size sharded[][2] = {{QDRI_SIZE_SHARD_QKV, QDRI_SIZE_QKV},
                                           {QDRI_SIZE_SHARD_PROJ, QDRI_SIZE_QUERIES},
                                           {QDRI_SIZE_SHARD_UP, QDRI_SIZE_UP},
                                           {QDRI_SIZE_SHARD_DOWN, QDRI_SIZE_FFN},
                                           {QDRI_SIZE_SHARD_VOCAB, QDRI_SIZE_VOCAB}};
    const qdri_position grid = qdri_plan_position(plan);
    for (int i = 0; i < 5; i++)
        s->of[sharded[i][0]] = shard(s->of[QDRI_SIZE_HIDDEN] * s->of[sharded[i][1]], &grid, s->elem_bytes);
}

/* Layers with the same angles share a table. */
static int are_same(const qdr_network *n, int64_t context)
{
    const qdr_rotary a = qdri_rotary_whole(n, &n->rotary), b = qdri_rotary_whole(n, &n->local_rotary);
    const int64_t columns = qdri_rotary_columns(n, &a);
    if (columns != qdri_rotary_columns(n, &b) || a.magnitude != b.magnitude) return 0;
    for (int64_t i = columns / 2 - 1; i >= 0; i--) /* the last differ most */
        if (qdri_rotary_frequency(&a, i, context) != qdri_rotary_frequency(&b, i, context)) return 0;
    return 1;
}

/* As its operation says: a number per row and head, and the key heads that are gathered where y has more ranks than
 * there are. A kernel assigns the same number of queries to each of its key heads. */
static void set_attention(const qdr_network *n, const qdr_plan *plan, qdri_sizes *s)
{
    const int64_t n_queries = (int64_t)s->heads, group = n->heads / n->kv_heads;
    const qdri_key_heads keys = {.gathered = n->kv_heads < plan->y && group > 1,
                                 .n_own = (n->kv_heads + plan->y - 1) / plan->y,
                                 .n_all = n->kv_heads};
    const qdr_rotary *sets[] = {&n->rotary, &n->local_rotary};
    int has[2];
    size_t saved_bytes, work_bytes;
    const int n_threads = plan->threads ? (int)plan->threads : 1;
    qdri_network_rotaries(n, has);
    if (has[0] && has[1] && are_same(n, (int64_t)s->context)) has[1] = 0;
    for (int i = 0; i < 2; i++) {
        const double bytes = s->context * (double)qdri_rotary_columns(n, sets[i]) * fmax(4, s->elem_bytes);
        s->rotation_bytes += has[i] ? (double)qdri_align_bytes((size_t)bytes, QDRI_BUFFER_ALIGN) : 0;
    }
    const qdri_kernel kernel = {
        .dtype = plan->dtype,
        .u.attention = {.n_rows = (int64_t)s->of[QDRI_SIZE_SEQUENCES_X],
                        .context = (int64_t)s->context,
                        .n_heads = n_queries,
                        .n_kv_heads = keys.gathered ? n_queries / qdri_common_divisor(group, n_queries) : keys.n_own,
                        .head_size = n->head_size,
                        .cap = n->attention_cap,
                        .rotary_columns = s->rotation_bytes > 0,
                        .head_norm = n->head_norm == QDR_HEAD_NORM_EACH}};
    s->device_bytes = (double)qdri_cpu_attention_bytes(&kernel, n_threads);
    if (qdri_cpu_converts(plan->dtype, 1)) s->device_bytes += (double)qdri_cpu_panels_bytes(n_threads);
    if (qdri_key_heads_sizes(&kernel, &keys, &saved_bytes, &work_bytes) != QDR_OK) return; /* the lists say so, too */
    s->attention_saved = (double)saved_bytes;
    s->attention_work = (double)work_bytes;
}

void qdri_sizes_make(const qdr_network *network, const qdr_plan *plan, qdri_sizes *s)
{
    const double cells = (double)plan->z * plan->d, all = ceil((double)plan->batch / cells);
    const double micro = (double)plan->micro_batch;
    *s = (qdri_sizes){.sequences = micro > 0 && micro < all ? micro : all,
                      .context = (double)(plan->sequence ? plan->sequence : network->context),
                      .elem_bytes = (double)qdr_dtype_bytes(plan->dtype),
                      .gradient_bytes = plan->dtype == QDR_F64 ? 8 : 4};
    s->of[QDRI_SIZE_ROWS] = s->sequences * s->context;
    s->of[QDRI_SIZE_ROWS_X] = rows_on(plan, s, plan->x, 0);
    s->of[QDRI_SIZE_ROWS_Y] = rows_on(plan, s, plan->y, 0);
    s->of[QDRI_SIZE_SEQUENCES_X] = rows_on(plan, s, plan->x, 1);
    set_columns(network, plan, s);
    set_attention(network, plan, s);
}

/* ---- layers of stages ---- */

double qdri_job_nodes(const qdr_machine *machine, const qdr_plan *plan)
{
    const double n_ranks = (double)plan->x * plan->y * plan->z * plan->d * fmax(1, plan->pipeline);
    return ceil(n_ranks / machine->ranks_per_node);
}

int qdri_is_staged(const qdr_machine *machine, const qdr_plan *plan)
{
    const double nodes = qdri_job_nodes(machine, plan);
    return nodes > 1 &&
           (plan->pipeline > 1 || (machine->software.stall_nodes > 0 && nodes >= machine->software.stall_nodes));
}

/* Assigns layers to the current stage; the next stage begins when the running sum reaches its share. */
static qdri_stages balanced(const qdr_network *network, int n)
{
    const double q = (double)(network->heads * network->head_size), hidden = (double)network->hidden;
    const double kv = (double)(network->kv_heads * network->head_size);
    const double layer = hidden * (2 * q + 2 * kv + (2 + (network->gated != 0)) * (double)network->ffn);
    const double all = (double)network->layers * layer + (double)network->vocab * hidden;
    qdri_stages stages = {.n = n};
    double sum = 0, here = 0;
    int stage = 0;
    for (int64_t i = 0; i < network->layers; i++) {
        here++;
        sum += layer;
        if (stage == 0) stages.first = here;
        if (stage > 0 && stage < n - 1) stages.middle = fmax(stages.middle, here);
        if (stage == n - 1) stages.last = here;
        if (stage >= n - 1 || sum < all * (stage + 1) / n) continue;
        stage++;
        here = 0;
    }
    return stages;
}

qdri_stages qdri_stages_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan)
{
    const int n = plan->pipeline > 1 ? plan->pipeline : 1;
    if (n > 1 && machine->software.balanced_stages) return balanced(network, n);
    const double each = ceil((double)network->layers / n);
    return (qdri_stages){n, each, each, each};
}
