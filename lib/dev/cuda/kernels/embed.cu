/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding, and ids outside the vocabulary. */
#include "dev/cuda/kernels/rows.cuh"

namespace
{
constexpr int none = 0x7fffffff;

/* One block; the first thread that finds an invalid id writes it. Kernels on other streams may do so at the same
 * time. */
__global__ void check_ids(const int32_t *ids, int64_t n, int64_t vocab, int32_t is_target, qdri_cuda_fault *fault)
{
    int64_t row = n;
#pragma unroll 4
    for (int64_t r = threadIdx.x; r < n; r += blockDim.x)
        if (ids[r] >= vocab && r < row) row = r;
    const int64_t first = -row_total<larger>(-row);
    if (threadIdx.x > 0 || first == n || atomicCAS(&fault->claimed, 0, 1) != 0) return;
    fault->kind = is_target ? QDRI_FAULT_TARGET : QDRI_FAULT_TOKEN;
    fault->id = ids[first];
    fault->row = first;
    fault->most = vocab - 1;
    __threadfence_system();
    *(volatile int32_t *)&fault->found = 1;
}

/* The word's index if it is in [begin, end), on this rank; otherwise -1. */
__device__ inline int64_t word_here(int32_t token, int64_t begin, int64_t end)
{
    return token >= 0 && token >= begin && token < end ? token - begin : -1;
}

template <typename T>
__global__ void embed_forward(int64_t n_rows, int64_t n_cols, int64_t begin, int64_t end, const int32_t *tokens,
                              const T *e, T *y, real_of<T> factor, bool wide)
{
    constexpr int V = pack_width<T>;
    const cell at = find_cell(n_cols, V);
    if (at.col >= n_cols) return;
    for_rows(at, n_rows, [&](int, int64_t row) {
        const int64_t word = word_here(tokens[row], begin, end);
        pack<T, V> x = {};
        if (word >= 0) x = load<V>(e + word * n_cols, at.col, n_cols, wide);
#pragma unroll
        for (int k = 0; k < V && factor != 1; k++) x.at[k] = put<T>(factor * get(x.at[k]));
        store<V>(y + row * n_cols, at.col, n_cols, wide, x);
    });
}

__global__ void clear_words(int64_t n_words, int *first, int *count)
{
    const int64_t word = thread_number();
    if (word >= n_words) return;
    first[word] = none;
    count[word] = 0;
}

/* For each word: the first row that has it, and the number of rows that have it. */
__global__ void find_words(int64_t n_rows, int64_t begin, int64_t end, const int32_t *tokens, int *first, int *count)
{
    const int64_t row = thread_number();
    const int64_t word = row < n_rows ? word_here(tokens[row], begin, end) : -1;
    if (word < 0) return;
    atomicMin(first + word, (int)row);
    atomicAdd(count + word, 1);
}

constexpr int lists = 4; /* of warps' ballots, per iteration */

/* The block of a word's first row adds all rows that have the word, in order. */
template <typename T>
__global__ void add_words(int64_t n_rows, int64_t n_cols, int64_t begin, int64_t end, const int32_t *tokens,
                          const T *dy, const int *first, const int *count, real_of<T> *de, real_of<T> factor, bool wide)
{
    constexpr int V = pack_width<T>;
    __shared__ unsigned found[lists * block_threads / 32];
    const int n_warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32;
    const int64_t word = word_here(tokens[blockIdx.x], begin, end);
    if (word < 0 || first[word] != (int)blockIdx.x) return;
    const int64_t col = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    const int32_t token = tokens[blockIdx.x];
    int left = count[word];
    real_of<T> sum[V] = {};
    for (int64_t row = blockIdx.x; left > 0; row += lists * blockDim.x) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < lists; i++) {
            const int64_t r = row + i * (int64_t)blockDim.x + threadIdx.x;
            const unsigned votes = __ballot_sync(~0u, r < n_rows && tokens[r] == token);
            if (threadIdx.x % 32 == 0) found[i * n_warps + warp] = votes;
        }
        __syncthreads();
        for (int i = 0; i < lists * n_warps; i++) {
            for (unsigned votes = found[i]; votes; votes &= votes - 1, left--) {
                const int64_t r = row + 32 * i + __ffs((int)votes) - 1;
                if (col >= n_cols) continue;
                const pack<T, V> more = load<V>(dy + r * n_cols, col, n_cols, wide);
#pragma unroll
                for (int k = 0; k < V; k++) sum[k] += get(more.at[k]);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        if (col + k < n_cols) de[word * n_cols + col + k] += factor * sum[k];
}

template <typename T> cudaError_t launch_forward(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    const int64_t n_rows = kernel->u.embed.n_rows, n_cols = kernel->u.embed.n_cols;
    const T *e = (const T *)kernel->u.embed.e;
    T *y = (T *)kernel->u.embed.y;
    const real_of<T> factor = (real_of<T>)qdri_factor_of(kernel);
    if (n_rows == 0 || n_cols == 0) return cudaSuccess;
    const grid_plan plan = plan_cells(n_rows, n_cols, V);
    return launch(target, plan.grid, plan.block, 0, embed_forward<T>, n_rows, n_cols, kernel->u.embed.begin,
                  kernel->u.embed.end, kernel->u.embed.tokens, e, y, factor, is_wide<V>(e, y) && n_cols % V == 0);
}

template <typename T> cudaError_t launch_backward(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    constexpr int V = pack_width<T>;
    constexpr int64_t room = QDRI_CUDA_SCRATCH_BYTES / (2 * sizeof(int));
    const int64_t n_rows = kernel->u.embed.n_rows, n_cols = kernel->u.embed.n_cols;
    const int64_t begin = kernel->u.embed.begin, end = kernel->u.embed.end;
    const int32_t *tokens = kernel->u.embed.tokens;
    const T *dy = (const T *)kernel->u.embed.dy;
    const real_of<T> factor = (real_of<T>)qdri_factor_of(kernel);
    real_of<T> *de = (real_of<T> *)kernel->u.embed.de;
    const size_t bytes = (size_t)((end - begin) * n_cols) * sizeof *de;
    const unsigned threads = threads_for(ceil_div(n_cols, V));
    const dim3 grid((unsigned)n_rows, (unsigned)ceil_div(ceil_div(n_cols, V), threads));
    if (bytes == 0) return cudaSuccess;
    if (!kernel->accumulate) LAUNCH_TRY(cudaMemsetAsync(de, 0, bytes, target->stream));
    if (n_rows == 0) return cudaSuccess;
    for (int64_t at = begin; at < end; at += room) { /* as many words at a time as fit into the scratch memory */
        const int64_t next = least(at + room, end), n = next - at;
        int *first = (int *)target->scratch, *count = first + n;
        LAUNCH_TRY(launch_each(target, n, clear_words, n, first, count));
        LAUNCH_TRY(launch_each(target, n_rows, find_words, n_rows, at, next, tokens, first, count));
        LAUNCH_TRY(launch(target, grid, dim3(threads), 0, add_words<T>, n_rows, n_cols, at, next, tokens, dy, first,
                          count, de + (at - begin) * n_cols, factor, is_wide<V>(dy) && n_cols % V == 0));
    }
    return cudaSuccess;
}
} // namespace

cudaError_t qdri_cuda_check_ids(const int32_t *ids, int64_t n, int64_t vocab, bool is_target,
                                const qdri_cuda_target *target)
{
    const unsigned threads = (unsigned)least(1024, ceil_div(n, 32) * 32);
    if (n == 0 || vocab == 0) return cudaSuccess;
    return launch(target, dim3(1), dim3(threads), 0, check_ids, ids, n, vocab, (int32_t)is_target, target->fault);
}

cudaError_t qdri_cuda_embed(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    LAUNCH_TRY(
        qdri_cuda_check_ids(kernel->u.embed.tokens, kernel->u.embed.n_rows, kernel->u.embed.vocab, false, target));
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        return kernel->kind == QDRI_K_EMBED_FORWARD ? launch_forward<T>(kernel, target)
                                                    : launch_backward<T>(kernel, target);
    });
}
