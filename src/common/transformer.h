/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer as a stack that is measured: layers of a network, with embedding, head and loss if wanted. Values do
 * not matter, but are not regular, with which products could look faster than they are. */
#ifndef QUADRILLE_SRC_COMMON_TRANSFORMER_H
#define QUADRILLE_SRC_COMMON_TRANSFORMER_H

#include <quadrille/network.h>
#include <quadrille/quadrille.h>

typedef struct transformer_desc {
    const qdr_network *network;
    int has_ends; /* embedding, head and loss; else from an input to its output */
    int64_t n_layers, n_sequences, sequence; /* sequence: tokens of each */
    qdr_dtype dtype;
    qdr_layout layout;
    int n_panels, n_batch_parts, overlap; /* as in qdr_stack_opts */
    qdr_recompute recompute; /* the same */
    int recompute_every; /* the same */
    qdr_product_type products;
    const qdr_codecs *codecs; /* NULL: QDR_CODEC */
} transformer_desc;

typedef struct transformer {
    qdr_stack *stack;
    qdr_dtype dtype;
    int64_t vocab; /* of tokens and targets; 0: no ends */
    qdr_edge in, out; /* with ends: tokens and targets */
} transformer;

/* Builds the stack, with initial weights and an input. Keep *made where it is while the stack lives. Collective, with
 * the same result on all ranks; destroy its stack in any case. */
qdr_status transformer_create(qdr_grid *grid, const transformer_desc *desc, transformer *made);
/* Fills the gradient of the output, from which a backward pass without ends starts. Streams must be idle. */
qdr_status transformer_fill_gradient(const transformer *filled);

#endif
