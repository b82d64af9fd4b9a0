/* SPDX-License-Identifier: Apache-2.0 */
/* Extents of the tasks, from the table of docs/design.md, "One layer". */
#include "network/sizes.h"

#include <math.h>

static double part(double width, double n_parts) { return ceil(width / n_parts); }

/* Shards are padded to 16 bytes. */
static double shard(double n_elems, int z, double elem_bytes)
{
    const double unit = 16 / elem_bytes;
    return ceil(ceil(n_elems / z) / unit) * unit;
}

/* Sequences of one forward pass in a cell, averaged over the forward passes of a step. */
static double cell_sequences(const qdr_plan *plan)
{
    const double cells = (double)plan->z * plan->d, all = ceil((double)plan->batch / cells);
    return plan->micro_batch > 0 && (double)plan->micro_batch < all ? (double)plan->micro_batch : all;
}

static double rows_on(const qdr_plan *plan, const qdri_sizes *s, int n_ranks, int whole_sequences)
{
    const double rows = s->sequences * s->context;
    if (plan->layout != QDR_SCATTERED) return rows;
    if (!whole_sequences) return part(rows, n_ranks);
    return s->sequences < n_ranks ? rows : part(s->sequences, n_ranks) * s->context;
}

/* The average number of positions that a token attends to, over all layers. */
static double seen(const qdr_network *network, double context)
{
    const double all = (context + 1) / 2, w = fmin(context, (double)network->window);
    const double inside = w > 0 ? w - w * (w - 1) / (2 * context) : all;
    const double share = network->layers ? (double)network->window_layers / (double)network->layers : 0;
    return share * inside + (1 - share) * all;
}

static void set_columns(const qdr_network *n, const qdr_plan *plan, qdri_sizes *s)
{
    const double kv = fmin((double)n->heads, (double)n->kv_heads), y = plan->y;
    s->heads = part((double)n->heads, y);
    s->kv_heads = part(kv, y);
    s->of[QDRI_SIZE_HIDDEN] = part((double)n->hidden, plan->x);
    s->of[QDRI_SIZE_QUERIES] = s->heads * (double)n->head_size;
    s->of[QDRI_SIZE_QKV] = (s->heads + 2 * s->kv_heads) * (double)n->head_size;
    s->of[QDRI_SIZE_FFN] = part((double)n->ffn, y);
    s->of[QDRI_SIZE_UP] = (1 + (n->gated != 0)) * s->of[QDRI_SIZE_FFN];
    s->of[QDRI_SIZE_VOCAB] = part((double)n->vocab, y);
}

static void set_shards(const qdr_plan *plan, qdri_sizes *s)
{
    const double *of = s->of, hidden = of[QDRI_SIZE_HIDDEN];
    s->of[QDRI_SIZE_SHARD_QKV] = shard(hidden * of[QDRI_SIZE_QKV], plan->z, s->elem_bytes);
    s->of[QDRI_SIZE_SHARD_PROJ] = shard(hidden * of[QDRI_SIZE_QUERIES], plan->z, s->elem_bytes);
    s->of[QDRI_SIZE_SHARD_UP] = shard(hidden * of[QDRI_SIZE_UP], plan->z, s->elem_bytes);
    s->of[QDRI_SIZE_SHARD_DOWN] = shard(hidden * of[QDRI_SIZE_FFN], plan->z, s->elem_bytes);
    s->of[QDRI_SIZE_SHARD_VOCAB] = shard(hidden * of[QDRI_SIZE_VOCAB], plan->z, s->elem_bytes);
}

/* Biases and norms of n_layers layers, the last norm, the positions. Scattered norms, and positions of scattered edges,
 * are also summed over y. */
static void set_small(const qdr_network *n, const qdr_plan *plan, double n_layers, qdri_sizes *s)
{
    const double hidden = s->of[QDRI_SIZE_HIDDEN];
    const double norm = (n->norm == QDR_NORM_LAYER ? 2 : 1) * hidden;
    const double norms = (n_layers * n->norms_per_layer + 1) * norm;
    const double biases = n_layers * ((n->qkv_bias != 0) * s->of[QDRI_SIZE_QKV] + (n->out_bias != 0) * hidden +
                                      (n->mlp_bias != 0) * (s->of[QDRI_SIZE_UP] + hidden));
    const double positions = n->positions ? s->context * hidden : 0;
    s->of[QDRI_SIZE_POSITIONS] = s->context;
    s->of[QDRI_SIZE_SMALL] = norms + biases + positions;
    s->of[QDRI_SIZE_SMALL_X] = 0;
    s->of[QDRI_SIZE_SMALL_Y] = plan->layout == QDR_SCATTERED ? norms + positions : 0;
}

void qdri_sizes_make(const qdr_network *network, const qdr_plan *plan, double n_layers, qdri_sizes *s)
{
    *s = (qdri_sizes){.sequences = cell_sequences(plan),
                      .context = (double)(plan->sequence ? plan->sequence : network->context),
                      .elem_bytes = (double)qdr_dtype_bytes(plan->dtype),
                      .gradient_bytes = plan->dtype == QDR_F64 ? 8 : 4};
    s->seen = seen(network, s->context);
    s->of[QDRI_SIZE_ONE] = 1;
    s->of[QDRI_SIZE_ROWS] = s->sequences * s->context;
    s->of[QDRI_SIZE_ROWS_X] = rows_on(plan, s, plan->x, 0);
    s->of[QDRI_SIZE_ROWS_Y] = rows_on(plan, s, plan->y, 0);
    s->of[QDRI_SIZE_SEQUENCES_X] = rows_on(plan, s, plan->x, 1);
    set_columns(network, plan, s);
    set_shards(plan, s);
    set_small(network, plan, n_layers, s);
}
