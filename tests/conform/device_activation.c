/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions in every type, alone and as gates, against long double references. */
#include "device.h"

#define LEAST 1e-34L /* by which results are off where exp would vanish in fp32, and functions stop at a limit */

enum { N_FUNCTIONS = QDR_RELU_SQUARED + 1 };

/* A function at a point: its value, its slope, the sum of the absolute terms of the slope, and how many roundings the
 * value and the slope are allowed, relative to the value and to that sum. */
typedef struct point {
    ref value, slope, size;
    int64_t n_value, n_slope;
} point;

/* z is computed with a relative error below 5u, exp(-z) within 4u, a quotient within 2u. */
static point gelu_tanh(ref x)
{
    const ref z = 1.5957691216057307117597842397375L * (x + 0.044715L * x * x * x), s = 1 / (1 + expl(-z));
    const ref second = x * s * (1 - s) * 1.5957691216057307117597842397375L * (1 + 3 * 0.044715L * x * x);
    const int64_t n_z = (int64_t)(6 * fabsl(z));
    return (point){x * s, s + second, s + fabsl(second), 8 + n_z, 20 + 2 * n_z};
}

/* x² is rounded once: exp(-x²/2) is off by x²u/2 and 4u. A tail in fp32 is off by 10u besides, and by a few u from its
 * quotient; that of the C library by x²·2u from its argument, and by 2u. */
static point gelu_erf(ref x)
{
    const ref below = 0.5L * erfcl(-x / sqrtl(2)), second = x * expl(-x * x / 2) / sqrtl(2 * acosl(-1));
    const int64_t n_square = (int64_t)(2 * x * x);
    return (point){x * below, below + second, below + fabsl(second), 20 + n_square, 24 + n_square};
}

/* exp(-x) is within 4u and |x|u, or on GPUs in narrow types within 4u and |x|·2u. */
static point silu(ref x)
{
    const ref s = 1 / (1 + expl(-x)), second = x * s * (1 - s);
    const int64_t n_x = (int64_t)(2 * fabsl(x));
    return (point){x * s, s + second, s + fabsl(second), 10 + n_x, 20 + 2 * n_x};
}

static point point_of(qdr_activation_function function, ref x)
{
    const ref above = x > 0 ? x : 0;
    switch (function) {
    case QDR_GELU_ERF: return gelu_erf(x);
    case QDR_SILU: return silu(x);
    case QDR_RELU: return (point){above, x > 0, x > 0, 0, 0};
    case QDR_RELU_SQUARED: return (point){above * above, 2 * above, 2 * above, 1, 0};
    default: return gelu_tanh(x);
    }
}

typedef struct activation_case {
    qdri_kernel kernel;
    int64_t n_rows, n_cols;
    array x, dy, y, dx;
} activation_case;

static activation_case make_case(qdr_dtype dtype, qdr_activation_function function, int gated, int64_t n_rows,
                                 int64_t n_cols)
{
    const int64_t n = n_rows * n_cols, n_in = n * (1 + gated);
    activation_case c = {{.kind = QDRI_K_ACTIVATION_FORWARD, .dtype = dtype}, n_rows, n_cols, {0}, {0}, {0}, {0}};
    c.x = make_random(dtype, n_in, test_between(&seed, 0, 1) ? 3 : 12);
    c.dy = make_random(dtype, n, 2);
    c.y = make(dtype, n);
    c.dx = make(dtype, n_in);
    if (n > 0) set(&c.x, 0, 0); /* where ReLU is bent */
    c.kernel.u.activation.n_rows = n_rows;
    c.kernel.u.activation.n_cols = n_cols;
    c.kernel.u.activation.function = function;
    c.kernel.u.activation.gated = gated;
    c.kernel.u.activation.x = c.x.data;
    c.kernel.u.activation.dy = c.dy.data;
    c.kernel.u.activation.y = c.y.data;
    c.kernel.u.activation.dx = c.dx.data;
    return c;
}

static void drop_case(activation_case *c)
{
    drop(&c->x);
    drop(&c->dy);
    drop(&c->y);
    drop(&c->dx);
}

/* Where the input has element `col` of a row, and what multiplies its function. */
static int64_t place_of(const activation_case *c, int64_t i, ref *up)
{
    const int64_t row = i / c->n_cols, at = c->kernel.u.activation.gated ? i + row * c->n_cols : i;
    *up = c->kernel.u.activation.gated ? get(&c->x, at + c->n_cols) : 1;
    return at;
}

static void check_forward(const activation_case *c)
{
    for (int64_t i = 0; i < c->y.n; i++) {
        ref up;
        const int64_t at = place_of(c, i, &up);
        const point p = point_of(c->kernel.u.activation.function, get(&c->x, at));
        const ref bound = fabsl(p.value * up) * gamma_of(c->y.dtype, p.n_value + c->kernel.u.activation.gated);
        check_near(&c->y, i, p.value * up, bound + LEAST, "activation");
    }
}

/* dx, of which `before` is what it was, if it is added to. */
static void check_backward(const activation_case *c, const array *before)
{
    const int gated = c->kernel.u.activation.gated;
    for (int64_t i = 0; i < c->dy.n; i++) {
        ref up;
        const int64_t at = place_of(c, i, &up);
        const point p = point_of(c->kernel.u.activation.function, get(&c->x, at));
        const ref d = get(&c->dy, i), old = before ? get(before, at) : 0;
        const ref size = fabsl(d * up) * p.size, other = before && gated ? get(before, at + c->n_cols) : 0;
        check_near(&c->dx, at, old + d * up * p.slope,
                   gamma_of(c->dx.dtype, p.n_slope + 3) * size + gamma_of(c->dx.dtype, 1) * fabsl(old) + LEAST,
                   "slope");
        if (gated)
            check_near(&c->dx, at + c->n_cols, other + d * p.value,
                       gamma_of(c->dx.dtype, p.n_value + 2) * fabsl(d * p.value) +
                           gamma_of(c->dx.dtype, 1) * fabsl(other) + LEAST,
                       "gradient of what is gated");
    }
}

static void run_backward(activation_case *c, int accumulate)
{
    const array before = copy_of(&c->dx);
    c->kernel.kind = QDRI_K_ACTIVATION_BACKWARD;
    c->kernel.accumulate = accumulate;
    run(&c->kernel);
    check_backward(c, accumulate ? &before : NULL);
    array drops = before;
    drop(&drops);
}

/* Alone, the gradient may replace that of the output. */
static void run_in_place(activation_case *c)
{
    c->kernel.accumulate = 0;
    run(&c->kernel);
    c->kernel.u.activation.dx = c->dy.data;
    run(&c->kernel);
    assert_memory_equal(c->dy.data, c->dx.data, (size_t)c->dx.n * qdr_dtype_bytes(c->dx.dtype));
}

TEST(functions_are_near)
{
    for (int t = 0; t < N_TYPES * N_FUNCTIONS * 2 * N_SIZES; t++) {
        const int64_t n_cols = odd_sizes[t / (N_TYPES * N_FUNCTIONS * 2)];
        const int gated = t / (N_TYPES * N_FUNCTIONS) % 2;
        activation_case c = make_case(float_types[t % N_TYPES], (qdr_activation_function)(t / N_TYPES % N_FUNCTIONS),
                                      gated, odd_sizes[test_between(&seed, 0, 9)], n_cols);
        run(&c.kernel);
        check_forward(&c);
        run_backward(&c, 0);
        run_backward(&c, 1);
        if (!gated) run_in_place(&c);
        drop_case(&c);
    }
}

/* Far out a function is x, or x², or 0, and its slope 1, 2x or 0: no NaN from Inf·0; NaN stays. */
TEST(functions_have_limits)
{
    static const double far[] = {128, 1e30, INFINITY, -128, -1e30, -INFINITY, NAN};
    for (int t = 0; t < N_TYPES * N_FUNCTIONS; t++) {
        const qdr_activation_function function = (qdr_activation_function)(t / N_TYPES);
        activation_case c = make_case(float_types[t % N_TYPES], function, 0, 7, 1);
        const int is_square = function == QDR_RELU_SQUARED;
        for (int i = 0; i < 7; i++) {
            set(&c.x, i, far[i]);
            set(&c.dy, i, 1);
        }
        run(&c.kernel);
        c.kernel.kind = QDRI_K_ACTIVATION_BACKWARD;
        run(&c.kernel);
        for (int i = 0; i < 3; i++) {
            const ref x = get(&c.x, i), slope = is_square ? 2 * x : 1;
            const int is_large = is_square && i > 0 && c.x.dtype != QDR_F64;
            assert_true(get(&c.y, i) == (is_large ? (ref)INFINITY : is_square ? (ref)(double)(x * x) : x));
            assert_true(get(&c.dx, i) == slope || fabsl(get(&c.dx, i) - slope) < 1e-30L);
        }
        for (int i = 3; i < 6; i++) assert_true(fabsl(get(&c.y, i)) < 1e-35L && fabsl(get(&c.dx, i)) < 1e-30L);
        assert_true(isnan(get(&c.y, 6)) && isnan(get(&c.dx, 6)));
        drop_case(&c);
    }
}

TEST(bad_activations_are_refused)
{
    float x[8] = {0};
    qdri_kernel k = {.kind = QDRI_K_ACTIVATION_BACKWARD, .dtype = QDR_F32};
    k.u.activation.n_rows = 2;
    k.u.activation.n_cols = 2;
    k.u.activation.x = k.u.activation.dx = x;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_ARGUMENT, "dy is NULL, but has 4");
    k.u.activation.dy = x;
    k.u.activation.dx = NULL;
    k.u.activation.gated = 1;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_ARGUMENT, "dx is NULL, but has 8");
    k.u.activation.gated = 2;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_ARGUMENT, "gated 2");
    k.u.activation.gated = 1;
    k.u.activation.function = (qdr_activation_function)N_FUNCTIONS;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_ARGUMENT, "function 5");
    k.u.activation.function = QDR_SILU;
    k.u.activation.n_cols = -1;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_SHAPE, "2 and -1");
    k.u.activation.n_cols = INT64_MAX / 2 + 1;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_SHAPE, "");
    assert_int_equal(qdri_dev_status(device), QDR_OK);
}

int main(void) { return run_each_set(); }
