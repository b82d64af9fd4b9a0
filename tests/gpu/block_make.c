/* SPDX-License-Identifier: Apache-2.0 */
/* One transformer block of the examples on 1x1x1x1. */
#include "block.h"

static void describe(block *b)
{
    const block_shape *shape = &b->shape;
    const qdr_network network = gpt_network(
        (qdr_network){.layers = 1, .hidden = shape->hidden, .heads = shape->n_heads, .context = shape->context});
    const qdr_network_desc layers = {QDR_INIT(qdr_network_desc), .context = shape->context, .only_layers = 1};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = shape->n_sequences * shape->context,
                                 .row_unit = shape->context, .dtype = shape->dtype};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{shape->hidden, 1}}, .col_axis = QDR_X};
    OK(qdr_stack_create(b->place->grid, &opts, &b->stack));
    OK(qdr_stack_add_input(b->stack, "x", &input, 1, &b->in));
    OK(qdr_stack_add_network(b->stack, &network, &layers, b->in, &b->out));
    OK(qdr_stack_build(b->stack));
}

/* qdr_stack_init() takes ten times as long for its numbers, which are the same on any grid. */
static void fill_parameters(const block *b)
{
    for (int i = 0; i < qdr_stack_n_parameters(b->stack); i++) {
        qdr_parameter p = {QDR_INIT(qdr_parameter)};
        OK(qdr_stack_parameter(b->stack, i, &p));
        gpu_fill(b->place, p.data, p.n_elems, b->shape.dtype, p.decay ? 0.02 : 1);
    }
}

block block_make(gpu_place *place, const block_shape *shape)
{
    block b = {.place = place, .shape = *shape};
    b.n = shape->n_sequences * shape->context * shape->hidden;
    describe(&b);
    fill_parameters(&b);
    gpu_fill(place, block_value(&b, b.in), b.n, shape->dtype, 1);
    b.dy = gpu_random(place, b.n, shape->dtype, 1);
    return b;
}

void block_free(block *b)
{
    gpu_wait(b->place);
    qdr_mem_free(b->place->ctx, &b->dy);
    qdr_stack_destroy(&b->stack);
}

size_t block_bytes(const block *b) { return (size_t)b->n * qdr_dtype_bytes(b->shape.dtype); }

void *block_value(const block *b, qdr_edge edge)
{
    void *value;
    OK(qdr_stack_edge_value(b->stack, edge, &value));
    return value;
}

void *block_gradient(const block *b, qdr_edge edge)
{
    void *gradient;
    OK(qdr_stack_edge_gradient(b->stack, edge, &gradient));
    return gradient;
}

void block_set_gradient(const block *b)
{
    OK(qdr_copy(b->place->ctx, block_gradient(b, b->out), b->dy, block_bytes(b), NULL));
}

void block_step(const block *b)
{
    OK(qdr_stack_forward(b->stack));
    block_set_gradient(b);
    OK(qdr_stack_backward(b->stack, 0, 1));
}
