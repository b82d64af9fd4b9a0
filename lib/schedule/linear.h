/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of one linear layer or embedding, forward and backward: the table of docs/design.md, "One layer", as
 * code. Pure functions of sizes and coordinates. */
#ifndef QDRI_SCHEDULE_LINEAR_H
#define QDRI_SCHEDULE_LINEAR_H

#include "quadrille/stack.h"
#include "schedule/schedule.h"

/* A layer's three products. */
typedef enum qdri_product_kind { QDRI_PRODUCT_Y, QDRI_PRODUCT_DX, QDRI_PRODUCT_DW } qdri_product_kind;
enum { QDRI_N_PRODUCTS = 3 };

/* One rank's view of a layer. */
typedef struct qdri_layer_shape {
    int node;
    const char *name;
    qdr_axis in_axis, out_axis; /* the axes that split the in-features and the out-features: x and y; y and x if
                                 * transposed */
    int64_t m; /* rows of the (z, d) cell */
    int64_t in_rows, out_rows; /* local rows of the two edges: m, or a part of it if scattered */
    int64_t k, n; /* local in-features and out-features */
    int in_scattered, out_scattered; /* the input's rows over out_axis, the output's over in_axis; 0 for groups of
                                      * one */
    int64_t in_unit, out_unit; /* if scattered: rows that stay together */
    int64_t shard_elems; /* of W, per member of z; its gradient is one of `near` equal parts, its state one of `far`
                          * equal parts of that */
    qdr_storage storage; /* of W; AUTO is OUT_IN */
    int algorithms[QDRI_N_PRODUCTS]; /* as in qdri_gemm, for products of all rows */
    int rounds; /* its products round their operands to fp8 */
    int bias;
    int drop_gathered;
    int forward_panels, backward_panels; /* row panels of Y and of dX; 0, 1: no panels */
    int64_t context, first_row; /* embedding: rows of P (0: none), first global row of this rank's output */
    int64_t vocab_begin, vocab; /* embedding: the first of this rank's k words, and all of them */
    double factor; /* embedding: of E; 0: 1 */
    qdr_dtype dtype, grad_dtype;
} qdri_layer_shape;

/* The sums of a W's gradient over several ranks. */
typedef enum qdri_gradient_sum {
    QDRI_SUM_Z, /* reduce-scatters: over z, near and far */
    QDRI_SUM_NEAR,
    QDRI_SUM_FAR,
    QDRI_SUM_D, /* all-reduces: over d; with levels, over copies */
    QDRI_SUM_COPIES,
    QDRI_N_GRADIENT_SUMS
} qdri_gradient_sum;
/* The channel of a sum, and the elements that it adds. They are the same, or padding, on all members. */
qdr_channel qdri_gradient_sum_channel(qdri_gradient_sum sum);
int64_t qdri_gradient_sum_elems(const qdri_position *position, qdri_gradient_sum sum, int64_t shard_elems);

/* The locations of its operands; QDRI_NO_REF if absent. */
typedef struct qdri_layer_refs {
    qdri_ref x, y, dx, dy; /* dx = QDRI_NO_REF: not wanted. embedding: x is the tokens */
    qdri_ref w, b, dw, db; /* shards; embedding: b, db are the positions */
    qdri_ref gathered; /* the gathered X, kept from forward to backward */
    const qdri_ref *feedback; /* by sum of the gradient: what its codec has lost; QDRI_NO_REF: it has no feedback */
} qdri_layer_refs;

/* How gradients of parameters and of x are written. */
typedef struct qdri_backward_mode {
    int accumulate_dw; /* add to what this rank stores of the gradient */
    int zero_dw; /* before: all of it but the state's part, as the others add to that */
    int accumulate_db;
    int accumulate_dx;
    int keep_for_later; /* no sum over d yet, beyond those near */
} qdri_backward_mode;

/* Sets extents, transpositions and flops of a product of a layer with m rows. Its operands are X and W, dY and W, dY
 * and X; but X and dY for dW if W is stored as [in, out]. */
void qdri_set_product(qdri_task *task, qdri_product_kind kind, qdr_storage storage, int64_t m, int64_t n, int64_t k);

/* Then sets how its operands are rounded, if the layer's products do so: gradients to E5M2, everything else to E4M3. */
void qdri_set_rounding(qdri_task *task, qdri_product_kind kind, const qdri_layer_shape *shape);

/* One part of the rows: the product with w, from qdri_next_weight(), and its sum; then, after work that may overlap
 * with that sum, the operations on the summed rows. Layers whose rows are gathered or scattered have one part. */
void qdri_linear_forward_product(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                                 int part, qdri_ref w, int accumulate_y);
void qdri_linear_forward_bias(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                              int part, int accumulate_y);
/* For all parts. W must have been announced with qdri_plan_weight(). */
void qdri_linear_backward_tasks(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                                const qdri_backward_mode *mode);
/* As for a linear layer. */
void qdri_embedding_forward_lookup(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                                   int part, qdri_ref e);
void qdri_embedding_forward_positions(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                                      int part);
void qdri_embedding_backward_tasks(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                                   const qdri_backward_mode *mode);

/* All-reduce of `n_elems` gradients of small parameters over one axis. */
void qdri_small_gradient_task(qdri_builder *builder, qdr_axis axis, qdri_ref gradients, int64_t n_elems,
                              qdr_dtype dtype);

#endif
