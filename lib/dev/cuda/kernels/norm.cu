/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm over columns that may be split over ranks. x̂ = (x - mean)·rstd, dŷ = dy·gamma. */
#include "dev/cuda/kernels/rows.cuh"

namespace
{
/* As many of a row's packs as possible are kept in registers for the second pass. */
template <typename T, bool WIDE>
__global__ void norm_moments(int64_t n_rows, int64_t n_cols, const T *x, real_of<T> *moments)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t row = row_number();
    const int64_t n = row < n_rows ? n_cols : 0;
    const int64_t first = (int64_t)threadIdx.x * V, step = (int64_t)blockDim.x * V;
    const T *mine = x + (row < n_rows ? row * n_cols : 0);
    pack<T, V> kept[packs_kept];
    R sum = 0, m2 = 0;
#pragma unroll
    for (int i = 0; i < packs_kept; i++) kept[i] = load_row<WIDE, V>(mine, first + i * step, n);
#pragma unroll
    for (int i = 0; i < packs_kept; i++)
#pragma unroll
        for (int k = 0; k < V; k++) sum += get(kept[i].at[k]);
    for (int64_t at = first + packs_kept * step; at < n; at += step) {
        const pack<T, V> more = load_row<WIDE, V>(mine, at, n);
#pragma unroll
        for (int k = 0; k < V; k++) sum += get(more.at[k]);
    }
    const R mean = row_total<plus>(sum) / (R)(n > 0 ? n : 1);
    const auto add_square = [&](const pack<T, V> &values, int64_t at) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            const R d = get(values.at[k]) - mean;
            if (WIDE ? at < n : at + k < n) m2 += d * d;
        }
    };
#pragma unroll
    for (int i = 0; i < packs_kept; i++) add_square(kept[i], first + i * step);
    for (int64_t at = first + packs_kept * step; at < n; at += step) add_square(load_row<WIDE, V>(mine, at, n), at);
    m2 = row_total<plus>(m2);
    if (threadIdx.x > 0 || row >= n_rows) return;
    moments[3 * row] = (R)n;
    moments[3 * row + 1] = mean;
    moments[3 * row + 2] = m2;
}

/* Merges the moments of one row, in the order of the parts (Chan, Golub, LeVeque 1983). */
template <typename R> __global__ void norm_merge(int64_t n_rows, int n_parts, double epsilon, const R *parts, R *stats)
{
    const int64_t row = thread_number();
    double n = 0, mean = 0, m2 = 0;
    if (row >= n_rows) return;
    for (int i = 0; i < n_parts; i++) {
        const R *part = parts + 3 * (i * n_rows + row);
        const double n_part = (double)part[0];
        const double delta = (double)part[1] - mean;
        if (n_part == 0) continue;
        mean += delta * (n_part / (n + n_part));
        m2 += (double)part[2] + delta * delta * (n * n_part / (n + n_part));
        n += n_part;
    }
    stats[2 * row] = (R)mean;
    stats[2 * row + 1] = (R)(1 / sqrt((n > 0 ? m2 / n : 0) + epsilon));
}

template <typename T, bool WIDE>
__global__ void norm_apply(int64_t n_rows, int64_t n_cols, const T *x, const T *gamma, const T *beta,
                           const real_of<T> *stats, T *y)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const cell at = find_cell(n_cols, V, true);
    if (at.col >= n_cols) return;
    const pack<T, V> factor = load_row<WIDE, V>(gamma, at.col, n_cols);
    const pack<T, V> shift = load_row<WIDE, V>(beta, at.col, n_cols);
    pack<T, V> values[rows_each];
    R means[rows_each], rstds[rows_each];
#pragma unroll
    for (int i = 0; i < rows_each; i++) {
        const int64_t row = at.row + i * at.step;
        if (row >= n_rows) continue;
        values[i] = load_row<WIDE, V>(x + row * n_cols, at.col, n_cols);
        means[i] = stats[2 * row];
        rstds[i] = stats[2 * row + 1];
    }
#pragma unroll
    for (int i = 0; i < rows_each; i++) {
        const int64_t row = at.row + i * at.step;
        if (row >= n_rows) return;
#pragma unroll
        for (int k = 0; k < V; k++)
            values[i].at[k] = put<T>((get(values[i].at[k]) - means[i]) * rstds[i] * get(factor.at[k]) +
                                     get(shift.at[k]));
        store_row<WIDE, V>(y + row * n_cols, at.col, n_cols, values[i]);
    }
}

constexpr int backward_rows = 2; /* per thread; with more, registers would limit the number of threads */

/* A row's mean, 1/sigma, Σdŷ and Σ(dŷ·x̂). */
template <typename R> struct row_facts {
    R mean, rstd, sum, dot;
};

/* dx = or += rstd·(dŷ - Σdŷ/N - x̂·Σ(dŷ·x̂)/N) */
template <typename T, bool WIDE, bool ADDS>
__global__ void __launch_bounds__(block_threads, 3)
    norm_backward(int64_t n_rows, int64_t n_cols, real_of<T> n_features, const T *x, const T *dy, const T *gamma,
                  const real_of<T> *stats, const real_of<T> *sums, T *dx)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const cell at = find_cell<backward_rows>(n_cols, V, true);
    if (at.col >= n_cols) return;
    const pack<T, V> factor = load_row<WIDE, V>(gamma, at.col, n_cols);
    pack<T, V> values[backward_rows], slopes[backward_rows], old[backward_rows];
    row_facts<R> facts[backward_rows];
#pragma unroll
    for (int i = 0; i < backward_rows; i++) {
        const int64_t row = at.row + i * at.step;
        if (row >= n_rows) continue;
        values[i] = load_row<WIDE, V>(x + row * n_cols, at.col, n_cols);
        slopes[i] = load_row<WIDE, V>(dy + row * n_cols, at.col, n_cols);
        if (ADDS) old[i] = load_row<WIDE, V>(dx + row * n_cols, at.col, n_cols);
        facts[i] = {stats[2 * row], stats[2 * row + 1], sums[2 * row], sums[2 * row + 1]};
    }
#pragma unroll
    for (int i = 0; i < backward_rows; i++) {
        const int64_t row = at.row + i * at.step;
        if (row >= n_rows) return;
        const R level = facts[i].sum / n_features, slope = facts[i].dot / n_features;
#pragma unroll
        for (int k = 0; k < V; k++) {
            const R xhat = (get(values[i].at[k]) - facts[i].mean) * facts[i].rstd;
            const R d = facts[i].rstd * (get(slopes[i].at[k]) * get(factor.at[k]) - level - xhat * slope);
            values[i].at[k] = put<T>(ADDS ? get(old[i].at[k]) + d : d);
        }
        store_row<WIDE, V>(dx + row * n_cols, at.col, n_cols, values[i]);
    }
}

template <typename T> cudaError_t launch_moments(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    constexpr int V = pack_width<T>;
    const int64_t n_rows = kernel->u.norm.n_rows, n_cols = kernel->u.norm.n_cols;
    const T *x = (const T *)kernel->u.norm.x;
    const row_plan plan = plan_rows(n_rows, n_cols, V);
    const bool wide = is_wide<V>(x) && n_cols % V == 0;
    return launch(place, plan.grid, plan.block, 0, wide ? norm_moments<T, true> : norm_moments<T, false>, n_rows,
                  n_cols, x, (real_of<T> *)kernel->u.norm.work);
}

template <typename T> cudaError_t launch_merge(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    typedef real_of<T> R;
    const int64_t n_rows = kernel->u.norm.n_rows;
    return launch_each(place, n_rows, norm_merge<R>, n_rows, kernel->u.norm.n_parts, kernel->u.norm.epsilon,
                       (const R *)kernel->u.norm.work, (R *)kernel->u.norm.stats);
}

template <typename T> cudaError_t launch_apply(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    constexpr int V = pack_width<T>;
    const int64_t n_rows = kernel->u.norm.n_rows, n_cols = kernel->u.norm.n_cols;
    const T *x = (const T *)kernel->u.norm.x;
    const T *gamma = (const T *)kernel->u.norm.gamma, *beta = (const T *)kernel->u.norm.beta;
    T *y = (T *)kernel->u.norm.y;
    const cell_plan plan = plan_cells(n_rows, n_cols, V);
    const bool wide = is_wide<V>(x) && is_wide<V>(gamma) && is_wide<V>(beta) && is_wide<V>(y) && n_cols % V == 0;
    return launch(place, plan.grid, plan.block, 0, wide ? norm_apply<T, true> : norm_apply<T, false>, n_rows, n_cols, x,
                  gamma, beta, (const real_of<T> *)kernel->u.norm.stats, y);
}

template <typename T> cudaError_t launch_backward(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t n_rows = kernel->u.norm.n_rows, n_cols = kernel->u.norm.n_cols;
    const T *x = (const T *)kernel->u.norm.x, *dy = (const T *)kernel->u.norm.dy;
    const T *gamma = (const T *)kernel->u.norm.gamma;
    T *dx = (T *)kernel->u.norm.dx;
    const cell_plan plan = plan_cells<backward_rows>(n_rows, n_cols, V);
    const bool wide = is_wide<V>(x) && is_wide<V>(dy) && is_wide<V>(gamma) && is_wide<V>(dx) && n_cols % V == 0;
    const auto run = kernel->u.norm.accumulate_dx
                         ? (wide ? norm_backward<T, true, true> : norm_backward<T, false, true>)
                         : (wide ? norm_backward<T, true, false> : norm_backward<T, false, false>);
    return launch(place, plan.grid, plan.block, 0, run, n_rows, n_cols, (R)kernel->u.norm.n_features, x, dy, gamma,
                  (const R *)kernel->u.norm.stats, (const R *)kernel->u.norm.work, dx);
}

template <typename T> cudaError_t launch_norm(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    if (kernel->u.norm.n_rows == 0) return cudaSuccess;
    if (kernel->kind == QDRI_K_NORM_MOMENTS) return launch_moments<T>(kernel, place);
    if (kernel->kind == QDRI_K_NORM_MERGE) return launch_merge<T>(kernel, place);
    if (kernel->u.norm.n_cols == 0) return cudaSuccess;
    if (kernel->kind == QDRI_K_NORM_APPLY) return launch_apply<T>(kernel, place);
    return launch_backward<T>(kernel, place);
}
} // namespace

cudaError_t qdri_cuda_norm(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    return with_type(kernel->dtype, [&](auto t) { return launch_norm<decltype(t)>(kernel, place); });
}
