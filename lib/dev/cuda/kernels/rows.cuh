/* SPDX-License-Identifier: Apache-2.0 */
/* Dividing a matrix into cells, a row among a few warps, and columns into parts. */
#ifndef QDRI_DEV_CUDA_KERNELS_ROWS_CUH
#define QDRI_DEV_CUDA_KERNELS_ROWS_CUH

#include "dev/cuda/kernels/launch.cuh"

inline int64_t power_of_two_from(int64_t n)
{
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

/* ---- cells: packs of columns, with rows_each rows per thread ---- */

struct grid_plan {
    dim3 grid, block;
};

constexpr int rows_each = 4; /* default */

/* For a matrix that is not empty. */
template <int ROWS = rows_each> inline grid_plan plan_cells(int64_t n_rows, int64_t n_cols, int width)
{
    const int64_t n_packs = ceil_div(n_cols, width);
    const int64_t x = power_of_two_from(least(n_packs, block_threads));
    const int64_t y = power_of_two_from(least(ceil_div(n_rows, ROWS), block_threads / x));
    const int64_t n_blocks = ceil_div(n_packs, x) * ceil_div(n_rows, y * ROWS);
    return {dim3((unsigned)n_blocks), dim3((unsigned)x, (unsigned)y)};
}

/* A thread's rows are row, row + step, … */
struct cell {
    int64_t row, col;
    int step;
};

/* last_first: starts with the last rows, which the cache still has from the preceding kernel. */
template <int ROWS = rows_each> __device__ inline cell find_cell(int64_t n_cols, int width, bool last_first = false)
{
    const unsigned block = last_first ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const unsigned n_chunks = (unsigned)((n_cols + (int64_t)width * blockDim.x - 1) / ((int64_t)width * blockDim.x));
    const unsigned chunk = block % n_chunks;
    return {(int64_t)(block / n_chunks) * (blockDim.y * ROWS) + threadIdx.y,
            ((int64_t)chunk * blockDim.x + threadIdx.x) * width, (int)blockDim.y};
}

/* Calls f(i, row) for each of the thread's rows. */
template <int ROWS = rows_each, typename F> __device__ inline void for_rows(const cell &at, int64_t n_rows, F f)
{
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int64_t row = at.row + i * at.step;
        if (row < n_rows) f(i, row);
    }
}

/* ---- rows: blockDim.x threads (whole warps) per row; blockDim.y rows per block ---- */

constexpr int packs_kept = 4; /* of a row, in registers, per thread */

inline grid_plan plan_rows(int64_t n_rows, int64_t n_cols, int width)
{
    const int64_t n_threads = ceil_div(n_cols, (int64_t)width * packs_kept);
    const int64_t x = most(32, power_of_two_from(least(n_threads, 512)));
    const int64_t y = least(most(1, 128 / x), power_of_two_from(n_rows));
    return {dim3((unsigned)ceil_div(n_rows, y)), dim3((unsigned)x, (unsigned)y)};
}

__device__ inline int64_t row_number() { return (int64_t)blockIdx.x * blockDim.y + threadIdx.y; }

struct plus {
    template <typename R> __device__ static R of(R a, R b) { return a + b; }
};
struct larger { /* NaN loses */
    template <typename R> __device__ static R of(R a, R b) { return b > a ? b : a; }
    __device__ static float of(float a, float b) { return fmaxf(a, b); } /* one instruction */
};

template <typename Op, typename R> __device__ inline R warp_total(R x)
{
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = Op::of(x, __shfl_xor_sync(~0u, x, lanes));
    return x;
}

/* Called by all threads of the block; those of a row get its total, added in a fixed order. */
template <typename Op, typename R> __device__ inline R row_total(R x)
{
    __shared__ R parts[32];
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    const int n_warps = (int)blockDim.x / 32;
    x = warp_total<Op>(x);
    if (n_warps == 1) return x;
    __syncthreads();
    if (thread % 32 == 0) parts[thread / 32] = x;
    __syncthreads();
    const int first = (int)threadIdx.y * n_warps;
    R total = parts[first];
    for (int i = 1; i < n_warps; i++) total = Op::of(total, parts[first + i]);
    return total;
}

/* ---- sums over rows: the rows are divided into parts; a block adds one part of a few columns, and the sums of the
 * parts are added in the same way ---- */

constexpr int column_lanes = 32; /* packs of a row that a block adds */

struct column_plan {
    dim3 block;
    unsigned n_chunks;
    int64_t n_parts, rows_per_part;
    dim3 grid() const { return dim3((unsigned)(n_chunks * n_parts)); }
};

/* n_sums: number of sums per column; all their parts must fit into the scratch memory. */
inline column_plan plan_columns(int64_t n_rows, int64_t n_cols, int width, size_t sum_bytes, int n_sums, int n_sms)
{
    const int64_t n_packs = ceil_div(n_cols, width);
    const int64_t x = power_of_two_from(least(n_packs, column_lanes));
    const int64_t y = power_of_two_from(least(most(n_rows, 1), block_threads / x));
    const int64_t n_chunks = ceil_div(n_packs, x);
    const int64_t room = (int64_t)(QDRI_CUDA_SCRATCH_BYTES / (sum_bytes * (size_t)n_sums)) / n_cols;
    const int64_t wanted = ceil_div(8 * (int64_t)n_sms, n_chunks);
    const int64_t n_parts = most(1, least(least(room, wanted), n_rows / (y * 4)));
    const int64_t rows = most(1, ceil_div(n_rows, n_parts));
    return {dim3((unsigned)x, (unsigned)y), (unsigned)n_chunks, most(1, ceil_div(n_rows, rows)), rows};
}

/* Adds the values of the threads of one column; the threads of row 0 get the sums. A block has at most THREADS threads,
 * or one row. */
template <int V, int THREADS = block_threads, typename R> __device__ inline void block_columns(R (&sum)[V])
{
    __shared__ R shared[THREADS * V];
    if (blockDim.y == 1) return;
    R *mine = shared + (threadIdx.y * blockDim.x + threadIdx.x) * V;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < V; k++) mine[k] = sum[k];
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y >= half) continue;
#pragma unroll
        for (int k = 0; k < V; k++) mine[k] += mine[half * blockDim.x * V + k];
    }
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] = mine[k];
}

template <int V, typename R>
__device__ inline void store_sums(R *out, int64_t col, int64_t n_cols, const R (&sum)[V], bool accumulate)
{
#pragma unroll
    for (int k = 0; k < V; k++)
        if (col + k < n_cols) out[col + k] = accumulate ? out[col + k] + sum[k] : sum[k];
}

constexpr int rows_asked = 4; /* that a thread loads before it adds them */

/* out[part, c] = or += the part's sum of x; the block's part and columns follow from blockIdx.x. */
template <bool WIDE, typename T>
__device__ inline void add_columns(int64_t n_rows, int64_t n_cols, const T *x, unsigned n_chunks, int64_t rows_per_part,
                                   real_of<T> *out, bool accumulate)
{
    constexpr int V = pack_width<T>;
    const int64_t part = blockIdx.x / n_chunks;
    const int64_t col = ((int64_t)(blockIdx.x % n_chunks) * blockDim.x + threadIdx.x) * V;
    const int64_t end = part * rows_per_part + rows_per_part;
    const int64_t n = end < n_rows ? end : n_rows;
    real_of<T> sum[V] = {};
    for (int64_t r = part * rows_per_part + threadIdx.y; r < n; r += rows_asked * blockDim.y) {
        pack<T, V> more[rows_asked];
#pragma unroll
        for (int i = 0; i < rows_asked; i++) {
            const int64_t row = r + i * blockDim.y;
            more[i] = load_row<WIDE, V>(x + row * n_cols, col, row < n ? n_cols : 0);
        }
#pragma unroll
        for (int i = 0; i < rows_asked; i++)
#pragma unroll
            for (int k = 0; k < V; k++) sum[k] += get(more[i].at[k]);
    }
    block_columns<V>(sum);
    if (threadIdx.y == 0) store_sums<V>(out + part * n_cols, col, n_cols, sum, accumulate);
}

template <typename T, bool WIDE>
__global__ void column_sums(int64_t n_rows, int64_t n_cols, const T *x, unsigned n_chunks, int64_t rows_per_part,
                            real_of<T> *out, bool accumulate)
{
    add_columns<WIDE>(n_rows, n_cols, x, n_chunks, rows_per_part, out, accumulate);
}

/* out[c] = or += the sum of column c of x[n_rows, n_cols], n_cols > 0. n_sms = 0: by a single part. */
template <typename T>
cudaError_t launch_column_sums(const qdri_cuda_target *target, int n_sms, int64_t n_rows, int64_t n_cols, const T *x,
                               real_of<T> *out, bool accumulate)
{
    constexpr int V = pack_width<T>;
    typedef real_of<T> R;
    const column_plan plan = plan_columns(n_rows, n_cols, V, sizeof(R), 1, n_sms);
    const bool wide = is_wide<V>(x) && n_cols % V == 0, is_whole = plan.n_parts == 1;
    R *parts = is_whole ? out : (R *)target->scratch;
    LAUNCH_TRY(launch(target, plan.grid(), plan.block, 0, wide ? column_sums<T, true> : column_sums<T, false>, n_rows,
                      n_cols, x, plan.n_chunks, plan.rows_per_part, parts, is_whole && accumulate));
    return is_whole ? cudaSuccess : launch_column_sums<R>(target, 0, plan.n_parts, n_cols, parts, out, accumulate);
}

#endif
