/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention for bf16 and f16 heads of certain sizes on tensor cores, forward (after Dao 2023, FlashAttention-2).
 * A block has 128 rows of queries, a warp 32 of them; keys and values are loaded in tiles of 64, each during the
 * preceding product. */
#include "core/dtype.h"
#include "dev/cuda/kernels/attention_mma.cuh"

namespace
{
constexpr int64_t most_context = 1 << 30; /* rows of a sequence are counted in int */
constexpr int m_tiles = 2, block_rows = mma_warps * m_tiles * 16, key_rows = 64;

/* For the rows of which a lane has a part: two of each tile of 16. */
struct softmax_state {
    float top[m_tiles][2], sum[m_tiles][2];
};

__device__ inline float quad_most(float x)
{
    x = larger::of(x, __shfl_xor_sync(~0u, x, 1));
    return larger::of(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* Masks keys that come after the query's row. */
__device__ inline void hide_future(float (&scores)[m_tiles][key_rows / 8][4], int row, int key0)
{
#pragma unroll
    for (int m = 0; m < m_tiles; m++)
#pragma unroll
        for (int n = 0; n < key_rows / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (key0 + n * 8 + mma_col(i) > row + m * 16 + mma_row(i)) scores[m][n][i] = minus_infinity<float>();
}

/* Turns scores into weights; rescales what was summed with an earlier maximum. */
template <int HS>
__device__ inline void take_softmax(float (&scores)[m_tiles][key_rows / 8][4], softmax_state &state,
                                    float (&out)[m_tiles][HS / 8][4], float scale2)
{
#pragma unroll
    for (int m = 0; m < m_tiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = minus_infinity<float>();
#pragma unroll
            for (int n = 0; n < key_rows / 8; n++)
                top = larger::of(larger::of(top, scores[m][n][2 * half]), scores[m][n][2 * half + 1]);
            top = larger::of(state.top[m][half], quad_most(top));
            const float keeps = fast_exp2((state.top[m][half] - top) * scale2);
            float sum = state.sum[m][half] * keeps;
#pragma unroll
            for (int n = 0; n < key_rows / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    scores[m][n][i] = fast_exp2(scores[m][n][i] * scale2 - top * scale2);
                    sum += scores[m][n][i];
                }
#pragma unroll
            for (int n = 0; n < HS / 8; n++) {
                out[m][n][2 * half] *= keeps;
                out[m][n][2 * half + 1] *= keeps;
            }
            state.top[m][half] = top;
            state.sum[m][half] = sum;
        }
}

template <int HS, typename T>
__global__ void __launch_bounds__(mma_threads)
    forward(attention_shape shape, float scale, const T *qkv, T *y, float *log_sums)
{
    const unsigned queries = dynamic_shared_address();
    const unsigned keys = queries + row_bytes<HS>(block_rows);
    const unsigned values = keys + row_bytes<HS>(key_rows);
    const attention_tile at = find_tile(shape, shape.n_heads, block_rows, true);
    const int64_t kv = at.head / shape.group(), width = shape.in_width();
    const head_rows<T> q = rows_of(qkv, at.begin, width, at.head * HS);
    const head_rows<T> k = rows_of(qkv, at.begin, width, shape.k_col(kv));
    const head_rows<T> v = rows_of(qkv, at.begin, width, shape.v_col(kv));
    const int context = (int)shape.context, row0 = (int)at.row0;
    const int first = mma_warp() * m_tiles * 16, row = row0 + first, last = row + m_tiles * 16 - 1;
    const int end = row0 + block_rows < context ? row0 + block_rows : context;
    float out[m_tiles][HS / 8][4] = {}, scores[m_tiles][key_rows / 8][4];
    softmax_state state;
#pragma unroll
    for (int m = 0; m < m_tiles; m++)
        for (int half = 0; half < 2; half++) {
            state.top[m][half] = minus_infinity<float>();
            state.sum[m][half] = 0;
        }
    copy_tile<HS, block_rows>(queries, q, row0, context);
    copy_tile<HS, key_rows>(keys, k, 0, context);
    end_copies();
    for (int key0 = 0; key0 < end; key0 += key_rows) {
        wait_for_copies();
        __syncthreads();
        copy_tile<HS, key_rows>(values, v, key0, context);
        end_copies();
        if (key0 <= last) dot_tiles<HS, T>(scores, queries + row_bytes<HS>(first), keys);
        wait_for_copies();
        __syncthreads();
        if (key0 + key_rows < end) copy_tile<HS, key_rows>(keys, k, key0 + key_rows, context);
        end_copies();
        if (key0 > last) continue;
        if (key0 + key_rows - 1 > row) hide_future(scores, row, key0);
        take_softmax<HS>(scores, state, out, scale * log2_of_e);
        add_rows<HS, T>(out, scores, values);
    }
#pragma unroll
    for (int m = 0; m < m_tiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = row + m * 16 + mma_row(2 * half);
            const float sum = quad_sum(state.sum[m][half]);
            if (r >= context) continue;
            store_half<HS>(y + (at.begin + r) * shape.out_width() + at.head * HS, out[m], half, 1 / sum);
            if (mma_lane() % 4 == 0)
                log_sums[shape.sums_at(at.head, at.begin) + r] = state.top[m][half] * scale + logf(sum);
        }
}

template <int HS, typename T> cudaError_t launch_forward(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    const attention_shape shape = shape_of(kernel);
    return launch_mma(place, count_tiles(shape, shape.n_heads, block_rows), row_bytes<HS>(block_rows + 2 * key_rows),
                      forward<HS, T>, shape, mma_scale(shape), (const T *)kernel->u.attention.qkv,
                      (T *)kernel->u.attention.out, (float *)kernel->u.attention.saved);
}

template <typename T> cudaError_t launch_type(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    return with_head_size(kernel->u.attention.head_size,
                          [&](auto size) { return launch_forward<decltype(size)::value, T>(kernel, place); });
}
} // namespace

cudaError_t qdri_cuda_attention_mma(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    const uintptr_t all = (uintptr_t)kernel->u.attention.qkv | (uintptr_t)kernel->u.attention.out |
                          (uintptr_t)kernel->u.attention.y | (uintptr_t)kernel->u.attention.dy;
    if (!qdri_is_narrow(kernel->dtype) || all % 16 != 0 || kernel->u.attention.context > most_context)
        return cudaErrorNotSupported;
    if (kernel->kind == QDRI_K_ATTENTION_BACKWARD) return qdri_cuda_attention_mma_backward(kernel, place);
    return kernel->dtype == QDR_F16 ? launch_type<f16>(kernel, place) : launch_type<bf16>(kernel, place);
}
