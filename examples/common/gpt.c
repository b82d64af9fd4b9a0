/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT as a stack of Quadrille. */
#include "gpt.h"

#include <math.h>
#include <quadrille/convert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

typedef struct block_name {
    char text[48];
} block_name;

static block_name name_of(int64_t index, const char *part)
{
    block_name name;
    snprintf(name.text, sizeof name.text, "block%lld.%s", (long long)index, part);
    return name;
}

static int64_t ffn_of(const gpt_config *config) { return config->ffn ? config->ffn : 4 * config->hidden; }

/* Valid until the end of the statement: the library copies names. */
#define NAME(part) name_of(index, part).text

/* Every layer that writes to the residual stream is transposed: it reads what a normal layer wrote, and writes what the
 * next normal layer reads, so nothing is moved between layers. */
static qdr_status add_attention_half(qdr_stack *stack, const gpt_config *config, int64_t index, qdr_edge in,
                                     qdr_edge *out, qdr_linear **proj)
{
    const int64_t hidden = config->hidden, head = hidden / config->n_heads;
    const block_name qkv_name = name_of(index, "qkv"), proj_name = name_of(index, "proj");
    qdr_edge norm, qkv, attention, added;
    qdr_linear *layer;
    TRY(qdr_stack_add_layer_norm(stack, NAME("norm1"), config->epsilon, in, &norm));
    const qdr_linear_desc qkv_desc = {
        QDR_OPTS_INIT,
        .name = qkv_name.text,
        .in = {{hidden, 1}},
        .out = {{hidden, head}, {hidden, head}, {hidden, head}},
        .bias = 1,
        .out_layout = config->layout,
        .out_row_unit = config->context, /* attention needs whole sequences */
    };
    TRY(qdr_stack_add_linear(stack, &qkv_desc, norm, &qkv, &layer));
    TRY(qdr_stack_add_attention(stack, NAME("attention"), head, config->context, qkv, &attention));
    const qdr_linear_desc proj_desc = {
        QDR_OPTS_INIT, .name = proj_name.text, .in = {{hidden, head}},       .out = {{hidden, 1}},
        .bias = 1,     .transposed = 1,        .out_layout = config->layout,
    };
    TRY(qdr_stack_add_linear(stack, &proj_desc, attention, &added, proj));
    return qdr_stack_add_residual(stack, NAME("residual1"), in, added, out);
}

static qdr_status add_mlp_half(qdr_stack *stack, const gpt_config *config, int64_t index, qdr_edge in, qdr_edge *out,
                               qdr_linear **fc2)
{
    const int64_t hidden = config->hidden, ffn = ffn_of(config);
    const block_name fc_name = name_of(index, "fc"), fc2_name = name_of(index, "fc2");
    qdr_edge norm, fc, gelu, added;
    qdr_linear *layer;
    TRY(qdr_stack_add_layer_norm(stack, NAME("norm2"), config->epsilon, in, &norm));
    const qdr_linear_desc fc_desc = {
        QDR_OPTS_INIT, .name = fc_name.text,         .in = {{hidden, 1}}, .out = {{ffn, 1}},
        .bias = 1,     .out_layout = config->layout,
    };
    TRY(qdr_stack_add_linear(stack, &fc_desc, norm, &fc, &layer));
    TRY(qdr_stack_add_gelu(stack, NAME("gelu"), fc, &gelu));
    const qdr_linear_desc fc2_desc = {
        QDR_OPTS_INIT,   .name = fc2_name.text,        .in = {{ffn, 1}}, .out = {{hidden, 1}}, .bias = 1,
        .transposed = 1, .out_layout = config->layout,
    };
    TRY(qdr_stack_add_linear(stack, &fc2_desc, gelu, &added, fc2));
    return qdr_stack_add_residual(stack, NAME("residual2"), in, added, out);
}

qdr_status gpt_add_block(qdr_stack *stack, const gpt_config *config, int64_t index, qdr_edge in, qdr_edge *out,
                         qdr_linear **residual)
{
    qdr_edge middle;
    TRY(add_attention_half(stack, config, index, in, &middle, &residual[0]));
    return add_mlp_half(stack, config, index, middle, out, &residual[1]);
}

static qdr_status add_head(gpt *model, qdr_linear *table, qdr_edge in)
{
    const gpt_config *config = &model->config;
    if (config->tied) return qdr_stack_add_tied_head(model->stack, "head", table, config->layout, in, &model->logits);
    const qdr_linear_desc head_desc = {
        QDR_OPTS_INIT,
        .name = "head",
        .in = {{config->hidden, 1}},
        .out = {{config->vocab, 1}},
        .out_layout = config->layout,
    };
    qdr_linear *head;
    return qdr_stack_add_linear(model->stack, &head_desc, in, &model->logits, &head);
}

static qdr_status describe(gpt *model)
{
    const gpt_config *config = &model->config;
    qdr_linear *table;
    qdr_edge stream, norm;
    TRY(qdr_stack_add_tokens(model->stack, "tokens", &model->tokens));
    const qdr_embedding_desc embedding_desc = {
        QDR_OPTS_INIT,
        .name = "embedding",
        .vocab = {config->vocab, 1},
        .features = {config->hidden, 1},
        .context = config->context,
        .layout = config->layout,
    };
    TRY(qdr_stack_add_embedding(model->stack, &embedding_desc, model->tokens, &stream, &table));
    for (int64_t i = 0; i < config->n_layers; i++, model->n_residual += 2)
        TRY(gpt_add_block(model->stack, config, i, stream, &stream, model->residual + 2 * i));
    TRY(qdr_stack_add_layer_norm(model->stack, "norm", config->epsilon, stream, &norm));
    TRY(add_head(model, table, norm));
    return qdr_stack_add_cross_entropy(model->stack, "loss", model->logits, &model->targets);
}

qdr_status gpt_create(qdr_grid *grid, const gpt_config *config, gpt *model)
{
    *model = (gpt){.config = *config, .grid = grid};
    const qdr_stack_opts opts = {
        QDR_OPTS_INIT,
        .n_rows = config->n_sequences * config->context,
        .row_unit = config->context,
        .dtype = config->dtype,
        .overlap = config->overlap,
        .panels = config->panels,
        .batch_parts = config->batch_parts,
        .product_type = config->products,
        .codecs = config->codecs,
    };
    TRY(qdr_stack_create(grid, &opts, &model->stack));
    model->residual = calloc(2 * (size_t)config->n_layers, sizeof(qdr_linear *));
    TRY(qdr_agree(qdr_grid_context(grid), model->residual ? QDR_OK : QDR_ERR_MEMORY));
    TRY(qdr_agree(qdr_grid_context(grid), describe(model))); /* adding is local */
    TRY(qdr_stack_build(model->stack));
    TRY(qdr_stack_edge_owned(model->stack, model->tokens, &model->token_rows));
    TRY(qdr_stack_edge_owned(model->stack, model->logits, &model->logits_part));
    model->staging = calloc((size_t)(model->token_rows.n_rows + model->logits_part.n_rows + 1), sizeof(int32_t));
    return qdr_agree(qdr_grid_context(grid), model->staging ? QDR_OK : QDR_ERR_MEMORY);
}

void gpt_destroy(gpt *model)
{
    qdr_stack_destroy(&model->stack);
    free(model->residual);
    free(model->staging);
    *model = (gpt){0};
}

qdr_status gpt_init(gpt *model, uint64_t seed, double stddev)
{
    TRY(qdr_stack_init(model->stack, seed, stddev));
    const double less = stddev / sqrt(2.0 * (double)model->config.n_layers);
    for (int i = 0; i < model->n_residual; i++) TRY(qdr_linear_init(model->residual[i], seed + 1 + (uint64_t)i, less));
    return QDR_OK;
}

/* The bytes `ahead` places after each of these rows, or `missing`. */
static void read_rows(const gpt *model, qdr_range rows, const uint8_t *text, int64_t n_bytes, const int64_t *starts,
                      int ahead, int32_t missing, int32_t *column)
{
    const int64_t context = model->config.context;
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const int64_t start = starts[row / context], at = start + row % context + ahead;
        column[row - rows.begin] = start < 0 || at >= n_bytes ? missing : text[at];
    }
}

static qdr_status copy_column(const gpt *model, qdr_edge edge, const int32_t *column, int64_t n_rows)
{
    void *value;
    TRY(qdr_stack_edge_value(model->stack, edge, &value));
    return qdr_copy(qdr_grid_context(model->grid), value, column, (size_t)n_rows * sizeof *column, NULL);
}

qdr_status gpt_fill(gpt *model, const uint8_t *text, const int64_t *starts)
{
    return gpt_fill_until(model, text, INT64_MAX, starts);
}

qdr_status gpt_fill_until(gpt *model, const uint8_t *text, int64_t n_bytes, const int64_t *starts)
{
    int32_t *tokens = model->staging, *targets = tokens + model->token_rows.n_rows;
    TRY(qdr_stream_synchronize(qdr_context_stream(qdr_grid_context(model->grid)))); /* the last copies have run */
    read_rows(model, model->token_rows.rows, text, n_bytes, starts, 0, 0, tokens);
    read_rows(model, model->logits_part.rows, text, n_bytes, starts, 1, -1, targets);
    TRY(copy_column(model, model->tokens, tokens, model->token_rows.n_rows));
    return copy_column(model, model->targets, targets, model->logits_part.n_rows);
}

static float to_float(const void *values, int64_t i, qdr_dtype dtype)
{
    float value = 0;
    if (dtype == QDR_F64) return (float)((const double *)values)[i];
    if (dtype == QDR_F32) return ((const float *)values)[i];
    (dtype == QDR_F16 ? qdr_f32_from_f16 : qdr_f32_from_bf16)(&value, (const uint16_t *)values + i, 1);
    return value;
}

/* This rank's part of the row, at its position among all columns; -infinity elsewhere. */
static qdr_status own_logits(gpt *model, int64_t row, float *logits)
{
    const qdr_owned *part = &model->logits_part;
    for (int64_t i = 0; i < model->config.vocab; i++) logits[i] = -INFINITY;
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
            logits[col] = to_float(host, local++, model->config.dtype);
    free(host);
    return status;
}

/* The maximum over all ranks: the owners have the number, the others -infinity; copies do not change the result. */
qdr_status gpt_logits_row(gpt *model, int64_t row, float *logits)
{
    qdr_context *ctx = qdr_grid_context(model->grid);
    const size_t bytes = (size_t)model->config.vocab * sizeof *logits;
    void *shared = NULL;
    qdr_status status = own_logits(model, row, logits);
    if (status >= 0) status = qdr_mem_alloc(ctx, bytes, &shared);
    status = qdr_agree(ctx, status);
    if (status >= 0) status = qdr_copy(ctx, shared, logits, bytes, NULL);
    for (int axis = 0; status >= 0 && axis < QDR_N_AXES; axis++)
        status = qdr_all_reduce(model->grid, (qdr_axis)axis, QDR_MAX, shared, model->config.vocab, QDR_F32, NULL);
    if (status >= 0) status = qdr_copy(ctx, logits, shared, bytes, NULL);
    if (status >= 0) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    qdr_mem_free(ctx, &shared);
    return status;
}

int64_t gpt_n_parameters(const gpt *model)
{
    int64_t n = 0;
    for (int i = 0; i < qdr_stack_n_parameters(model->stack); i++) {
        qdr_parameter parameter;
        if (qdr_stack_parameter(model->stack, i, &parameter) >= 0) n += parameter.n_global;
    }
    return n;
}

qdr_network gpt_network(const gpt_config *config)
{
    return (qdr_network){.version = QDR_OPTS_INIT,
                         .name = "this network",
                         .architecture = "gpt2",
                         .activation = "gelu_new",
                         .layers = config->n_layers,
                         .hidden = config->hidden,
                         .heads = config->n_heads,
                         .kv_heads = config->n_heads,
                         .head_size = config->hidden / config->n_heads,
                         .ffn = ffn_of(config),
                         .vocab = config->vocab,
                         .qkv_bias = 1,
                         .out_bias = 1,
                         .mlp_bias = 1,
                         .norm = QDR_NORM_LAYER,
                         .norms_per_layer = 2,
                         .tied = config->tied};
}
