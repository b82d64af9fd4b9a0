/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks with caller_activations: they compute the same bits as others, and need no memory for edges, both by the size
 * queries and as allocated; and calls that are impossible with them. */
#include "dist.h"
#include "sizes.h"

enum { K = 12, N = 20, ROWS = 18 };

typedef struct shape {
    qdr_layout in, out;
    int transposed, drop_gathered;
    qdr_dtype dtype;
} shape;

typedef struct layer {
    qdr_stack *stack;
    qdr_linear *linear;
    qdr_edge x, y;
} layer;

static layer make(qdr_grid *grid, const shape *s, int callers)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{K, 2}}, .col_axis = s->transposed ? QDR_Y : QDR_X,
                                 .layout = s->in};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),
                                  .name = "layer",
                                  .in = {{K, 2}},
                                  .out = {{N, 1}},
                                  .bias = 1,
                                  .transposed = s->transposed,
                                  .panels = 2,
                                  .drop_gathered = s->drop_gathered,
                                  .out_layout = s->out};
    layer made;
    made.stack = dist_stack(grid, (qdr_stack_opts){.n_rows = ROWS, .dtype = s->dtype, .caller_activations = callers});
    DIST_OK(qdr_stack_add_input(made.stack, "x", &input, 1, &made.x));
    DIST_OK(qdr_stack_add_linear(made.stack, &desc, made.x, &made.y, &made.linear));
    DIST_OK(qdr_stack_build(made.stack));
    DIST_OK(qdr_stack_init(made.stack, 5, 0.5));
    return made;
}

static size_t edge_bytes(const layer *l, qdr_edge edge)
{
    const qdr_owned owned = dist_edge_owned(l->stack, edge);
    return (size_t)(owned.n_rows * owned.n_cols) * qdr_dtype_bytes(qdr_stack_dtype(l->stack));
}

static size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* What the caller has of one layer. */
typedef struct arrays {
    void *x, *dx, *y, *dy;
} arrays;

static arrays make_arrays(const layer *l)
{
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(l->stack));
    const qdr_dtype dtype = qdr_stack_dtype(l->stack);
    const int64_t n_x = (int64_t)(edge_bytes(l, l->x) / qdr_dtype_bytes(dtype));
    const int64_t n_y = (int64_t)(edge_bytes(l, l->y) / qdr_dtype_bytes(dtype));
    const arrays a = {dist_memory(ctx, n_x, dtype), dist_memory(ctx, n_x, dtype), dist_memory(ctx, n_y, dtype),
                      dist_memory(ctx, n_y, dtype)};
    dist_fill_edge(l->stack, l->x, a.x, 3);
    dist_fill_edge(l->stack, l->y, a.dy, 4);
    return a;
}

static void free_arrays(qdr_context *ctx, arrays *a)
{
    qdr_mem_free(ctx, &a->x);
    qdr_mem_free(ctx, &a->dx);
    qdr_mem_free(ctx, &a->y);
    qdr_mem_free(ctx, &a->dy);
}

/* One step on the caller's arrays. @return how many gradients of parameters there are */
static int64_t run(const layer *l, const arrays *a, double *gradients)
{
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(l->stack));
    DIST_OK(qdr_linear_forward(l->linear, a->x, a->y, 0, NULL));
    DIST_OK(qdr_linear_backward(l->linear, a->dy, a->x, a->dx, 0, NULL));
    dist_synchronize(ctx);
    return dist_gather_gradients(l->stack, gradients);
}

static void cannot_run_whole(const layer *l)
{
    void *memory = NULL;
    DIST_FAILS(qdr_stack_forward(l->stack), QDR_ERR_STATE, "made with caller_activations");
    DIST_FAILS(qdr_stack_backward(l->stack, 0, 1), QDR_ERR_STATE, "made with caller_activations");
    DIST_FAILS(qdr_stack_edge_value(l->stack, l->x, &memory), QDR_ERR_STATE, "'x': the stack was made with");
    DIST_FAILS(qdr_stack_edge_gradient(l->stack, l->y, &memory), QDR_ERR_STATE, "the stack was made with");
}

static void check_shape(qdr_grid *grid, const shape *s)
{
    qdr_context *ctx = qdr_grid_context(grid);
    double wanted[K * N + N], got[K * N + N];
    qdr_stack_sizes whole = {QDR_INIT(qdr_stack_sizes)}, less = {QDR_INIT(qdr_stack_sizes)};
    size_t before, after, peak;
    layer own = make(grid, s, 0);
    DIST_OK(qdr_stack_get_sizes(own.stack, &whole));
    qdr_mem_usage(ctx, &before, &peak);
    layer callers = make(grid, s, 1);
    qdr_mem_usage(ctx, &after, &peak);
    DIST_OK(qdr_stack_get_sizes(callers.stack, &less));
    /* The grid's staging is there already, and a loss's sums are the whole stack's. */
    const size_t edges = 2 * aligned(edge_bytes(&own, own.x)) + 2 * aligned(edge_bytes(&own, own.y));
    const size_t said = sum_of_sizes(&less) - less.communication - less.device;
    DIST_CHECK(after - before == said, "%zu bytes are allocated, %zu are said", after - before, said);
    DIST_CHECK(whole.activations - less.activations == edges + 64, "%zu bytes less than %zu, but edges have %zu",
               whole.activations - less.activations, whole.activations, edges);
    DIST_CHECK(less.workspace <= whole.workspace && less.parameters == whole.parameters &&
                   less.gradients == whole.gradients,
               "the rest is not more");
    arrays a = make_arrays(&own), b = make_arrays(&callers);
    const int64_t n = run(&own, &a, wanted);
    DIST_CHECK(run(&callers, &b, got) == n, "gradients");
    DIST_CHECK(memcmp(got, wanted, (size_t)n * (s->dtype == QDR_F64 ? 8 : 4)) == 0, "gradients of parameters");
    DIST_CHECK(memcmp(a.y, b.y, edge_bytes(&own, own.y)) == 0, "y");
    DIST_CHECK(memcmp(a.dx, b.dx, edge_bytes(&own, own.x)) == 0, "dx");
    cannot_run_whole(&callers);
    free_arrays(ctx, &a);
    free_arrays(ctx, &b);
    qdr_stack_destroy(&own.stack);
    qdr_stack_destroy(&callers.stack);
}

static void check_grid(qdr_grid *grid, void *user)
{
    static const qdr_dtype dtypes[] = {QDR_F64, QDR_F32, QDR_BF16, QDR_F16};
    uint64_t *seed = user;
    for (int i = 0; i < 4; i++) {
        const shape s = {(qdr_layout)(i % 2), (qdr_layout)(i / 2), (int)dist_below(seed, 2), (int)dist_below(seed, 2),
                         dtypes[dist_below(seed, 4)]};
        check_shape(grid, &s);
    }
}

DIST_TEST(same_bits_in_less_memory) { dist_every_grid(ctx, 0, check_grid, &seed); }

/* 64 rows, 64 in-features and 32 out-features on one rank: x, dx, y, dy and the loss, or nothing. */
DIST_TEST(one_rank_has_nothing)
{
    qdr_context *self = NULL;
    DIST_OK(qdr_context_create_self(NULL, &self));
    qdr_grid *grid = dist_grid(self, (qdr_grid_opts){.x = 1, .y = 1, .z = 1, .d = 1});
    for (int callers = 0; callers < 2; callers++) {
        qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
        qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 64, .caller_activations = callers});
        qdr_edge edge = dist_input(stack, "x", (qdr_edge_desc){.cols = {{64, 1}}, .col_axis = QDR_X}, 1);
        edge = dist_linear(stack, (qdr_linear_desc){.in = {{64, 1}}, .out = {{32, 1}}}, edge, NULL);
        DIST_OK(qdr_stack_build(stack));
        DIST_OK(qdr_stack_get_sizes(stack, &sizes));
        DIST_CHECK(sizes.activations == (callers ? 0 : 49216), "%zu bytes", sizes.activations);
        qdr_stack_destroy(&stack);
    }
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&self);
}
