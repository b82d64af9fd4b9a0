/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions, alone or as gates. Alone, outputs may be inputs. */

/* 0.5·(1 + tanh(u)) is the logistic function of 2u, with u = sqrt(2/pi)·(x + 0.044715·x³). */
#define GELU_SCALE ((real)1.5957691216057307117597842397375)
#define GELU_CUBE ((real)0.044715)

/* exp(-2u), with x within the limits. */
static inline real gelu_exp(real x) { return real_exp_normal(-GELU_SCALE * (x + GELU_CUBE * (x * x * x))); }

/* Beyond the limits gelu(x) is x or nearly 0, and the cube could overflow. NaN stays NaN. */
static inline real gelu_tanh(real x)
{
    const real above = x < -GELU_LIMIT ? -GELU_LIMIT : x;
    const real near = above > GELU_LIMIT ? GELU_LIMIT : above;
    return above / (1 + gelu_exp(near));
}

static inline real gelu_tanh_slope(real x)
{
    x = x < -GELU_LIMIT ? -GELU_LIMIT : x;
    x = x > GELU_LIMIT ? GELU_LIMIT : x;
    const real e = gelu_exp(x);
    const real s = 1 / (1 + e);
    return s + x * s * (s * e) * GELU_SCALE * (1 + 3 * GELU_CUBE * (x * x));
}

/* x·Φ(x), Φ the normal distribution. */
static inline real gelu_erf(real x)
{
    const real above = x < -NORMAL_LIMIT ? -NORMAL_LIMIT : x;
    return above * real_normal(above > NORMAL_LIMIT ? NORMAL_LIMIT : above);
}

static inline real gelu_erf_slope(real x)
{
    x = x < -NORMAL_LIMIT ? -NORMAL_LIMIT : x;
    x = x > NORMAL_LIMIT ? NORMAL_LIMIT : x;
    return real_normal(x) + x * (real)0.39894228040143267794 * real_exp_normal((real)-0.5 * (x * x));
}

static inline real silu(real x)
{
    const real above = x < -EXP_LIMIT ? -EXP_LIMIT : x;
    return above / (1 + real_exp_normal(above > EXP_LIMIT ? -EXP_LIMIT : -above));
}

static inline real silu_slope(real x)
{
    x = x < -EXP_LIMIT ? -EXP_LIMIT : x;
    x = x > EXP_LIMIT ? EXP_LIMIT : x;
    const real e = real_exp_normal(-x);
    const real s = 1 / (1 + e);
    return s + x * s * (s * e);
}

/* NaN stays NaN. */
static inline real relu(real x) { return x < 0 ? 0 : x; }
static inline real relu_slope(real x) { return x > 0 ? 1 : relu(x); }
static inline real relu_squared(real x) { return relu(x) * relu(x); }
static inline real relu_squared_slope(real x) { return 2 * relu(x); }

/* ---- loops, compiled for each function; without gates all rows are one ---- */

ONE_FUNCTION void activate(const qdri_kernel *kernel, real value(real x))
{
    const int gated = kernel->u.activation.gated;
    const int64_t n_rows = gated ? kernel->u.activation.n_rows : 1;
    const int64_t n = kernel->u.activation.n_cols * (gated ? 1 : kernel->u.activation.n_rows);
    const elem *x = kernel->u.activation.x;
    elem *y = kernel->u.activation.y;
    for (int64_t r = 0; r < n_rows; r++, x += 2 * n, y += n) {
        if (gated) {
            SIMD for (int64_t c = 0; c < n; c++) y[c] = put(value(get(x[c])) * get(x[n + c]));
        } else {
            SIMD for (int64_t c = 0; c < n; c++) y[c] = put(value(get(x[c])));
        }
    }
}

ONE_FUNCTION void gate_backward(const qdri_kernel *kernel, real value(real x), real slope(real x))
{
    const int64_t n = kernel->u.activation.n_cols;
    const elem *x = kernel->u.activation.x, *dy = kernel->u.activation.dy;
    elem *dx = kernel->u.activation.dx;
    for (int64_t r = 0; r < kernel->u.activation.n_rows; r++, x += 2 * n, dx += 2 * n, dy += n) {
        if (kernel->accumulate) {
            SIMD for (int64_t c = 0; c < n; c++)
            {
                const real gate = get(x[c]), d = get(dy[c]);
                dx[c] = put(get(dx[c]) + d * get(x[n + c]) * slope(gate));
                dx[n + c] = put(get(dx[n + c]) + d * value(gate));
            }
        } else {
            SIMD for (int64_t c = 0; c < n; c++)
            {
                const real gate = get(x[c]), d = get(dy[c]);
                dx[c] = put(d * get(x[n + c]) * slope(gate));
                dx[n + c] = put(d * value(gate));
            }
        }
    }
}

ONE_FUNCTION void activate_backward(const qdri_kernel *kernel, real value(real x), real slope(real x))
{
    const int64_t n = kernel->u.activation.n_rows * kernel->u.activation.n_cols;
    const elem *x = kernel->u.activation.x, *dy = kernel->u.activation.dy;
    elem *dx = kernel->u.activation.dx;
    if (kernel->u.activation.gated) {
        gate_backward(kernel, value, slope);
    } else if (kernel->accumulate) {
        SIMD for (int64_t i = 0; i < n; i++) dx[i] = put(get(dx[i]) + get(dy[i]) * slope(get(x[i])));
    } else {
        SIMD for (int64_t i = 0; i < n; i++) dx[i] = put(get(dy[i]) * slope(get(x[i])));
    }
}

static void activation_forward(const qdri_kernel *kernel)
{
    switch (kernel->u.activation.function) {
    case QDR_GELU_ERF: activate(kernel, gelu_erf); break;
    case QDR_SILU: activate(kernel, silu); break;
    case QDR_RELU: activate(kernel, relu); break;
    case QDR_RELU_SQUARED: activate(kernel, relu_squared); break;
    default: activate(kernel, gelu_tanh); break;
    }
}

static void activation_backward(const qdri_kernel *kernel)
{
    switch (kernel->u.activation.function) {
    case QDR_GELU_ERF: activate_backward(kernel, gelu_erf, gelu_erf_slope); break;
    case QDR_SILU: activate_backward(kernel, silu, silu_slope); break;
    case QDR_RELU: activate_backward(kernel, relu, relu_slope); break;
    case QDR_RELU_SQUARED: activate_backward(kernel, relu_squared, relu_squared_slope); break;
    default: activate_backward(kernel, gelu_tanh, gelu_tanh_slope); break;
    }
}
