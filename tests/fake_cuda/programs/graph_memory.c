/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a recorded step that only the library holds: it stays at the same address, whatever the context does
 * between two runs. So does that of work in progress.
 *
 *   graph_memory redistribute               on two ranks; the grid is destroyed before its record runs
 *   graph_memory stacks GRID stored|fp8     a larger stack is built after the recorded one */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sizes.h"
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

static const qdr_matrix whole = {QDR_INIT(qdr_matrix), .n_rows = SIZE, .cols = {{SIZE, 1}}, .split_cols = 1,
                                 .col_axis = QDR_X};
static const qdr_matrix halves = {QDR_INIT(qdr_matrix), .n_rows = SIZE, .cols = {{SIZE / 2, 1}, {SIZE / 2, 1}},
                                  .split_cols = 1, .col_axis = QDR_X};

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

static int are_same(const float a[N_ELEMS], const float b[N_ELEMS])
{
    int n_same = 0;
    for (int i = 0; i < N_ELEMS; i++) n_same += a[i] == b[i];
    return n_same == N_ELEMS;
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
    return small_gpt_end_graph(e->ctx, move(e), &e->graph);
}

/* Between: others of the kind, the end of the grid, and someone who takes what has been freed. */
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
    qdr_grid_destroy(&e->grid);
    for (int i = 0; i < N_OTHERS; i++) {
        TRY(qdr_mem_alloc(e->ctx, sizeof zeros, &e->others[i]));
        TRY(set(e, e->others[i], zeros));
    }
    TRY(qdr_graph_launch(e->graph, NULL));
    TRY(get(e, e->y, got));
    if (!are_same(got, want)) return differs(e->ctx, "other numbers than enqueued");
    for (int i = 0; i < N_OTHERS; i++) {
        TRY(get(e, e->others[i], got));
        if (!are_same(got, zeros)) return differs(e->ctx, "the caller's array");
    }
    return QDR_OK;
}

static qdr_status open_exchange(exchange *e)
{
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = 2, .y = 1, .z = 1, .d = 1};
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

/* ---- stacks ---- */

enum { HIDDEN = 16, LARGER = 4 };

typedef struct pair {
    qdr_context *ctx;
    small_gpt small, large; /* on one grid */
    qdr_graph *graph;
    unsigned char *want, *got; /* gradients of the small one */
    size_t bytes;
} pair;

static qdr_status step(const gpt *model)
{
    TRY(qdr_stack_forward(model->stack));
    return qdr_stack_backward(model->stack, 0, 0.01);
}

static qdr_status open_pair(pair *p)
{
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    TRY(small_gpt_create(p->ctx, &p->small));
    TRY(gpt_init(&p->small.gpt, 1, 0.1));
    TRY(small_gpt_fill(&p->small, 0));
    TRY(qdr_stack_get_sizes(p->small.gpt.stack, &sizes));
    p->bytes = sizes.gradients;
    p->want = calloc(1, p->bytes);
    p->got = calloc(1, p->bytes);
    return p->want && p->got ? QDR_OK : QDR_ERR_MEMORY;
}

static void close_pair(pair *p)
{
    qdr_graph_destroy(&p->graph);
    gpt_destroy(&p->large.gpt);
    small_gpt_destroy(&p->small);
    free(p->want);
    free(p->got);
}

static qdr_status record_step(pair *p)
{
    TRY(qdr_graph_begin(p->ctx));
    return small_gpt_end_graph(p->ctx, step(&p->small.gpt), &p->graph);
}

/* The larger one's space is all allocated in addition to the other's; for fp8 it may be more than predicted. */
static qdr_status check_room(const pair *p, size_t before)
{
    qdr_stack_sizes small = {QDR_INIT(qdr_stack_sizes)}, large = {QDR_INIT(qdr_stack_sizes)};
    size_t now;
    qdr_mem_usage(p->ctx, &now, NULL);
    TRY(qdr_stack_get_sizes(p->small.gpt.stack, &small));
    TRY(qdr_stack_get_sizes(p->large.gpt.stack, &large));
    const size_t said = sum_of_sizes(&large) - large.device;
    const int grows = p->small.config.products == QDR_PRODUCT_FP8
                          ? large.device > small.device && now - before > said
                          : large.communication > small.communication && now - before == said;
    if (grows) return QDR_OK;
    fprintf(stderr, "staging %zu and %zu bytes, %zu taken, %zu said\n", small.communication, large.communication,
            now - before, said);
    return differs(p->ctx, "the larger stack takes another room");
}

/* A run of the record and a step of its own are on the way when the larger stack is built. */
static qdr_status build_between(pair *p)
{
    size_t before;
    p->large.config = p->small.config;
    p->large.config.network.hidden *= LARGER;
    p->large.config.network.ffn *= LARGER;
    p->large.config.network = gpt_network(p->large.config.network);
    TRY(step(&p->small.gpt));
    TRY(small_gpt_read_gradients(p->ctx, &p->small, p->want));
    TRY(record_step(p));
    TRY(qdr_graph_launch(p->graph, NULL));
    TRY(step(&p->small.gpt));
    qdr_mem_usage(p->ctx, &before, NULL);
    TRY(gpt_create(p->small.grid, &p->large.config, &p->large.gpt));
    TRY(check_room(p, before));
    TRY(small_gpt_read_gradients(p->ctx, &p->small, p->got));
    if (memcmp(p->got, p->want, p->bytes) != 0) return differs(p->ctx, "what was on the way");
    TRY(gpt_init(&p->large.gpt, 2, 0.1));
    TRY(small_gpt_fill(&p->large, 1));
    TRY(step(&p->large.gpt));
    TRY(small_gpt_fill(&p->small, 1)); /* so that other gradients are there */
    TRY(step(&p->small.gpt));
    TRY(small_gpt_fill(&p->small, 0));
    TRY(qdr_graph_launch(p->graph, NULL));
    TRY(small_gpt_read_gradients(p->ctx, &p->small, p->got));
    return memcmp(p->got, p->want, p->bytes) == 0 ? QDR_OK : differs(p->ctx, "what was recorded");
}

static int run_pair(qdr_context *ctx, void *user)
{
    pair p = {.ctx = ctx, .small = *(const small_gpt *)user};
    qdr_status status = open_pair(&p);
    if (status == QDR_OK) status = build_between(&p);
    const int exit_code = small_gpt_leave(ctx, status);
    close_pair(&p);
    return exit_code;
}

/* ---- the program ---- */

int main(int argc, char **argv)
{
    small_gpt model = {
        .config = {
            .network.hidden = HIDDEN, .n_sequences = 3, .dtype = QDR_BF16, .layout = QDR_SCATTERED, .panels = 2}};
    const int n = argc == 4 ? small_gpt_read_shape(&model, argv[2]) : 0;
    if (argc == 2 && strcmp(argv[1], "redistribute") == 0) return small_gpt_launch(2, run_exchange, NULL);
    if (!n) return 2;
    if (strcmp(argv[3], "fp8") == 0) model.config.products = QDR_PRODUCT_FP8;
    return small_gpt_launch(n, run_pair, &model);
}
