/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels: sums, casts. Outputs may be inputs. */
#include "dev/cuda/kernels/map.cuh"

namespace
{
struct add {
    static constexpr bool reads_b = true, reads_y = false;
    template <typename R> __device__ static R of(R a, R b, R, R factor) { return a + factor * b; }
};

struct cast {
    static constexpr bool reads_b = false, reads_y = false;
    template <typename R> __device__ static R of(R a, R, R, R) { return a; }
};

struct scale {
    static constexpr bool reads_b = false, reads_y = false;
    template <typename R> __device__ static R of(R a, R, R, R factor) { return factor * a; }
};

template <typename T> cudaError_t launch_cast(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const int64_t n = kernel->u.binary.n;
    const size_t bytes = (size_t)n * sizeof(T);
    const T *a = (const T *)kernel->u.binary.a;
    const double factor = qdri_factor_of(kernel);
    if (kernel->dtype != kernel->u.binary.dtype2)
        return with_type(kernel->u.binary.dtype2, [&](auto y) {
            return launch_map<cast>(target, n, a, (const T *)nullptr, (decltype(y) *)kernel->u.binary.y);
        });
    if (factor != 1) return launch_map<scale>(target, n, a, (const T *)nullptr, (T *)kernel->u.binary.y, factor);
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
        switch (kernel->kind) {
        case QDRI_K_ADD:
            return with_type(kernel->u.binary.dtype2, [&](auto b) {
                return launch_map<add>(target, kernel->u.binary.n, (const T *)kernel->u.binary.a,
                                       (const decltype(b) *)kernel->u.binary.b, (T *)kernel->u.binary.y,
                                       qdri_factor_of(kernel));
            });
        case QDRI_K_SUM_PARTS: return launch_sum_parts<T>(kernel, target);
        case QDRI_K_CAST: return launch_cast<T>(kernel, target);
        default: return cudaErrorNotSupported;
        }
    });
}
