/* SPDX-License-Identifier: Apache-2.0 */
/* The logits of a GPT from a checkpoint, for a test that compares them with another program's.
 *
 * usage: gpt_logits FILE LAYERS HIDDEN HEADS CONTEXT VOCABULARY f32|f64 GXxGYxGZxGD < TOKENS > LOGITS
 *
 * The head is tied. Tokens are bytes, one context for each of the grid's z·d cells; logits are f64, by row. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/common/program.h"
#include "../support/gpt_fill.h"

enum { MOST_TOKENS = 4096 };

typedef struct given {
    const char *path;
    gpt_config config;
    qdr_grid_opts grid;
    uint8_t tokens[MOST_TOKENS + 1];
    double *logits; /* of rank 0 */
} given;

/* This rank's part of the logits at its place; -infinity elsewhere. */
static qdr_status place_logits(const gpt *model, qdr_context *ctx, double *all)
{
    const qdr_owned *part = &model->logits_part;
    const int64_t vocab = model->config.network.vocab, n_rows = part->rows.end - part->rows.begin;
    const size_t each = qdr_dtype_bytes(model->config.dtype);
    void *value, *host = calloc((size_t)(n_rows * part->n_cols) + 1, each);
    qdr_status status = host ? qdr_stack_edge_value(model->stack, model->logits, &value) : QDR_ERR_MEMORY;
    if (status >= 0) status = qdr_copy(ctx, host, value, (size_t)(n_rows * part->n_cols) * each, NULL);
    if (status >= 0) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    int64_t local = 0;
    for (int64_t row = part->rows.begin; row < part->rows.end; row++)
        for (int range = 0; status >= 0 && range < part->n_ranges; range++)
            for (int64_t col = part->cols[range].begin; col < part->cols[range].end; col++, local++)
                all[row * vocab + col] = each == 8 ? ((double *)host)[local] : (double)((float *)host)[local];
    free(host);
    return status;
}

static qdr_status run(qdr_context *ctx, given *set)
{
    qdr_grid *grid;
    gpt model;
    int64_t starts[MOST_TOKENS];
    const int64_t n_cells = (int64_t)set->grid.z * set->grid.d,
                  n = n_cells * set->config.context * set->config.network.vocab;
    gpt_config config = set->config;
    config.n_sequences = n_cells;
    TRY(qdr_grid_create(ctx, &set->grid, &grid));
    TRY(gpt_create(grid, &config, &model));
    TRY(qdr_checkpoint_load(model.stack, NULL, set->path, NULL));
    for (int64_t i = 0; i < n_cells; i++) starts[i] = i * config.context;
    TRY(gpt_fill(&model, set->tokens, starts));
    TRY(qdr_stack_forward(model.stack));
    double *all = malloc((size_t)n * sizeof *all);
    for (int64_t i = 0; all && i < n; i++) all[i] = -INFINITY;
    TRY(qdr_agree(ctx, all ? place_logits(&model, ctx, all) : QDR_ERR_MEMORY));
    for (int axis = QDR_X; axis < QDR_N_AXES; axis++) /* copies are equal */
        TRY(qdr_all_reduce(grid, (qdr_axis)axis, QDR_MAX, all, n, QDR_F64, NULL));
    TRY(qdr_stream_synchronize(qdr_context_stream(ctx)));
    if (qdr_context_rank(ctx) == 0)
        set->logits = all;
    else
        free(all);
    gpt_destroy(&model);
    qdr_grid_destroy(&grid);
    return QDR_OK;
}

static int run_rank(qdr_context *ctx, void *user)
{
    const qdr_status status = run(ctx, user);
    if (status < 0 && qdr_context_rank(ctx) == 0) fprintf(stderr, "gpt_logits: %s\n", qdr_last_error());
    return status < 0;
}

int main(int argc, char **argv)
{
    static given set;
    int code = 1;
    if (argc != 9) return 2;
    set.path = argv[1];
    set.config = (gpt_config){.network = gpt_network((qdr_network){.layers = atoi(argv[2]),
                                                                   .hidden = atoi(argv[3]),
                                                                   .heads = atoi(argv[4]),
                                                                   .context = atoi(argv[5]),
                                                                   .vocab = atoi(argv[6]),
                                                                   .tied = 1}),
                              .context = atoi(argv[5]),
                              .dtype = strcmp(argv[7], "f64") == 0 ? QDR_F64 : QDR_F32};
    set.grid.size = sizeof set.grid;
    if (sscanf(argv[8], "%dx%dx%dx%d", &set.grid.x, &set.grid.y, &set.grid.z, &set.grid.d) != 4) return 2;
    const size_t n_rows = (size_t)(set.grid.z * set.grid.d * set.config.context);
    if (n_rows > MOST_TOKENS || fread(set.tokens, 1, n_rows, stdin) != n_rows) return 2;
    const qdr_status status = qdr_launch(set.grid.x * set.grid.y * set.grid.z * set.grid.d, NULL, run_rank, &set,
                                         &code);
    if (status < 0) fprintf(stderr, "gpt_logits: %s\n", qdr_last_error());
    if (status < 0 || code) return 1;
    const size_t n = n_rows * (size_t)set.config.network.vocab;
    const int is_written = fwrite(set.logits, sizeof *set.logits, n, stdout) == n && fflush(stdout) == 0;
    free(set.logits);
    return !is_written;
}
