/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that collectives send, and bytes and flops of a linear layer, in closed form: the table of docs/design.md, "One
 * layer", as algebra. It shares no code with the schedule that the runtime executes, so that the two can be
 * compared. */
#include <math.h>

#include "core/dtype.h"
#include "core/sized.h"
#include "core/status.h"
#include "quadrille/perf.h"

double qdr_perf_coll_elems(qdr_coll_kind kind, int n_ranks, double n_elems)
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

double qdr_perf_channel_bytes(const qdr_perf_cost *cost, qdr_channel channel)
{
    double bytes = 0;
    if (!cost || (unsigned)channel >= QDR_N_CHANNELS) return NAN;
    for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) bytes += cost->bytes[channel][kind];
    return bytes;
}

qdr_status qdr_perf_add(qdr_perf_cost *sum, const qdr_perf_cost *cost)
{
    qdr_perf_cost all, more;
    QDR_TRY(QDRI_TAKE(qdr_perf_cost, sum, &all));
    QDR_TRY(QDRI_TAKE(qdr_perf_cost, cost, &more));
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) all.bytes[channel][kind] += more.bytes[channel][kind];
    all.flops += more.flops;
    QDRI_GIVE(qdr_perf_cost, sum, &all);
    return QDR_OK;
}

/* ---- a linear layer ---- */

/* Local extents and the two axes that are used. `in` splits K and sums Y; `out` splits N and sums dX. */
typedef struct shape {
    double m, k, n;
    int in_ranks, out_ranks;
    qdr_channel in_reduce, in_gather, out_reduce, out_gather;
    double elem_bytes, gradient_bytes;
} shape;

static int size_is_wrong(double size) { return !(size >= 0) || isinf(size); }

static int layout_is_wrong(qdr_layout layout) { return layout != QDR_REPLICATED && layout != QDR_SCATTERED; }

static int gradient_parts(const qdr_perf_linear *layer)
{
    return layer->gradient_parts ? layer->gradient_parts : layer->z;
}

static int state_parts(const qdr_perf_linear *layer)
{
    return layer->optimizer_parts ? layer->optimizer_parts : gradient_parts(layer);
}

static qdr_status layer_check(const qdr_perf_linear *layer)
{
    if (layer->x < 1 || layer->y < 1 || layer->z < 1 || layer->d < 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "perf: grid %dx%dx%dx%d; every axis must be ≥ 1", layer->x, layer->y,
                        layer->z, layer->d);
    if (layout_is_wrong(layer->in_layout) || layout_is_wrong(layer->out_layout))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "perf: layouts %d and %d; use QDR_REPLICATED, QDR_SCATTERED",
                        (int)layer->in_layout, (int)layer->out_layout);
    if (size_is_wrong(layer->m) || size_is_wrong(layer->k) || size_is_wrong(layer->n))
        return QDR_FAIL(QDR_ERR_SHAPE, "perf: M %g, K %g, N %g; all must be finite and ≥ 0", layer->m, layer->k,
                        layer->n);
    const struct {
        const char *option;
        int value;
    } switches[] = {{"transposed", layer->transposed},
                    {"bias", layer->bias},
                    {"drop_gathered", layer->drop_gathered},
                    {"no_dx", layer->no_dx},
                    {"defer_sync", layer->defer_sync}};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        QDR_TRY(qdri_check_switch("perf", switches[i].option, switches[i].value));
    if (!qdri_is_float(layer->dtype))
        return QDR_FAIL(QDR_ERR_DTYPE, "perf: type %d; layers compute in " QDRI_FLOAT_NAMES, (int)layer->dtype);
    const int z = layer->z, gradients = gradient_parts(layer), state = state_parts(layer);
    if (gradients < z || state < gradients || gradients % z || state % gradients || z * layer->d % state)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "perf: gradients in %d parts, state in %d; use multiples of z = %d that nest "
                        "and divide z*d = %d",
                        gradients, state, z, z * layer->d);
    return QDR_OK;
}

static shape shape_of(const qdr_perf_linear *layer)
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

static void send(qdr_perf_cost *cost, qdr_channel channel, qdr_coll_kind kind, int n_ranks, double n_elems,
                 double elem_bytes)
{
    cost->bytes[channel][kind] += qdr_perf_coll_elems(kind, n_ranks, n_elems) * elem_bytes;
}

static qdr_coll_kind sum_kind(qdr_layout layout)
{
    return layout == QDR_SCATTERED ? QDR_REDUCE_SCATTER : QDR_ALL_REDUCE;
}

static void forward_cost(const qdr_perf_linear *layer, const shape *s, qdr_perf_cost *cost)
{
    send(cost, QDR_CHANNEL_Z_GATHER, QDR_ALL_GATHER, layer->z, s->n * s->k, s->elem_bytes);
    if (layer->in_layout == QDR_SCATTERED)
        send(cost, s->out_gather, QDR_ALL_GATHER, s->out_ranks, s->m * s->k, s->elem_bytes);
    cost->flops += 2 * s->m * s->n * s->k;
    send(cost, s->in_reduce, sum_kind(layer->out_layout), s->in_ranks, s->m * s->n, s->elem_bytes);
}

static void backward_cost(const qdr_perf_linear *layer, const shape *s, qdr_perf_cost *cost)
{
    const double n_weights = s->n * s->k, bytes = s->gradient_bytes;
    if (layer->out_layout == QDR_SCATTERED)
        send(cost, s->in_gather, QDR_ALL_GATHER, s->in_ranks, s->m * s->n, s->elem_bytes);
    if (!layer->no_dx) {
        send(cost, QDR_CHANNEL_Z_GATHER, QDR_ALL_GATHER, layer->z, s->n * s->k, s->elem_bytes);
        cost->flops += 2 * s->m * s->n * s->k;
        send(cost, s->out_reduce, sum_kind(layer->in_layout), s->out_ranks, s->m * s->k, s->elem_bytes);
    }
    if (layer->in_layout == QDR_SCATTERED && layer->drop_gathered)
        send(cost, s->out_gather, QDR_ALL_GATHER, s->out_ranks, s->m * s->k, s->elem_bytes);
    cost->flops += 2 * s->m * s->n * s->k;
    send(cost, QDR_CHANNEL_Z_REDUCE, QDR_REDUCE_SCATTER, layer->z, n_weights, bytes);
    const int near = gradient_parts(layer) / layer->z, far = state_parts(layer) / gradient_parts(layer);
    const double n_shard = n_weights / layer->z;
    send(cost, QDR_CHANNEL_D_NEAR, QDR_REDUCE_SCATTER, near, n_shard, bytes);
    if (layer->defer_sync) return;
    send(cost, QDR_CHANNEL_D_FAR, QDR_REDUCE_SCATTER, far, n_shard / near, bytes);
    send(cost, near * far > 1 ? QDR_CHANNEL_D_COPIES : QDR_CHANNEL_D_REDUCE, QDR_ALL_REDUCE, layer->d / near / far,
         n_shard / near / far, bytes);
    if (!layer->bias) return;
    send(cost, QDR_CHANNEL_Z_REDUCE, QDR_ALL_REDUCE, layer->z, s->n, bytes);
    send(cost, QDR_CHANNEL_D_REDUCE, QDR_ALL_REDUCE, layer->d, s->n, bytes);
}

qdr_status qdr_perf_linear_cost(const qdr_perf_linear *given, qdr_perf_cost *forward, qdr_perf_cost *backward)
{
    qdr_perf_linear layer;
    qdr_perf_cost costs[2] = {{.flops = 0}};
    if (forward) QDR_TRY(QDRI_CLEAR(qdr_perf_cost, forward));
    if (backward) QDR_TRY(QDRI_CLEAR(qdr_perf_cost, backward));
    QDR_TRY(QDRI_TAKE(qdr_perf_linear, given, &layer));
    QDR_TRY(layer_check(&layer));
    const shape s = shape_of(&layer);
    forward_cost(&layer, &s, &costs[0]);
    backward_cost(&layer, &s, &costs[1]);
    if (forward) QDRI_GIVE(qdr_perf_cost, forward, &costs[0]);
    if (backward) QDRI_GIVE(qdr_perf_cost, backward, &costs[1]);
    return QDR_OK;
}

qdr_status qdr_perf_linear_return(const qdr_perf_linear *given, qdr_perf_cost *cost)
{
    qdr_perf_linear own;
    const qdr_perf_linear *layer = &own;
    qdr_perf_cost made = {.flops = 0};
    QDR_TRY(QDRI_CLEAR(qdr_perf_cost, cost));
    QDR_TRY(QDRI_TAKE(qdr_perf_linear, given, &own));
    QDR_TRY(layer_check(layer));
    const shape s = shape_of(layer);
    const double n_shard = s.n * s.k / layer->z;
    const int near = gradient_parts(layer) / layer->z, far = state_parts(layer) / gradient_parts(layer);
    send(&made, QDR_CHANNEL_D_FAR, QDR_ALL_GATHER, far, n_shard / near, s.elem_bytes);
    send(&made, QDR_CHANNEL_D_NEAR, QDR_ALL_GATHER, near, n_shard, s.elem_bytes);
    QDRI_GIVE(qdr_perf_cost, cost, &made);
    return QDR_OK;
}
