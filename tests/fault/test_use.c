/* SPDX-License-Identifier: Apache-2.0 */
/* Redistribution, operations and an optimizer on local ranks while the n-th allocation fails, for
 * every n: some rank gets an error with a sentence, nobody waits for ever, and nothing is lost
 * (leak checkers watch). */
#include <pthread.h>

#include "fault/inject.h"
#include "qdr_test.h"
#include "quadrille/quadrille.h"

enum { N_RANKS = 2, MOST_CALLS = 20000, N_ROWS = 6, N_COLS = 4 };

/* What a rank has before allocations fail. */
typedef struct tools {
    qdr_context *ctx;
    qdr_grid *grid;
    qdr_stack *stack;
    void *memory; /* all buffers of the calls */
} tools;

typedef struct job {
    pthread_barrier_t ready;
    long n;
    inject_extent extent;
    qdr_status status[N_RANKS];
    int has_sentence[N_RANKS];
} job;

static qdr_status add_layer(qdr_stack *stack)
{
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{N_COLS, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_OPTS_INIT, .name = "layer", .in = {{N_COLS, 1}},
                                  .out = {{N_COLS, 1}}, .bias = 1};
    qdr_edge edge = 0;
    qdr_linear *layer = NULL;
    qdr_status status = qdr_stack_add_input(stack, "x", &input, 1, &edge);
    if (status == QDR_OK) status = qdr_stack_add_linear(stack, &desc, edge, &edge, &layer);
    return status == QDR_OK ? qdr_stack_build(stack) : status;
}

static void tools_make(qdr_local_world *world, int rank, tools *made)
{
    const qdr_grid_opts shape = {QDR_OPTS_INIT, .x = N_RANKS, .y = 1, .z = 1, .d = 1};
    const qdr_stack_opts opts = {QDR_OPTS_INIT, .n_rows = N_ROWS};
    CHECK_OK(qdr_context_create_local(world, rank, NULL, &made->ctx));
    CHECK_OK(qdr_grid_create(made->ctx, &shape, &made->grid));
    CHECK_OK(qdr_stack_create(made->grid, &opts, &made->stack));
    CHECK_OK(add_layer(made->stack));
    CHECK_OK(qdr_stack_init(made->stack, 1, 0.1));
    CHECK_OK(qdr_mem_alloc(made->ctx, 64 * 1024, &made->memory));
    memset(made->memory, 0, 64 * 1024);
    CHECK_OK(qdr_barrier(made->ctx));
}

static void tools_free(tools *made)
{
    qdr_stack_destroy(&made->stack);
    qdr_grid_destroy(&made->grid);
    qdr_mem_free(made->ctx, &made->memory); /* the streams are idle now */
    qdr_context_destroy(&made->ctx);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const qdr_status try_status_ = (call);                                                     \
        if (try_status_ != QDR_OK) return try_status_;                                             \
    } while (0)

static void *buffer(const tools *t, int index) { return (char *)t->memory + index * 4096; }

static qdr_status use_redistribute(const tools *t)
{
    const qdr_matrix rows = {QDR_OPTS_INIT, .n_rows = N_ROWS, .cols = {{N_COLS, 1}},
                             .spread = QDR_SPREAD_RANKS};
    const qdr_matrix columns = {QDR_OPTS_INIT, .n_rows = N_ROWS, .cols = {{N_COLS, 1}},
                                .split_cols = 1};
    TRY(qdr_redistribute(t->grid, &rows, buffer(t, 0), &columns, buffer(t, 1), QDR_F32, NULL));
    return qdr_redistribute(t->grid, &columns, buffer(t, 1), &rows, buffer(t, 0), QDR_F32, NULL);
}

static qdr_status use_operations(const tools *t)
{
    const qdr_layer_norm norm = {QDR_OPTS_INIT, N_ROWS, N_COLS / N_RANKS, N_COLS,
                                 QDR_X,         0,      QDR_F32};
    const qdr_cross_entropy ce = {QDR_OPTS_INIT, N_ROWS, 2, 0, QDR_X, QDR_F32, 4};
    TRY(qdr_layer_norm_forward(t->grid, &norm, buffer(t, 0), buffer(t, 1), buffer(t, 2),
                               buffer(t, 3), buffer(t, 4), buffer(t, 5), NULL));
    TRY(qdr_layer_norm_backward(t->grid, &norm, buffer(t, 0), buffer(t, 1), buffer(t, 2),
                                buffer(t, 4), buffer(t, 6), 0, buffer(t, 7), buffer(t, 8), 0,
                                buffer(t, 5), NULL));
    TRY(qdr_cross_entropy_forward(t->grid, &ce, buffer(t, 0), buffer(t, 9), buffer(t, 10),
                                  buffer(t, 11), buffer(t, 12), NULL));
    return qdr_stream_synchronize(qdr_context_stream(t->ctx));
}

static qdr_status use_optimizer(const tools *t)
{
    qdr_adamw *optimizer = NULL;
    double norm = 0;
    TRY(qdr_adamw_create(t->stack, NULL, &optimizer));
    qdr_status status = qdr_grad_norm(t->stack, &norm);
    if (status == QDR_OK) status = qdr_adamw_step(optimizer, 0.1);
    if (status == QDR_OK) status = qdr_adamw_norm(optimizer, &norm);
    qdr_adamw_destroy(&optimizer);
    return status;
}

static int run_rank(qdr_local_world *world, int rank, void *user)
{
    job *all = user;
    tools t = {.ctx = NULL};
    tools_make(world, rank, &t);
    pthread_barrier_wait(&all->ready);
    if (rank == 0) inject_begin(INJECT_MEMORY, all->n, all->extent);
    pthread_barrier_wait(&all->ready);
    qdr_status status = use_redistribute(&t);
    if (status == QDR_OK) status = use_operations(&t);
    if (status == QDR_OK) status = use_optimizer(&t);
    all->status[rank] = status;
    all->has_sentence[rank] = strlen(qdr_last_error()) > 10;
    tools_free(&t);
    return 0;
}

static void fail_each(inject_extent extent)
{
    long n = 0, n_errors = 0;
    int failed = 1;
    for (; failed && n < MOST_CALLS; n++) {
        job all = {.n = n, .extent = extent};
        pthread_barrier_init(&all.ready, NULL, N_RANKS);
        assert_int_equal(qdr_local_run(N_RANKS, run_rank, &all, NULL), QDR_OK);
        failed = inject_happened();
        inject_end();
        pthread_barrier_destroy(&all.ready);
        for (int rank = 0; rank < N_RANKS; rank++) {
            assert_in_range(all.status[rank] + 100, 0, 100); /* done or an error, never "pending" */
            if (all.status[rank] < 0) assert_true(all.has_sentence[rank]);
            n_errors += all.status[rank] < 0;
            if (!failed) assert_int_equal(all.status[rank], QDR_OK);
        }
    }
    print_message("%ld places, %ld errors\n", n - 1, n_errors);
    assert_true(n_errors > 1 && n < MOST_CALLS);
}

static void memory_runs_out(void **state)
{
    (void)state;
    fail_each(INJECT_ONCE);
    fail_each(INJECT_ONWARDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_runs_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
