/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions and gates between linear layers, on every grid of the ranks, with columns that are split
 * unevenly, or in so few units that ranks have none, and in cases where a device may fuse GELU with a product: close to
 * the result of a caller's operation in F64, which is the serial reference, and bit for bit the same with overlap and
 * without. */
#include "../reference/serial_ops.h"
#include "dist.h"

enum { WIDTH = 16, WIDE = 64, UNIT = 2, MOST = 16384, N_FUNCTIONS = QDR_RELU_SQUARED + 1 };

/* Who reads what goes into the function (a), and what comes out of it (b). */
typedef enum readers {
    ALONE, /* a: the function, b: a layer */
    A_TWICE, /* a: the function again, which adds to its gradient */
    B_TWICE, /* b: two layers, the second adding to its gradient */
    B_SHARED, /* b: a residual, whose gradient is that of another function's result, too */
    LAST, /* b: the caller, who sees its gradient */
    N_READERS
} readers;

typedef struct variant {
    readers readers;
    qdr_activation_function function;
    int gated;
    int64_t unit; /* of the columns */
    qdr_dtype dtype;
    qdr_layout layout;
    int overlap, batch_parts, panels;
    int by_caller; /* it is an operation of the caller's, in F64, with memory for each gradient */
} variant;

/* ---- the function as an operation of the caller's ---- */

/* What a stream will do: y = function(x), or dx = or += its gradient. */
typedef struct work {
    const variant *v;
    const double *x, *dy; /* dy NULL: forward */
    double *result;
    int64_t n_rows, n_cols; /* of y */
    int accumulate;
} work;

/* An array of the reference, which does not write to it. */
static array read_only(const double *values, double *errors) { return (array){(double *)(uintptr_t)values, errors}; }

/* room: for 6 numbers per column, zeros but where it was used. */
static void do_row(const work *w, int64_t row, double *room)
{
    const int64_t n = w->n_cols, n_in = w->v->gated ? 2 * n : n;
    const double *x = w->x + row * n_in;
    double *zeros = room, *made = room + 2 * n, *errors = room + 4 * n, *result = w->result + row * (w->dy ? n_in : n);
    const array gate = read_only(x, zeros), up = read_only(w->v->gated ? x + n : NULL, zeros);
    if (!w->dy) {
        serial_activation(w->v->function, n, gate, up, (array){result, errors});
        return;
    }
    serial_activation_backward(w->v->function, n, gate, up, read_only(w->dy + row * n, zeros), (array){made, errors},
                               (array){made + n, errors + n});
    for (int64_t i = 0; i < n_in; i++) result[i] = w->accumulate ? result[i] + made[i] : made[i];
}

static void do_work(void *user)
{
    work *w = user;
    double *room = calloc((size_t)(6 * w->n_cols + 1), sizeof *room);
    DIST_CHECK(room, "no memory");
    for (int64_t row = 0; row < w->n_rows; row++) do_row(w, row, room);
    free(room);
    free(w);
}

static qdr_status enqueue(const qdr_op_call *call, const variant *v, const double *dy, double *result, int accumulate)
{
    work *w = malloc(sizeof *w);
    DIST_CHECK(w, "no memory");
    *w = (work){v, call->in[0], dy, result, call->n_rows, call->out_cols, accumulate};
    return qdr_stream_call(call->stream, do_work, w);
}

static qdr_status forward(const qdr_op_call *call, void *user) { return enqueue(call, user, NULL, call->out, 0); }

static qdr_status backward(const qdr_op_call *call, void *user)
{
    return enqueue(call, user, call->d_out, call->d_in[0], call->accumulate[0]);
}

/* ---- the stack ---- */

static qdr_edge add_function(qdr_stack *stack, const variant *v, qdr_edge a)
{
    const qdr_op_desc op = {QDR_INIT(qdr_op_desc),
                            .name = "act",
                            .n_in = 1,
                            .in = {a},
                            .out = {{WIDE, v->unit}},
                            .forward = forward,
                            .backward = backward,
                            .user = (void *)(uintptr_t)v};
    const qdr_activation_desc desc = {QDR_INIT(qdr_activation_desc), .name = "act", .function = v->function,
                                      .gated = v->gated};
    qdr_edge b;
    if (v->by_caller)
        DIST_OK(qdr_stack_add_op(stack, &op, &b));
    else
        DIST_OK(qdr_stack_add_activation(stack, &desc, a, &b));
    return b;
}

static qdr_edge add_layer(qdr_stack *stack, const variant *v, const char *name, int is_up, qdr_edge in)
{
    const qdr_block narrow = {WIDTH, 1}, wide = {WIDE, v->unit}, none = {0, 0};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),
                                  .name = name,
                                  .in = {is_up ? narrow : wide},
                                  .out = {is_up ? wide : narrow, is_up && v->gated ? wide : none},
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
    qdr_edge b = add_function(stack, v, a), other = a;
    *y = b;
    if (v->readers == LAST) return;
    if (v->readers == A_TWICE) other = add_function(stack, v, a);
    if (v->readers == B_SHARED) other = add_function(stack, v, add_layer(stack, v, "up too", 1, *x));
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
                                 .dtype = v->dtype,        .overlap = v->overlap,    .batch_parts = v->batch_parts,
                                 .panels = v->panels};
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
    uint64_t seed;
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
    DIST_CHECK(off <= 10 * dist_roundoff(dtype) * size, "function %d, gated %d, readers %d, %s: off by %g of %g",
               (int)v.function, v.gated, (int)v.readers, qdr_dtype_name(dtype), off, size);
    v.overlap = QDR_OVERLAP_NONE;
    DIST_CHECK(results(grid, &v, m->other) == n, "%s", qdr_dtype_name(dtype));
    DIST_CHECK(memcmp(m->one, m->other, (size_t)n * sizeof *m->one) == 0,
               "function %d, gated %d, readers %d, %s: overlap changes bits", (int)v.function, v.gated, (int)v.readers,
               qdr_dtype_name(dtype));
}

/* In narrow types ReLU is left out: where rounding changes the sign, its slope is another. */
static void check_grid(qdr_grid *grid, void *user)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    memory *m = user;
    for (int i = 0; i < 2 * N_READERS; i++) {
        const qdr_activation_function function = (qdr_activation_function)dist_below(&m->seed, N_FUNCTIONS);
        const variant v = {.readers = (readers)(i % N_READERS),
                           .function = function,
                           .gated = (int)dist_below(&m->seed, 2),
                           .unit = dist_below(&m->seed, 3) ? 1 : WIDE / 2,
                           .dtype = dtypes[dist_below(&m->seed, function == QDR_RELU ? 2 : 4)],
                           .layout = i / 2 % 2 ? QDR_SCATTERED : QDR_REPLICATED,
                           .overlap = QDR_OVERLAP_ALL,
                           .batch_parts = 1 + i % 2,
                           .panels = (int)dist_below(&m->seed, 4)};
        check(grid, v, m);
    }
}

DIST_TEST(every_grid)
{
    memory *m = calloc(1, sizeof *m);
    DIST_CHECK(m != NULL, "no memory");
    m->seed = seed;
    dist_every_grid(ctx, 0, check_grid, m);
    free(m);
}

/* The reference: (f(x + h) - f(x - h)) / 2h errs by h² times the third derivative, below 2^-32, and by 2^-53·288/h,
 * below 2^-27, from roundoff. */
DIST_TEST(slopes_of_the_reference)
{
    const double h = 0x1p-17, off = 0x1p-26;
    double zero = 0, one = 1, e = 0;
    for (int i = 0; i < 1000 * N_FUNCTIONS; i++) {
        const qdr_activation_function function = (qdr_activation_function)(i % N_FUNCTIONS);
        const double at = 12 * dist_value(seed, i, 0), up = 2 * dist_value(seed, i, 1), x[] = {at - h, at, at + h};
        double y[3], dx, dup;
        if (at == 0) continue; /* ReLU is bent there */
        for (int k = 0; k < 3; k++)
            serial_activation(function, 1, read_only(&x[k], &zero), read_only(&up, &zero), (array){&y[k], &e});
        serial_activation_backward(function, 1, read_only(&at, &zero), read_only(&up, &zero), (array){&one, &zero},
                                   (array){&dx, &e}, (array){&dup, &e});
        const double slope = (y[2] - y[0]) / (2 * h);
        DIST_CHECK(fabs(slope - dx) < off, "function %d at %g: %.17g, not %.17g", (int)function, at, dx, slope);
        DIST_CHECK(fabs(y[1] - dup * up) < off, "function %d at %g: %.17g, not %.17g", (int)function, at, dup * up,
                   y[1]);
    }
}

/* The sentence names what is wrong, and the stack is as before. */
DIST_TEST(refusals)
{
    static const qdr_block wrong[][QDR_MAX_BLOCKS] = {
        {{16, 1}}, {{16, 1}, {8, 1}}, {{16, 1}, {16, 2}}, {{16, 1}, {16, 1}, {16, 1}}};
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 4});
    qdr_activation_desc desc = {QDR_INIT(qdr_activation_desc), .name = "act", .gated = 1};
    qdr_edge x, tokens, y;
    for (int i = 0; i < 4; i++) {
        qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .col_axis = QDR_X};
        memcpy(input.cols, wrong[i], sizeof input.cols);
        DIST_OK(qdr_stack_add_input(stack, "x", &input, 0, &x));
        DIST_FAILS(qdr_stack_add_activation(stack, &desc, x, &y), QDR_ERR_SHAPE, "act: 'x' has");
        DIST_CHECK(y == -1, "an edge after an error");
    }
    DIST_OK(qdr_stack_add_tokens(stack, "words", &tokens));
    DIST_FAILS(qdr_stack_add_activation(stack, &desc, tokens, &y), QDR_ERR_DTYPE, "'words' holds tokens");
    DIST_FAILS(qdr_stack_add_activation(stack, &desc, 9, &y), QDR_ERR_ARGUMENT, "9");
    DIST_FAILS(qdr_stack_add_activation(stack, NULL, x, &y), QDR_ERR_ARGUMENT, "NULL");
    desc.gated = 2;
    DIST_FAILS(qdr_stack_add_activation(stack, &desc, x, &y), QDR_ERR_ARGUMENT, "gated");
    desc.function = (qdr_activation_function)N_FUNCTIONS;
    DIST_FAILS(qdr_stack_add_activation(stack, &desc, x, &y), QDR_ERR_ARGUMENT, "no activation function 5");
    desc.size = 0;
    DIST_FAILS(qdr_stack_add_activation(stack, &desc, x, &y), QDR_ERR_ARGUMENT, "QDR_INIT");
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}
