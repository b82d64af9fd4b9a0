/* SPDX-License-Identifier: Apache-2.0 */
/* Dividing a matrix into cells, and a row among a few warps. */
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

constexpr int rows_each = 4; /* default */

struct cell_plan {
    dim3 grid, block;
};

/* For a matrix that is not empty. */
template <int ROWS = rows_each> inline cell_plan plan_cells(int64_t n_rows, int64_t n_cols, int width)
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

/* ---- rows: blockDim.x threads (whole warps) per row; blockDim.y rows per block ---- */

constexpr int packs_kept = 4; /* of a row, in registers, per thread */

struct row_plan {
    dim3 grid, block;
};

inline row_plan plan_rows(int64_t n_rows, int64_t n_cols, int width)
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

#endif
