/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions, alone or as gates. Alone, outputs may be inputs. */
#include "dev/cuda/kernels/map.cuh"
#include "dev/cuda/kernels/rows.cuh"
#include "dev/normal.h"

namespace
{
/* NaN stays NaN. */
template <typename R> __device__ inline R not_below(R x, R limit) { return x < limit ? limit : x; }
template <typename R> __device__ inline R not_above(R x, R limit) { return x > limit ? limit : x; }
template <typename R> __device__ inline R within(R x, R limit) { return not_above(not_below(x, -limit), limit); }

/* ---- the functions, with their slopes ---- */

/* Beyond this limit the logistic function in GELU is 0 or 1; up to it, its exp is finite. */
template <typename R> constexpr R gelu_limit = sizeof(R) == 8 ? 20 : 10;
/* 0.5·(1 + tanh(u)) is the logistic function of 2u, with u = sqrt(2/pi)·(x + 0.044715·x³). */
template <typename R> constexpr R gelu_scale = (R)1.5957691216057307117597842397375;
template <typename R> constexpr R gelu_cube = (R)0.044715;

template <bool QUICK> struct gelu_tanh {
    /* exp(-2u), with x within the limits. */
    template <typename R> __device__ static R exp_at(R x)
    {
        return exp_of<QUICK>(-gelu_scale<R> * (x + gelu_cube<R> * (x * x * x)));
    }
    template <typename R> __device__ static R value(R x)
    {
        const R above = not_below(x, -gelu_limit<R>);
        return quotient<QUICK>(above, 1 + exp_at(not_above(above, gelu_limit<R>)));
    }
    template <typename R> __device__ static R slope(R a)
    {
        const R x = within(a, gelu_limit<R>);
        const R e = exp_at(x);
        const R s = quotient<QUICK>((R)1, 1 + e);
        return s + x * s * (s * e) * gelu_scale<R> * (1 + 3 * gelu_cube<R> * (x * x));
    }
};

/* Beyond, the normal distribution is nearly 0, or 1; up to it, exp(-x²/2) is normal in fp32. */
template <typename R> constexpr R normal_limit = sizeof(R) == 8 ? 38 : 13;

template <bool QUICK> struct gelu_erf {
    __device__ static float bell(float x) { return exp_of<QUICK>(-0.5f * (x * x)); }
    __device__ static double bell(double x) { return exp(-0.5 * (x * x)); }
    __device__ static float normal(float x)
    {
        const float tail = qdri_normal_tail(quotient<QUICK>(1.0f, 1 + QDRI_NORMAL_SCALE * fabsf(x)), bell(x));
        return x < 0 ? tail : 1 - tail;
    }
    __device__ static double normal(double x) { return 0.5 * erfc(x * -0.70710678118654752440); }
    template <typename R> __device__ static R value(R x)
    {
        const R above = not_below(x, -normal_limit<R>);
        return above * normal(not_above(above, normal_limit<R>));
    }
    template <typename R> __device__ static R slope(R a)
    {
        const R x = within(a, normal_limit<R>);
        return normal(x) + x * (R)0.39894228040143267794 * bell(x);
    }
};

/* Up to this limit exp is finite, and quotient() may divide by it. */
template <typename R> constexpr R exp_limit = sizeof(R) == 8 ? 700 : 87;

template <bool QUICK> struct silu {
    template <typename R> __device__ static R value(R x)
    {
        const R above = not_below(x, -exp_limit<R>);
        return quotient<QUICK>(above, 1 + exp_of<QUICK>(-not_above(above, exp_limit<R>)));
    }
    template <typename R> __device__ static R slope(R a)
    {
        const R x = within(a, exp_limit<R>);
        const R e = exp_of<QUICK>(-x);
        const R s = quotient<QUICK>((R)1, 1 + e);
        return s + x * s * (s * e);
    }
};

struct relu {
    template <typename R> __device__ static R value(R x) { return not_below(x, (R)0); }
    template <typename R> __device__ static R slope(R x) { return x > 0 ? 1 : value(x); }
};

struct relu_squared {
    template <typename R> __device__ static R value(R x) { return relu::value(x) * relu::value(x); }
    template <typename R> __device__ static R slope(R x) { return 2 * relu::value(x); }
};

/* The result of f(an F), F being the function. */
template <bool QUICK, typename L> cudaError_t with_function(qdr_activation_function function, L f)
{
    switch (function) {
    case QDR_GELU_ERF: return f(gelu_erf<QUICK>());
    case QDR_SILU: return f(silu<QUICK>());
    case QDR_RELU: return f(relu());
    case QDR_RELU_SQUARED: return f(relu_squared());
    default: return f(gelu_tanh<QUICK>());
    }
}

/* ---- alone ---- */

template <typename F> struct forward {
    static constexpr bool reads_b = false, reads_y = false;
    template <typename R> __device__ static R of(R x, R, R, R) { return F::value(x); }
};

template <typename F, bool ADDS> struct backward {
    static constexpr bool reads_b = true, reads_y = ADDS;
    template <typename R> __device__ static R of(R x, R dy, R dx, R)
    {
        return ADDS ? dx + dy * F::slope(x) : dy * F::slope(x);
    }
};

/* ---- gates: rows of x and dx are twice as long as those of y, the gate first ---- */

constexpr int gate_rows = 2; /* of a thread */

template <typename F, typename T>
__global__ void gate_forward(int64_t n_rows, int64_t n_cols, const T *x, T *y, bool wide)
{
    constexpr int V = pack_width<T>;
    const cell at = find_cell<gate_rows>(n_cols, V);
    if (at.col >= n_cols) return;
    pack<T, V> gate[gate_rows], up[gate_rows];
    for_rows<gate_rows>(at, n_rows, [&](int i, int64_t row) {
        gate[i] = load<V>(x + 2 * row * n_cols, at.col, n_cols, wide);
        up[i] = load<V>(x + (2 * row + 1) * n_cols, at.col, n_cols, wide);
    });
    for_rows<gate_rows>(at, n_rows, [&](int i, int64_t row) {
#pragma unroll
        for (int k = 0; k < V; k++) up[i].at[k] = put<T>(F::value(get(gate[i].at[k])) * get(up[i].at[k]));
        store<V>(y + row * n_cols, at.col, n_cols, wide, up[i]);
    });
}

template <typename F, typename T>
__global__ void gate_backward(int64_t n_rows, int64_t n_cols, const T *x, const T *dy, T *dx, bool adds, bool wide)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const cell at = find_cell<gate_rows>(n_cols, V);
    if (at.col >= n_cols) return;
    pack<T, V> gate[gate_rows], up[gate_rows], d[gate_rows];
    for_rows<gate_rows>(at, n_rows, [&](int i, int64_t row) {
        gate[i] = load<V>(x + 2 * row * n_cols, at.col, n_cols, wide);
        up[i] = load<V>(x + (2 * row + 1) * n_cols, at.col, n_cols, wide);
        d[i] = load<V>(dy + row * n_cols, at.col, n_cols, wide);
    });
    for_rows<gate_rows>(at, n_rows, [&](int i, int64_t row) {
        T *d_gate = dx + 2 * row * n_cols, *d_up = d_gate + n_cols;
        pack<T, V> old_gate = {}, old_up = {};
        if (adds) old_gate = load<V>(d_gate, at.col, n_cols, wide);
        if (adds) old_up = load<V>(d_up, at.col, n_cols, wide);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const R g = get(gate[i].at[k]), out = get(d[i].at[k]);
            gate[i].at[k] = put<T>(get(old_gate.at[k]) + out * get(up[i].at[k]) * F::slope(g));
            up[i].at[k] = put<T>(get(old_up.at[k]) + out * F::value(g));
        }
        store<V>(d_gate, at.col, n_cols, wide, gate[i]);
        store<V>(d_up, at.col, n_cols, wide, up[i]);
    });
}

template <typename F, typename T> cudaError_t launch_alone(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const int64_t n = kernel->u.activation.n_rows * kernel->u.activation.n_cols;
    const T *x = (const T *)kernel->u.activation.x, *dy = (const T *)kernel->u.activation.dy;
    T *dx = (T *)kernel->u.activation.dx;
    if (kernel->kind == QDRI_K_ACTIVATION_FORWARD)
        return launch_map<forward<F>>(target, n, x, (const T *)nullptr, (T *)kernel->u.activation.y);
    return kernel->accumulate ? launch_map<backward<F, true>>(target, n, x, dy, dx)
                              : launch_map<backward<F, false>>(target, n, x, dy, dx);
}

template <typename F, typename T> cudaError_t launch_gate(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const int64_t n_rows = kernel->u.activation.n_rows, n_cols = kernel->u.activation.n_cols;
    const T *x = (const T *)kernel->u.activation.x, *dy = (const T *)kernel->u.activation.dy;
    T *y = (T *)kernel->u.activation.y, *dx = (T *)kernel->u.activation.dx;
    const bool is_whole = n_cols % V == 0;
    if (n_rows == 0 || n_cols == 0) return cudaSuccess;
    const grid_plan plan = plan_cells<gate_rows>(n_rows, n_cols, V);
    if (kernel->kind == QDRI_K_ACTIVATION_FORWARD)
        return launch(target, plan.grid, plan.block, 0, gate_forward<F, T>, n_rows, n_cols, x, y,
                      is_whole && is_wide<V>(x, y));
    return launch(target, plan.grid, plan.block, 0, gate_backward<F, T>, n_rows, n_cols, x, dy, dx,
                  kernel->accumulate != 0, is_whole && is_wide<V>(x, dy, dx));
}
} // namespace

cudaError_t qdri_cuda_activation(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        return with_function<is_quick<T>>(kernel->u.activation.function, [&](auto f) {
            return kernel->u.activation.gated ? launch_gate<decltype(f), T>(kernel, target)
                                              : launch_alone<decltype(f), T>(kernel, target);
        });
    });
}
