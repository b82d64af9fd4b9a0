/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that add a vector to rows, or rows to a vector: bias, positions. */
#include "dev/cuda/kernels/rows.cuh"

namespace
{
template <typename T> __global__ void bias_add(int64_t n_rows, int64_t n_cols, T *y, const T *p, bool wide)
{
    constexpr int V = pack_width<T>;
    const cell at = find_cell(n_cols, V);
    if (at.col >= n_cols) return;
    const pack<T, V> bias = load<V>(p, at.col, n_cols, wide);
    pack<T, V> x[rows_each];
    for_rows(at, n_rows, [&](int i, int64_t row) { x[i] = load<V>(y + row * n_cols, at.col, n_cols, wide); });
    for_rows(at, n_rows, [&](int i, int64_t row) {
#pragma unroll
        for (int k = 0; k < V; k++) x[i].at[k] = put<T>(get(x[i].at[k]) + get(bias.at[k]));
        store<V>(y + row * n_cols, at.col, n_cols, wide, x[i]);
    });
}

/* a mod b, without 64-bit division if possible; a ≥ 0, b > 0. */
__device__ inline int64_t remainder_of(int64_t a, int64_t b)
{
    return ((a | b) >> 32) == 0 ? (int64_t)((uint32_t)a % (uint32_t)b) : a % b;
}

template <typename T>
__global__ void position_add(int64_t n_rows, int64_t n_cols, int64_t row0, int64_t context, T *y, const T *p, bool wide)
{
    constexpr int V = pack_width<T>;
    const cell at = find_cell(n_cols, V);
    if (at.col >= n_cols) return;
    for (int i = 0; i < rows_each; i++) {
        const int64_t row = at.row + i * at.step;
        if (row >= n_rows) return;
        const int64_t position = remainder_of(row + row0, context);
        const pack<T, V> more = load<V>(p + position * n_cols, at.col, n_cols, wide);
        pack<T, V> x = load<V>(y + row * n_cols, at.col, n_cols, wide);
#pragma unroll
        for (int k = 0; k < V; k++) x.at[k] = put<T>(get(x.at[k]) + get(more.at[k]));
        store<V>(y + row * n_cols, at.col, n_cols, wide, x);
    }
}

/* A thread adds all rows of one position, the first of which is (position + skip) mod context. */
template <typename T>
__global__ void position_sum(int64_t n_rows, int64_t n_cols, int64_t skip, int64_t context, const T *x, real_of<T> *p,
                             bool accumulate, bool wide)
{
    constexpr int V = pack_width<T>;
    const int64_t n_packs = (n_cols + V - 1) / V;
    const int64_t position = thread_number() / n_packs;
    const int64_t col = thread_number() % n_packs * V;
    real_of<T> sum[V] = {};
    if (position >= context) return;
#pragma unroll 4
    for (int64_t r = remainder_of(position + skip, context); r < n_rows; r += context) {
        const pack<T, V> more = load<V>(x + r * n_cols, col, n_cols, wide);
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] += get(more.at[k]);
    }
    store_sums<V>(p + position * n_cols, col, n_cols, sum, accumulate);
}

template <typename T> cudaError_t launch_add(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const int64_t n_rows = kernel->u.rows.n_rows, n_cols = kernel->u.rows.n_cols;
    T *y = (T *)kernel->u.rows.y;
    const T *p = (const T *)kernel->u.rows.p;
    const bool wide = is_wide<V>(y, p) && n_cols % V == 0;
    if (n_rows == 0 || n_cols == 0) return cudaSuccess;
    const grid_plan plan = plan_cells(n_rows, n_cols, V);
    if (kernel->kind == QDRI_K_BIAS_ADD)
        return launch(target, plan.grid, plan.block, 0, bias_add<T>, n_rows, n_cols, y, p, wide);
    const int64_t context = kernel->u.rows.context;
    return launch(target, plan.grid, plan.block, 0, position_add<T>, n_rows, n_cols, kernel->u.rows.row0 % context,
                  context, y, p, wide);
}

template <typename T> cudaError_t launch_sum(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const int64_t n_rows = kernel->u.rows.n_rows, n_cols = kernel->u.rows.n_cols;
    const T *x = (const T *)kernel->u.rows.x;
    real_of<T> *p = (real_of<T> *)kernel->u.rows.p;
    const bool accumulate = kernel->accumulate != 0;
    if (n_cols == 0 || (n_rows == 0 && accumulate)) return cudaSuccess;
    if (kernel->kind == QDRI_K_COLUMN_SUM)
        return launch_column_sums(target, target->n_sms, n_rows, n_cols, x, p, accumulate);
    const int64_t context = kernel->u.rows.context;
    const int64_t skip = (context - kernel->u.rows.row0 % context) % context;
    return launch_each(target, context * ceil_div(n_cols, V), position_sum<T>, n_rows, n_cols, skip, context, x, p,
                       accumulate, is_wide<V>(x) && n_cols % V == 0);
}
} // namespace

cudaError_t qdri_cuda_rows(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const bool sums = kernel->kind == QDRI_K_COLUMN_SUM || kernel->kind == QDRI_K_POSITION_SUM;
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        return sums ? launch_sum<T>(kernel, target) : launch_add<T>(kernel, target);
    });
}
