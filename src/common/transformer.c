/* SPDX-License-Identifier: Apache-2.0 */
/* Transformers as stacks. */
#include "common/transformer.h"

#include "common/failure.h"
#include "common/memory.h"

static qdr_context *context_of(const transformer *made) { return qdr_grid_context(qdr_stack_grid(made->stack)); }

/* From an input to its output, or from tokens to the loss. */
static qdr_status describe(transformer *made, const transformer_desc *desc)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{desc->network->hidden, 1}}, .col_axis = QDR_X,
                                 .layout = desc->layout};
    const qdr_network_desc network = {QDR_INIT(qdr_network_desc), .context = desc->sequence, .n_layers = desc->n_layers,
                                      .layout = desc->layout, .only_layers = !desc->has_ends};
    TRY(desc->has_ends ? qdr_stack_add_tokens(made->stack, "tokens", &made->in)
                       : qdr_stack_add_input(made->stack, "x", &input, 1, &made->in));
    return qdr_stack_add_network(made->stack, desc->network, &network, made->in, &made->out);
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
        qdr_owned owned = {QDR_INIT(qdr_owned)};
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
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts),           .n_rows = desc->n_sequences * desc->sequence,
                                 .row_unit = desc->sequence,         .dtype = desc->dtype,
                                 .overlap = desc->overlap,           .panels = desc->n_panels,
                                 .batch_parts = desc->n_batch_parts, .codecs = desc->codecs,
                                 .recompute = desc->recompute,       .recompute_every = desc->recompute_every,
                                 .product_type = desc->products};
    qdr_context *ctx = qdr_grid_context(grid);
    made->dtype = desc->dtype;
    made->vocab = desc->has_ends ? desc->network->vocab : 0;
    TRY(qdr_stack_create(grid, &opts, &made->stack));
    TRY(qdr_agree(ctx, describe(made, desc))); /* local */
    TRY(qdr_stack_build(made->stack));
    return qdr_agree(ctx, fill_input(made));
}

qdr_status transformer_fill_gradient(const transformer *filled)
{
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    void *gradient;
    TRY(qdr_stack_edge_owned(filled->stack, filled->out, &owned));
    TRY(qdr_stack_edge_gradient(filled->stack, filled->out, &gradient));
    return memory_fill(context_of(filled), gradient, owned.n_rows * owned.n_cols, filled->dtype);
}
