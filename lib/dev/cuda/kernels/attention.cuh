/* SPDX-License-Identifier: Apache-2.0 */
/* The memory layout of the heads in causal attention. */
#ifndef QDRI_DEV_CUDA_KERNELS_ATTENTION_CUH
#define QDRI_DEV_CUDA_KERNELS_ATTENTION_CUH

#include "core/operands.h"
#include "dev/cuda/kernels/rows.cuh"

struct attention_shape {
    int64_t n_rows, context, n_heads, n_kv_heads, head_size, window;
    const int32_t *first_keys;
    int64_t qk_width; /* columns of a matrix of queries and keys: in_width(), or less if they have been turned */
    __host__ __device__ int64_t in_width() const { return (n_heads + 2 * n_kv_heads) * head_size; }
    __host__ __device__ int64_t out_width() const { return n_heads * head_size; }
    __host__ __device__ int64_t group() const { return n_heads / n_kv_heads; }
    __host__ __device__ int64_t k_col(int64_t kv) const { return (n_heads + kv) * head_size; }
    __host__ __device__ int64_t v_col(int64_t kv) const { return (n_heads + n_kv_heads + kv) * head_size; }
    /* Where the sums of a query head and sequence begin: [sequence, head, row], as in cuDNN. */
    __host__ __device__ int64_t sums_at(int64_t head, int64_t begin) const { return begin * n_heads + head * context; }
    /* The first key that a row sees, of the sequence that begins in row `begin`; less than 0: all. A later row never
     * sees an earlier one. */
    __device__ int64_t first_seen(int64_t begin, int64_t row) const
    {
        const int64_t in_window = row - window + 1;
        if (!first_keys || row >= context) return in_window;
        const int64_t given = first_keys[begin + row] < row ? first_keys[begin + row] : row; /* if it is invalid */
        return given > in_window ? given : in_window;
    }
    __device__ int32_t least_first_key(int64_t row) const { return row % context ? first_keys[row - 1] : 0; }
    __device__ bool sees(int64_t begin, int64_t row, int64_t key) const
    {
        return key <= row && key >= first_seen(begin, row);
    }
    /* Where the tiles of keys begin that rows from row0 on see, and where the rows end that see n keys from key0 on. */
    __device__ int64_t first_key(int64_t begin, int64_t row0, int tile_rows) const
    {
        const int64_t first = first_seen(begin, row0);
        return first < 0 ? 0 : first / tile_rows * tile_rows;
    }
    __device__ int64_t rows_end(int64_t begin, int64_t key0, int n) const
    {
        int64_t row = key0, end = key0 + n - 1 + window;
        if (end > context) end = context;
        while (first_keys && row < end) { /* bisection */
            const int64_t middle = row + (end - row) / 2;
            if (first_seen(begin, middle) < key0 + n)
                row = middle + 1;
            else
                end = middle;
        }
        return end;
    }
};

/* Below any score; the difference of two is 0, as that of infinities is not. */
template <typename R> constexpr R no_score = (R)-1e30;

inline attention_shape shape_of(const qdri_kernel *kernel)
{
    const int64_t n_heads = kernel->u.attention.n_heads, n_kv_heads = kernel->u.attention.n_kv_heads;
    return {kernel->u.attention.n_rows,
            kernel->u.attention.context,
            n_heads,
            n_kv_heads,
            kernel->u.attention.head_size,
            kernel->u.attention.window,
            kernel->u.attention.first_keys,
            (n_heads + (qdri_attention_turns(kernel) ? 1 : 2) * n_kv_heads) * kernel->u.attention.head_size};
}

/* Queries and keys; those that are turned are in the workspace. */
template <typename T> T *turned_of(const qdri_kernel *kernel)
{
    return (T *)((char *)kernel->u.attention.work + qdri_attention_sums_bytes(kernel));
}
template <typename T> const T *qk_of(const qdri_kernel *kernel)
{
    return qdri_attention_turns(kernel) ? turned_of<T>(kernel) : (const T *)kernel->u.attention.qkv;
}

/* A block's work: a tile of rows of one head of one sequence. Tiles with more work come first. */
struct attention_tile {
    int64_t head, begin, row0; /* begin: the sequence's first row; row0: the tile's first row within it */
};

inline int64_t count_tiles(const attention_shape &shape, int64_t n_heads, int rows)
{
    return shape.n_rows / shape.context * n_heads * ceil_div(shape.context, rows);
}

__device__ inline attention_tile find_tile(const attention_shape &shape, int64_t n_heads, int rows, bool last_first)
{
    const int64_t n_tiles = (shape.context + rows - 1) / rows;
    const int64_t tile = blockIdx.x % n_tiles, which = blockIdx.x / n_tiles;
    return {which % n_heads, which / n_heads * shape.context, (last_first ? n_tiles - 1 - tile : tile) * rows};
}

/* The rows of one head of one sequence in a matrix of `stride` columns. */
template <typename T> struct head_rows {
    const T *at;
    int64_t stride;
};

template <typename T> __device__ inline head_rows<T> rows_of(const T *data, int64_t begin, int64_t stride, int64_t col)
{
    return {data + begin * stride + col, stride};
}

/* bf16 or f16 heads of certain sizes on tensor cores (attention_mma.cu).
 * @retval cudaErrorNotSupported  not for this shape */
cudaError_t qdri_cuda_attention_mma(const qdri_kernel *kernel, const qdri_cuda_target *target);

#endif
