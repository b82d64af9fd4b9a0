/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of blocks, reductions of values from several ranks, and keys for reductions by others. */
#include "dev/cuda/kernels/rows.cuh"

namespace
{
/* ---- blocks ---- */

/* Strides and columns are in units. */
template <typename U>
__global__ void copy_block(int64_t n_rows, int64_t n_cols, const U *x, int64_t x_stride, U *y, int64_t y_stride)
{
    const cell at = find_cell(n_cols, 1);
    U units[rows_each];
    if (at.col >= n_cols) return;
    for_rows(at, n_rows, [&](int i, int64_t row) { units[i] = x[row * x_stride + at.col]; });
    for_rows(at, n_rows, [&](int i, int64_t row) { y[row * y_stride + at.col] = units[i]; });
}

template <typename U> cudaError_t launch_copy(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr size_t unit = sizeof(U);
    const int64_t n_rows = kernel->u.block.n_rows;
    const int64_t n_cols = (int64_t)(kernel->u.block.row_bytes / unit);
    const grid_plan plan = plan_cells(n_rows, n_cols, 1);
    return launch(target, plan.grid, plan.block, 0, copy_block<U>, n_rows, n_cols, (const U *)kernel->u.block.x,
                  (int64_t)(kernel->u.block.x_stride / unit), (U *)kernel->u.block.y,
                  (int64_t)(kernel->u.block.y_stride / unit));
}

cudaError_t launch_copy_block(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const uintptr_t strides = kernel->u.block.n_rows > 1 ? kernel->u.block.x_stride | kernel->u.block.y_stride : 0;
    const uintptr_t all = (uintptr_t)kernel->u.block.x | (uintptr_t)kernel->u.block.y | kernel->u.block.row_bytes |
                          strides;
    if (kernel->u.block.n_rows == 0 || kernel->u.block.row_bytes == 0) return cudaSuccess;
    if (all % 16 == 0) return launch_copy<uint4>(kernel, target);
    if (all % 8 == 0) return launch_copy<uint2>(kernel, target);
    if (all % 4 == 0) return launch_copy<uint32_t>(kernel, target);
    if (all % 2 == 0) return launch_copy<uint16_t>(kernel, target);
    return launch_copy<uint8_t>(kernel, target);
}

/* ---- reductions ---- */

struct maximum { /* NaN wins */
    template <typename R> __device__ static R of(R a, R b) { return b > a || b != b ? b : a; }
};
struct minimum {
    template <typename R> __device__ static R of(R a, R b) { return b < a || b != b ? b : a; }
};

/* A thread reads all sources before it writes, because results may be sources. */
template <typename Op, typename T>
__global__ void reduce(int64_t n, int n_sources, int n_results, qdri_cuda_lists lists, bool wide)
{
    constexpr int V = pack_width<T>;
    const int64_t at = thread_number() * V;
    real_of<T> total[V] = {};
    pack<T, V> out;
    if (at >= n) return;
#pragma unroll 4
    for (int s = 0; s < n_sources; s++) {
        const pack<T, V> more = load<V>((const T *)lists.sources[s], at, n, wide);
#pragma unroll
        for (int k = 0; k < V; k++) total[k] = s ? Op::of(total[k], get(more.at[k])) : get(more.at[k]);
    }
#pragma unroll
    for (int k = 0; k < V; k++) out.at[k] = put<T>(total[k]);
    for (int i = 0; i < n_results; i++) store<V>((T *)lists.results[i], at, n, wide, out);
}

template <typename Op, typename T>
cudaError_t launch_reduce_by(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const int64_t n = kernel->u.gather.n;
    const int n_sources = kernel->u.gather.n_sources, n_results = kernel->u.gather.n_results;
    qdri_cuda_lists lists = {};
    bool wide = true;
    if (n == 0) return cudaSuccess;
    for (int i = 0; i < n_sources; i++) {
        lists.sources[i] = kernel->u.gather.sources[i];
        wide = wide && is_wide<V>((const T *)lists.sources[i]);
    }
    for (int i = 0; i < n_results; i++) {
        lists.results[i] = kernel->u.gather.results[i];
        wide = wide && is_wide<V>((const T *)lists.results[i]);
    }
    return launch_each(target, ceil_div(n, V), reduce<Op, T>, n, n_sources, n_results, lists, wide);
}

/* ToSum: integers are added as unsigned integers, which wrap. */
template <typename T, typename ToSum>
cudaError_t launch_reduce(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    switch (kernel->u.gather.op) {
    case QDR_SUM: return launch_reduce_by<plus, ToSum>(kernel, target);
    case QDR_MAX: return launch_reduce_by<maximum, T>(kernel, target);
    case QDR_MIN: return launch_reduce_by<minimum, T>(kernel, target);
    default: return cudaErrorNotSupported;
    }
}

/* ---- keys ---- */

/* As integers, numbers that are not negative are in their order, and negative ones in the opposite order. */
template <typename T> using key_of = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
template <typename K> constexpr K most_key = (K)(~(K)0 ^ ((K)1 << (8 * sizeof(K) - 1)));

/* x and keys may be the same memory. */
template <typename T> __global__ void to_keys(int64_t n, const T *x, key_of<T> *keys, key_of<T> nan)
{
    const int64_t at = thread_number();
    key_of<T> key;
    if (at >= n) return;
    const real_of<T> number = get(x[at]);
    memcpy(&key, &number, sizeof key);
    if (key < 0) key ^= most_key<key_of<T>>;
    keys[at] = number != number ? nan : key;
}

template <typename T> __global__ void from_keys(int64_t n, const key_of<T> *keys, T *y)
{
    const int64_t at = thread_number();
    real_of<T> number;
    if (at >= n) return;
    key_of<T> key = keys[at];
    if (key < 0) key ^= most_key<key_of<T>>;
    memcpy(&number, &key, sizeof number);
    y[at] = put<T>(number);
}

template <typename T> cudaError_t launch_keys(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    typedef key_of<T> key;
    const int64_t n = kernel->u.gather.n;
    const void *x = kernel->u.gather.sources[0];
    void *y = kernel->u.gather.results[0];
    if (n == 0) return cudaSuccess;
    if (kernel->kind == QDRI_K_FROM_KEYS) return launch_each(target, n, from_keys<T>, n, (const key *)x, (T *)y);
    const key nan = kernel->u.gather.op == QDR_MIN ? (key)~most_key<key> : most_key<key>;
    return launch_each(target, n, to_keys<T>, n, (const T *)x, (key *)y, nan);
}
} // namespace

cudaError_t qdri_cuda_moves(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    if (kernel->kind == QDRI_K_COPY_BLOCK) return launch_copy_block(kernel, target);
    if (kernel->kind != QDRI_K_REDUCE)
        return with_type(kernel->dtype, [&](auto t) { return launch_keys<decltype(t)>(kernel, target); });
    if (kernel->dtype == QDR_I32) return launch_reduce<int32_t, uint32_t>(kernel, target);
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        return launch_reduce<T, T>(kernel, target);
    });
}
