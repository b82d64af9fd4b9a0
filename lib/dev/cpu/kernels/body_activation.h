/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions, alone or as gates. Alone, outputs may be inputs. */

/* Of a function's graph: gradients of gates need both, which share most of the work. */
typedef struct point {
    real value, slope;
} point;

/* 0.5·(1 + tanh(u)) is the logistic function of 2u, with u = sqrt(2/pi)·(x + 0.044715·x³). */
#define GELU_SCALE ((real)1.5957691216057307117597842397375)
#define GELU_CUBE ((real)0.044715)

/* 2u, with x within the limits. */
static inline real gelu_twice(real x) { return GELU_SCALE * (x + GELU_CUBE * (x * x * x)); }

/* Beyond the limits gelu(x) is x or nearly 0, and the cube could overflow. NaN stays NaN. */
static inline real gelu_tanh(real x)
{
    const real above = x < -GELU_LIMIT ? -GELU_LIMIT : x;
    const real near = above > GELU_LIMIT ? GELU_LIMIT : above;
    return above / (1 + real_exp_normal(-gelu_twice(near)));
}

/* e: exp(-2u), where it is not beyond the limits. */
static inline point gelu_point(real x, real e)
{
    const real above = x < -GELU_LIMIT ? -GELU_LIMIT : x;
    const real near = above > GELU_LIMIT ? GELU_LIMIT : above, s = 1 / (1 + e);
    return (point){above * s, s + near * s * (s * e) * GELU_SCALE * (1 + 3 * GELU_CUBE * (near * near))};
}

static inline point gelu_tanh_point(real x)
{
    const real above = x < -GELU_LIMIT ? -GELU_LIMIT : x;
    return gelu_point(x, real_exp_normal(-gelu_twice(above > GELU_LIMIT ? GELU_LIMIT : above)));
}

/* As gates, in fewer steps: this exp has limits of its own. */
static inline point gelu_gate_point(real x) { return gelu_point(x, real_exp_minus(gelu_twice(x))); }
static inline real gelu_gate(real x) { return gelu_gate_point(x).value; }

/* x·Φ(x), Φ the normal distribution. */
static inline real gelu_erf(real x)
{
    const real above = x < -NORMAL_LIMIT ? -NORMAL_LIMIT : x;
    return above * real_normal(above > NORMAL_LIMIT ? NORMAL_LIMIT : above);
}

static inline point gelu_erf_point(real x)
{
    const real above = x < -NORMAL_LIMIT ? -NORMAL_LIMIT : x;
    const real near = above > NORMAL_LIMIT ? NORMAL_LIMIT : above, below = real_normal(near);
    return (point){above * below,
                   below + near * (real)0.39894228040143267794 * real_exp_normal((real)-0.5 * (near * near))};
}

static inline point silu_point(real x)
{
    const real above = x < -EXP_LIMIT ? -EXP_LIMIT : x;
    const real near = above > EXP_LIMIT ? EXP_LIMIT : above;
    const real e = real_exp_minus(x), s = 1 / (1 + e);
    return (point){above * s, s + near * s * (s * e)};
}

static inline real silu(real x) { return silu_point(x).value; }

/* NaN stays NaN. */
static inline real relu(real x) { return x < 0 ? 0 : x; }
static inline point relu_point(real x) { return (point){relu(x), x > 0 ? 1 : relu(x)}; }
static inline real relu_squared(real x) { return relu(x) * relu(x); }
static inline point relu_squared_point(real x) { return (point){relu(x) * relu(x), 2 * relu(x)}; }

/* ---- loops, compiled for each function; without gates all rows are one ---- */

/* A row of gates is two runs of memory, and hardware begins to fetch each anew. While a piece of a row is computed,
 * that of the next row is fetched; long rows need no such help. */
enum { GATE_PIECE = 128, GATE_FETCHED_BYTES = 16384 };

static inline int64_t gate_piece(int64_t left) { return left < GATE_PIECE ? left : GATE_PIECE; }

/* Piece [first, first + n) of both halves of the row that follows x, of 2·width elements. */
static inline void gate_fetch(const elem *x, int64_t width, int64_t first, int64_t n)
{
    enum { LINE = 64 / sizeof(elem) };
    const elem *next = x + 2 * width + first;
    for (int64_t c = 0; c < n && width * (int64_t)sizeof *x <= GATE_FETCHED_BYTES; c += LINE) {
        __builtin_prefetch(next + c);
        __builtin_prefetch(next + width + c);
    }
}

ONE_FUNCTION void gate(int64_t n, const elem *x, const elem *up, elem *y, real value(real x))
{
    SIMD for (int64_t c = 0; c < n; c++) y[c] = put(value(get(x[c])) * get(up[c]));
}

ONE_FUNCTION void activate(const qdri_kernel *kernel, real value(real x))
{
    const int64_t n_rows = kernel->u.activation.n_rows, n = kernel->u.activation.n_cols;
    const elem *x = kernel->u.activation.x;
    elem *y = kernel->u.activation.y;
    if (!kernel->u.activation.gated) {
        SIMD for (int64_t i = 0; i < n_rows * n; i++) y[i] = put(value(get(x[i])));
        return;
    }
    for (int64_t r = 0; r < n_rows; r++, x += 2 * n, y += n)
        for (int64_t c = 0; c < n; c += GATE_PIECE) {
            gate_fetch(x, n, c, gate_piece(n - c));
            gate(gate_piece(n - c), x + c, x + n + c, y + c, value);
        }
}

/* d_gate and d_up = or += */
ONE_FUNCTION void gate_backward(int64_t n, int adds, const elem *x, const elem *up, const elem *dy, elem *d_gate,
                                elem *d_up, point at(real x))
{
    if (adds) {
        SIMD for (int64_t c = 0; c < n; c++)
        {
            const point p = at(get(x[c]));
            d_gate[c] = put(get(d_gate[c]) + get(dy[c]) * get(up[c]) * p.slope);
            d_up[c] = put(get(d_up[c]) + get(dy[c]) * p.value);
        }
    } else {
        SIMD for (int64_t c = 0; c < n; c++)
        {
            const point p = at(get(x[c]));
            d_gate[c] = put(get(dy[c]) * get(up[c]) * p.slope);
            d_up[c] = put(get(dy[c]) * p.value);
        }
    }
}

ONE_FUNCTION void gates_backward(const qdri_kernel *kernel, point at(real x))
{
    const int64_t n = kernel->u.activation.n_cols;
    const elem *x = kernel->u.activation.x, *dy = kernel->u.activation.dy;
    elem *dx = kernel->u.activation.dx;
    for (int64_t r = 0; r < kernel->u.activation.n_rows; r++, x += 2 * n, dx += 2 * n, dy += n)
        for (int64_t c = 0; c < n; c += GATE_PIECE) {
            gate_fetch(x, n, c, gate_piece(n - c));
            if (kernel->accumulate) gate_fetch(dx, n, c, gate_piece(n - c));
            gate_backward(gate_piece(n - c), kernel->accumulate, x + c, x + n + c, dy + c, dx + c, dx + n + c, at);
        }
}

ONE_FUNCTION void activate_backward(const qdri_kernel *kernel, point at(real x))
{
    const int64_t n = kernel->u.activation.n_rows * kernel->u.activation.n_cols;
    const elem *x = kernel->u.activation.x, *dy = kernel->u.activation.dy;
    elem *dx = kernel->u.activation.dx;
    if (kernel->u.activation.gated) {
        gates_backward(kernel, at);
    } else if (kernel->accumulate) {
        SIMD for (int64_t i = 0; i < n; i++) dx[i] = put(get(dx[i]) + get(dy[i]) * at(get(x[i])).slope);
    } else {
        SIMD for (int64_t i = 0; i < n; i++) dx[i] = put(get(dy[i]) * at(get(x[i])).slope);
    }
}

static void activation_forward(const qdri_kernel *kernel)
{
    switch (kernel->u.activation.function) {
    case QDR_GELU_ERF: activate(kernel, gelu_erf); break;
    case QDR_SILU: activate(kernel, silu); break;
    case QDR_RELU: activate(kernel, relu); break;
    case QDR_RELU_SQUARED: activate(kernel, relu_squared); break;
    default:
        if (kernel->u.activation.gated)
            activate(kernel, gelu_gate);
        else
            activate(kernel, gelu_tanh);
        break;
    }
}

static void activation_backward(const qdri_kernel *kernel)
{
    switch (kernel->u.activation.function) {
    case QDR_GELU_ERF: activate_backward(kernel, gelu_erf_point); break;
    case QDR_SILU: activate_backward(kernel, silu_point); break;
    case QDR_RELU: activate_backward(kernel, relu_point); break;
    case QDR_RELU_SQUARED: activate_backward(kernel, relu_squared_point); break;
    default:
        if (kernel->u.activation.gated)
            activate_backward(kernel, gelu_gate_point);
        else
            activate_backward(kernel, gelu_tanh_point);
        break;
    }
}
