/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy of logits whose columns may be split over ranks. */
#include "dev/cuda/kernels/rows.cuh"

namespace
{
/* The words whose logits are on this rank, and the total number of words (0: unknown). */
struct words {
    int64_t begin, n, vocab;
};

/* A target outside the vocabulary counts as none. */
__device__ inline bool has_target(const words &here, int32_t target)
{
    return target >= 0 && (here.vocab == 0 || target < here.vocab);
}

/* The target's local column, or -1 if it is on another rank or there is none. */
__device__ inline int64_t target_column(const words &here, int32_t target)
{
    const int64_t column = target - here.begin;
    return has_target(here, target) && column >= 0 && column < here.n ? column : -1;
}

/* What the softmax is of: factor·x, or cap·tanh(u), u = factor·x/cap. steep: 2·factor/cap. */
template <bool CAPPED, bool QUICK, typename R> struct logit_shape {
    R factor, cap, steep;
    /* exp(2u), where it is finite, and quotient() may divide by it; NaN stays NaN. */
    __device__ R exp_at(R x) const
    {
        constexpr R limit = sizeof(R) == 8 ? 700 : 87;
        const R twice = steep * x;
        return exp_of<QUICK>(twice < -limit ? -limit : twice > limit ? limit : twice);
    }
    __device__ R value(R x) const
    {
        if (!CAPPED) return factor * x;
        return cap - quotient<QUICK>(2 * cap, 1 + exp_at(x));
    }
    /* tanh'(u) */
    __device__ R slope(R x) const
    {
        if (!CAPPED) return 1;
        const R e = exp_at(x), s = quotient<QUICK>((R)1, 1 + e);
        return 4 * s * (s * e);
    }
};
template <bool CAPPED, typename T> using shape_of = logit_shape<CAPPED, is_quick<T>, real_of<T>>;

template <bool CAPPED, typename T> shape_of<CAPPED, T> make_shape(const qdri_kernel *kernel)
{
    const double factor = qdri_factor_of(kernel), cap = kernel->u.ce.cap;
    return {(real_of<T>)factor, (real_of<T>)cap, (real_of<T>)(cap > 0 ? 2 * factor / cap : 0)};
}

/* Op of value(logit) over the n logits of a thread's row. */
template <typename Op, bool WIDE, typename T, typename R, typename F>
__device__ inline R reduce_row(const T *row, int64_t n, R total, F value)
{
    constexpr int V = pack_width<T>;
#pragma unroll 4
    for (int64_t at = (int64_t)threadIdx.x * V; at < n; at += (int64_t)blockDim.x * V) {
        const pack<T, V> more = load_row<WIDE, V>(row, at, n);
#pragma unroll
        for (int k = 0; k < V; k++)
            if (WIDE || at + k < n) total = Op::of(total, value(get(more.at[k])));
    }
    return row_total<Op>(total);
}

template <typename T, bool CAPPED, bool WIDE>
__global__ void ce_max(int64_t n_rows, int64_t n_cols, const T *logits, shape_of<CAPPED, T> shape, real_of<T> *maxima)
{
    typedef real_of<T> R;
    const int64_t row = row_number();
    const int64_t n = row < n_rows ? n_cols : 0;
    const T *mine = logits + (row < n_rows ? row * n_cols : 0);
    const R found = reduce_row<larger, WIDE>(mine, n, minus_infinity<R>(), [&](R logit) { return shape.value(logit); });
    if (threadIdx.x == 0 && row < n_rows) maxima[row] = found;
}

template <typename T, bool CAPPED, bool WIDE>
__global__ void ce_sums(int64_t n_rows, words here, const T *logits, shape_of<CAPPED, T> shape, const int32_t *targets,
                        const real_of<T> *maxima, real_of<T> *sums)
{
    typedef real_of<T> R;
    const int64_t row = row_number();
    const int64_t n = row < n_rows ? here.n : 0;
    const T *mine = logits + (row < n_rows ? row * here.n : 0);
    const R top = row < n_rows ? maxima[row] : 0;
    const R sum = reduce_row<plus, WIDE>(mine, n, (R)0,
                                         [&](R logit) { return exp_of<is_quick<T>>(shape.value(logit) - top); });
    if (threadIdx.x > 0 || row >= n_rows) return;
    const int64_t column = target_column(here, targets[row]);
    sums[2 * row] = sum;
    sums[2 * row + 1] = column >= 0 ? shape.value(get(mine[column])) - top : 0;
}

/* Stores the sum and the number of the losses of the block's rows, or of earlier blocks' sums. */
__device__ inline void store_loss(double loss, double n_valid, double *result)
{
    loss = row_total<plus>(loss);
    n_valid = row_total<plus>(n_valid);
    if (threadIdx.x > 0) return;
    result[2 * blockIdx.x] = loss;
    result[2 * blockIdx.x + 1] = n_valid;
}

template <typename R>
__global__ void ce_loss(int64_t n_rows, int64_t rows_per_block, int64_t vocab, double z_loss, const int32_t *targets,
                        const R *maxima, const R *sums, R *saved, double *result)
{
    const words here = {0, 0, vocab};
    const int64_t begin = blockIdx.x * rows_per_block;
    const int64_t end = begin + rows_per_block;
    double loss = 0, n_valid = 0;
    for (int64_t r = begin + threadIdx.x; r < end && r < n_rows; r += blockDim.x) {
        const double log_sum = log((double)sums[2 * r]);
        saved[2 * r] = maxima[r];
        saved[2 * r + 1] = (R)log_sum;
        if (!has_target(here, targets[r])) continue;
        const double whole = (double)maxima[r] + log_sum;
        loss += log_sum - (double)sums[2 * r + 1] + z_loss * whole * whole;
        n_valid += 1;
    }
    store_loss(loss, n_valid, result);
}

__global__ void add_losses(int n, const double *parts, double *result)
{
    double loss = 0, n_valid = 0;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        loss += parts[2 * i];
        n_valid += parts[2 * i + 1];
    }
    store_loss(loss, n_valid, result);
}

/* A thread reads a logit before it writes to its place: dlogits may be logits. */
template <typename T, bool CAPPED, bool WIDE>
__global__ void ce_backward(int64_t n_rows, words here, const T *logits, shape_of<CAPPED, T> shape,
                            const int32_t *targets, const real_of<T> *saved, real_of<T> scale, real_of<T> z_loss,
                            T *dlogits)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const cell at = find_cell(here.n, V);
    if (at.col >= here.n) return;
    pack<T, V> values[rows_each];
#pragma unroll
    for (int i = 0; i < rows_each; i++) {
        const int64_t row = at.row + i * at.step;
        values[i] = load_row<WIDE, V>(logits + row * here.n, at.col, row < n_rows ? here.n : 0);
    }
    for_rows(at, n_rows, [&](int i, int64_t row) {
        const int32_t target = targets[row];
        const bool counts = has_target(here, target);
        const int64_t column = target_column(here, target) - at.col;
        const R top = saved[2 * row], log_sum = saved[2 * row + 1], times = 1 + 2 * z_loss * (top + log_sum);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const R x = get(values[i].at[k]), share = times * exp_of<is_quick<T>>((shape.value(x) - top) - log_sum);
            const R slope = scale * (k == column ? share - 1 : share) * shape.slope(x);
            values[i].at[k] = put<T>(counts ? slope : (R)0);
        }
        store_row<WIDE, V>(dlogits + row * here.n, at.col, here.n, values[i]);
    });
}

template <bool CAPPED, typename T> cudaError_t launch_max(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const int64_t n_rows = kernel->u.ce.n_rows, n_cols = kernel->u.ce.n_cols;
    const T *logits = (const T *)kernel->u.ce.logits;
    const grid_plan plan = plan_rows(n_rows, n_cols, V);
    if (n_rows == 0) return cudaSuccess;
    const bool wide = is_wide<V>(logits) && n_cols % V == 0;
    return launch(target, plan.grid, plan.block, 0, wide ? ce_max<T, CAPPED, true> : ce_max<T, CAPPED, false>, n_rows,
                  n_cols, logits, make_shape<CAPPED, T>(kernel), (real_of<T> *)kernel->u.ce.work);
}

template <bool CAPPED, typename T> cudaError_t launch_sums(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t n_rows = kernel->u.ce.n_rows;
    const words here = {kernel->u.ce.begin, kernel->u.ce.n_cols, kernel->u.ce.vocab};
    const T *logits = (const T *)kernel->u.ce.logits;
    const grid_plan plan = plan_rows(n_rows, here.n, V);
    if (n_rows == 0) return cudaSuccess;
    LAUNCH_TRY(qdri_cuda_check_ids(kernel->u.ce.targets, n_rows, here.vocab, true, target));
    const bool wide = is_wide<V>(logits) && here.n % V == 0;
    return launch(target, plan.grid, plan.block, 0, wide ? ce_sums<T, CAPPED, true> : ce_sums<T, CAPPED, false>, n_rows,
                  here, logits, make_shape<CAPPED, T>(kernel), kernel->u.ce.targets, (const R *)kernel->u.ce.work,
                  (R *)kernel->u.ce.work2);
}

template <typename R> cudaError_t launch_loss(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int64_t most_blocks = 1024;
    const int64_t n_rows = kernel->u.ce.n_rows;
    const int64_t n_blocks = most(1, least(most_blocks, ceil_div(n_rows, block_threads)));
    double *parts = n_blocks > 1 ? (double *)target->scratch : kernel->u.ce.result;
    LAUNCH_TRY(launch(target, dim3((unsigned)n_blocks), dim3(threads_for(n_rows)), 0, ce_loss<R>, n_rows,
                      ceil_div(n_rows, n_blocks), kernel->u.ce.vocab, kernel->u.ce.z_loss, kernel->u.ce.targets,
                      (const R *)kernel->u.ce.work, (const R *)kernel->u.ce.work2, (R *)kernel->u.ce.saved, parts));
    if (n_blocks == 1) return cudaSuccess;
    return launch(target, dim3(1), dim3(threads_for(n_blocks)), 0, add_losses, (int)n_blocks, parts,
                  kernel->u.ce.result);
}

template <bool CAPPED, typename T>
cudaError_t launch_backward(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const int64_t n_rows = kernel->u.ce.n_rows;
    const words here = {kernel->u.ce.begin, kernel->u.ce.n_cols, kernel->u.ce.vocab};
    const T *logits = (const T *)kernel->u.ce.logits;
    T *dlogits = (T *)kernel->u.ce.dlogits;
    if (n_rows == 0) return cudaSuccess;
    LAUNCH_TRY(qdri_cuda_check_ids(kernel->u.ce.targets, n_rows, here.vocab, true, target));
    if (here.n == 0) return cudaSuccess;
    const grid_plan plan = plan_cells(n_rows, here.n, V);
    const bool wide = is_wide<V>(logits, dlogits) && here.n % V == 0;
    return launch(target, plan.grid, plan.block, 0, wide ? ce_backward<T, CAPPED, true> : ce_backward<T, CAPPED, false>,
                  n_rows, here, logits, make_shape<CAPPED, T>(kernel), kernel->u.ce.targets,
                  (const R *)kernel->u.ce.saved, (R)(kernel->u.ce.scale * qdri_factor_of(kernel)),
                  (R)kernel->u.ce.z_loss, dlogits);
}

template <bool CAPPED, typename T> cudaError_t launch_any(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    switch (kernel->kind) {
    case QDRI_K_CE_MAX: return launch_max<CAPPED, T>(kernel, target);
    case QDRI_K_CE_SUMS: return launch_sums<CAPPED, T>(kernel, target);
    case QDRI_K_CE_LOSS: return launch_loss<real_of<T>>(kernel, target);
    default: return launch_backward<CAPPED, T>(kernel, target);
    }
}
} // namespace

cudaError_t qdri_cuda_cross_entropy(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        return kernel->u.ce.cap > 0 ? launch_any<true, T>(kernel, target) : launch_any<false, T>(kernel, target);
    });
}
