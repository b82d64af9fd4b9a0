/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of layer norm's gradients: of each row Σ dŷ and Σ dŷ·x̂, of each column Σ dy·x̂ and Σ dy. */
#include "dev/cuda/kernels/columns.cuh"

namespace
{
template <typename T>
__global__ void row_sums(int64_t n_rows, int64_t n_cols, const T *x, const T *dy, const T *gamma,
                         const real_of<T> *stats, real_of<T> *sums, bool wide)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t row = row_number();
    const int64_t n = row < n_rows ? n_cols : 0;
    const int64_t begin = row < n_rows ? row * n_cols : 0;
    const R mean = n > 0 ? stats[2 * row] : 0, rstd = n > 0 ? stats[2 * row + 1] : 0;
    R sum = 0, dot = 0;
#pragma unroll 2
    for (int64_t at = (int64_t)threadIdx.x * V; at < n; at += (int64_t)blockDim.x * V) {
        const pack<T, V> values = load<V>(x + begin, at, n, wide);
        const pack<T, V> slopes = load<V>(dy + begin, at, n, wide);
        const pack<T, V> factor = load<V>(gamma, at, n, wide);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const R d = get(slopes.at[k]) * get(factor.at[k]);
            sum += d;
            if (at + k < n) dot += d * ((get(values.at[k]) - mean) * rstd);
        }
    }
    sum = row_total<plus>(sum);
    dot = row_total<plus>(dot);
    if (threadIdx.x > 0 || row >= n_rows) return;
    sums[2 * row] = sum;
    sums[2 * row + 1] = dot;
}

/* A part's sums: dgamma[part, c] and dbeta[part, c], either of which may be NULL. */
template <typename T>
__global__ void parameter_sums(int64_t n_rows, int64_t n_cols, const T *x, const T *dy,
                               const real_of<T> *stats, unsigned n_chunks, int64_t rows_per_part,
                               real_of<T> *dgamma, real_of<T> *dbeta, bool accumulate, bool wide)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t part = blockIdx.x / n_chunks;
    const int64_t col = ((int64_t)(blockIdx.x % n_chunks) * blockDim.x + threadIdx.x) * V;
    const int64_t end = part * rows_per_part + rows_per_part;
    const int64_t n = end < n_rows ? end : n_rows;
    R dot[V] = {}, sum[V] = {};
    if (col < n_cols) {
#pragma unroll 4
        for (int64_t r = part * rows_per_part + threadIdx.y; r < n; r += blockDim.y) {
            const pack<T, V> values = load<V>(x + r * n_cols, col, n_cols, wide);
            const pack<T, V> slopes = load<V>(dy + r * n_cols, col, n_cols, wide);
            const R mean = stats[2 * r], rstd = stats[2 * r + 1];
#pragma unroll
            for (int k = 0; k < V; k++) {
                const R d = get(slopes.at[k]);
                dot[k] += d * ((get(values.at[k]) - mean) * rstd);
                sum[k] += d;
            }
        }
    }
    block_columns<V>(dot);
    block_columns<V>(sum);
    if (threadIdx.y > 0) return;
    if (dgamma) store_sums<V>(dgamma + part * n_cols, col, n_cols, dot, accumulate);
    if (dbeta) store_sums<V>(dbeta + part * n_cols, col, n_cols, sum, accumulate);
}

template <typename T>
cudaError_t launch_row_sums(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t n_rows = kernel->u.norm.n_rows, n_cols = kernel->u.norm.n_cols;
    const T *x = (const T *)kernel->u.norm.x, *dy = (const T *)kernel->u.norm.dy;
    const T *gamma = (const T *)kernel->u.norm.gamma;
    const row_plan plan = plan_rows(n_rows, n_cols, V);
    return launch(place, plan.grid, plan.block, 0, row_sums<T>, n_rows, n_cols, x, dy, gamma,
                  (const R *)kernel->u.norm.stats, (R *)kernel->u.norm.work,
                  is_wide<V>(x) && is_wide<V>(dy) && is_wide<V>(gamma) && n_cols % V == 0);
}

template <typename T>
cudaError_t launch_parameter_sums(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t n_rows = kernel->u.norm.n_rows, n_cols = kernel->u.norm.n_cols;
    const T *x = (const T *)kernel->u.norm.x, *dy = (const T *)kernel->u.norm.dy;
    R *results[] = {(R *)kernel->u.norm.dgamma, (R *)kernel->u.norm.dbeta};
    R *parts[] = {results[0], results[1]};
    const bool accumulate = kernel->u.norm.accumulate_params != 0;
    const column_plan plan = plan_columns(n_rows, n_cols, V, sizeof(R), 2, place->n_sms);
    if (plan.n_parts > 1) {
        for (int i = 0; i < 2; i++)
            if (results[i]) parts[i] = (R *)place->scratch + i * plan.n_parts * n_cols;
    }
    LAUNCH_TRY(launch(place, plan.grid(), plan.block, 0, parameter_sums<T>, n_rows, n_cols, x, dy,
                      (const R *)kernel->u.norm.stats, plan.n_chunks, plan.rows_per_part, parts[0],
                      parts[1], plan.n_parts == 1 && accumulate,
                      is_wide<V>(x) && is_wide<V>(dy) && n_cols % V == 0));
    for (int i = 0; i < 2 && plan.n_parts > 1; i++)
        if (results[i])
            LAUNCH_TRY(
                launch_one_part<R>(place, plan.n_parts, n_cols, parts[i], results[i], accumulate));
    return cudaSuccess;
}
} // namespace

cudaError_t qdri_cuda_norm_sums(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        const bool has_params = kernel->u.norm.dgamma || kernel->u.norm.dbeta;
        if (kernel->u.norm.n_rows > 0) LAUNCH_TRY(launch_row_sums<T>(kernel, place));
        if (!has_params || kernel->u.norm.n_cols == 0) return cudaSuccess;
        return launch_parameter_sums<T>(kernel, place);
    });
}
