/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over columns that may be split over ranks. x̂ = (x - mean)·rstd, dŷ = dy·gamma; of an RMS norm the mean is 0. */
#include "dev/cuda/kernels/rows.cuh"
#include "dev/moments.h"

namespace
{
/* The matrix that is normed. What is stored of its rows are mean and 1/sigma, of an RMS norm 1/rms alone. */
template <typename R> struct norm_shape {
    int64_t n_rows, n_cols, stride;
    R n_features, shift; /* shift: added to a stored gamma; -0 changes no number */
    bool is_rms;
    __device__ R mean(const R *stats, int64_t row) const { return is_rms ? (R)0 : stats[2 * row]; }
    __device__ R rstd(const R *stats, int64_t row) const { return stats[is_rms ? row : 2 * row + 1]; }
};

template <typename T> norm_shape<real_of<T>> shape_of(const qdri_kernel *kernel)
{
    typedef real_of<T> R;
    const auto &norm = kernel->u.norm;
    return {norm.n_rows, norm.n_cols, norm.stride, (R)norm.n_features, norm.one_plus ? (R)1 : -(R)0, norm.is_rms != 0};
}

/* Whether rows of packs of V elements are aligned. */
template <int V, typename... T> bool has_packs(const qdri_kernel *kernel, const T *...data)
{
    return is_wide<V>(data...) && kernel->u.norm.n_cols % V == 0 && kernel->u.norm.stride % V == 0;
}

/* As many of a row's packs as possible are kept in registers for the second pass. */
template <typename T, bool WIDE>
__global__ void norm_moments(norm_shape<real_of<T>> shape, const T *x, real_of<T> *moments)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t row = row_number(), n_rows = shape.n_rows;
    const int64_t n = row < n_rows ? shape.n_cols : 0;
    const int64_t first = (int64_t)threadIdx.x * V, step = (int64_t)blockDim.x * V;
    const T *mine = x + (row < n_rows ? row * shape.stride : 0);
    pack<T, V> kept[packs_kept];
    R sum = 0, m2 = 0;
#pragma unroll
    for (int i = 0; i < packs_kept; i++) kept[i] = load_row<WIDE, V>(mine, first + i * step, n);
    if (!shape.is_rms) {
#pragma unroll
        for (int i = 0; i < packs_kept; i++)
#pragma unroll
            for (int k = 0; k < V; k++) sum += get(kept[i].at[k]);
        for (int64_t at = first + packs_kept * step; at < n; at += step) {
            const pack<T, V> more = load_row<WIDE, V>(mine, at, n);
#pragma unroll
            for (int k = 0; k < V; k++) sum += get(more.at[k]);
        }
        sum = row_total<plus>(sum);
    }
    const R mean = sum / (R)(n > 0 ? n : 1);
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
    if (shape.is_rms) {
        moments[row] = m2 / shape.n_features;
        return;
    }
    moments[3 * row] = (R)n;
    moments[3 * row + 1] = mean;
    moments[3 * row + 2] = m2;
}

template <typename R> __device__ inline R inverse(double variance, double epsilon)
{
    return (R)(1 / sqrt(variance + epsilon));
}

/* Merges the moments of one row, in the order of the parts. */
template <typename R>
__global__ void norm_merge(int64_t n_rows, int n_parts, double epsilon, bool is_rms, const R *parts, R *stats)
{
    const int64_t row = thread_number();
    qdri_moments all = {0, 0, 0};
    if (row >= n_rows) return;
    if (is_rms) {
        stats[row] = inverse<R>((double)parts[row], epsilon);
        return;
    }
    for (int i = 0; i < n_parts; i++) {
        const R *part = parts + 3 * (i * n_rows + row);
        qdri_moments_add(&all, {(double)part[0], (double)part[1], (double)part[2]});
    }
    stats[2 * row] = (R)all.mean;
    stats[2 * row + 1] = inverse<R>(all.n > 0 ? all.m2 / all.n : 0, epsilon);
}

template <typename T, bool WIDE>
__global__ void norm_apply(norm_shape<real_of<T>> shape, const T *x, const T *gamma, const T *beta,
                           const real_of<T> *stats, T *y)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t n_rows = shape.n_rows, n_cols = shape.n_cols;
    const cell at = find_cell(n_cols, V, true);
    if (at.col >= n_cols) return;
    const pack<T, V> factor = load_row<WIDE, V>(gamma, at.col, n_cols);
    const pack<T, V> added = load_row<WIDE, V>(beta, at.col, beta ? n_cols : 0);
    pack<T, V> values[rows_each];
    R means[rows_each], rstds[rows_each];
    for_rows(at, n_rows, [&](int i, int64_t row) {
        values[i] = load_row<WIDE, V>(x + row * shape.stride, at.col, n_cols);
        means[i] = shape.mean(stats, row);
        rstds[i] = shape.rstd(stats, row);
    });
    for_rows(at, n_rows, [&](int i, int64_t row) {
#pragma unroll
        for (int k = 0; k < V; k++)
            values[i].at[k] = put<T>((get(values[i].at[k]) - means[i]) * rstds[i] * (get(factor.at[k]) + shape.shift) +
                                     get(added.at[k]));
        store_row<WIDE, V>(y + row * shape.stride, at.col, n_cols, values[i]);
    });
}

constexpr int backward_rows = 2; /* per thread; with more, registers would limit the number of threads */

/* A row's mean, 1/sigma, Σdŷ and Σ(dŷ·x̂). */
template <typename R> struct row_facts {
    R mean, rstd, sum, dot;
};

/* dx = or += rstd·(dŷ - Σdŷ/N - x̂·Σ(dŷ·x̂)/N) */
template <typename T, bool WIDE, bool ADDS>
__global__ void __launch_bounds__(block_threads, 3)
    norm_backward(norm_shape<real_of<T>> shape, const T *x, const T *dy, const T *gamma, const real_of<T> *stats,
                  const real_of<T> *sums, T *dx)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t n_rows = shape.n_rows, n_cols = shape.n_cols;
    const cell at = find_cell<backward_rows>(n_cols, V, true);
    if (at.col >= n_cols) return;
    const pack<T, V> factor = load_row<WIDE, V>(gamma, at.col, n_cols);
    pack<T, V> values[backward_rows], slopes[backward_rows], old[backward_rows];
    row_facts<R> facts[backward_rows];
    for_rows<backward_rows>(at, n_rows, [&](int i, int64_t row) {
        const int64_t begin = row * shape.stride;
        values[i] = load_row<WIDE, V>(x + begin, at.col, n_cols);
        slopes[i] = load_row<WIDE, V>(dy + begin, at.col, n_cols);
        if (ADDS) old[i] = load_row<WIDE, V>(dx + begin, at.col, n_cols);
        facts[i] = {shape.mean(stats, row), shape.rstd(stats, row), shape.is_rms ? (R)0 : sums[2 * row],
                    sums[shape.is_rms ? row : 2 * row + 1]};
    });
    for_rows<backward_rows>(at, n_rows, [&](int i, int64_t row) {
        const R offset = facts[i].sum / shape.n_features, slope = facts[i].dot / shape.n_features;
#pragma unroll
        for (int k = 0; k < V; k++) {
            const R xhat = (get(values[i].at[k]) - facts[i].mean) * facts[i].rstd;
            const R d = get(slopes[i].at[k]) * (get(factor.at[k]) + shape.shift);
            const R change = facts[i].rstd * (d - offset - xhat * slope);
            values[i].at[k] = put<T>(ADDS ? get(old[i].at[k]) + change : change);
        }
        store_row<WIDE, V>(dx + row * shape.stride, at.col, n_cols, values[i]);
    });
}

template <typename T> cudaError_t launch_moments(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const T *x = (const T *)kernel->u.norm.x;
    const grid_plan plan = plan_rows(kernel->u.norm.n_rows, kernel->u.norm.n_cols, V);
    return launch(target, plan.grid, plan.block, 0,
                  has_packs<V>(kernel, x) ? norm_moments<T, true> : norm_moments<T, false>, shape_of<T>(kernel), x,
                  (real_of<T> *)kernel->u.norm.work);
}

template <typename T> cudaError_t launch_merge(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    typedef real_of<T> R;
    const int64_t n_rows = kernel->u.norm.n_rows;
    return launch_each(target, n_rows, norm_merge<R>, n_rows, kernel->u.norm.n_parts, kernel->u.norm.epsilon,
                       kernel->u.norm.is_rms != 0, (const R *)kernel->u.norm.work, (R *)kernel->u.norm.stats);
}

template <typename T> cudaError_t launch_apply(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const T *x = (const T *)kernel->u.norm.x;
    const T *gamma = (const T *)kernel->u.norm.gamma, *beta = (const T *)kernel->u.norm.beta;
    T *y = (T *)kernel->u.norm.y;
    const grid_plan plan = plan_cells(kernel->u.norm.n_rows, kernel->u.norm.n_cols, V);
    const bool wide = has_packs<V>(kernel, x, gamma, beta, y);
    return launch(target, plan.grid, plan.block, 0, wide ? norm_apply<T, true> : norm_apply<T, false>,
                  shape_of<T>(kernel), x, gamma, beta, (const real_of<T> *)kernel->u.norm.stats, y);
}

template <typename T> cudaError_t launch_backward(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const T *x = (const T *)kernel->u.norm.x, *dy = (const T *)kernel->u.norm.dy;
    const T *gamma = (const T *)kernel->u.norm.gamma;
    T *dx = (T *)kernel->u.norm.dx;
    const grid_plan plan = plan_cells<backward_rows>(kernel->u.norm.n_rows, kernel->u.norm.n_cols, V);
    const bool wide = has_packs<V>(kernel, x, dy, gamma, dx);
    const auto run = kernel->accumulate ? (wide ? norm_backward<T, true, true> : norm_backward<T, false, true>)
                                        : (wide ? norm_backward<T, true, false> : norm_backward<T, false, false>);
    return launch(target, plan.grid, plan.block, 0, run, shape_of<T>(kernel), x, dy, gamma,
                  (const real_of<T> *)kernel->u.norm.stats, (const real_of<T> *)kernel->u.norm.work, dx);
}

/* ---- sums for gradients: Σ dŷ and Σ dŷ·x̂ of each row, Σ dy·x̂ and Σ dy of each column ---- */

template <typename T>
__global__ void row_sums(norm_shape<real_of<T>> shape, const T *x, const T *dy, const T *gamma, const real_of<T> *stats,
                         real_of<T> *sums, bool wide)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t row = row_number(), n_rows = shape.n_rows;
    const int64_t n = row < n_rows ? shape.n_cols : 0;
    const int64_t begin = row < n_rows ? row * shape.stride : 0;
    const R mean = n > 0 ? shape.mean(stats, row) : 0, rstd = n > 0 ? shape.rstd(stats, row) : 0;
    R sum = 0, dot = 0;
#pragma unroll 2
    for (int64_t at = (int64_t)threadIdx.x * V; at < n; at += (int64_t)blockDim.x * V) {
        const pack<T, V> values = load<V>(x + begin, at, n, wide);
        const pack<T, V> slopes = load<V>(dy + begin, at, n, wide);
        const pack<T, V> factor = load<V>(gamma, at, n, wide);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const R d = get(slopes.at[k]) * (get(factor.at[k]) + shape.shift);
            sum += d;
            if (at + k < n) dot += d * ((get(values.at[k]) - mean) * rstd);
        }
    }
    sum = row_total<plus>(sum);
    dot = row_total<plus>(dot);
    if (threadIdx.x > 0 || row >= n_rows) return;
    if (!shape.is_rms) sums[2 * row] = sum;
    sums[shape.is_rms ? row : 2 * row + 1] = dot;
}

/* A part's sums: dgamma[part, c] and dbeta[part, c], either of which may be NULL. */
template <typename T>
__global__ void parameter_sums(norm_shape<real_of<T>> shape, const T *x, const T *dy, const real_of<T> *stats,
                               unsigned n_chunks, int64_t rows_per_part, real_of<T> *dgamma, real_of<T> *dbeta,
                               bool accumulate, bool wide)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t n_rows = shape.n_rows, n_cols = shape.n_cols;
    const int64_t part = blockIdx.x / n_chunks;
    const int64_t col = ((int64_t)(blockIdx.x % n_chunks) * blockDim.x + threadIdx.x) * V;
    const int64_t end = part * rows_per_part + rows_per_part;
    const int64_t n = end < n_rows ? end : n_rows;
    R dot[V] = {}, sum[V] = {};
    if (col < n_cols) {
#pragma unroll 4
        for (int64_t r = part * rows_per_part + threadIdx.y; r < n; r += blockDim.y) {
            const pack<T, V> values = load<V>(x + r * shape.stride, col, n_cols, wide);
            const pack<T, V> slopes = load<V>(dy + r * shape.stride, col, n_cols, wide);
            const R mean = shape.mean(stats, r), rstd = shape.rstd(stats, r);
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

/* ---- both in one pass, for rows that fit into a block ---- */

constexpr int fused_threads = 512; /* with more threads, a block has one row at a time */

/* Rows that a thread processes at once: as many as the registers allow with this many threads. */
template <int MOST_THREADS> constexpr int rows_at_once = MOST_THREADS > fused_threads ? 1 : 4;

/* The warps' parts of the rows' sums; two sets used alternately, so that one barrier is enough. */
template <typename R, int ROWS> struct warp_sums {
    R at[2][ROWS][2][32];
};

/* Sum `which` of row `i` of the thread's group, whose first warp is `first`. */
template <typename R, int ROWS>
__device__ inline R add_warps(const warp_sums<R, ROWS> &sums, int set, int i, int which, int first)
{
    R total = sums.at[set][i][which][first];
    for (int warp = 1; warp < (int)blockDim.x / 32; warp++) total += sums.at[set][i][which][first + warp];
    return total;
}

/* One pack of columns of several rows, and the rows' statistics; zeros outside the matrix. */
template <typename T, int ROWS> struct some_rows {
    pack<T, pack_width<T>> values[ROWS], slopes[ROWS];
    real_of<T> means[ROWS], rstds[ROWS];
};

template <bool WIDE, typename T, int ROWS>
__device__ inline void load_some(some_rows<T, ROWS> &to, int64_t row, int64_t col, const norm_shape<real_of<T>> &shape,
                                 const T *x, const T *dy, const real_of<T> *stats)
{
    constexpr int V = pack_width<T>;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const bool is_there = row + i < shape.n_rows;
        const int64_t n = is_there ? shape.n_cols : 0, at = is_there ? (row + i) * shape.stride : 0;
        to.values[i] = load_row<WIDE, V>(x + at, col, n);
        to.slopes[i] = load_row<WIDE, V>(dy + at, col, n);
        to.means[i] = is_there ? shape.mean(stats, row + i) : 0;
        to.rstds[i] = is_there ? shape.rstd(stats, row + i) : 0;
    }
}

/* Each thread has one pack of columns and ROWS rows at a time, and loads the next rows before it adds; the block's
 * column sums are its part. dgamma and dbeta may be NULL. */
template <typename T, int MOST_THREADS, bool WIDE>
__global__ void __launch_bounds__(MOST_THREADS)
    fused_sums(norm_shape<real_of<T>> shape, const T *x, const T *dy, const T *gamma, const real_of<T> *stats,
               real_of<T> *sums, real_of<T> *dgamma, real_of<T> *dbeta, bool accumulate)
{
    constexpr int V = pack_width<T>, ROWS = rows_at_once<MOST_THREADS>;
    typedef real_of<T> R;
    const int64_t n_rows = shape.n_rows, n_cols = shape.n_cols;
    __shared__ warp_sums<R, ROWS> shared;
    const int64_t col = (int64_t)threadIdx.x * V, part = blockIdx.x;
    const int warp = (int)(threadIdx.y * blockDim.x + threadIdx.x) / 32;
    const int first = (int)(threadIdx.y * blockDim.x) / 32;
    const int64_t step = (int64_t)gridDim.x * blockDim.y * ROWS;
    const pack<T, V> factor = load_row<WIDE, V>(gamma, col, n_cols);
    R dots[V] = {}, all[V] = {};
    some_rows<T, ROWS> now, next;
    int64_t row = (part * blockDim.y + threadIdx.y) * ROWS;
    int set = 0;
    load_some<WIDE>(now, row, col, shape, x, dy, stats);
    for (int64_t row0 = part * blockDim.y * ROWS; row0 < n_rows; row0 += step, row += step) {
        load_some<WIDE>(next, row + step, col, shape, x, dy, stats);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            R sum = 0, dot = 0;
#pragma unroll
            for (int k = 0; k < V; k++) {
                const R slope = get(now.slopes[i].at[k]), d = slope * (get(factor.at[k]) + shape.shift);
                const R xhat = (get(now.values[i].at[k]) - now.means[i]) * now.rstds[i];
                sum += d;
                dot += d * xhat;
                dots[k] += slope * xhat;
                all[k] += slope;
            }
            sum = warp_total<plus>(sum);
            dot = warp_total<plus>(dot);
            if (threadIdx.x % 32 == 0) {
                shared.at[set][i][0][warp] = sum;
                shared.at[set][i][1][warp] = dot;
            }
        }
        __syncthreads();
        const int i = (int)threadIdx.x / 2, which = (int)threadIdx.x % 2;
        const bool is_kept = i < ROWS && row + i < n_rows && (which == 1 || !shape.is_rms);
        if (is_kept) sums[shape.is_rms ? row + i : 2 * (row + i) + which] = add_warps(shared, set, i, which, first);
        now = next;
        set ^= 1;
    }
    block_columns<V, fused_threads>(dots);
    block_columns<V, fused_threads>(all);
    if (threadIdx.y > 0) return;
    if (dgamma) store_sums<V>(dgamma + part * n_cols, col, n_cols, dots, accumulate);
    if (dbeta) store_sums<V>(dbeta + part * n_cols, col, n_cols, all, accumulate);
}

/* The totals of the parts: of dgamma by blocks (…, 0), of dbeta by blocks (…, 1). */
template <typename R, bool WIDE>
__global__ void add_parts(int64_t n_parts, int64_t n_cols, const R *dgammas, const R *dbetas, unsigned n_chunks,
                          int64_t rows_per_part, R *dgamma, R *dbeta, bool accumulate)
{
    R *out = blockIdx.y == 0 ? dgamma : dbeta;
    if (out)
        add_columns<WIDE>(n_parts, n_cols, blockIdx.y == 0 ? dgammas : dbetas, n_chunks, rows_per_part, out,
                          accumulate);
}

template <typename T> cudaError_t launch_row_sums(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const T *x = (const T *)kernel->u.norm.x, *dy = (const T *)kernel->u.norm.dy;
    const T *gamma = (const T *)kernel->u.norm.gamma;
    const grid_plan plan = plan_rows(kernel->u.norm.n_rows, kernel->u.norm.n_cols, V);
    return launch(target, plan.grid, plan.block, 0, row_sums<T>, shape_of<T>(kernel), x, dy, gamma,
                  (const real_of<T> *)kernel->u.norm.stats, (real_of<T> *)kernel->u.norm.work,
                  has_packs<V>(kernel, x, dy, gamma));
}

/* dgamma and dbeta: where a kernel writes the sums of its parts, and their destinations. */
template <typename R> struct column_results {
    R *results[2], *parts[2];
    int64_t n_parts, n_cols;
    bool accumulate;
    bool accumulates_at_once() const { return n_parts == 1 && accumulate; }
};

template <typename R>
column_results<R> results_of(const qdri_kernel *kernel, const qdri_cuda_target *target, int64_t n_parts)
{
    const int64_t n_cols = kernel->u.norm.n_cols;
    column_results<R> to = {
        {(R *)kernel->u.norm.dgamma, (R *)kernel->u.norm.dbeta}, {}, n_parts, n_cols, kernel->accumulate != 0};
    for (int i = 0; i < 2; i++)
        if (to.results[i]) to.parts[i] = n_parts == 1 ? to.results[i] : (R *)target->scratch + i * n_parts * n_cols;
    return to;
}

template <typename R> cudaError_t launch_totals(const qdri_cuda_target *target, const column_results<R> &to)
{
    constexpr int V = pack_width<R>;
    const column_plan plan = plan_columns(to.n_parts, to.n_cols, V, sizeof(R), 1, 0);
    const dim3 grid(plan.grid().x, 2);
    if (to.n_parts == 1) return cudaSuccess;
    return launch(target, grid, plan.block, 0, to.n_cols % V == 0 ? add_parts<R, true> : add_parts<R, false>,
                  to.n_parts, to.n_cols, (const R *)to.parts[0], (const R *)to.parts[1], plan.n_chunks,
                  plan.rows_per_part, to.results[0], to.results[1], to.accumulate);
}

template <typename T> cudaError_t launch_parameter_sums(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t n_rows = kernel->u.norm.n_rows, n_cols = kernel->u.norm.n_cols;
    const T *x = (const T *)kernel->u.norm.x, *dy = (const T *)kernel->u.norm.dy;
    const column_plan plan = plan_columns(n_rows, n_cols, V, sizeof(R), 2, target->n_sms);
    const column_results<R> to = results_of<R>(kernel, target, plan.n_parts);
    LAUNCH_TRY(launch(target, plan.grid(), plan.block, 0, parameter_sums<T>, shape_of<T>(kernel), x, dy,
                      (const R *)kernel->u.norm.stats, plan.n_chunks, plan.rows_per_part, to.parts[0], to.parts[1],
                      to.accumulates_at_once(), has_packs<V>(kernel, x, dy)));
    return launch_totals(target, to);
}

template <typename T, int MOST_THREADS>
cudaError_t launch_fused_sums(const qdri_kernel *kernel, const qdri_cuda_target *target, int64_t x)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t n_rows = kernel->u.norm.n_rows, n_cols = kernel->u.norm.n_cols;
    const int64_t turns = ceil_div(n_rows, rows_at_once<MOST_THREADS>);
    const int64_t y = least(most(1, fused_threads / x), power_of_two_from(turns));
    const int64_t room = (int64_t)(QDRI_CUDA_SCRATCH_BYTES / (2 * sizeof(R))) / n_cols;
    const int64_t wanted = least(2 * target->n_sms, ceil_div(turns, y));
    const column_results<R> to = results_of<R>(kernel, target, most(1, least(room, wanted)));
    const T *in = (const T *)kernel->u.norm.x, *dy = (const T *)kernel->u.norm.dy;
    const T *gamma = (const T *)kernel->u.norm.gamma;
    const bool wide = has_packs<V>(kernel, in, dy, gamma);
    LAUNCH_TRY(launch(target, dim3((unsigned)to.n_parts), dim3((unsigned)x, (unsigned)y), 0,
                      wide ? fused_sums<T, MOST_THREADS, true> : fused_sums<T, MOST_THREADS, false>,
                      shape_of<T>(kernel), in, dy, gamma, (const R *)kernel->u.norm.stats, (R *)kernel->u.norm.work,
                      to.parts[0], to.parts[1], to.accumulates_at_once()));
    return launch_totals(target, to);
}

/* Reads the input only once if a row fits into a block. */
template <typename T> cudaError_t launch_norm_sums(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const int64_t n_rows = kernel->u.norm.n_rows, n_cols = kernel->u.norm.n_cols;
    const bool has_params = kernel->u.norm.dgamma || kernel->u.norm.dbeta;
    const int64_t x = most(32, power_of_two_from(ceil_div(n_cols, pack_width<T>)));
    if (n_rows > 0 && n_cols > 0 && has_params && x <= 1024)
        return x > fused_threads ? launch_fused_sums<T, 1024>(kernel, target, x)
                                 : launch_fused_sums<T, fused_threads>(kernel, target, x);
    if (n_rows > 0) LAUNCH_TRY(launch_row_sums<T>(kernel, target));
    if (!has_params || n_cols == 0) return cudaSuccess;
    return launch_parameter_sums<T>(kernel, target);
}
} // namespace

cudaError_t qdri_cuda_norm(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        if (kernel->kind == QDRI_K_NORM_SUMS) return launch_norm_sums<T>(kernel, target);
        if (kernel->u.norm.n_rows == 0) return cudaSuccess;
        if (kernel->kind == QDRI_K_NORM_MOMENTS) return launch_moments<T>(kernel, target);
        if (kernel->kind == QDRI_K_NORM_MERGE) return launch_merge<T>(kernel, target);
        if (kernel->u.norm.n_cols == 0) return cudaSuccess;
        if (kernel->kind == QDRI_K_NORM_APPLY) return launch_apply<T>(kernel, target);
        return launch_backward<T>(kernel, target);
    });
}
