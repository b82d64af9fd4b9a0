/* SPDX-License-Identifier: Apache-2.0 */
/* With levels, a parameter is stale from an update until a pass returns it. All ranks know the same: after layers that
 * run alone, on streams of the caller's too, and after values that one rank refuses. */
#include <quadrille/coll.h>
#include <semaphore.h>
#include <time.h>

#include "context/internal.h"
#include "dist.h"

/* Two layers without biases: parameters 0 and 1 are their weights, of n_elems elements. */
typedef struct pair {
    qdr_stack *stack;
    qdr_linear *layers[2];
    void *x, *y, *z, *dz; /* values of the edges, and the last one's gradient */
    void *dy; /* the caller's */
    int64_t n_elems;
} pair;

static pair pair_create(qdr_grid *grid, int64_t k, int64_t n)
{
    qdr_context *ctx = qdr_grid_context(grid);
    const int64_t n_rows = 2 * qdr_context_size(ctx);
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{k, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc first = {QDR_INIT(qdr_linear_desc), .name = "first", .in = {{k, 1}}, .out = {{n, 1}}},
                          second = {QDR_INIT(qdr_linear_desc), .name = "second", .in = {{n, 1}}, .out = {{k, 1}},
                                    .transposed = 1};
    pair made = {.n_elems = n * k, .dy = dist_memory(ctx, n_rows * n, QDR_F64)};
    qdr_edge x, y, z;
    made.stack = dist_stack(grid, (qdr_stack_opts){.n_rows = n_rows, .dtype = QDR_F64, .panels = 1, .batch_parts = 1});
    DIST_OK(qdr_stack_add_input(made.stack, "x", &input, 0, &x));
    DIST_OK(qdr_stack_add_linear(made.stack, &first, x, &y, &made.layers[0]));
    DIST_OK(qdr_stack_add_linear(made.stack, &second, y, &z, &made.layers[1]));
    DIST_OK(qdr_stack_build(made.stack));
    DIST_OK(qdr_stack_init(made.stack, 3, 0.1));
    made.x = dist_edge_value(made.stack, x);
    made.y = dist_edge_value(made.stack, y);
    made.z = dist_edge_value(made.stack, z);
    made.dz = dist_edge_gradient(made.stack, z);
    dist_fill_edge(made.stack, x, made.x, 1);
    dist_fill_edge(made.stack, y, made.y, 2);
    dist_fill_edge(made.stack, z, made.dz, 3);
    return made;
}

/* Some ranks may hold nothing of it. */
static pair any_pair(qdr_grid *grid, uint64_t *seed)
{
    const int64_t k = 1 + dist_below(seed, 30), n = 1 + dist_below(seed, 30);
    return pair_create(grid, k, n);
}

static void pair_destroy(pair *p)
{
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(p->stack));
    dist_synchronize(ctx);
    qdr_mem_free(ctx, &p->dy);
    qdr_stack_destroy(&p->stack);
}

/* What an optimizer does. */
static void update(qdr_stack *stack)
{
    dist_synchronize(qdr_grid_context(qdr_stack_grid(stack)));
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        double *data = p.data;
        for (int64_t j = p.state_begin; j < p.state_begin + p.n_state; j++) data[j] += 1;
    }
    DIST_OK(qdr_stack_mark_updated(stack));
}

/* Ranks that disagree on this would run different lists, and wait for each other forever. */
static void check_stale(qdr_stack *stack, int first, int second, const char *when)
{
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(stack));
    const int wanted[2] = {first && dist_has_levels(qdr_stack_grid(stack)),
                           second && dist_has_levels(qdr_stack_grid(stack))};
    for (int i = 0; i < 2; i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        int there = p.stale;
        DIST_OK(qdr_broadcast(ctx, 0, &there, sizeof there));
        DIST_CHECK(p.stale == there && p.stale == wanted[i], "%s: %s is stale: %d here, %d on rank 0, not %d", when,
                   p.name, p.stale, there, wanted[i]);
    }
}

/* ---- layers alone ---- */

/* Each returns its own W when it needs it: dW does not. */
DIST_TEST(layers_return_their_own)
{
    for (int round = 0; round < dist_rounds(6); round++) {
        qdr_grid *grid = dist_levels_grid(ctx, &seed);
        pair p = any_pair(grid, &seed);
        check_stale(p.stack, 0, 0, "at first");
        update(p.stack);
        check_stale(p.stack, 1, 1, "after an update");
        DIST_OK(qdr_linear_forward(p.layers[0], p.x, p.y, 0, NULL));
        check_stale(p.stack, 0, 1, "after the first layer's forward");
        DIST_OK(qdr_linear_backward(p.layers[1], p.dz, p.y, NULL, QDR_NO_DX, NULL));
        check_stale(p.stack, 0, 1, "after a backward without dX");
        DIST_OK(qdr_linear_backward(p.layers[1], p.dz, p.y, p.dy, 0, NULL));
        check_stale(p.stack, 0, 0, "after a backward");
        dist_check_copies(p.stack, "after both layers");
        pair_destroy(&p);
        qdr_grid_destroy(&grid);
    }
}

/* What keeps a stream busy. A test that waits for it forever ends after a while. */
enum { LONGEST_SECS = 20 };
typedef struct obstacle {
    sem_t may_end;
    int has_delayed; /* it ended by itself */
} obstacle;

static void stand_in_the_way(void *user)
{
    obstacle *o = user;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONGEST_SECS;
    o->has_delayed = sem_timedwait(&o->may_end, &until) != 0;
}

/* A W returns on the stream of the call: work on the context's stream does not delay it. */
DIST_TEST(returns_follow_the_callers_stream)
{
    for (int round = 0; round < dist_rounds(6); round++) {
        qdr_grid *grid = dist_levels_grid(ctx, &seed);
        pair p = any_pair(grid, &seed);
        qdr_parameter w[] = {{QDR_INIT(qdr_parameter)}, {QDR_INIT(qdr_parameter)}};
        double digests[2];
        qdr_stream *stream;
        obstacle way = {.has_delayed = 0};
        DIST_OK(qdr_stream_create(ctx, &stream));
        DIST_CHECK(sem_init(&way.may_end, 0, 0) == 0, "no semaphore");
        update(p.stack);
        DIST_OK(qdr_stream_call(qdr_context_stream(ctx), stand_in_the_way, &way));
        DIST_OK(qdr_linear_forward(p.layers[0], p.x, p.y, 0, stream));
        DIST_OK(qdr_linear_backward(p.layers[1], p.dz, p.y, p.dy, 0, stream));
        DIST_OK(qdr_stream_synchronize(stream));
        for (int i = 0; i < 2; i++) {
            DIST_OK(qdr_stack_parameter(p.stack, i, &w[i]));
            digests[i] = dist_digest(w[i].data, (size_t)w[i].n_elems * sizeof(double));
        }
        sem_post(&way.may_end);
        for (int i = 0; i < 2; i++) dist_check_digest(grid, digests[i], "on a stream of the caller's", w[i].name);
        dist_synchronize(ctx);
        DIST_CHECK(!way.has_delayed, "a layer waited for the context's stream");
        sem_destroy(&way.may_end);
        qdr_stream_destroy(&stream);
        pair_destroy(&p);
        qdr_grid_destroy(&grid);
    }
}

/* A return writes W, so x may not be there. Every rank holds some of x: an array of no elements is nowhere. */
DIST_TEST(operands_are_not_in_a_returned_weight)
{
    qdr_grid *grid = dist_levels_grid(ctx, &seed);
    const int n_ranks = qdr_context_size(ctx);
    const int64_t k = n_ranks * (1 + dist_below(&seed, 4)), n = n_ranks * (1 + dist_below(&seed, 4));
    pair p = pair_create(grid, k, n);
    const qdr_parameter w = dist_parameter(p.stack, 0);
    if (dist_has_levels(grid)) {
        DIST_FAILS(qdr_linear_forward(p.layers[0], w.data, p.y, 0, NULL), QDR_ERR_ARGUMENT, "parameters");
        DIST_FAILS(qdr_linear_backward(p.layers[1], p.dz, w.data, p.dy, 0, NULL), QDR_ERR_ARGUMENT, "parameters");
    }
    pair_destroy(&p);
    qdr_grid_destroy(&grid);
}

/* ---- values that a rank refuses ---- */

/* Ranks compare what they load only with QDR_CHECK=1; otherwise W counts as loaded, even where that was refused. */
static void refuse_load(qdr_stack *stack, const double *w)
{
    const qdr_grid *grid = qdr_stack_grid(stack);
    qdr_context *ctx = qdr_grid_context(grid);
    const int is_last = qdr_context_rank(ctx) == qdr_context_size(ctx) - 1;
    DIST_OK(qdr_stack_mark_updated(stack));
    const qdr_status status = qdr_stack_load_parameter(stack, 0, is_last ? NULL : w);
    const int compares = qdri_context_is_checked(ctx);
    DIST_CHECK(status == (is_last || compares ? QDR_ERR_ARGUMENT : QDR_OK), "load: %s", qdr_status_name(status));
    check_stale(stack, compares, 1, "after a load");
}

static void refuse_init(qdr_stack *stack)
{
    const qdr_grid *grid = qdr_stack_grid(stack);
    const qdr_context *ctx = qdr_grid_context(grid);
    DIST_OK(qdr_stack_mark_updated(stack));
    const uint64_t seed = qdr_context_rank(ctx) == 0 ? 1 : 2;
    if (qdr_context_size(ctx) > 1) DIST_FAILS(qdr_stack_init(stack, seed, 0.1), QDR_ERR_ARGUMENT, "seed");
    check_stale(stack, 1, 1, "after initial values");
}

/* With QDR_CHECK=1 a rank that forgot to say that it had updated its parts is named before anything runs. */
static void miss_update(qdr_stack *stack)
{
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(stack));
    if (!qdri_context_is_checked(ctx) || !dist_has_levels(qdr_stack_grid(stack))) return;
    if (qdr_context_rank(ctx) != 1) DIST_OK(qdr_stack_mark_updated(stack));
    DIST_FAILS(qdr_stack_forward(stack), QDR_ERR_ARGUMENT,
               "qdr_stack_forward has parameters (qdr_stack_mark_updated()) stale on rank 0 and not stale on rank 1");
    if (qdr_context_rank(ctx) == 1) DIST_OK(qdr_stack_mark_updated(stack));
}

DIST_TEST(values_are_refused)
{
    for (int round = 0; round < dist_rounds(6); round++) {
        qdr_grid *grid = dist_levels_grid(ctx, &seed);
        pair p = any_pair(grid, &seed);
        double *w = calloc((size_t)p.n_elems, sizeof *w);
        DIST_CHECK(w, "no memory");
        for (int is_load = 0; is_load < 2; is_load++) {
            if (is_load)
                refuse_load(p.stack, w);
            else
                refuse_init(p.stack);
            DIST_OK(qdr_stack_forward(p.stack));
            dist_synchronize(ctx);
            miss_update(p.stack);
            update(p.stack);
            DIST_OK(is_load ? qdr_stack_load_parameter(p.stack, 0, w) : qdr_linear_init(p.layers[0], 1, 0.1));
            check_stale(p.stack, 0, 1, "after the first weight was set");
            DIST_OK(qdr_stack_init(p.stack, 1, 0.1));
            dist_check_copies(p.stack, "after all were set");
        }
        free(w);
        pair_destroy(&p);
        qdr_grid_destroy(&grid);
    }
}

/* Without QDR_CHECK the calls themselves differ: then the message says what was forgotten. */
static int forget(qdr_local_world *world, int rank, void *user)
{
    qdr_context *ctx = NULL;
    (void)user;
    DIST_OK(qdr_context_create_local(world, rank, NULL, &ctx));
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = 1, .y = 1, .z = 1, .d = 2, .gradient_parts = 2});
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 8});
    const qdr_edge x = dist_input(stack, "x", (qdr_edge_desc){.cols = {{16, 1}}}, 1);
    dist_linear(stack, (qdr_linear_desc){.name = "fc", .in = {{16, 1}}, .out = {{16, 1}}}, x, NULL);
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_init(stack, 1, 0.1));
    if (rank) DIST_OK(qdr_stack_mark_updated(stack));
    qdr_status status = qdr_stack_forward(stack);
    if (status == QDR_OK) status = qdr_stack_backward(stack, 0, 1);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    DIST_CHECK(status == QDR_ERR_ARGUMENT || status == QDR_ERR_PEER, "%s", qdr_status_name(status));
    DIST_CHECK(strstr(qdr_last_error(), "call qdr_stack_mark_updated()"), "%s", qdr_last_error());
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    return 0;
}

static int one_forgets(void)
{
    DIST_OK(qdr_local_run(2, forget, NULL, NULL));
    puts("ok one forgets");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "forget") == 0) return one_forgets();
    return dist_main(argc, argv, NULL);
}
