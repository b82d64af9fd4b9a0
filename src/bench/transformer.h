/* SPDX-License-Identifier: Apache-2.0 */
/* Transformer layers as a stack: norm, qkv, attention, proj, residual; norm, fc, gelu, fc2, residual. */
#ifndef QUADRILLE_SRC_BENCH_TRANSFORMER_H
#define QUADRILLE_SRC_BENCH_TRANSFORMER_H

#include <quadrille/quadrille.h>

typedef struct transformer_desc {
    int64_t hidden, n_heads, context, n_sequences, n_layers; /* n_heads divides hidden */
    qdr_dtype dtype;
    qdr_layout layout;
    int n_panels, n_batch_parts, overlap; /* as in qdr_stack_opts */
} transformer_desc;

enum { N_LAYER_PRODUCTS = 4 }; /* qkv, proj, fc, fc2 */

typedef struct transformer {
    qdr_dtype dtype;
    qdr_stack *stack;
    qdr_edge in, out;
    qdr_linear *products[N_LAYER_PRODUCTS]; /* of one layer; all layers have the same shapes */
} transformer;

/* Builds the stack, with initial weights and an input. Collective, with the same result on all ranks; destroy its stack
 * in any case. */
qdr_status transformer_create(qdr_grid *grid, const transformer_desc *desc, transformer *made);
/* Fills the gradient of the output, from which a backward pass starts. Streams must be idle. */
void transformer_fill_gradient(const transformer *filled);

#endif
