/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a recorded step that nobody holds but the library: it stays where it is, whatever the
 * context does between two runs.
 *
 *   graph_memory redistribute    on two ranks */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "small_gpt.h"

static qdr_status differs(const qdr_context *ctx, const char *what)
{
    fprintf(stderr, "rank %d: %s\n", qdr_context_rank(ctx), what);
    return QDR_ERR_STATE;
}

/* ---- redistributions ---- */

enum { SIZE = 8, N_ELEMS = SIZE * SIZE / 2, N_OTHERS = 4 }; /* of two ranks, each has half */

typedef struct exchange {
    qdr_context *ctx;
    qdr_grid *grid;
    qdr_graph *graph;
    void *x, *y, *others[N_OTHERS];
} exchange;

static const qdr_matrix whole = {QDR_OPTS_INIT, .n_rows = SIZE, .cols = {{SIZE, 1}},
                                 .split_cols = 1, .col_axis = QDR_X};
static const qdr_matrix halves = {QDR_OPTS_INIT, .n_rows = SIZE,
                                  .cols = {{SIZE / 2, 1}, {SIZE / 2, 1}}, .split_cols = 1,
                                  .col_axis = QDR_X};

static qdr_status set(const exchange *e, void *data, const float values[N_ELEMS])
{
    TRY(qdr_copy(e->ctx, data, values, N_ELEMS * sizeof *values, NULL));
    return qdr_stream_synchronize(qdr_context_stream(e->ctx));
}

static qdr_status get(const exchange *e, const void *data, float values[N_ELEMS])
{
    TRY(qdr_copy(e->ctx, values, data, N_ELEMS * sizeof *values, NULL));
    return qdr_stream_synchronize(qdr_context_stream(e->ctx));
}

/* There and back. */
static qdr_status move(const exchange *e)
{
    TRY(qdr_redistribute(e->grid, &whole, e->x, &halves, e->y, QDR_F32, NULL));
    return qdr_redistribute(e->grid, &halves, e->y, &whole, e->x, QDR_F32, NULL);
}

static qdr_status record_move(exchange *e)
{
    TRY(qdr_graph_begin(e->ctx));
    const qdr_status status = move(e);
    const qdr_status ended = qdr_graph_end(e->ctx, &e->graph);
    return status < 0 ? status : ended;
}

/* Between: others of the kind, and someone who takes what has been freed. */
static qdr_status exchange_and_compare(exchange *e)
{
    const float zeros[N_ELEMS] = {0};
    float values[N_ELEMS], want[N_ELEMS], got[N_ELEMS];
    for (int i = 0; i < N_ELEMS; i++) values[i] = (float)(1000 * qdr_context_rank(e->ctx) + i + 1);
    TRY(set(e, e->x, values));
    TRY(move(e));
    TRY(get(e, e->y, want));
    TRY(record_move(e));
    TRY(move(e));
    TRY(set(e, e->y, zeros));
    for (int i = 0; i < N_OTHERS; i++) {
        TRY(qdr_mem_alloc(e->ctx, sizeof zeros, &e->others[i]));
        TRY(set(e, e->others[i], zeros));
    }
    TRY(qdr_graph_launch(e->graph, NULL));
    TRY(get(e, e->y, got));
    if (memcmp(got, want, sizeof got) != 0) return differs(e->ctx, "other numbers than enqueued");
    for (int i = 0; i < N_OTHERS; i++) {
        TRY(get(e, e->others[i], got));
        if (memcmp(got, zeros, sizeof got) != 0) return differs(e->ctx, "the caller's array");
    }
    return QDR_OK;
}

static qdr_status open_exchange(exchange *e)
{
    const qdr_grid_opts shape = {QDR_OPTS_INIT, .x = 2, .y = 1, .z = 1, .d = 1};
    TRY(qdr_grid_create(e->ctx, &shape, &e->grid));
    TRY(qdr_mem_alloc(e->ctx, N_ELEMS * sizeof(float), &e->x));
    return qdr_mem_alloc(e->ctx, N_ELEMS * sizeof(float), &e->y);
}

static int run_exchange(qdr_context *ctx, void *user)
{
    exchange e = {.ctx = ctx};
    (void)user;
    qdr_status status = open_exchange(&e);
    if (status == QDR_OK) status = exchange_and_compare(&e);
    const int exit_code = small_gpt_leave(ctx, status);
    qdr_graph_destroy(&e.graph);
    for (int i = 0; i < N_OTHERS; i++) qdr_mem_free(ctx, &e.others[i]);
    qdr_mem_free(ctx, &e.x);
    qdr_mem_free(ctx, &e.y);
    qdr_grid_destroy(&e.grid);
    return exit_code;
}

/* ---- the program ---- */

int main(int argc, char **argv)
{
    int exit_code = 1;
    qdr_status status = QDR_ERR_ARGUMENT;
    if (argc == 2 && strcmp(argv[1], "redistribute") == 0)
        status = qdr_launch(2, NULL, run_exchange, NULL, &exit_code);
    if (status < 0) fprintf(stderr, "%s\n", qdr_last_error());
    return status < 0 || exit_code;
}
