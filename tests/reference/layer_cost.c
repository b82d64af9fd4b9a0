/* SPDX-License-Identifier: Apache-2.0 */
#include "reference/layer_cost.h"

#include <math.h>

double reference_coll_elems(qdr_coll_kind kind, int n_ranks, double n_elems)
{
    if (n_ranks < 1) return NAN;
    const double share = (double)(n_ranks - 1) / (double)n_ranks;
    switch (kind) {
    case QDR_ALL_GATHER:
    case QDR_REDUCE_SCATTER:
    case QDR_ALL_TO_ALL:
    case QDR_BROADCAST: return share * n_elems;
    case QDR_ALL_REDUCE: return 2 * share * n_elems;
    case QDR_SEND_RECV: return n_ranks > 1 ? n_elems : 0;
    case QDR_N_COLL_KINDS: break;
    }
    return NAN;
}

double reference_channel_bytes(const reference_cost *cost, qdr_channel channel)
{
    double bytes = 0;
    for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) bytes += cost->bytes[channel][kind];
    return bytes;
}

void reference_add_cost(reference_cost *sum, const reference_cost *cost)
{
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) sum->bytes[channel][kind] += cost->bytes[channel][kind];
    sum->flops += cost->flops;
}

/* ---- a linear layer ---- */

/* Local extents and the two axes that are used. `in` splits K and sums Y; `out` splits N and sums dX. */
typedef struct shape {
    double m, k, n;
    int in_ranks, out_ranks;
    qdr_channel in_reduce, in_gather, out_reduce, out_gather;
    double elem_bytes, gradient_bytes;
} shape;

static int gradient_parts(const reference_layer *layer)
{
    return layer->gradient_parts ? layer->gradient_parts : layer->z;
}

static int state_parts(const reference_layer *layer)
{
    return layer->optimizer_parts ? layer->optimizer_parts : gradient_parts(layer);
}

static shape shape_of(const reference_layer *layer)
{
    static const qdr_channel reduce[] = {QDR_CHANNEL_X_REDUCE, QDR_CHANNEL_Y_REDUCE},
                             gather[] = {QDR_CHANNEL_X_GATHER, QDR_CHANNEL_Y_GATHER};
    const int ranks[] = {layer->x, layer->y}, in = layer->transposed != 0, out = !in;
    shape s = {.in_ranks = ranks[in],
               .out_ranks = ranks[out],
               .in_reduce = reduce[in],
               .in_gather = gather[in],
               .out_reduce = reduce[out],
               .out_gather = gather[out]};
    s.m = layer->m / layer->z / layer->d;
    s.k = layer->k / s.in_ranks;
    s.n = layer->n / s.out_ranks;
    s.elem_bytes = (double)qdr_dtype_bytes(layer->dtype);
    s.gradient_bytes = layer->dtype == QDR_F64 ? 8.0 : 4.0;
    return s;
}

static void send(reference_cost *cost, qdr_channel channel, qdr_coll_kind kind, int n_ranks, double n_elems,
                 double elem_bytes)
{
    cost->bytes[channel][kind] += reference_coll_elems(kind, n_ranks, n_elems) * elem_bytes;
}

static qdr_coll_kind sum_kind(qdr_layout layout)
{
    return layout == QDR_SCATTERED ? QDR_REDUCE_SCATTER : QDR_ALL_REDUCE;
}

reference_cost reference_forward_cost(const reference_layer *layer)
{
    reference_cost cost = {.flops = 0};
    const shape s = shape_of(layer);
    send(&cost, QDR_CHANNEL_Z_GATHER, QDR_ALL_GATHER, layer->z, s.n * s.k, s.elem_bytes);
    if (layer->in_layout == QDR_SCATTERED)
        send(&cost, s.out_gather, QDR_ALL_GATHER, s.out_ranks, s.m * s.k, s.elem_bytes);
    cost.flops += 2 * s.m * s.n * s.k;
    send(&cost, s.in_reduce, sum_kind(layer->out_layout), s.in_ranks, s.m * s.n, s.elem_bytes);
    return cost;
}

reference_cost reference_backward_cost(const reference_layer *layer)
{
    reference_cost cost = {.flops = 0};
    const shape s = shape_of(layer);
    const double n_weights = s.n * s.k, bytes = s.gradient_bytes;
    if (layer->out_layout == QDR_SCATTERED)
        send(&cost, s.in_gather, QDR_ALL_GATHER, s.in_ranks, s.m * s.n, s.elem_bytes);
    if (!layer->no_dx) {
        send(&cost, QDR_CHANNEL_Z_GATHER, QDR_ALL_GATHER, layer->z, s.n * s.k, s.elem_bytes);
        cost.flops += 2 * s.m * s.n * s.k;
        send(&cost, s.out_reduce, sum_kind(layer->in_layout), s.out_ranks, s.m * s.k, s.elem_bytes);
    }
    if (layer->in_layout == QDR_SCATTERED && layer->drop_gathered)
        send(&cost, s.out_gather, QDR_ALL_GATHER, s.out_ranks, s.m * s.k, s.elem_bytes);
    cost.flops += 2 * s.m * s.n * s.k;
    send(&cost, QDR_CHANNEL_Z_REDUCE, QDR_REDUCE_SCATTER, layer->z, n_weights, bytes);
    const int near = gradient_parts(layer) / layer->z, far = state_parts(layer) / gradient_parts(layer);
    const double n_shard = n_weights / layer->z;
    send(&cost, QDR_CHANNEL_D_NEAR, QDR_REDUCE_SCATTER, near, n_shard, bytes);
    if (layer->defer_sync) return cost;
    send(&cost, QDR_CHANNEL_D_FAR, QDR_REDUCE_SCATTER, far, n_shard / near, bytes);
    send(&cost, near * far > 1 ? QDR_CHANNEL_D_COPIES : QDR_CHANNEL_D_REDUCE, QDR_ALL_REDUCE, layer->d / near / far,
         n_shard / near / far, bytes);
    if (!layer->bias) return cost;
    send(&cost, QDR_CHANNEL_Z_REDUCE, QDR_ALL_REDUCE, layer->z, s.n, bytes);
    send(&cost, QDR_CHANNEL_D_REDUCE, QDR_ALL_REDUCE, layer->d, s.n, bytes);
    return cost;
}

reference_cost reference_return_cost(const reference_layer *layer)
{
    reference_cost cost = {.flops = 0};
    const shape s = shape_of(layer);
    const double n_shard = s.n * s.k / layer->z;
    const int near = gradient_parts(layer) / layer->z, far = state_parts(layer) / gradient_parts(layer);
    send(&cost, QDR_CHANNEL_D_FAR, QDR_ALL_GATHER, far, n_shard / near, s.elem_bytes);
    send(&cost, QDR_CHANNEL_D_NEAR, QDR_ALL_GATHER, near, n_shard, s.elem_bytes);
    return cost;
}
