/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks and their passes, redistribution and an optimizer on local ranks while the n-th allocation fails, for every n:
 * all ranks get the same error from the same call, with a message, none waits forever, and nothing is leaked (leak
 * checkers are active). */
#include <pthread.h>

#include "fault/inject.h"
#include "nodes.h"
#include "qdr_test.h"
#include "quadrille/quadrille.h"

enum { N_RANKS = 2, MOST_CALLS = 20000, N_ROWS = 6, N_COLS = 4, TARGETS = 3, BUFFER_BYTES = 4096 };

/* What a rank has before allocations fail. */
typedef struct tools {
    qdr_context *ctx;
    qdr_grid *grid, *with_levels;
    qdr_stack *stack;
    void *memory; /* both matrices of a redistribution */
} tools;

typedef enum step { STACK, LEVELS, REDISTRIBUTE, PASSES, CREATE, NORM, USE, N_STEPS } step;

/* What a rank got: the step that failed first, or N_STEPS. */
typedef struct outcome {
    step at;
    int stale; /* whether the parameters with levels were so in the end */
    qdr_status status;
    char sentence[512];
} outcome;

typedef struct job {
    pthread_barrier_t ready;
    long n;
    inject_extent extent;
    outcome outcomes[N_RANKS];
} job;

static qdr_status describe(qdr_stack *stack)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{N_COLS, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {{N_COLS, 1}}, .out = {{N_COLS, 1}},
                                  .bias = 1};
    qdr_edge edge = 0;
    qdr_linear *layer = NULL;
    qdr_status status = qdr_stack_add_input(stack, "x", &input, 1, &edge);
    if (status == QDR_OK) status = qdr_stack_add_linear(stack, &desc, edge, &edge, &layer);
    if (status == QDR_OK) status = test_add_norm(stack, "norm", 0, edge, &edge);
    return status == QDR_OK ? qdr_stack_add_cross_entropy(stack, "loss", edge, &edge) : status;
}

/* Adding and initialising are local: their status is for qdr_agree(). */
static qdr_status make_stack(qdr_context *ctx, qdr_grid *grid, qdr_stack **stack)
{
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = N_ROWS};
    qdr_status status = qdr_stack_create(grid, &opts, stack);
    if (status == QDR_OK) status = qdr_agree(ctx, describe(*stack));
    if (status == QDR_OK) status = qdr_stack_build(*stack);
    return status == QDR_OK ? qdr_agree(ctx, qdr_stack_init(*stack, 1, 0.1)) : status;
}

static void tools_make(qdr_local_world *world, int rank, tools *made)
{
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = N_RANKS, .y = 1, .z = 1, .d = 1};
    CHECK_OK(qdr_context_create_local(world, rank, NULL, &made->ctx));
    const qdr_grid_opts levels = {QDR_INIT(qdr_grid_opts),   .x = 1, .y = 1, .z = 1, .d = N_RANKS,
                                  .optimizer_parts = N_RANKS};
    CHECK_OK(qdr_grid_create(made->ctx, &shape, &made->grid));
    CHECK_OK(qdr_grid_create(made->ctx, &levels, &made->with_levels));
    CHECK_OK(make_stack(made->ctx, made->grid, &made->stack));
    void *targets;
    CHECK_OK(qdr_stack_edge_value(made->stack, TARGETS, &targets));
    memset(targets, 0, N_ROWS * sizeof(int32_t));
    CHECK_OK(qdr_mem_alloc(made->ctx, (size_t)2 * BUFFER_BYTES, &made->memory));
    memset(made->memory, 0, (size_t)2 * BUFFER_BYTES);
    CHECK_OK(qdr_barrier(made->ctx));
}

static void tools_free(tools *made)
{
    qdr_stack_destroy(&made->stack);
    qdr_grid_destroy(&made->grid);
    qdr_grid_destroy(&made->with_levels);
    qdr_mem_free(made->ctx, &made->memory); /* the streams are idle now */
    qdr_context_destroy(&made->ctx);
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status try_status_ = (call);                                                                         \
        if (try_status_ != QDR_OK) return try_status_;                                                                 \
    } while (0)

static void *buffer(const tools *t, int index) { return (char *)t->memory + index * BUFFER_BYTES; }

static qdr_status use_redistribute(const tools *t)
{
    const qdr_matrix rows = {QDR_INIT(qdr_matrix), .n_rows = N_ROWS, .cols = {{N_COLS, 1}}, .spread = QDR_SPREAD_RANKS};
    const qdr_matrix columns = {QDR_INIT(qdr_matrix), .n_rows = N_ROWS, .cols = {{N_COLS, 1}}, .split_cols = 1};
    TRY(qdr_redistribute(t->grid, &rows, buffer(t, 0), &columns, buffer(t, 1), QDR_F32, NULL));
    return qdr_redistribute(t->grid, &columns, buffer(t, 1), &rows, buffer(t, 0), QDR_F32, NULL);
}

static qdr_status use_passes(const tools *t)
{
    TRY(qdr_stack_forward(t->stack));
    TRY(qdr_stack_backward(t->stack, 0, 1));
    return qdr_stream_synchronize(qdr_context_stream(t->ctx));
}

static qdr_status use_optimizer(qdr_adamw *optimizer)
{
    double norm = 0;
    TRY(qdr_adamw_step(optimizer, 0.1));
    return qdr_adamw_norm(optimizer, &norm);
}

static qdr_status use_stack(const tools *t, qdr_grid *grid)
{
    qdr_stack *stack = NULL;
    const qdr_status status = make_stack(t->ctx, grid, &stack);
    qdr_stack_destroy(&stack);
    return status;
}

/* New values for parameters that are stale. */
static qdr_status use_levels(const tools *t, int *stale)
{
    qdr_stack *stack = NULL;
    qdr_parameter parameter = {QDR_INIT(qdr_parameter)};
    qdr_status status = make_stack(t->ctx, t->with_levels, &stack);
    if (status == QDR_OK) {
        CHECK_OK(qdr_stack_mark_updated(stack));
        status = qdr_stack_init(stack, 2, 0.1);
        CHECK_OK(qdr_stack_parameter(stack, 0, &parameter));
        *stale = parameter.stale;
    }
    qdr_stack_destroy(&stack);
    return status;
}

/* The steps one after the other, until one fails. */
static qdr_status use_all(const tools *t, step *at, int *stale)
{
    qdr_adamw *optimizer = NULL;
    double norm = 0;
    qdr_status status = QDR_OK;
    for (*at = STACK; *at < N_STEPS; (*at)++) {
        if (*at == STACK) status = use_stack(t, t->grid);
        if (*at == LEVELS) status = use_levels(t, stale);
        if (*at == REDISTRIBUTE) status = use_redistribute(t);
        if (*at == PASSES) status = use_passes(t);
        if (*at == CREATE) status = qdr_adamw_create(t->stack, NULL, &optimizer);
        if (*at == NORM) status = qdr_grad_norm(t->stack, &norm);
        if (*at == USE) status = use_optimizer(optimizer);
        if (status != QDR_OK) break;
    }
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
    outcome *mine = &all->outcomes[rank];
    mine->status = use_all(&t, &mine->at, &mine->stale);
    if (mine->status != QDR_OK) snprintf(mine->sentence, sizeof mine->sentence, "%s", qdr_last_error());
    tools_free(&t);
    return 0;
}

/* Returns the number of errors. */
static int check_outcomes(const outcome *outcomes, int failed, long n)
{
    for (int rank = 0; rank < N_RANKS; rank++) {
        const outcome *mine = &outcomes[rank];
        if (mine->at != outcomes[0].at || strcmp(mine->sentence, outcomes[0].sentence) != 0)
            print_error("allocation %ld, rank %d, step %d: \"%s\"; rank 0, step %d: \"%s\"\n", n, rank, (int)mine->at,
                        mine->sentence, (int)outcomes[0].at, outcomes[0].sentence);
        assert_int_equal(mine->at, outcomes[0].at);
        assert_int_equal(mine->stale, outcomes[0].stale);
        assert_int_equal(mine->status, outcomes[0].status);
        assert_string_equal(mine->sentence, outcomes[0].sentence);
        assert_int_equal(mine->status, failed ? QDR_ERR_MEMORY : QDR_OK);
        assert_true(strlen(mine->sentence) > 10 || !failed);
    }
    return failed ? N_RANKS : 0;
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
        n_errors += check_outcomes(all.outcomes, failed, n);
    }
    print_message("%ld places, %ld errors\n", n - 1, n_errors);
    assert_true(n_errors > 1 && n < MOST_CALLS);
}

TEST(memory_runs_out)
{
    fail_each(INJECT_ONCE);
    fail_each(INJECT_ONWARDS);
}
