/* SPDX-License-Identifier: Apache-2.0 */
/* Transformers as stacks. */
#include "bench/transformer.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/memory.h"

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status try_status_ = (call);                                                                         \
        if (try_status_ < 0) return try_status_;                                                                       \
    } while (0)

/* "qkv"; of several layers "3.qkv", so that parameters have names of their own. */
typedef struct part_name {
    char text[32];
} part_name;

static part_name named(const transformer *made, const char *part)
{
    part_name name;
    if (made->layer < 0)
        snprintf(name.text, sizeof name.text, "%s", part);
    else
        snprintf(name.text, sizeof name.text, "%" PRId64 ".%s", made->layer, part);
    return name;
}

static qdr_context *context_of(const transformer *made) { return qdr_grid_context(qdr_stack_grid(made->stack)); }

/* ---- stand-ins for rotations and gates ---- */

static size_t out_bytes(const qdr_op_call *call, const transformer *made)
{
    return (size_t)(call->n_rows * call->out_cols) * qdr_dtype_bytes(made->dtype);
}

static qdr_status stand_in_forward(const qdr_op_call *call, void *user)
{
    const size_t bytes = out_bytes(call, user);
    return bytes ? qdr_copy(call->ctx, call->out, call->in[0], bytes, call->stream) : QDR_OK;
}

/* The input has as many columns as the output, or twice as many. */
static qdr_status stand_in_backward(const qdr_op_call *call, void *user)
{
    const size_t bytes = out_bytes(call, user);
    if (!bytes || !call->d_in[0]) return QDR_OK;
    for (int64_t at = 0; at < call->in_cols[0]; at += call->out_cols)
        TRY(qdr_copy(call->ctx, (char *)call->d_in[0] + (size_t)(at / call->out_cols) * bytes, call->d_out, bytes,
                     call->stream));
    return QDR_OK;
}

/* flops, bytes: of the operation itself for each element of the output, forward and backward; bytes in elements. */
static qdr_status add_stand_in(transformer *made, const char *name, qdr_edge in, int64_t ffn, const double flops[2],
                               const double bytes[2], qdr_edge *out)
{
    qdr_owned owned;
    TRY(qdr_stack_edge_owned(made->stack, in, &owned));
    const double n_elems = (double)(owned.n_rows * owned.n_cols) / (ffn ? 2 : 1);
    const double n_bytes = n_elems * (double)qdr_dtype_bytes(made->dtype);
    const qdr_op_desc desc = {QDR_OPTS_INIT,
                              .name = name,
                              .n_in = 1,
                              .in = {in},
                              .out = {{ffn, ffn ? 1 : 0}},
                              .cost = {flops[0] * n_elems, flops[1] * n_elems, bytes[0] * n_bytes, bytes[1] * n_bytes},
                              .forward = stand_in_forward,
                              .backward = stand_in_backward,
                              .user = made};
    return qdr_stack_add_op(made->stack, &desc, out);
}

/* Every product that writes to the residual stream is transposed: it reads what a normal layer wrote and writes what
 * the next normal layer reads. */
static qdr_status add_attention_half(transformer *made, const transformer_desc *desc, qdr_edge in, qdr_edge *out)
{
    qdr_stack *stack = made->stack;
    const qdr_network *n = desc->network;
    /* Query heads that share a key head stay together if there is a key head for each rank. */
    const int y = qdr_grid_size(qdr_stack_grid(stack), QDR_Y);
    const int64_t unit = n->kv_heads >= y && n->heads % n->kv_heads == 0 ? n->head_size * (n->heads / n->kv_heads)
                                                                         : n->head_size;
    const qdr_block queries = {n->heads * n->head_size, unit}, keys = {n->kv_heads * n->head_size, n->head_size};
    const part_name qkv_name = named(made, "qkv"), proj_name = named(made, "proj");
    const qdr_linear_desc qkv_desc = {
        QDR_OPTS_INIT,       .name = qkv_name.text,      .in = {{n->hidden, 1}},        .out = {queries, keys, keys},
        .bias = n->qkv_bias, .out_layout = desc->layout, .out_row_unit = desc->sequence};
    const qdr_linear_desc proj_desc = {
        QDR_OPTS_INIT,       .name = proj_name.text, .in = {queries},           .out = {{n->hidden, 1}},
        .bias = n->out_bias, .transposed = 1,        .out_layout = desc->layout};
    qdr_edge norm, qkv, mixed;
    TRY(qdr_stack_add_layer_norm(stack, named(made, "norm1").text, 0, in, &norm));
    TRY(qdr_stack_add_linear(stack, &qkv_desc, norm, &qkv, &made->products[0]));
    if (!n->positions) {
        static const double flops[] = {6, 6}, bytes[] = {2, 2};
        TRY(add_stand_in(made, named(made, "rotate").text, qkv, 0, flops, bytes, &qkv));
    }
    TRY(qdr_stack_add_attention(stack, named(made, "attention").text, n->head_size, desc->sequence, qkv, &mixed));
    return qdr_stack_add_linear(stack, &proj_desc, mixed, out, &made->products[1]);
}

static qdr_status add_mlp_half(transformer *made, const transformer_desc *desc, qdr_edge in, qdr_edge *out)
{
    const qdr_network *n = desc->network;
    const part_name up_name = named(made, "up"), down_name = named(made, "down");
    qdr_linear_desc up_desc = {QDR_OPTS_INIT,        .name = up_name.text, .in = {{n->hidden, 1}},
                               .out = {{n->ffn, 1}}, .bias = n->mlp_bias,  .out_layout = desc->layout};
    if (n->gated) up_desc.out[1] = up_desc.out[0];
    const qdr_linear_desc down_desc = {
        QDR_OPTS_INIT,       .name = down_name.text, .in = {{n->ffn, 1}},       .out = {{n->hidden, 1}},
        .bias = n->mlp_bias, .transposed = 1,        .out_layout = desc->layout};
    qdr_stack *stack = made->stack;
    qdr_edge norm, wide, bent;
    TRY(qdr_stack_add_layer_norm(stack, named(made, "norm2").text, 0, in, &norm));
    TRY(qdr_stack_add_linear(stack, &up_desc, norm, &wide, &made->products[2]));
    if (n->gated) {
        static const double flops[] = {12, 20}, bytes[] = {3, 5};
        TRY(add_stand_in(made, named(made, "gate").text, wide, n->ffn, flops, bytes, &bent));
    } else {
        TRY(qdr_stack_add_gelu(stack, named(made, "gelu").text, wide, &bent));
    }
    return qdr_stack_add_linear(stack, &down_desc, bent, out, &made->products[3]);
}

static qdr_status add_layers(transformer *made, const transformer_desc *desc, qdr_edge *stream)
{
    for (int64_t i = 0; i < desc->n_layers; i++) {
        const qdr_edge before = *stream;
        made->layer = desc->n_layers > 1 ? i : -1;
        qdr_edge attended, added, fed;
        TRY(add_attention_half(made, desc, before, &attended));
        TRY(qdr_stack_add_residual(made->stack, named(made, "residual1").text, before, attended, &added));
        TRY(add_mlp_half(made, desc, desc->network->parallel_residual ? before : added, &fed));
        TRY(qdr_stack_add_residual(made->stack, named(made, "residual2").text, added, fed, stream));
    }
    return QDR_OK;
}

/* From an input to its output, or from tokens to the loss. */
static qdr_status describe(transformer *made, const transformer_desc *desc)
{
    const qdr_network *n = desc->network;
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{n->hidden, 1}}, .col_axis = QDR_X, .layout = desc->layout};
    const qdr_embedding_desc embedding = {QDR_OPTS_INIT,
                                          .name = "embedding",
                                          .vocab = {n->vocab, 1},
                                          .features = {n->hidden, 1},
                                          .context = n->positions ? desc->sequence : 0,
                                          .layout = desc->layout};
    const qdr_linear_desc head = {QDR_OPTS_INIT, .name = "head", .in = {{n->hidden, 1}}, .out = {{n->vocab, 1}},
                                  .out_layout = desc->layout};
    qdr_stack *stack = made->stack;
    qdr_linear *table, *layer;
    qdr_edge stream, norm, logits;
    if (!desc->has_ends) {
        TRY(qdr_stack_add_input(stack, "x", &input, 1, &made->in));
        made->out = made->in;
        return add_layers(made, desc, &made->out);
    }
    TRY(qdr_stack_add_tokens(stack, "tokens", &made->in));
    TRY(qdr_stack_add_embedding(stack, &embedding, made->in, &stream, &table));
    TRY(add_layers(made, desc, &stream));
    TRY(qdr_stack_add_layer_norm(stack, "norm", 0, stream, &norm));
    TRY(n->tied ? qdr_stack_add_tied_head(stack, "head", table, desc->layout, norm, &logits)
                : qdr_stack_add_linear(stack, &head, norm, &logits, &layer));
    return qdr_stack_add_cross_entropy(stack, "loss", logits, &made->out);
}

static qdr_status fill_tokens(const transformer *made, int64_t n_rows, void *there)
{
    int32_t tokens[4096];
    const int64_t most = sizeof tokens / sizeof *tokens;
    for (int64_t first = 0; first < n_rows; first += most) {
        const int64_t n = n_rows - first < most ? n_rows - first : most;
        for (int64_t i = 0; i < n; i++) tokens[i] = (int32_t)((first + i) * 7919 % made->vocab);
        TRY(memory_copy(context_of(made), (int32_t *)there + first, tokens, (size_t)n * sizeof *tokens));
    }
    return QDR_OK;
}

/* The input, or tokens and targets: the same on all ranks of a cell. */
static qdr_status fill_input(const transformer *made)
{
    const qdr_edge edges[] = {made->in, made->out};
    TRY(qdr_stack_init(made->stack, 1, 0.02));
    for (int i = 0; i < (made->vocab ? 2 : 1); i++) {
        qdr_owned owned;
        void *value;
        TRY(qdr_stack_edge_owned(made->stack, edges[i], &owned));
        TRY(qdr_stack_edge_value(made->stack, edges[i], &value));
        TRY(made->vocab ? fill_tokens(made, owned.n_rows, value)
                        : memory_fill(context_of(made), value, owned.n_rows * owned.n_cols, made->dtype));
    }
    return QDR_OK;
}

qdr_status transformer_create(qdr_grid *grid, const transformer_desc *desc, transformer *made)
{
    const qdr_stack_opts opts = {QDR_OPTS_INIT,
                                 .n_rows = desc->n_sequences * desc->sequence,
                                 .row_unit = desc->sequence,
                                 .dtype = desc->dtype,
                                 .overlap = desc->overlap,
                                 .panels = desc->n_panels,
                                 .batch_parts = desc->n_batch_parts,
                                 .codecs = desc->codecs};
    qdr_context *ctx = qdr_grid_context(grid);
    made->dtype = desc->dtype;
    made->vocab = desc->has_ends ? desc->network->vocab : 0;
    TRY(qdr_stack_create(grid, &opts, &made->stack));
    TRY(qdr_agree(ctx, describe(made, desc))); /* local */
    TRY(qdr_stack_build(made->stack));
    return qdr_agree(ctx, fill_input(made));
}

void transformer_fill_gradient(const transformer *filled)
{
    qdr_owned owned;
    void *gradient;
    if (qdr_stack_edge_owned(filled->stack, filled->out, &owned) < 0) return;
    if (qdr_stack_edge_gradient(filled->stack, filled->out, &gradient) < 0) return;
    /* A device that has failed says so in the next call. */
    (void)memory_fill(context_of(filled), gradient, owned.n_rows * owned.n_cols, filled->dtype);
}
