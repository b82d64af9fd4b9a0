/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels: sums, casts, GELU. Outputs may be inputs. */
#include "dev/cuda/kernels/launch.cuh"

namespace
{
struct add {
    static constexpr bool reads_b = true, reads_y = false;
    template <typename R> __device__ static R of(R a, R b, R) { return a + b; }
};

struct cast {
    static constexpr bool reads_b = false, reads_y = false;
    template <typename R> __device__ static R of(R a, R, R) { return a; }
};

/* Beyond this limit the logistic function in GELU is 0 or 1; up to it, its exp is finite. */
template <typename R> constexpr R gelu_limit = sizeof(R) == 8 ? 20 : 10;
/* 0.5·(1 + tanh(u)) is the logistic function of 2u, with u = sqrt(2/pi)·(x + 0.044715·x³). */
template <typename R> constexpr R gelu_scale = (R)1.5957691216057307117597842397375;
template <typename R> constexpr R gelu_cube = (R)0.044715;

/* exp(-2u), with x within the limits. */
template <bool QUICK, typename R> __device__ inline R gelu_exp(R x)
{
    return exp_of<QUICK>(-gelu_scale<R> * (x + gelu_cube<R> * (x * x * x)));
}

/* NaN stays NaN. */
template <typename R> __device__ inline R not_below(R x, R limit) { return x < limit ? limit : x; }
template <typename R> __device__ inline R not_above(R x, R limit) { return x > limit ? limit : x; }

template <bool QUICK> struct gelu_forward {
    static constexpr bool reads_b = false, reads_y = false;
    template <typename R> __device__ static R of(R a, R, R)
    {
        const R above = not_below(a, -gelu_limit<R>);
        return quotient<QUICK>(above, 1 + gelu_exp<QUICK>(not_above(above, gelu_limit<R>)));
    }
};

template <bool QUICK, typename R> __device__ inline R gelu_slope(R a)
{
    const R x = not_above(not_below(a, -gelu_limit<R>), gelu_limit<R>);
    const R e = gelu_exp<QUICK>(x);
    const R s = quotient<QUICK>((R)1, 1 + e);
    return s + x * s * (s * e) * gelu_scale<R> * (1 + 3 * gelu_cube<R> * (x * x));
}

template <bool QUICK, bool ADDS> struct gelu_backward {
    static constexpr bool reads_b = true, reads_y = ADDS;
    template <typename R> __device__ static R of(R a, R b, R y)
    {
        return ADDS ? y + b * gelu_slope<QUICK>(a) : b * gelu_slope<QUICK>(a);
    }
};

constexpr int packs_each = 2; /* per thread, as far apart as the block has threads */

/* y = Op(a, b, y). WIDE: n is a multiple of the packs' width, and they are aligned. */
template <typename Op, typename A, typename B, typename Y, bool WIDE>
__global__ void map(int64_t n, const A *a, const B *b, Y *y)
{
    constexpr int V = pack_width<A>;
    typedef real_of<A> R;
    const int64_t first = ((int64_t)blockIdx.x * packs_each * blockDim.x + threadIdx.x) * V;
    const int64_t step = (int64_t)blockDim.x * V;
    pack<A, V> x[packs_each];
    pack<B, V> z[packs_each] = {};
    pack<Y, V> out[packs_each] = {};
#pragma unroll
    for (int i = 0; i < packs_each; i++) {
        x[i] = load_row<WIDE, V>(a, first + i * step, n);
        if (Op::reads_b) z[i] = load_row<WIDE, V>(b, first + i * step, n);
        if (Op::reads_y) out[i] = load_row<WIDE, V>(y, first + i * step, n);
    }
#pragma unroll
    for (int i = 0; i < packs_each; i++) {
        if (first + i * step >= n) return;
#pragma unroll
        for (int k = 0; k < V; k++)
            out[i].at[k] = put<Y>(Op::of(get(x[i].at[k]), (R)get(z[i].at[k]), (R)get(out[i].at[k])));
        store_row<WIDE, V>(y, first + i * step, n, out[i]);
    }
}

template <typename Op, bool WIDE, typename A, typename B, typename Y>
cudaError_t launch_some(const qdri_cuda_target *target, int64_t n, const A *a, const B *b, Y *y)
{
    const int64_t n_threads = ceil_div(ceil_div(n, pack_width<A>), packs_each);
    if (n == 0) return cudaSuccess;
    return launch_each(target, n_threads, map<Op, A, B, Y, WIDE>, n, a, b, y);
}

/* Whole packs, then the remainder. */
template <typename Op, typename A, typename B, typename Y>
cudaError_t launch_map(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<A>;
    const int64_t n = kernel->u.binary.n;
    const A *a = (const A *)kernel->u.binary.a;
    const B *b = Op::reads_b ? (const B *)kernel->u.binary.b : nullptr;
    Y *y = (Y *)kernel->u.binary.y;
    const int64_t whole = is_wide<V>(a, b, y) ? n - n % V : 0;
    LAUNCH_TRY((launch_some<Op, true>(target, whole, a, b, y)));
    return launch_some<Op, false>(target, n - whole, a + whole, Op::reads_b ? b + whole : b, y + whole);
}

template <typename T> cudaError_t launch_cast(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const size_t bytes = (size_t)kernel->u.binary.n * sizeof(T);
    if (kernel->dtype != kernel->u.binary.dtype2)
        return with_type(kernel->u.binary.dtype2,
                         [&](auto y) { return launch_map<cast, T, T, decltype(y)>(kernel, target); });
    if (bytes == 0 || kernel->u.binary.y == kernel->u.binary.a) return cudaSuccess;
    return cudaMemcpyAsync(kernel->u.binary.y, kernel->u.binary.a, bytes, cudaMemcpyDefault, target->stream);
}

template <typename T> __global__ void sum_parts(int64_t n, int n_parts, const T *x, T *y, bool wide)
{
    constexpr int V = pack_width<T>;
    const int64_t at = thread_number() * V;
    real_of<T> sum[V] = {};
    if (at >= n) return;
#pragma unroll 4
    for (int part = 0; part < n_parts; part++) {
        const pack<T, V> more = load<V>(x + part * n, at, n, wide);
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] = part ? sum[k] + get(more.at[k]) : get(more.at[k]);
    }
    pack<T, V> out;
#pragma unroll
    for (int k = 0; k < V; k++) out.at[k] = put<T>(sum[k]);
    store<V>(y, at, n, wide, out);
}

template <typename T> cudaError_t launch_sum_parts(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const int64_t n = kernel->u.parts.n;
    const T *x = (const T *)kernel->u.parts.x;
    T *y = (T *)kernel->u.parts.y;
    if (n == 0) return cudaSuccess;
    return launch_each(target, ceil_div(n, V), sum_parts<T>, n, kernel->u.parts.n_parts, x, y,
                       is_wide<V>(x, y) && n % V == 0);
}

} // namespace

cudaError_t qdri_cuda_elements(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        constexpr bool quick = is_quick<T>;
        switch (kernel->kind) {
        case QDRI_K_ADD:
            return with_type(kernel->u.binary.dtype2,
                             [&](auto b) { return launch_map<add, T, decltype(b), T>(kernel, target); });
        case QDRI_K_SUM_PARTS: return launch_sum_parts<T>(kernel, target);
        case QDRI_K_CAST: return launch_cast<T>(kernel, target);
        case QDRI_K_GELU_FORWARD: return launch_map<gelu_forward<quick>, T, T, T>(kernel, target);
        case QDRI_K_GELU_BACKWARD:
            return kernel->accumulate ? launch_map<gelu_backward<quick, true>, T, T, T>(kernel, target)
                                      : launch_map<gelu_backward<quick, false>, T, T, T>(kernel, target);
        default: return cudaErrorNotSupported;
        }
    });
}
