/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers for benchmarks. */
#include "bench/product.h"

#include <quadrille/cuda.h>
#include <stdio.h>

#include "common/layer_case.h"
#include "common/memory.h"
#include "common/ranks.h"

static qdr_status describe(product *made, const product_desc *desc)
{
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = desc->m, .dtype = desc->dtype,
                                 .panels = desc->n_panels, .codecs = desc->codecs};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{desc->k, 1}},
                                 .col_axis = desc->transposed ? QDR_Y : QDR_X, .layout = desc->layout};
    const qdr_linear_desc linear = {QDR_INIT(qdr_linear_desc),  .name = "product",       .in = {{desc->k, 1}},
                                    .out = {{desc->n, 1}},      .bias = desc->bias,      .transposed = desc->transposed,
                                    .out_layout = desc->layout, .storage = desc->storage};
    return layer_build(made->grid, &opts, &input, &linear, &made->stack, made->edges, &made->layer);
}

static qdr_status fill_edges(product *made, qdr_dtype dtype)
{
    qdr_context *ctx = qdr_grid_context(made->grid);
    qdr_owned in = {QDR_INIT(qdr_owned)}, out = {QDR_INIT(qdr_owned)};
    TRY(qdr_linear_init(made->layer, 1, 0.5));
    TRY(qdr_stack_edge_owned(made->stack, made->edges[0], &in));
    TRY(qdr_stack_edge_owned(made->stack, made->edges[1], &out));
    TRY(qdr_stack_edge_value(made->stack, made->edges[0], &made->x));
    TRY(qdr_stack_edge_value(made->stack, made->edges[1], &made->y));
    TRY(qdr_stack_edge_gradient(made->stack, made->edges[0], &made->dx));
    TRY(qdr_stack_edge_gradient(made->stack, made->edges[1], &made->dy));
    TRY(memory_fill(ctx, made->x, in.n_rows * in.n_cols, dtype));
    return memory_fill(ctx, made->dy, out.n_rows * out.n_cols, dtype);
}

qdr_status product_create(qdr_context *ctx, grid_size size, const product_desc *desc, product *made)
{
    TRY(grid_make(ctx, size, NULL, &made->grid));
    TRY(describe(made, desc));
    return qdr_agree(ctx, fill_edges(made, desc->dtype));
}

void product_destroy(product *gone)
{
    qdr_stack_destroy(&gone->stack);
    qdr_grid_destroy(&gone->grid);
}

qdr_status product_create_own(qdr_context *alone, const qdr_grid *grid, const qdr_linear *layer,
                              const product_desc *desc, product *made)
{
    product_desc own = *desc;
    const qdr_status status = product_own_shape(grid, layer, &own.m, &own.n, &own.k);
    if (status < 0 || own.m == 0 || own.n == 0 || own.k == 0) return status;
    return product_create(alone, (grid_size){1, 1, 1, 1}, &own, made);
}

const char *product_pass_text(product_pass pass) { return pass == PASS_BACKWARD ? "backward" : "forward"; }

qdr_status product_run(const product *ran, product_pass pass)
{
    if (!ran->layer) return QDR_OK;
    TRY(pass == PASS_BACKWARD ? qdr_linear_backward(ran->layer, ran->dy, ran->x, ran->dx, 0, NULL)
                              : qdr_linear_forward(ran->layer, ran->x, ran->y, 0, NULL));
    return qdr_stream_synchronize(qdr_context_stream(qdr_grid_context(ran->grid)));
}

/* Scattered rows are gathered for the product, so it has all rows of the cell. */
qdr_status product_own_shape(const qdr_grid *grid, const qdr_linear *layer, int64_t *m, int64_t *n, int64_t *k)
{
    const int rank = qdr_context_rank(qdr_grid_context(grid));
    qdr_matrix in = {QDR_INIT(qdr_matrix)}, out = {QDR_INIT(qdr_matrix)};
    qdr_owned part = {QDR_INIT(qdr_owned)};
    TRY(qdr_linear_in_matrix(layer, &in));
    TRY(qdr_linear_out_matrix(layer, &out));
    in.scatter_rows = 0;
    TRY(qdr_matrix_owned(grid, &in, rank, &part));
    *m = part.n_rows;
    *k = part.n_cols;
    TRY(qdr_matrix_owned(grid, &out, rank, &part));
    *n = part.n_cols;
    return QDR_OK;
}

qdr_status context_alone(qdr_context *ctx, qdr_context **alone)
{
    char device[24] = "cpu";
    if (is_on_gpu(ctx)) snprintf(device, sizeof device, "cuda:%d", qdr_context_gpu(ctx));
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = qdr_context_threads(ctx), .device = device};
    return qdr_agree(ctx, qdr_context_create_self(&opts, alone));
}
