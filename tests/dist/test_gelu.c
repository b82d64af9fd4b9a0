/* SPDX-License-Identifier: Apache-2.0 */
/* GELU between linear layers, on every grid of the ranks, in cases where a device may fuse it with a product and where
 * it may not: close to the result of a caller's operation in F64, and bit for bit the same with overlap and without. */
#include "dist.h"

enum { WIDTH = 16, WIDE = 64, UNIT = 2, MOST = 16384 };

/* Who reads what goes into GELU (a), and what comes out of it (b). */
typedef enum readers {
    ALONE, /* a: GELU, b: a layer */
    A_TWICE, /* a: a residual, too, which adds to its gradient */
    B_TWICE, /* b: two layers, the second adding to its gradient */
    B_SHARED, /* b: a residual, whose gradient is that of another layer's result, too */
    LAST, /* b: the caller, who sees its gradient */
    N_READERS
} readers;

typedef struct variant {
    readers readers;
    qdr_dtype dtype;
    qdr_layout layout;
    int overlap, batch_parts;
    int by_caller; /* GELU is an operation of the caller's, in F64, with memory for each gradient */
} variant;

/* ---- GELU as an operation of the caller's ---- */

/* What a stream will do: y = gelu(x), or dx = or += dy·gelu'(x). */
typedef struct work {
    const double *x, *dy; /* dy NULL: forward */
    double *result;
    int64_t n;
    int accumulate;
} work;

/* 0.5·x·(1 + tanh(s)), s = √(2/π)·(x + 0.044715·x³), or its slope. */
static double gelu(double x, int is_slope)
{
    const double root = sqrt(2 / acos(-1)), t = tanh(root * (x + 0.044715 * x * x * x));
    if (!is_slope) return 0.5 * x * (1 + t);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

static void do_work(void *user)
{
    work *w = user;
    for (int64_t i = 0; i < w->n; i++) {
        const double value = w->dy ? w->dy[i] * gelu(w->x[i], 1) : gelu(w->x[i], 0);
        w->result[i] = w->accumulate ? w->result[i] + value : value;
    }
    free(w);
}

static qdr_status enqueue(const qdr_op_call *call, const double *dy, double *result, int accumulate)
{
    work *w = malloc(sizeof *w);
    DIST_CHECK(w, "no memory");
    *w = (work){call->in[0], dy, result, call->n_rows * call->out_cols, accumulate};
    return qdr_stream_call(call->stream, do_work, w);
}

static qdr_status forward(const qdr_op_call *call, void *user)
{
    (void)user;
    return enqueue(call, NULL, call->out, 0);
}

static qdr_status backward(const qdr_op_call *call, void *user)
{
    (void)user;
    return enqueue(call, call->d_out, call->d_in[0], call->accumulate[0]);
}

/* ---- the stack ---- */

static qdr_edge add_gelu(qdr_stack *stack, const variant *v, qdr_edge a)
{
    const qdr_op_desc op = {QDR_INIT(qdr_op_desc), .name = "gelu",      .n_in = 1, .in = {a},
                            .forward = forward,    .backward = backward};
    qdr_edge b;
    if (v->by_caller)
        DIST_OK(qdr_stack_add_op(stack, &op, &b));
    else
        DIST_OK(qdr_stack_add_gelu(stack, "gelu", a, &b));
    return b;
}

static qdr_edge add_layer(qdr_stack *stack, const variant *v, const char *name, int is_up, qdr_edge in)
{
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),
                                  .name = name,
                                  .in = {{is_up ? WIDTH : WIDE, 1}},
                                  .out = {{is_up ? WIDE : WIDTH, 1}},
                                  .bias = 1,
                                  .transposed = !is_up,
                                  .out_layout = v->layout};
    qdr_edge out;
    DIST_OK(qdr_stack_add_linear(stack, &desc, in, &out, NULL));
    return out;
}

static void describe(qdr_stack *stack, const variant *v, qdr_edge *x, qdr_edge *y)
{
    qdr_edge c;
    *x = dist_input(stack, "x", (qdr_edge_desc){.cols = {{WIDTH, 1}}, .col_axis = QDR_X, .layout = v->layout}, 1);
    const qdr_edge a = add_layer(stack, v, "up", 1, *x);
    const qdr_edge other = v->readers == B_SHARED ? add_layer(stack, v, "up too", 1, *x) : a;
    qdr_edge b = add_gelu(stack, v, a);
    *y = b;
    if (v->readers == LAST) return;
    if (v->readers == A_TWICE || v->readers == B_SHARED) DIST_OK(qdr_stack_add_residual(stack, "both", other, b, &b));
    *y = add_layer(stack, v, "down", 0, b);
    if (v->readers != B_TWICE) return;
    c = add_layer(stack, v, "down too", 0, b);
    DIST_OK(qdr_stack_add_residual(stack, "sum", *y, c, y));
}

static int64_t append(double *kept, int64_t n, const void *data, qdr_dtype dtype, int64_t n_more)
{
    DIST_CHECK(n + n_more <= MOST, "%lld numbers", (long long)(n + n_more));
    for (int64_t i = 0; i < n_more; i++) kept[n + i] = dist_get(data, dtype, i);
    return n + n_more;
}

static int64_t elems(const qdr_stack *stack, qdr_edge edge)
{
    const qdr_owned owned = dist_edge_owned(stack, edge);
    return owned.n_rows * owned.n_cols;
}

/* What a step gives: y, the gradient of x, those of parameters. */
static int64_t results(qdr_grid *grid, const variant *v, double *kept)
{
    const int64_t n_units = INT64_C(2) * qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D);
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = n_units * UNIT, .row_unit = UNIT,
                                 .dtype = v->dtype,        .overlap = v->overlap,    .batch_parts = v->batch_parts};
    qdr_stack *stack;
    qdr_edge x, y;
    void *data, *gradients = calloc(MOST, sizeof(double));
    DIST_CHECK(gradients != NULL, "no memory");
    DIST_OK(qdr_stack_create(grid, &opts, &stack));
    describe(stack, v, &x, &y);
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_init(stack, 11, 0.4));
    dist_step(stack, x, 3, y, 5, 0);
    data = dist_edge_value(stack, y);
    int64_t n = append(kept, 0, data, v->dtype, elems(stack, y));
    data = dist_edge_gradient(stack, x);
    n = append(kept, n, data, v->dtype, elems(stack, x));
    const int64_t n_gradients = dist_gather_gradients(stack, gradients);
    n = append(kept, n, gradients, dist_sum_type(v->dtype), n_gradients);
    free(gradients);
    qdr_stack_destroy(&stack);
    return n;
}

static double norm(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(sum);
}

typedef struct memory {
    double exact[MOST], one[MOST], other[MOST];
} memory;

/* A number meets at most some ten roundings on its way, most of them of one weight or sum. */
static void check(qdr_grid *grid, variant v, memory *m)
{
    const qdr_dtype dtype = v.dtype;
    v.dtype = QDR_F64;
    v.by_caller = 1;
    const int64_t n = results(grid, &v, m->exact);
    v.dtype = dtype;
    v.by_caller = 0;
    DIST_CHECK(results(grid, &v, m->one) == n, "%s", qdr_dtype_name(dtype));
    const double off = norm(m->one, m->exact, n), size = norm(m->exact, NULL, n);
    DIST_CHECK(off <= 10 * dist_roundoff(dtype) * size, "readers %d, %s: off by %g of %g", (int)v.readers,
               qdr_dtype_name(dtype), off, size);
    v.overlap = QDR_OVERLAP_NONE;
    DIST_CHECK(results(grid, &v, m->other) == n, "%s", qdr_dtype_name(dtype));
    DIST_CHECK(memcmp(m->one, m->other, (size_t)n * sizeof *m->one) == 0, "readers %d, %s: overlap changes bits",
               (int)v.readers, qdr_dtype_name(dtype));
}

static void check_grid(qdr_grid *grid, void *user)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_BF16, QDR_F16};
    for (int i = 0; i < 2 * N_READERS; i++) {
        const variant v = {.readers = (readers)(i % N_READERS),
                           .dtype = dtypes[i % 3],
                           .layout = i / 2 % 2 ? QDR_SCATTERED : QDR_REPLICATED,
                           .overlap = QDR_OVERLAP_ALL,
                           .batch_parts = 1 + i % 2};
        check(grid, v, user);
    }
}

DIST_TEST(every_grid)
{
    memory *m = calloc(1, sizeof *m);
    DIST_CHECK(m != NULL, "no memory");
    dist_every_grid(ctx, 0, check_grid, m);
    free(m);
}
