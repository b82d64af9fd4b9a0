/* SPDX-License-Identifier: Apache-2.0 */
/** @file perf.h  The cost of the algorithm, in closed form: the bytes a rank sends and the flops it computes.
 *
 * libquadrille_perf: arithmetic only, no ranks, no clock. All functions are local and thread-safe. Results are
 * doubles: exact if the grid divides M, K and N, otherwise the mean over the ranks (without padding). Formulas:
 * docs/design.md, "One layer"; collectives: Thakur, Rabenseifner, Gropp 2005. */
#ifndef QUADRILLE_PERF_H
#define QUADRILLE_PERF_H

#include "grid.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Elements that each of `n_ranks` members sends in a collective over a total of n_elems elements: all-gather and
 * reduce-scatter (g-1)/g·n, all-reduce twice that, all-to-all (g-1)/g of all that one member has to send; broadcast: n
 * at its root, (g-1)/g·n on average; send/recv n. 0 in a group of one. NaN for an unknown kind or n_ranks < 1. */
QDR_API double qdr_perf_coll_elems(qdr_coll_kind kind, int n_ranks, double n_elems);

/** One linear layer on a grid. M counts the rows of one call over all ranks. */
typedef struct qdr_perf_linear {
    size_t size; /**< QDR_INIT(qdr_perf_linear) */
    double m, k, n; /**< M, K = in_features, N = out_features */
    int x, y, z, d; /**< the grid */
    int gradient_parts, optimizer_parts; /**< as in qdr_grid_opts */
    int transposed; /**< 1: K over y, N over x */
    int bias;
    qdr_layout in_layout, out_layout; /**< of the edges */
    int drop_gathered; /**< 1: a gathered X is gathered again for dW */
    int no_dx; /**< 1: backward does not compute dX (a first layer) */
    int defer_sync; /**< 1: as with QDR_DEFER_SYNC, backward omits the sums over d, and the bias's over z */
    qdr_dtype dtype; /**< of W and activations; gradients of parameters are F64 for F64, else F32 */
} qdr_perf_linear;

/** Per rank: bytes sent by channel and kind of collective, and flops of the products. */
typedef struct qdr_perf_cost {
    size_t size; /**< QDR_INIT(qdr_perf_cost) */
    double bytes[QDR_MAX_CHANNELS][QDR_MAX_COLL_KINDS]; /**< by qdr_channel and qdr_coll_kind */
    double flops;
} qdr_perf_cost;

/** Cost of one forward and of one backward of a layer; either result may be NULL.
 * Forward: W gathered over z; a scattered X gathered over the axis of N; Y summed over the axis of K. Backward: W
 * gathered again (unless no_dx); a scattered dY gathered over the axis of K; dX summed over the axis of N; dW
 * reduce-scattered over z and its shard summed over d; the bias summed over z and d. With levels, dW is also
 * reduce-scattered over the near ranks of d, and then, unless defer_sync, over the far ones, and summed over copies.
 * The return of W, once a step, is not part of these passes: qdr_perf_linear_return().
 *  @retval QDR_ERR_ARGUMENT  NULL, a grid axis < 1, parts that do not nest, or an unknown layout
 *  @retval QDR_ERR_SHAPE     a size is negative or not finite
 *  @retval QDR_ERR_DTYPE     not F32, F64, BF16 or F16 */
QDR_API QDR_NODISCARD qdr_status qdr_perf_linear_cost(const qdr_perf_linear *layer, qdr_perf_cost *forward,
                                                      qdr_perf_cost *backward);
/** With levels: what a rank sends to make its shard of W whole again after a step: what the gradient's part lacks is
 * gathered over the far ranks of d, the rest over the near ones. Errors as above. */
QDR_API QDR_NODISCARD qdr_status qdr_perf_linear_return(const qdr_perf_linear *layer, qdr_perf_cost *cost);
/** Sum of the bytes of one channel, all kinds; NaN: NULL, or no such channel. */
QDR_API double qdr_perf_channel_bytes(const qdr_perf_cost *cost, qdr_channel channel);
/** sum += cost.
 *  @retval QDR_ERR_ARGUMENT  NULL, or one has no size */
QDR_API QDR_NODISCARD qdr_status qdr_perf_add(qdr_perf_cost *sum, const qdr_perf_cost *cost);

#ifdef __cplusplus
}
#endif
#endif
