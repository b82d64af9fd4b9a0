/* SPDX-License-Identifier: Apache-2.0 */
/* Transformer layers as a stack. */
#include "bench/transformer.h"

#include <stdio.h>

#include "bench/product.h"

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status try_status_ = (call);                                                                         \
        if (try_status_ < 0) return try_status_;                                                                       \
    } while (0)

/* Every product that writes to the residual stream is transposed: it reads what a normal layer wrote and writes what
 * the next normal layer reads. */
static qdr_status add_attention_half(transformer *made, const transformer_desc *desc, qdr_edge in, qdr_edge *out)
{
    const int64_t hidden = desc->hidden, head = hidden / desc->n_heads;
    const qdr_linear_desc qkv_desc = {QDR_OPTS_INIT,
                                      .name = "qkv",
                                      .in = {{hidden, 1}},
                                      .out = {{hidden, head}, {hidden, head}, {hidden, head}},
                                      .bias = 1,
                                      .out_layout = desc->layout,
                                      .out_row_unit = desc->context};
    const qdr_linear_desc proj_desc = {QDR_OPTS_INIT, .name = "proj",  .in = {{hidden, head}},    .out = {{hidden, 1}},
                                       .bias = 1,     .transposed = 1, .out_layout = desc->layout};
    qdr_stack *stack = made->stack;
    qdr_edge norm, qkv, mixed, added;
    TRY(qdr_stack_add_layer_norm(stack, "norm1", 0, in, &norm));
    TRY(qdr_stack_add_linear(stack, &qkv_desc, norm, &qkv, &made->products[0]));
    TRY(qdr_stack_add_attention(stack, "attention", head, desc->context, qkv, &mixed));
    TRY(qdr_stack_add_linear(stack, &proj_desc, mixed, &added, &made->products[1]));
    return qdr_stack_add_residual(stack, "residual1", in, added, out);
}

static qdr_status add_mlp_half(transformer *made, const transformer_desc *desc, qdr_edge in, qdr_edge *out)
{
    const int64_t hidden = desc->hidden;
    const qdr_linear_desc fc_desc = {QDR_OPTS_INIT,       .name = "fc",
                                     .in = {{hidden, 1}}, .out = {{4 * hidden, 1}},
                                     .bias = 1,           .out_layout = desc->layout};
    const qdr_linear_desc fc2_desc = {QDR_OPTS_INIT, .name = "fc2",   .in = {{4 * hidden, 1}},   .out = {{hidden, 1}},
                                      .bias = 1,     .transposed = 1, .out_layout = desc->layout};
    qdr_stack *stack = made->stack;
    qdr_edge norm, wide, bent, added;
    TRY(qdr_stack_add_layer_norm(stack, "norm2", 0, in, &norm));
    TRY(qdr_stack_add_linear(stack, &fc_desc, norm, &wide, &made->products[2]));
    TRY(qdr_stack_add_gelu(stack, "gelu", wide, &bent));
    TRY(qdr_stack_add_linear(stack, &fc2_desc, bent, &added, &made->products[3]));
    return qdr_stack_add_residual(stack, "residual2", in, added, out);
}

static qdr_status describe(transformer *made, const transformer_desc *desc)
{
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{desc->hidden, 1}}, .col_axis = QDR_X, .layout = desc->layout};
    TRY(qdr_stack_add_input(made->stack, "x", &input, 1, &made->in));
    made->out = made->in;
    for (int64_t i = 0; i < desc->n_layers; i++) {
        qdr_edge middle;
        TRY(add_attention_half(made, desc, made->out, &middle));
        TRY(add_mlp_half(made, desc, middle, &made->out));
    }
    return QDR_OK;
}

static qdr_status fill_input(const transformer *made)
{
    qdr_owned owned;
    void *x;
    TRY(qdr_stack_init(made->stack, 1, 0.02));
    TRY(qdr_stack_edge_owned(made->stack, made->in, &owned));
    TRY(qdr_stack_edge_value(made->stack, made->in, &x));
    product_fill(x, owned.n_rows * owned.n_cols, made->dtype);
    return QDR_OK;
}

qdr_status transformer_create(qdr_grid *grid, const transformer_desc *desc, transformer *made)
{
    const qdr_stack_opts opts = {QDR_OPTS_INIT,
                                 .n_rows = desc->n_sequences * desc->context,
                                 .row_unit = desc->context,
                                 .dtype = desc->dtype,
                                 .overlap = desc->overlap,
                                 .panels = desc->n_panels,
                                 .batch_parts = desc->n_batch_parts};
    qdr_context *ctx = qdr_grid_context(grid);
    made->dtype = desc->dtype;
    TRY(qdr_stack_create(grid, &opts, &made->stack));
    TRY(qdr_agree(ctx, describe(made, desc))); /* adding is local */
    TRY(qdr_stack_build(made->stack));
    return qdr_agree(ctx, fill_input(made));
}

void transformer_fill_gradient(const transformer *filled)
{
    qdr_owned owned;
    void *gradient;
    if (qdr_stack_edge_owned(filled->stack, filled->out, &owned) < 0) return;
    if (qdr_stack_edge_gradient(filled->stack, filled->out, &gradient) < 0) return;
    product_fill(gradient, owned.n_rows * owned.n_cols, filled->dtype);
}
