/* SPDX-License-Identifier: Apache-2.0 */
/* Sum of squares and AdamW. */
#include "dev/cuda/kernels/rows.cuh"

namespace
{
/* result[block] = or += the block's share of Σ a². */
template <typename T>
__global__ void sum_squares(int64_t n, const T *a, double *result, bool accumulate, bool wide)
{
    constexpr int V = pack_width<T>;
    const int64_t step = (int64_t)gridDim.x * blockDim.x * V;
    double sum = 0;
#pragma unroll 4
    for (int64_t at = thread_number() * V; at < n; at += step) {
        const pack<T, V> more = load<V>(a, at, n, wide);
#pragma unroll
        for (int k = 0; k < V; k++) sum += (double)get(more.at[k]) * (double)get(more.at[k]);
    }
    sum = row_total<plus>(sum);
    if (threadIdx.x == 0) result[blockIdx.x] = accumulate ? sum + result[blockIdx.x] : sum;
}

__global__ void add_parts(int n, const double *parts, double *result, bool accumulate)
{
    double sum = 0;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) sum += parts[i];
    sum = row_total<plus>(sum);
    if (threadIdx.x == 0) *result = accumulate ? sum + *result : sum;
}

template <typename T>
cudaError_t launch_sum_squares(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    constexpr int V = pack_width<T>;
    const int64_t n = kernel->u.reduce.n;
    const int64_t n_packs = ceil_div(n, V);
    const bool accumulate = kernel->u.reduce.accumulate != 0;
    const T *a = (const T *)kernel->u.reduce.a;
    const int64_t n_blocks = most(
        1, least(ceil_div(n_packs, 4 * block_threads), 8 * (int64_t)place->n_sms));
    double *parts = n_blocks > 1 ? (double *)place->scratch : kernel->u.reduce.result;
    if (n == 0 && accumulate) return cudaSuccess;
    LAUNCH_TRY(launch(place, dim3((unsigned)n_blocks), dim3(threads_for(n_packs)), 0,
                      sum_squares<T>, n, a, parts, n_blocks == 1 && accumulate, is_wide<V>(a)));
    if (n_blocks == 1) return cudaSuccess;
    return launch(place, dim3(1), dim3(threads_for(n_blocks)), 0, add_parts, (int)n_blocks, parts,
                  kernel->u.reduce.result, accumulate);
}

template <typename R> struct adamw_numbers {
    R beta1, beta2, rest1, rest2, correction1, correction2, epsilon, lr, decay;
    double clip_norm;
};

/* What gradients are multiplied with. */
template <typename R>
__device__ inline R clip_scale(const adamw_numbers<R> &numbers, const double *norm_squared)
{
    if (!(numbers.clip_norm > 0)) return 1;
    const double norm = sqrt(*norm_squared);
    return (R)(norm > numbers.clip_norm ? numbers.clip_norm / norm : 1);
}

template <typename R>
__device__ inline R adamw_step(const adamw_numbers<R> &by, R gradient, R &m, R &v, R p)
{
    m = by.beta1 * m + by.rest1 * gradient;
    v = by.beta2 * v + by.rest2 * (gradient * gradient);
    const R step = m * by.correction1 / (real_sqrt(v * by.correction2) + by.epsilon);
    return p - by.lr * (step + by.decay * p);
}

/* master: what is kept in full; p is also written if it is another type, else NULL. */
template <typename T, typename R>
__global__ void adamw(int64_t n, adamw_numbers<R> numbers, const double *norm_squared, T *p,
                      R *master, const R *g, R *m, R *v, bool wide)
{
    constexpr int V = pack_width<R>;
    const R clip = clip_scale(numbers, norm_squared);
    const int64_t step = (int64_t)gridDim.x * blockDim.x * V;
    for (int64_t at = thread_number() * V; at < n; at += step) {
        const pack<R, V> gradient = load<V>(g, at, n, wide);
        pack<R, V> first = load<V>(m, at, n, wide), second = load<V>(v, at, n, wide);
        pack<R, V> value = load<V>(master, at, n, wide);
        pack<T, V> narrow;
#pragma unroll
        for (int k = 0; k < V; k++) {
            value.at[k] = adamw_step(numbers, gradient.at[k] * clip, first.at[k], second.at[k],
                                     value.at[k]);
            narrow.at[k] = put<T>(value.at[k]);
        }
        store<V>(m, at, n, wide, first);
        store<V>(v, at, n, wide, second);
        store<V>(master, at, n, wide, value);
        if (p) store<V>(p, at, n, wide, narrow);
    }
}

template <typename R> adamw_numbers<R> numbers_of(const qdri_kernel *kernel)
{
    return {(R)kernel->u.adamw.beta1,        (R)kernel->u.adamw.beta2,
            (R)(1 - kernel->u.adamw.beta1),  (R)(1 - kernel->u.adamw.beta2),
            (R)kernel->u.adamw.correction1,  (R)kernel->u.adamw.correction2,
            (R)kernel->u.adamw.epsilon,      (R)kernel->u.adamw.lr,
            (R)kernel->u.adamw.weight_decay, kernel->u.adamw.clip_norm};
}

template <typename T>
cudaError_t launch_adamw(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    typedef real_of<T> R;
    constexpr int V = pack_width<R>;
    constexpr bool has_master = sizeof(T) != sizeof(R);
    const int64_t n = kernel->u.adamw.n, n_packs = ceil_div(n, V);
    T *p = has_master ? (T *)kernel->u.adamw.p : nullptr;
    R *master = (R *)(has_master ? kernel->u.adamw.master : kernel->u.adamw.p);
    const R *g = (const R *)kernel->u.adamw.g;
    R *m = (R *)kernel->u.adamw.m, *v = (R *)kernel->u.adamw.v;
    if (n == 0) return cudaSuccess;
    const int64_t n_blocks = least(ceil_div(n_packs, block_threads), 32 * (int64_t)place->n_sms);
    const bool wide = is_wide<V>(p) && is_wide<V>(master) && is_wide<V>(g) && is_wide<V>(m) &&
                      is_wide<V>(v);
    return launch(place, dim3((unsigned)n_blocks), dim3(threads_for(n_packs)), 0, adamw<T, R>, n,
                  numbers_of<R>(kernel), kernel->u.adamw.norm_squared, p, master, g, m, v, wide);
}
} // namespace

cudaError_t qdri_cuda_optimizer(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        return kernel->kind == QDRI_K_ADAMW ? launch_adamw<T>(kernel, place)
                                            : launch_sum_squares<T>(kernel, place);
    });
}
