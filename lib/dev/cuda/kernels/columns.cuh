/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over rows. The rows are divided into parts; a block adds one part of a few columns, and the sums of the parts
 * are added in the same way. */
#ifndef QDRI_DEV_CUDA_KERNELS_COLUMNS_CUH
#define QDRI_DEV_CUDA_KERNELS_COLUMNS_CUH

#include "dev/cuda/kernels/rows.cuh"

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

constexpr int rows_at_once = 4; /* that a thread loads before it adds them */

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

template <typename T>
cudaError_t launch_parts(const qdri_cuda_place *place, const column_plan &plan, int64_t n_rows, int64_t n_cols,
                         const T *x, real_of<T> *out, bool accumulate)
{
    constexpr int V = pack_width<T>;
    const bool wide = is_wide<V>(x) && n_cols % V == 0;
    return launch(place, plan.grid(), plan.block, 0, wide ? column_sums<T, true> : column_sums<T, false>, n_rows,
                  n_cols, x, plan.n_chunks, plan.rows_per_part, out, accumulate);
}

/* out[c] = or += the sum of column c of x[n_rows, n_cols], n_cols > 0, by a single part. */
template <typename T>
cudaError_t launch_one_part(const qdri_cuda_place *place, int64_t n_rows, int64_t n_cols, const T *x, real_of<T> *out,
                            bool accumulate)
{
    const column_plan plan = plan_columns(n_rows, n_cols, pack_width<T>, sizeof *out, 1, 0);
    return launch_parts(place, plan, n_rows, n_cols, x, out, accumulate);
}

template <typename T>
cudaError_t launch_column_sums(const qdri_cuda_place *place, int64_t n_rows, int64_t n_cols, const T *x,
                               real_of<T> *out, bool accumulate)
{
    typedef real_of<T> R;
    const column_plan plan = plan_columns(n_rows, n_cols, pack_width<T>, sizeof(R), 1, place->n_sms);
    R *parts = (R *)place->scratch;
    if (plan.n_parts == 1) return launch_one_part(place, n_rows, n_cols, x, out, accumulate);
    LAUNCH_TRY(launch_parts(place, plan, n_rows, n_cols, x, parts, false));
    return launch_one_part<R>(place, plan.n_parts, n_cols, parts, out, accumulate);
}

#endif
