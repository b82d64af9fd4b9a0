/* SPDX-License-Identifier: Apache-2.0 */
/* What a context reports while it records, and what ends its recording: the stack, its optimizer or the grid is
 * destroyed, with work in progress. Then there is no recording, and the context continues to work.
 *
 *   graph_ends N    N ranks */
#include <stdio.h>
#include <stdlib.h>

#include "small_gpt.h"

typedef struct scene {
    qdr_context *ctx;
    small_gpt model;
    int n_bad;
} scene;

static void expect(scene *s, const char *what, qdr_status status, qdr_status wanted)
{
    if (status == wanted) return;
    fprintf(stderr, "rank %d: %s: %s, not %s: %s\n", qdr_context_rank(s->ctx), what, qdr_status_name(status),
            qdr_status_name(wanted), qdr_last_error());
    s->n_bad++;
}

static qdr_status begin(scene *s)
{
    s->model = (small_gpt){.shape = {qdr_context_size(s->ctx), 1, 1, 1},
                           .config = {.network.hidden = 16, .n_sequences = 4}};
    TRY(small_gpt_create(s->ctx, &s->model));
    TRY(gpt_init(&s->model.gpt, 1, 0.1));
    TRY(qdr_adamw_create(s->model.gpt.stack, NULL, &s->model.optimizer));
    return small_gpt_fill(&s->model, 0);
}

static qdr_status step(scene *s, double lr)
{
    TRY(qdr_stack_forward(s->model.gpt.stack));
    TRY(small_gpt_backward(&s->model, 0));
    return qdr_adamw_step(s->model.optimizer, lr);
}

/* ---- within a record ---- */

static void expect_no_waits(scene *s)
{
    static char full[64 << 10];
    qdr_stack *stack = s->model.gpt.stack;
    double number;
    int64_t n;
    expect(s, "a loss", qdr_stack_loss(stack, &number, &n), QDR_ERR_STATE);
    expect(s, "AdamW's norm", qdr_adamw_norm(s->model.optimizer, &number), QDR_ERR_STATE);
    expect(s, "AdamW's count", qdr_adamw_skipped(s->model.optimizer, &n), QDR_ERR_STATE);
    expect(s, "a norm", qdr_grad_norm(stack, &number), QDR_ERR_STATE);
    expect(s, "a parameter to load", qdr_stack_load_parameter(stack, 0, full), QDR_ERR_STATE);
    expect(s, "a parameter to gather", qdr_stack_gather_parameter(stack, 0, 0, full), QDR_ERR_STATE);
}

/* The record continues despite the refusals, and is the whole step. */
static qdr_status refuse(scene *s)
{
    qdr_graph *graph = NULL;
    double before = 0, after = 0;
    int64_t n;
    TRY(step(s, 0));
    TRY(qdr_graph_begin(s->ctx));
    expect_no_waits(s);
    const qdr_status status = step(s, 1e-2);
    expect_no_waits(s);
    TRY(small_gpt_end_graph(s->ctx, status, &graph));
    TRY(qdr_graph_launch(graph, NULL));
    TRY(qdr_stack_loss(s->model.gpt.stack, &before, &n));
    TRY(qdr_graph_launch(graph, NULL));
    TRY(qdr_stack_loss(s->model.gpt.stack, &after, &n));
    qdr_graph_destroy(&graph);
    expect(s, "a loss that falls", after < before ? QDR_OK : QDR_ERR_STATE, QDR_OK);
    return QDR_OK;
}

/* A rate that a record would set is not there before it runs. */
static qdr_status record_rate(scene *s)
{
    qdr_graph *graph = NULL;
    TRY(qdr_stack_forward(s->model.gpt.stack));
    TRY(small_gpt_backward(&s->model, 0));
    TRY(qdr_graph_begin(s->ctx));
    TRY(small_gpt_end_graph(s->ctx, qdr_adamw_step(s->model.optimizer, 1e-2), &graph));
    qdr_graph_destroy(&graph);
    expect(s, "a step without a rate", qdr_adamw_step_as_set(s->model.optimizer), QDR_ERR_STATE);
    TRY(qdr_adamw_set_rate(s->model.optimizer, 1e-2));
    return qdr_adamw_step_as_set(s->model.optimizer);
}

/* ---- what ends it ---- */

typedef enum last { OPTIMIZER, STACK, GRID, N_LASTS } last;

enum { WIDTH = 8, MATRIX_BYTES = WIDTH * WIDTH * (int)sizeof(float) };

static qdr_status redistribute(scene *s, void *memory)
{
    const qdr_matrix from = {QDR_INIT(qdr_matrix), .n_rows = WIDTH, .cols = {{WIDTH, 1}}, .split_cols = 1,
                             .col_axis = QDR_X};
    qdr_matrix to = from;
    to.split_cols = 0;
    char *result = (char *)memory + MATRIX_BYTES;
    return qdr_redistribute(s->model.grid, &from, memory, &to, result, QDR_F32, NULL);
}

/* What is on the way still reads what goes next, unless that waits. */
static qdr_status enqueue(scene *s, last goes, void *memory)
{
    static const float zeros[WIDTH * WIDTH];
    TRY(qdr_copy(s->ctx, memory, zeros, sizeof zeros, NULL));
    for (int i = 0; i < 3; i++) TRY(step(s, 1e-2));
    if (goes >= STACK) qdr_adamw_destroy(&s->model.optimizer);
    for (int i = 0; i < 3 && goes == STACK; i++) TRY(qdr_stack_forward(s->model.gpt.stack));
    if (goes >= GRID) gpt_destroy(&s->model.gpt);
    for (int i = 0; i < 3 && goes == GRID; i++) TRY(redistribute(s, memory));
    return QDR_OK;
}

static void destroy(scene *s, last goes)
{
    if (goes == OPTIMIZER) qdr_adamw_destroy(&s->model.optimizer);
    if (goes == STACK) gpt_destroy(&s->model.gpt);
    if (goes == GRID) qdr_grid_destroy(&s->model.grid);
}

static qdr_status end_by(scene *s, last goes, void *memory)
{
    static const char *const ends[] = {"an end after the optimizer's", "an end after the stack's",
                                       "an end after the grid's"};
    qdr_graph *graph = NULL;
    TRY(begin(s));
    TRY(enqueue(s, goes, memory));
    TRY(qdr_graph_begin(s->ctx));
    destroy(s, goes);
    expect(s, ends[goes], qdr_graph_end(s->ctx, &graph), QDR_ERR_STATE);
    return graph ? QDR_ERR_STATE : qdr_context_status(s->ctx);
}

static qdr_status with_memory(scene *s, last goes)
{
    void *memory = NULL;
    TRY(qdr_mem_alloc(s->ctx, 2 * MATRIX_BYTES, &memory));
    const qdr_status status = end_by(s, goes, memory);
    small_gpt_destroy(&s->model);
    qdr_mem_free(s->ctx, &memory);
    return status;
}

/* ---- the program ---- */

static qdr_status run_model(scene *s, qdr_status (*part)(scene *))
{
    qdr_status status = begin(s);
    if (status == QDR_OK) status = part(s);
    small_gpt_destroy(&s->model);
    return status;
}

static qdr_status run(scene *s)
{
    TRY(run_model(s, refuse));
    for (int goes = 0; goes < N_LASTS; goes++) TRY(with_memory(s, (last)goes));
    TRY(run_model(s, refuse)); /* as before */
    return run_model(s, record_rate);
}

static int run_rank(qdr_context *ctx, void *user)
{
    (void)user;
    scene s = {.ctx = ctx};
    const qdr_status status = run(&s);
    return small_gpt_leave(ctx, status) || s.n_bad != 0;
}

int main(int argc, char **argv) { return argc != 2 ? 2 : small_gpt_launch(atoi(argv[1]), run_rank, NULL); }
