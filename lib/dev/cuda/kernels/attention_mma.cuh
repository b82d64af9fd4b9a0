/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of bf16 or f16 heads in shared memory, and their products on tensor cores. The 16-byte chunks of a row are
 * permuted by the row's number, so that eight rows of a column are in different banks. Heads of sizes other than 64 and
 * 128 use rows of the next larger of these, whose remainder is neither written nor read. */
#ifndef QDRI_DEV_CUDA_KERNELS_ATTENTION_MMA_CUH
#define QDRI_DEV_CUDA_KERNELS_ATTENTION_MMA_CUH

#include <type_traits>

#include "dev/cuda/kernels/attention.cuh"
#include "dev/cuda/kernels/intrinsics.cuh"

constexpr int mma_warps = 4, mma_threads = mma_warps * 32;
template <typename T> constexpr bool is_f16 = false;
template <> inline constexpr bool is_f16<f16> = true;

__device__ inline int mma_lane() { return (int)threadIdx.x % 32; }
__device__ inline int mma_warp() { return (int)threadIdx.x / 32; }

/* The position of a lane's accumulators in a tile of 16x8: number i is in row mma_row(i), column mma_col(i). */
__device__ inline int mma_row(int i) { return mma_lane() / 4 + i / 2 * 8; }
__device__ inline int mma_col(int i) { return mma_lane() % 4 * 2 + i % 2; }

template <int HS> constexpr int row_width = HS <= 64 ? 64 : 128;

/* Bytes of n_rows rows in shared memory. */
template <int HS> __host__ __device__ constexpr unsigned row_bytes(int n_rows)
{
    return (unsigned)(n_rows * row_width<HS>)*(unsigned)sizeof(uint16_t);
}

/* The result of f(a number of type std::integral_constant<int, head size>). */
template <typename F> cudaError_t with_head_size(int64_t size, F f)
{
    switch (size) {
    case 32: return f(std::integral_constant<int, 32>());
    case 64: return f(std::integral_constant<int, 64>());
    case 80: return f(std::integral_constant<int, 80>());
    case 96: return f(std::integral_constant<int, 96>());
    case 128: return f(std::integral_constant<int, 128>());
    default: return cudaErrorNotSupported;
    }
}

/* The offset of chunk `chunk` of row `row` in a tile. */
template <int HS> __device__ inline unsigned chunk_at(int row, int chunk)
{
    return row_bytes<HS>(row) + (unsigned)(chunk ^ (row & 7)) * 16;
}

/* Loads ROWS rows of a head from `row` on; zeros after the last. Rows of one thread are multiples of 8 apart, so they
 * have the same order of chunks. */
template <int HS, int ROWS, typename T>
__device__ inline void copy_tile(unsigned tile, const head_rows<T> &from, int row, int n_rows)
{
    constexpr int n_chunks = row_width<HS> / 8, step = mma_threads / n_chunks;
    static_assert(step % 8 == 0 && ROWS % step == 0, "a tile's rows");
    const int r = (int)threadIdx.x / n_chunks, c = (int)threadIdx.x % n_chunks;
    const T *at = from.at + (row + r) * from.stride + c * 8;
    tile += chunk_at<HS>(r, c);
    if (c >= HS / 8) return;
#pragma unroll
    for (int i = 0; i < ROWS; i += step) {
        copy_later(tile + row_bytes<HS>(i), at, row + r + i < n_rows);
        at += step * from.stride;
    }
}

/* Factors of products. `tile` is the address of a row whose number is a multiple of 8; chunks are even, so that an
 * exclusive or adds them to an address. */

/* 16 rows, columns 8·chunk..8·chunk+15, as the left factor. */
template <int HS> __device__ inline void load_left(unsigned (&to)[4], unsigned tile, int chunk)
{
    const unsigned lane = chunk_at<HS>(mma_lane() % 16, mma_lane() / 16);
    load_matrices<false>(to, tile + (lane ^ (unsigned)chunk * 16));
}

/* The same as the right factor, transposed: its rows are 16 columns of the product, halves in to[0..1] and to[2..3]. */
template <int HS> __device__ inline void load_right_rows(unsigned (&to)[4], unsigned tile, int chunk)
{
    const int matrix = mma_lane() / 8;
    const unsigned lane = chunk_at<HS>(matrix / 2 * 8 + mma_lane() % 8, matrix % 2);
    load_matrices<false>(to, tile + (lane ^ (unsigned)chunk * 16));
}

/* The same as the right factor, not transposed: its columns are 16 columns of the product. */
template <int HS> __device__ inline void load_right(unsigned (&to)[4], unsigned tile, int chunk)
{
    const int matrix = mma_lane() / 8;
    const unsigned lane = chunk_at<HS>(matrix % 2 * 8 + mma_lane() % 8, matrix / 2);
    load_matrices<true>(to, tile + (lane ^ (unsigned)chunk * 16));
}

/* dots[m][n] = rows 16·m, … of a times rows 8·n, … of b. */
template <int HS, typename T, int M, int N>
__device__ inline void dot_tiles(float (&dots)[M][N][4], unsigned a, unsigned b)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) dots[m][n][i] = 0;
#pragma unroll
    for (int chunk = 0; chunk < HS / 8; chunk += 2) {
        unsigned left[M][4], right[4];
#pragma unroll
        for (int m = 0; m < M; m++) load_left<HS>(left[m], a + row_bytes<HS>(16 * m), chunk);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_right_rows<HS>(right, b + row_bytes<HS>(8 * n), chunk);
#pragma unroll
            for (int m = 0; m < M; m++) {
                multiply_add<is_f16<T>>(dots[m][n], left[m], right[0], right[1]);
                multiply_add<is_f16<T>>(dots[m][n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

__device__ inline __nv_bfloat162 put_two(bf16, float low, float high) { return __floats2bfloat162_rn(low, high); }
__device__ inline __half2 put_two(f16, float low, float high) { return __floats2half2_rn(low, high); }

template <typename T> __device__ inline unsigned pack_two(float low, float high)
{
    const auto two = put_two(T(), low, high);
    unsigned bits;
    memcpy(&bits, &two, sizeof bits);
    return bits;
}

/* Converts 16 columns of results, two tiles of 16x8, to a left factor. */
template <typename T>
__device__ inline void pack_left(unsigned (&to)[4], const float (&first)[4], const float (&second)[4])
{
    to[0] = pack_two<T>(first[0], first[1]);
    to[1] = pack_two<T>(first[2], first[3]);
    to[2] = pack_two<T>(second[0], second[1]);
    to[3] = pack_two<T>(second[2], second[3]);
}

/* out[m] += left[m] · 16 rows of b. */
template <int HS, typename T, int M>
__device__ inline void add_product(float (&out)[M][HS / 8][4], const unsigned (&left)[M][4], unsigned b)
{
#pragma unroll
    for (int chunk = 0; chunk < HS / 8; chunk += 2) {
        unsigned right[4];
        load_right<HS>(right, b, chunk);
#pragma unroll
        for (int m = 0; m < M; m++) {
            multiply_add<is_f16<T>>(out[m][chunk], left[m], right[0], right[1]);
            multiply_add<is_f16<T>>(out[m][chunk + 1], left[m], right[2], right[3]);
        }
    }
}

/* out += weights · rows of b. */
template <int HS, typename T, int M, int N>
__device__ inline void add_rows(float (&out)[M][HS / 8][4], const float (&weights)[M][N][4], unsigned rows)
{
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        unsigned left[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) pack_left<T>(left[m], weights[m][n], weights[m][n + 1]);
        add_product<HS, T>(out, left, rows + row_bytes<HS>(n * 8));
    }
}

/* Writes half `half` (rows 0..7, 8..15) of a tile's results to a row. */
template <int HS, typename T>
__device__ inline void store_half(T *row, const float (&out)[HS / 8][4], int half, float factor)
{
#pragma unroll
    for (int n = 0; n < HS / 8; n++) {
        const unsigned two = pack_two<T>(out[n][2 * half] * factor, out[n][2 * half + 1] * factor);
        *(unsigned *)(row + n * 8 + mma_col(0)) = two;
    }
}

/* More than 48 KiB of dynamic shared memory must be requested explicitly. */
template <typename... E, typename... A>
cudaError_t launch_mma(const qdri_cuda_place *place, int64_t n_blocks, size_t shared_bytes, void (*kernel)(E...),
                       A &&...args)
{
    LAUNCH_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes));
    return launch(place, dim3((unsigned)n_blocks), dim3(mma_threads), shared_bytes, kernel, std::forward<A>(args)...);
}

inline float mma_scale(const attention_shape &shape) { return (float)(1 / sqrt((double)shape.head_size)); }

cudaError_t qdri_cuda_attention_mma_backward(const qdri_kernel *kernel, const qdri_cuda_place *place);

#endif
