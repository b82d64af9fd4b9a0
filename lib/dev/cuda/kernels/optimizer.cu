/* SPDX-License-Identifier: Apache-2.0 */
/* Sum of squares and AdamW. */
#include "dev/cuda/kernels/rows.cuh"
#include "dev/rates.h"

namespace
{
/* result[block] = or += the block's part of Σ a². */
template <typename T> __global__ void sum_squares(int64_t n, const T *a, double *result, bool accumulate, bool wide)
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

template <typename T> cudaError_t launch_sum_squares(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const int64_t n = kernel->u.reduce.n;
    const int64_t n_packs = ceil_div(n, V);
    const bool accumulate = kernel->accumulate != 0;
    const T *a = (const T *)kernel->u.reduce.a;
    const int64_t n_blocks = most(1, least(ceil_div(n_packs, 4 * block_threads), 8 * (int64_t)target->n_sms));
    double *parts = n_blocks > 1 ? (double *)target->scratch : kernel->u.reduce.result;
    if (n == 0 && accumulate) return cudaSuccess;
    LAUNCH_TRY(launch(target, dim3((unsigned)n_blocks), dim3(threads_for(n_packs)), 0, sum_squares<T>, n, a, parts,
                      n_blocks == 1 && accumulate, is_wide<V>(a)));
    if (n_blocks == 1) return cudaSuccess;
    return launch(target, dim3(1), dim3(threads_for(n_blocks)), 0, add_parts, (int)n_blocks, parts,
                  kernel->u.reduce.result, accumulate);
}

__global__ void adamw_rate(qdri_adamw_numbers *numbers, double lr)
{
    numbers->lr = lr;
    qdri_rate_pieces(numbers);
}

__device__ void note_rate(double lr, qdri_cuda_fault *fault)
{
    if (atomicCAS(&fault->claimed, 0, 1) != 0) return;
    fault->kind = QDRI_FAULT_RATE;
    fault->lr = lr;
    __threadfence_system();
    *(volatile int32_t *)&fault->found = 1;
}

__global__ void adamw_begin(qdri_adamw_numbers *numbers, double beta1, double beta2, double clip_norm,
                            double grad_scale, bool skips, int n_ranks, qdri_cuda_fault *fault)
{
    const double norm = sqrt(numbers->norm_squared) / grad_scale;
    const bool differ = qdri_rates_differ(numbers, n_ranks) != 0;
    qdri_rate_pieces(numbers);
    numbers->correction1 = numbers->correction2 = 0;
    if (differ) return note_rate(numbers->lr, fault);
    numbers->n_begun++;
    if (skips && !(norm < INFINITY)) return;
    const double t = numbers->n_steps + 1;
    numbers->n_steps = t;
    numbers->factor = (clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1) / grad_scale;
    numbers->correction1 = 1 / (1 - pow(beta1, t));
    numbers->correction2 = 1 / (1 - pow(beta2, t));
}

/* The factors of a step. */
template <typename R> struct adamw_by {
    R beta1, beta2, rest1, rest2, epsilon, decay;
    R lr, factor, correction1, correction2; /* known only on the device */
};

template <typename R> __device__ inline R adamw_step(const adamw_by<R> &by, R gradient, R &m, R &v, R p)
{
    gradient *= by.factor;
    m = by.beta1 * m + by.rest1 * gradient;
    v = by.beta2 * v + by.rest2 * (gradient * gradient);
    const R step = m * by.correction1 / (real_sqrt(v * by.correction2) + by.epsilon);
    return p - by.lr * (step + by.decay * p);
}

/* Compares two two-byte elements by their bits, so that a NaN equals itself. */
template <typename T> __device__ inline bool has_same_bits(T one, T other)
{
    uint16_t bits, others;
    memcpy(&bits, &one, sizeof bits);
    memcpy(&others, &other, sizeof others);
    return bits == others;
}

/* master: the full-precision copy; p is also written if it has a different type, else it is NULL. An element of p that
 * is not its rounded master was initialised or loaded since, and the step starts from p. */
template <typename T, typename R>
__global__ void adamw(int64_t n, adamw_by<R> by, const qdri_adamw_numbers *numbers, T *p, R *master, const R *g, R *m,
                      R *v, bool wide)
{
    constexpr int V = pack_width<R>;
    const int64_t step = (int64_t)gridDim.x * blockDim.x * V;
    if (numbers->correction1 == 0) return;
    by.lr = (R)numbers->lr;
    by.factor = (R)numbers->factor;
    by.correction1 = (R)numbers->correction1;
    by.correction2 = (R)numbers->correction2;
    for (int64_t at = thread_number() * V; at < n; at += step) {
        const pack<R, V> gradient = load<V>(g, at, n, wide);
        pack<R, V> first = load<V>(m, at, n, wide), second = load<V>(v, at, n, wide);
        pack<R, V> value = load<V>((const R *)master, at, n, wide);
        pack<T, V> narrow;
        if (p) narrow = load<V>((const T *)p, at, n, wide);
#pragma unroll
        for (int k = 0; k < V; k++) {
            if (p && !has_same_bits(narrow.at[k], put<T>(value.at[k]))) value.at[k] = (R)get(narrow.at[k]);
            value.at[k] = adamw_step(by, gradient.at[k], first.at[k], second.at[k], value.at[k]);
            narrow.at[k] = put<T>(value.at[k]);
        }
        store<V>(m, at, n, wide, first);
        store<V>(v, at, n, wide, second);
        store<V>(master, at, n, wide, value);
        if (p) store<V>(p, at, n, wide, narrow);
    }
}

template <typename T> cudaError_t launch_adamw(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    typedef real_of<T> R;
    constexpr int V = pack_width<R>;
    constexpr bool has_master = sizeof(T) != sizeof(R);
    const int64_t n = kernel->u.adamw.n, n_packs = ceil_div(n, V);
    T *p = has_master ? (T *)kernel->u.adamw.p : nullptr;
    R *master = (R *)(has_master ? kernel->u.adamw.master : kernel->u.adamw.p);
    const R *g = (const R *)kernel->u.adamw.g;
    R *m = (R *)kernel->u.adamw.m, *v = (R *)kernel->u.adamw.v;
    const double beta1 = kernel->u.adamw.beta1, beta2 = kernel->u.adamw.beta2;
    const R epsilon = (R)kernel->u.adamw.epsilon, decay = (R)kernel->u.adamw.weight_decay;
    const adamw_by<R> by = {(R)beta1, (R)beta2, (R)(1 - beta1), (R)(1 - beta2), epsilon, decay, 0, 0, 0, 0};
    if (n == 0) return cudaSuccess;
    const int64_t n_blocks = least(ceil_div(n_packs, block_threads), 32 * (int64_t)target->n_sms);
    return launch(target, dim3((unsigned)n_blocks), dim3(threads_for(n_packs)), 0, adamw<T, R>, n, by,
                  kernel->u.adamw.numbers, p, master, g, m, v, is_wide<V>(p, master, g, m, v));
}
} // namespace

cudaError_t qdri_cuda_optimizer(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    if (kernel->kind == QDRI_K_ADAMW_RATE)
        return launch(target, dim3(1), dim3(1), 0, adamw_rate, kernel->u.adamw.numbers, kernel->u.adamw.lr);
    if (kernel->kind == QDRI_K_ADAMW_BEGIN)
        return launch(target, dim3(1), dim3(1), 0, adamw_begin, kernel->u.adamw.numbers, kernel->u.adamw.beta1,
                      kernel->u.adamw.beta2, kernel->u.adamw.clip_norm, kernel->u.adamw.grad_scale,
                      kernel->u.adamw.skips != 0, kernel->u.adamw.n_ranks, target->fault);
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        return kernel->kind == QDRI_K_ADAMW ? launch_adamw<T>(kernel, target) : launch_sum_squares<T>(kernel, target);
    });
}
