/* SPDX-License-Identifier: Apache-2.0 */
/* Factors of products rounded to fp8: first the largest number of each, then its elements with the resulting scale,
 * with the product's steps as the last dimension. */
#include <cuda_fp8.h>

#include "dev/cuda/kernels/rows.cuh"
#include "dev/fp8.h"

namespace
{
typedef __nv_fp8_storage_t code;

constexpr int tile_edge = 64;
constexpr int quad = 4; /* elements that a thread moves in a tile */

__device__ inline uint32_t bits_of(float x) { return __float_as_uint(x); }

struct place_in_rows {
    int64_t row, pack;
};

/* Avoids 64-bit division, which is slow, where possible. */
__device__ inline place_in_rows find_pack(int64_t at, int64_t n_packs, bool is_small)
{
    const int64_t row = is_small ? (int64_t)((uint32_t)at / (uint32_t)n_packs) : at / n_packs;
    return {row, at - row * n_packs};
}

/* parts[block] = bits of the block's largest |x|. NaN is larger than any number. */
template <typename T>
__global__ void find_most(int64_t n_rows, int64_t n_cols, const T *x, int64_t stride, uint32_t *parts, bool wide)
{
    constexpr int V = pack_width<T>;
    const int64_t n_packs = (n_cols + V - 1) / V, n = n_rows * n_packs;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    uint32_t largest = 0;
#pragma unroll 4
    for (int64_t i = thread_number(); i < n; i += step) {
        const place_in_rows at = find_pack(i, n_packs, n <= UINT32_MAX);
        const pack<T, V> more = load<V>(x + at.row * stride, at.pack * V, n_cols, wide);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const uint32_t size = bits_of(get(more.at[k])) & 0x7fffffffu;
            largest = size > largest ? size : largest;
        }
    }
    largest = row_total<larger>(largest);
    if (threadIdx.x == 0) parts[blockIdx.x] = largest;
}

/* ---- numbers ---- */

struct rounder {
    float scale, back;
    __nv_fp8_interpretation_t format;
};

/* Determined by the maximum of all parts; one block writes the inverse of the scale. */
__device__ rounder find_rounder(qdri_rounding rounding, const uint32_t *parts, int n_parts, float *back)
{
    const uint32_t largest = row_total<larger>((int)threadIdx.x < n_parts ? parts[threadIdx.x] : 0);
    const int exponent = qdri_fp8_scale_exponent(rounding, largest);
    const rounder by = {__uint_as_float(qdri_fp8_power(exponent)), __uint_as_float(qdri_fp8_power(-exponent)),
                        rounding == QDRI_E4M3 ? __NV_E4M3 : __NV_E5M2};
    if (thread_number() == 0) *back = by.back;
    return by;
}

/* Saturates at the largest number, except for infinity. */
__device__ inline code code_of(const rounder &by, float x)
{
    const bool is_finite = (bits_of(x) & 0x7fffffffu) < QDRI_FP8_INFINITY;
    return __nv_cvt_float_to_fp8(x * by.scale, is_finite ? __NV_SATFINITE : __NV_NOSAT, by.format);
}

__device__ inline void put_rounded(const rounder &by, float x, code &to) { to = code_of(by, x); }

/* As a number: it has at most four significant bits, so bf16 represents it exactly. */
__device__ inline void put_rounded(const rounder &by, float x, bf16 &to)
{
    const __half_raw value = __nv_cvt_fp8_to_halfraw(code_of(by, x), by.format);
    to = put<bf16>(get(f16(value)) * by.back);
}

/* ---- matrices ---- */

/* y[row, step] from x[row, step]. */
template <typename T, typename U>
__global__ void round_rows(int64_t n_rows, int64_t n_cols, const T *x, int64_t stride, U *y, int64_t y_stride,
                           qdri_rounding rounding, const uint32_t *parts, int n_parts, float *back, bool wide)
{
    constexpr int V = pack_width<T>;
    const rounder by = find_rounder(rounding, parts, n_parts, back);
    const int64_t n_packs = y_stride / V, n = n_rows * n_packs;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = thread_number(); i < n; i += step) {
        const place_in_rows at = find_pack(i, n_packs, n <= UINT32_MAX);
        const pack<T, V> in = load<V>(x + at.row * stride, at.pack * V, n_cols, wide);
        pack<U, V> out;
#pragma unroll
        for (int k = 0; k < V; k++) put_rounded(by, get(in.at[k]), out.at[k]);
        *(pack<U, V> *)(y + at.row * y_stride + at.pack * V) = out;
    }
}

/* A tile of x[step, row], transposed; each thread has four steps of a row. */
template <typename T, typename U>
__device__ void load_tile(pack<U, quad> (*tile)[tile_edge / quad + 1], const rounder &by, int64_t n_steps,
                          int64_t n_rows, const T *x, int64_t stride, int64_t step0, int64_t row0)
{
    const int row = (int)threadIdx.x % tile_edge;
    for (int q = (int)threadIdx.x / tile_edge; q < tile_edge / quad; q += block_threads / tile_edge) {
        const int64_t step = step0 + q * quad;
        pack<U, quad> out;
#pragma unroll
        for (int k = 0; k < quad; k++) {
            const bool is_there = step + k < n_steps && row0 + row < n_rows;
            put_rounded(by, is_there ? get(x[(step + k) * stride + row0 + row]) : 0.0f, out.at[k]);
        }
        tile[row][q] = out;
    }
}

template <typename U>
__device__ void store_tile(pack<U, quad> (*tile)[tile_edge / quad + 1], int64_t n_rows, U *y, int64_t y_stride,
                           int64_t step0, int64_t row0)
{
    const int q = (int)threadIdx.x % (tile_edge / quad);
    const int64_t step = step0 + q * quad;
    if (step >= y_stride) return;
    for (int row = (int)threadIdx.x / (tile_edge / quad); row < tile_edge && row0 + row < n_rows;
         row += block_threads / (tile_edge / quad))
        *(pack<U, quad> *)(y + (row0 + row) * y_stride + step) = tile[row][q];
}

/* y[row, step] from x[step, row]. */
template <typename T, typename U>
__global__ void round_turned(int64_t n_steps, int64_t n_rows, const T *x, int64_t stride, U *y, int64_t y_stride,
                             qdri_rounding rounding, const uint32_t *parts, int n_parts, float *back)
{
    __shared__ pack<U, quad> tile[tile_edge][tile_edge / quad + 1];
    const rounder by = find_rounder(rounding, parts, n_parts, back);
    const int64_t n_across = (n_rows + tile_edge - 1) / tile_edge;
    const int64_t n_tiles = n_across * ((y_stride + tile_edge - 1) / tile_edge);
    for (int64_t i = blockIdx.x; i < n_tiles; i += gridDim.x) {
        const int64_t step0 = i / n_across * tile_edge, row0 = i % n_across * tile_edge;
        __syncthreads();
        load_tile(tile, by, n_steps, n_rows, x, stride, step0, row0);
        __syncthreads();
        store_tile(tile, n_rows, y, y_stride, step0, row0);
    }
}

template <typename T, typename U> cudaError_t launch_round(const qdri_cuda_rounded *r, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const T *x = (const T *)r->x;
    U *y = (U *)r->y;
    const bool wide = is_wide<V>(x) && (r->n_rows == 1 || r->stride % V == 0);
    const int64_t n_packs = r->n_rows * ceil_div(r->n_cols, V), n_most = 8 * (int64_t)target->n_sms;
    const int n_parts = (int)least(QDRI_CUDA_FP8_PARTS, ceil_div(n_packs, 4 * block_threads));
    LAUNCH_TRY(launch(target, dim3((unsigned)n_parts), dim3(block_threads), 0, find_most<T>, r->n_rows, r->n_cols, x,
                      r->stride, r->parts, wide));
    if (r->is_turned) {
        const int64_t n = ceil_div(r->n_cols, tile_edge) * ceil_div(r->y_stride, tile_edge);
        return launch(target, dim3((unsigned)least(n, n_most)), dim3(block_threads), 0, round_turned<T, U>, r->n_rows,
                      r->n_cols, x, r->stride, y, r->y_stride, r->rounding, r->parts, n_parts, r->back);
    }
    const int64_t n = ceil_div(r->n_rows * (r->y_stride / V), block_threads);
    return launch(target, dim3((unsigned)least(n, n_most)), dim3(block_threads), 0, round_rows<T, U>, r->n_rows,
                  r->n_cols, x, r->stride, y, r->y_stride, r->rounding, r->parts, n_parts, r->back, wide);
}
} // namespace

cudaError_t qdri_cuda_round(const qdri_cuda_rounded *r, int n_sms, cudaStream_t stream)
{
    const qdri_cuda_target target = {n_sms, nullptr, nullptr, stream};
    if (r->dtype == QDR_BF16)
        return r->is_widened ? launch_round<bf16, bf16>(r, &target) : launch_round<bf16, code>(r, &target);
    return r->is_widened ? launch_round<float, bf16>(r, &target) : launch_round<float, code>(r, &target);
}
