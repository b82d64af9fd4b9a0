/* SPDX-License-Identifier: Apache-2.0 */
#include "gpt.h"

#include <math.h>
#include <quadrille/convert.h>
#include <stdio.h>
#include <stdlib.h>

#include "meter.h"
#include "program.h"

static qdr_status describe(gpt *model)
{
    const gpt_config *config = &model->config;
    const qdr_network_desc desc = {QDR_INIT(qdr_network_desc), .context = config->context, .layout = config->layout,
                                   .first_keys = config->documents ? &model->first_keys : NULL};
    TRY(qdr_stack_add_tokens(model->stack, "tokens", &model->tokens));
    if (config->documents) TRY(qdr_stack_add_tokens(model->stack, "first_keys", &model->first_keys));
    TRY(qdr_stack_add_network(model->stack, &config->network, &desc, model->tokens, &model->targets));
    model->logits = qdr_stack_find_edge(model->stack, "head");
    return QDR_OK;
}

qdr_status gpt_create(qdr_grid *grid, const gpt_config *config, gpt *model)
{
    *model = (gpt){.config = *config, .grid = grid};
    const qdr_stack_opts opts = {
        QDR_INIT(qdr_stack_opts),
        .n_rows = config->n_sequences * config->context,
        .row_unit = config->context,
        .dtype = config->dtype,
        .overlap = config->overlap,
        .panels = config->panels,
        .batch_parts = config->batch_parts,
        .product_type = config->products,
        .codecs = config->codecs,
        .recompute = config->recompute,
        .recompute_every = config->recompute_every,
    };
    TRY(qdr_stack_create(grid, &opts, &model->stack));
    TRY(qdr_agree(qdr_grid_context(grid), describe(model))); /* adding is local */
    TRY(qdr_stack_build(model->stack));
    model->token_rows.size = model->key_rows.size = model->logits_part.size = sizeof(qdr_owned);
    TRY(qdr_stack_edge_owned(model->stack, model->tokens, &model->token_rows));
    if (config->documents) TRY(qdr_stack_edge_owned(model->stack, model->first_keys, &model->key_rows));
    return qdr_stack_edge_owned(model->stack, model->logits, &model->logits_part);
}

void gpt_destroy(gpt *model)
{
    qdr_stack_destroy(&model->stack);
    *model = (gpt){0};
}

qdr_status gpt_init(gpt *model, uint64_t seed, double stddev)
{
    TRY(qdr_stack_init(model->stack, seed, stddev));
    const double less = stddev / sqrt(2.0 * (double)model->config.network.layers);
    for (int64_t i = 0; i < 2 * model->config.network.layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "block%lld.%s", (long long)(i / 2), i % 2 ? "fc2" : "proj");
        TRY(qdr_linear_init(qdr_stack_find_layer(model->stack, name), seed + 1 + (uint64_t)i, less));
    }
    return QDR_OK;
}

static qdr_status copy_column(const gpt *model, qdr_edge edge, const int32_t *column, int64_t n_rows)
{
    void *value;
    TRY(qdr_stack_edge_value(model->stack, edge, &value));
    return qdr_copy(qdr_grid_context(model->grid), value, column, (size_t)n_rows * sizeof *column, NULL);
}

qdr_status gpt_fill_rows(gpt *model, const qdr_token_rows *rows, int64_t sequence)
{
    const int64_t first = sequence * model->config.context;
    const qdr_owned *in = &model->token_rows, *keys = &model->key_rows, *out = &model->logits_part;
    TRY(copy_column(model, model->tokens, rows->tokens + first + in->rows.begin, in->n_rows));
    if (model->config.documents)
        TRY(copy_column(model, model->first_keys, rows->first_keys + first + keys->rows.begin, keys->n_rows));
    return copy_column(model, model->targets, rows->targets + first + out->rows.begin, out->n_rows);
}

static float to_float(const void *values, int64_t i, qdr_dtype dtype)
{
    float value = 0;
    if (dtype == QDR_F64) return (float)((const double *)values)[i];
    if (dtype == QDR_F32) return ((const float *)values)[i];
    (dtype == QDR_F16 ? qdr_f32_from_f16 : qdr_f32_from_bf16)(&value, (const uint16_t *)values + i, 1);
    return value;
}

/* With the network's factor and cap, which are part of the loss. */
static float taken(const qdr_network *network, float logit)
{
    const double cap = network->logits_cap, scaled = (network->logits_factor == 0 ? 1 : network->logits_factor) * logit;
    return (float)(cap > 0 ? cap * tanh(scaled / cap) : scaled);
}

/* This rank's part of the row, at its position among all columns; -infinity elsewhere. */
static qdr_status own_logits(gpt *model, int64_t row, float *logits)
{
    const qdr_owned *part = &model->logits_part;
    for (int64_t i = 0; i < model->config.network.vocab; i++) logits[i] = -INFINITY;
    if (row < part->rows.begin || row >= part->rows.end || part->n_cols == 0) return QDR_OK;
    qdr_context *ctx = qdr_grid_context(model->grid);
    void *value;
    TRY(qdr_stack_edge_value(model->stack, model->logits, &value));
    const size_t bytes = (size_t)part->n_cols * qdr_dtype_bytes(model->config.dtype);
    void *host = malloc(bytes);
    if (host == NULL) return QDR_ERR_MEMORY;
    qdr_status status = qdr_copy(ctx, host, (char *)value + (size_t)(row - part->rows.begin) * bytes, bytes, NULL);
    if (status >= 0) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    int64_t local = 0;
    for (int range = 0; status >= 0 && range < part->n_ranges; range++)
        for (int64_t col = part->cols[range].begin; col < part->cols[range].end; col++)
            logits[col] = taken(&model->config.network, to_float(host, local++, model->config.dtype));
    free(host);
    return status;
}

/* The maximum over all ranks: the owners have the number, the others -infinity; copies do not change the result. */
qdr_status gpt_logits_row(gpt *model, int64_t row, float *logits)
{
    TRY(qdr_agree(qdr_grid_context(model->grid), own_logits(model, row, logits)));
    return meter_reduce(model->grid, QDR_MAX, logits, model->config.network.vocab, QDR_F32);
}

int64_t gpt_n_parameters(const gpt *model)
{
    int64_t n = 0;
    for (int i = 0; i < qdr_stack_n_parameters(model->stack); i++) {
        qdr_parameter parameter = {QDR_INIT(qdr_parameter)};
        if (qdr_stack_parameter(model->stack, i, &parameter) >= 0) n += parameter.n_global;
    }
    return n;
}

qdr_network gpt_network(qdr_network sizes)
{
    return (qdr_network){QDR_INIT(qdr_network),
                         .name = "a small GPT",
                         .architecture = "gpt2",
                         .activation = "gelu_new",
                         .layers = sizes.layers,
                         .hidden = sizes.hidden,
                         .heads = sizes.heads,
                         .kv_heads = sizes.heads,
                         .head_size = sizes.hidden / sizes.heads,
                         .ffn = sizes.ffn ? sizes.ffn : 4 * sizes.hidden,
                         .vocab = sizes.vocab,
                         .context = sizes.context,
                         .positions = sizes.context,
                         .qkv_bias = 1,
                         .out_bias = 1,
                         .mlp_bias = 1,
                         .norm = QDR_NORM_LAYER,
                         .norm_epsilon = sizes.norm_epsilon > 0 ? sizes.norm_epsilon : 1e-5,
                         .norms_per_layer = 2,
                         .tied = sizes.tied};
}
