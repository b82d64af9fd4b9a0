/* SPDX-License-Identifier: Apache-2.0 */
/* What a linear layer sends and computes, in closed form: the table of docs/design.md, "One layer", as algebra, which
 * shares no code with the lists that are compared with it. Exact if the grid divides M, K and N, else the mean over the
 * ranks, without padding. Collectives: Thakur, Rabenseifner, Gropp 2005. */
#ifndef QDR_TESTS_REFERENCE_LAYER_COST_H
#define QDR_TESTS_REFERENCE_LAYER_COST_H

#include "quadrille/grid.h"

/* Elements that each of n_ranks members sends: all-gather and reduce-scatter (g-1)/g of n_elems, all-reduce twice that,
 * all-to-all (g-1)/g of all that a member has to send; broadcast: the mean; send/recv n_elems. */
double reference_coll_elems(qdr_coll_kind kind, int n_ranks, double n_elems);

typedef struct reference_layer {
    double m, k, n; /* M: rows of one call over all ranks; K = in-features, N = out-features */
    int x, y, z, d; /* the grid */
    int gradient_parts, optimizer_parts; /* as in qdr_grid_opts */
    int transposed, bias;
    qdr_layout in_layout, out_layout; /* of the edges */
    int drop_gathered; /* a gathered X is gathered again for dW */
    int no_dx; /* backward does not compute dX */
    int defer_sync; /* QDR_DEFER_SYNC: no sums over d, nor the bias's over z */
    qdr_dtype dtype; /* gradients of parameters are F64 for F64, else F32 */
} reference_layer;

/* Of a rank. */
typedef struct reference_cost {
    double bytes[QDR_N_CHANNELS][QDR_N_COLL_KINDS];
    double flops;
} reference_cost;

reference_cost reference_forward_cost(const reference_layer *layer);
reference_cost reference_backward_cost(const reference_layer *layer);
/* With levels, what makes W whole again after a step: what the gradient's part lacks is gathered over the far ranks of
 * d, the rest over the near ones. */
reference_cost reference_return_cost(const reference_layer *layer);
double reference_channel_bytes(const reference_cost *cost, qdr_channel channel);
/* sum += cost */
void reference_add_cost(reference_cost *sum, const reference_cost *cost);

#endif
