/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers for benchmarks: on a grid, and the same products of each rank alone. */
#ifndef QUADRILLE_SRC_BENCH_PRODUCT_H
#define QUADRILLE_SRC_BENCH_PRODUCT_H

#include "bench/bench.h"

typedef struct product_desc {
    int64_t m, n, k; /* global */
    qdr_dtype dtype;
    qdr_layout layout; /* of X and Y */
    int n_panels, transposed, bias;
    qdr_storage storage; /* of W */
    const qdr_codecs *codecs; /* NULL: QDR_CODEC */
} product_desc;

/* A layer and the memory of its edges. */
typedef struct product {
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_linear *layer;
    qdr_edge edges[2]; /* in, out */
    void *x, *y, *dx, *dy;
} product;

/* Creates the layer and fills it with numbers. Collective over ctx; destroy it in any case. */
qdr_status product_create(qdr_context *ctx, grid_size size, const product_desc *desc, product *made);
/* Accepts a zeroed struct. Collective. */
void product_destroy(product *gone);
typedef enum product_pass { PASS_FORWARD, PASS_BACKWARD, N_PASSES } product_pass;
/* "forward", "backward". */
const char *product_pass_text(product_pass pass);
/* Creates this rank's own products in a layer, to be run alone; none if the layer leaves this rank nothing. m, n and k
 * of desc follow from the layer. Local. */
qdr_status product_create_own(qdr_context *alone, const qdr_grid *grid, const qdr_linear *layer,
                              const product_desc *desc, product *made);
/* Returns when its work is complete; at once if there is none. */
qdr_status product_run(const product *ran, product_pass pass);
/* Rows, outputs and inputs of this rank's own product in a layer. */
qdr_status product_own_shape(const qdr_grid *grid, const qdr_linear *layer, int64_t *m, int64_t *n, int64_t *k);

/* A context of this rank alone, on the device and with the number of BLAS threads of the given one. Collective over
 * ctx. */
qdr_status context_alone(qdr_context *ctx, qdr_context **alone);

#endif
