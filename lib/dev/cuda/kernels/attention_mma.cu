/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention for bf16 and f16 heads of certain sizes on tensor cores (after Dao 2023, FlashAttention-2). */
#include <type_traits>

#include "core/dtype.h"
#include "dev/cuda/kernels/attention.cuh"

namespace
{
/* ---- tiles in shared memory, and their products ---- */

/* The 16-byte chunks of a row are permuted by the row's number, so that eight rows of a column are in different banks.
 * Heads of sizes other than 64 and 128 use rows of the next larger of these, whose remainder is neither written nor
 * read. */

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

/* 16 rows, columns 8·chunk..8·chunk+15, as the left factor; if TRANSPOSED, as the right factor, whose columns are 16
 * columns of the product. */
template <int HS, bool TRANSPOSED> __device__ inline void load_factor(unsigned (&to)[4], unsigned tile, int chunk)
{
    const unsigned lane = chunk_at<HS>(mma_lane() % 16, mma_lane() / 16);
    load_matrices<TRANSPOSED>(to, tile + (lane ^ (unsigned)chunk * 16));
}

/* The same rows and columns as the right factor whose rows are 16 columns of the product, halves in to[0..1] and
 * to[2..3]. */
template <int HS> __device__ inline void load_right_rows(unsigned (&to)[4], unsigned tile, int chunk)
{
    const int matrix = mma_lane() / 8;
    const unsigned lane = chunk_at<HS>(matrix / 2 * 8 + mma_lane() % 8, matrix % 2);
    load_matrices<false>(to, tile + (lane ^ (unsigned)chunk * 16));
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
        for (int m = 0; m < M; m++) load_factor<HS, false>(left[m], a + row_bytes<HS>(16 * m), chunk);
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
        load_factor<HS, true>(right, b, chunk);
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
cudaError_t launch_mma(const qdri_cuda_target *target, int64_t n_blocks, size_t shared_bytes, void (*kernel)(E...),
                       A &&...args)
{
    LAUNCH_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes));
    return launch(target, dim3((unsigned)n_blocks), dim3(mma_threads), shared_bytes, kernel, std::forward<A>(args)...);
}

/* ---- forward ---- */

/* A block has 128 rows of queries, a warp 32 of them; keys and values are loaded in tiles of 64, each during the
 * preceding product. */

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

__device__ inline bool is_seen(int row, int key, int window) { return (unsigned)(row - key) < (unsigned)window; }

/* Masks keys that the query's row does not see. */
__device__ inline void hide_unseen(float (&scores)[m_tiles][key_rows / 8][4], int row, int key0, int window)
{
#pragma unroll
    for (int m = 0; m < m_tiles; m++)
#pragma unroll
        for (int n = 0; n < key_rows / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (!is_seen(row + m * 16 + mma_row(i), key0 + n * 8 + mma_col(i), window))
                    scores[m][n][i] = minus_infinity<float>();
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
    forward(attention_shape shape, float scale, const T *sinks, const T *qk, const T *qkv, T *y, float *log_sums)
{
    const unsigned queries = dynamic_shared_address();
    const unsigned keys = queries + row_bytes<HS>(block_rows);
    const unsigned values = keys + row_bytes<HS>(key_rows);
    const attention_tile at = find_tile(shape, shape.n_heads, block_rows, true);
    const int64_t kv = at.head / shape.group(), width = shape.in_width();
    const head_rows<T> q = rows_of(qk, at.begin, shape.qk_width, at.head * HS);
    const head_rows<T> k = rows_of(qk, at.begin, shape.qk_width, shape.k_col(kv));
    const head_rows<T> v = rows_of(qkv, at.begin, width, shape.v_col(kv));
    const int context = (int)shape.context, window = (int)shape.window, row0 = (int)at.row0;
    const int first = mma_warp() * m_tiles * 16, row = row0 + first, last = row + m_tiles * 16 - 1;
    const int begin = (int)shape.first_key(at.begin, row0, key_rows);
    const int end = row0 + block_rows < context ? row0 + block_rows : context;
    float out[m_tiles][HS / 8][4] = {}, scores[m_tiles][key_rows / 8][4];
    softmax_state state;
#pragma unroll
    for (int m = 0; m < m_tiles; m++)
        for (int half = 0; half < 2; half++) {
            state.top[m][half] = sinks ? get(sinks[at.head]) / scale : no_score<float>;
            state.sum[m][half] = sinks && mma_lane() % 4 == 0 ? 1 : 0;
        }
    copy_tile<HS, block_rows>(queries, q, row0, context);
    copy_tile<HS, key_rows>(keys, k, begin, context);
    end_copies();
    for (int key0 = begin; key0 < end; key0 += key_rows) {
        const bool sees = key0 <= last && row - key0 - key_rows + 1 < window;
        wait_for_copies();
        __syncthreads();
        copy_tile<HS, key_rows>(values, v, key0, context);
        end_copies();
        if (sees) dot_tiles<HS, T>(scores, queries + row_bytes<HS>(first), keys);
        wait_for_copies();
        __syncthreads();
        if (key0 + key_rows < end) copy_tile<HS, key_rows>(keys, k, key0 + key_rows, context);
        end_copies();
        if (!sees) continue;
        if (key0 + key_rows - 1 > row || last - key0 >= window) hide_unseen(scores, row, key0, window);
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

template <int HS, typename T> cudaError_t launch_forward(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const attention_shape shape = shape_of(kernel);
    return launch_mma(target, count_tiles(shape, shape.n_heads, block_rows), row_bytes<HS>(block_rows + 2 * key_rows),
                      forward<HS, T>, shape, (float)kernel->u.attention.scale, (const T *)kernel->u.attention.sinks,
                      qk_of<T>(kernel), (const T *)kernel->u.attention.qkv, (T *)kernel->u.attention.out,
                      (float *)kernel->u.attention.saved);
}

/* ---- backward ---- */

/* First Σ dy·y of each row, then the gradients of queries, 128 rows per block, and those of keys and values, 64 rows
 * per block; no result is added to by two blocks. Weights are recomputed from the saved log-sum-exp. */

constexpr int tile_rows = 32; /* rows per loaded tile; the next tile is loaded meanwhile */

/* One warp per row of each head. */
template <int HS, typename T> __global__ void sum_deltas(attention_shape shape, const T *y, const T *dy, float *deltas)
{
    constexpr int V = row_width<HS> / 32;
    const int64_t i = thread_number() / 32;
    const int64_t row = i / shape.n_heads, head = i % shape.n_heads;
    if (row >= shape.n_rows) return;
    const pack<T, V> a = load_row<true, V>(y + i * HS, mma_lane() * V, HS);
    const pack<T, V> b = load_row<true, V>(dy + i * HS, mma_lane() * V, HS);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < V; k++) sum += get(a.at[k]) * get(b.at[k]);
    sum = warp_total<plus>(sum);
    const int64_t in_sequence = row % shape.context;
    if (mma_lane() == 0) deltas[shape.sums_at(head, row - in_sequence) + in_sequence] = sum;
}

constexpr int q_tiles = 2, q_rows = mma_warps * q_tiles * 16;

/* A lane's data about its rows: log-sum-exp in base 2, and delta. */
struct row_facts {
    float log2_sum[q_tiles][2], delta[q_tiles][2];
};

/* From scores of keys and their slopes: the slopes are replaced by the gradients of the scores. */
__device__ inline void score_gradients(const float (&scores)[q_tiles][tile_rows / 8][4],
                                       float (&slopes)[q_tiles][tile_rows / 8][4], const row_facts &facts, int row,
                                       int key0, int window, float scale)
{
#pragma unroll
    for (int m = 0; m < q_tiles; m++)
#pragma unroll
        for (int n = 0; n < tile_rows / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool sees = is_seen(row + m * 16 + mma_row(i), key0 + n * 8 + mma_col(i), window);
                const float exponent = scores[m][n][i] * (scale * log2_of_e) - facts.log2_sum[m][i / 2];
                const float weight = sees ? fast_exp2(exponent) : 0;
                slopes[m][n][i] = weight * (slopes[m][n][i] - facts.delta[m][i / 2]) * scale;
            }
}

template <int HS, typename T>
__global__ void __launch_bounds__(mma_threads)
    backward_queries(attention_shape shape, float scale, const T *qk, const T *qkv, const T *dy, const float *log_sums,
                     const float *deltas, T *dqkv)
{
    const unsigned queries = dynamic_shared_address();
    const unsigned grads = queries + row_bytes<HS>(q_rows);
    const unsigned keys = grads + row_bytes<HS>(q_rows);
    const unsigned values = keys + row_bytes<HS>(2 * tile_rows);
    const attention_tile at = find_tile(shape, shape.n_heads, q_rows, true);
    const int64_t kv = at.head / shape.group(), width = shape.in_width();
    const head_rows<T> k = rows_of(qk, at.begin, shape.qk_width, shape.k_col(kv));
    const head_rows<T> v = rows_of(qkv, at.begin, width, shape.v_col(kv));
    const int context = (int)shape.context, window = (int)shape.window, row0 = (int)at.row0;
    const int first = mma_warp() * q_tiles * 16, row = row0 + first, last = row + q_tiles * 16 - 1;
    const int begin = (int)shape.first_key(at.begin, row0, tile_rows);
    const int end = row0 + q_rows < context ? row0 + q_rows : context;
    float out[q_tiles][HS / 8][4] = {};
    row_facts facts;
#pragma unroll
    for (int m = 0; m < q_tiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = row + m * 16 + mma_row(2 * half);
            const int64_t i = shape.sums_at(at.head, at.begin) + r;
            facts.log2_sum[m][half] = r < context ? log_sums[i] * log2_of_e : 0;
            facts.delta[m][half] = r < context ? deltas[i] : 0;
        }
    copy_tile<HS, q_rows>(queries, rows_of(qk, at.begin, shape.qk_width, at.head * HS), row0, context);
    copy_tile<HS, q_rows>(grads, rows_of(dy, at.begin, shape.out_width(), at.head * HS), row0, context);
    copy_tile<HS, tile_rows>(keys, k, begin, context);
    copy_tile<HS, tile_rows>(values, v, begin, context);
    end_copies();
    for (int key0 = begin; key0 < end; key0 += tile_rows) {
        const unsigned now = (unsigned)((key0 - begin) / tile_rows % 2) * row_bytes<HS>(tile_rows);
        const unsigned next = row_bytes<HS>(tile_rows) - now;
        float scores[q_tiles][tile_rows / 8][4], slopes[q_tiles][tile_rows / 8][4];
        wait_for_copies();
        __syncthreads();
        if (key0 + tile_rows < end) {
            copy_tile<HS, tile_rows>(keys + next, k, key0 + tile_rows, context);
            copy_tile<HS, tile_rows>(values + next, v, key0 + tile_rows, context);
        }
        end_copies();
        if (key0 > last || row - key0 - tile_rows + 1 >= window) continue;
        dot_tiles<HS, T>(scores, queries + row_bytes<HS>(first), keys + now);
        dot_tiles<HS, T>(slopes, grads + row_bytes<HS>(first), values + now);
        score_gradients(scores, slopes, facts, row, key0, window, scale);
        add_rows<HS, T>(out, slopes, keys + now);
    }
#pragma unroll
    for (int m = 0; m < q_tiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = row + m * 16 + mma_row(2 * half);
            if (r < context) store_half<HS>(dqkv + (at.begin + r) * width + at.head * HS, out[m], half, 1);
        }
}

constexpr int k_rows = mma_warps * 16;

/* Data about a tile's queries, in shared memory. */
struct query_facts {
    float log_sum[tile_rows], delta[tile_rows];
};

/* Copies those of a head's queries from `query` on; zeros after the last. */
__device__ inline void copy_facts(unsigned to, const float *log_sums, const float *deltas, int query, int n)
{
    const int i = (int)threadIdx.x % tile_rows;
    if (threadIdx.x >= 2 * tile_rows) return;
    copy_word_later(to + threadIdx.x * (unsigned)sizeof(float),
                    (threadIdx.x < tile_rows ? log_sums : deltas) + query + i, query + i < n);
}

/* For a tile of queries, which are columns here: turns scores into weights, and slopes into gradients of the scores. A
 * lane has two columns of each 8. */
__device__ inline void column_gradients(float (&scores)[1][tile_rows / 8][4], float (&slopes)[1][tile_rows / 8][4],
                                        const query_facts &facts, int key, int query0, int n, int window, float scale)
{
#pragma unroll
    for (int t = 0; t < tile_rows / 8; t++)
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const int column = t * 8 + mma_col(side), query = query0 + column;
            const float log2_sum = facts.log_sum[column] * log2_of_e;
            const float delta = facts.delta[column];
#pragma unroll
            for (int i = side; i < 4; i += 2) {
                const bool sees = is_seen(query, key + mma_row(i), window) && query < n;
                const float exponent = scores[0][t][i] * (scale * log2_of_e) - log2_sum;
                const float weight = sees ? fast_exp2(exponent) : 0;
                scores[0][t][i] = weight;
                slopes[0][t][i] = weight * (slopes[0][t][i] - delta) * scale;
            }
        }
}

template <int HS, typename T>
__global__ void __launch_bounds__(mma_threads)
    backward_keys(attention_shape shape, float scale, const T *qk, const T *qkv, const T *dy, const float *log_sums,
                  const float *deltas, T *dqkv)
{
    const unsigned keys = dynamic_shared_address();
    const unsigned values = keys + row_bytes<HS>(k_rows);
    const unsigned queries = values + row_bytes<HS>(k_rows);
    const unsigned grads = queries + row_bytes<HS>(2 * tile_rows);
    const unsigned facts = grads + row_bytes<HS>(2 * tile_rows);
    const query_facts *both_facts = (const query_facts *)((const char *)dynamic_shared() + facts -
                                                          dynamic_shared_address());
    const attention_tile at = find_tile(shape, shape.n_kv_heads, k_rows, false);
    const int64_t width = shape.in_width(), out_width = shape.out_width();
    const int context = (int)shape.context, window = (int)shape.window, row0 = (int)at.row0;
    const int first = mma_warp() * 16, key = row0 + first, end = (int)shape.rows_end(at.begin, row0, k_rows);
    const int64_t last_head = (at.head + 1) * shape.group() - 1;
    float dk[1][HS / 8][4] = {}, dv[1][HS / 8][4] = {};
    const auto copy_queries = [&](int64_t head, int query0, unsigned turn) {
        const unsigned to = turn * row_bytes<HS>(tile_rows);
        const int64_t first_fact = shape.sums_at(head, at.begin);
        copy_tile<HS, tile_rows>(queries + to, rows_of(qk, at.begin, shape.qk_width, head * HS), query0, context);
        copy_tile<HS, tile_rows>(grads + to, rows_of(dy, at.begin, out_width, head * HS), query0, context);
        copy_facts(facts + turn * (unsigned)sizeof(query_facts), log_sums + first_fact, deltas + first_fact, query0,
                   context);
        end_copies();
    };
    copy_tile<HS, k_rows>(keys, rows_of(qk, at.begin, shape.qk_width, shape.k_col(at.head)), row0, context);
    copy_tile<HS, k_rows>(values, rows_of(qkv, at.begin, width, shape.v_col(at.head)), row0, context);
    copy_queries(at.head * shape.group(), row0, 0);
    unsigned turn = 0;
    for (int64_t head = at.head * shape.group(); head <= last_head; head++) {
        for (int query0 = row0; query0 < end; query0 += tile_rows) {
            const unsigned now = turn * row_bytes<HS>(tile_rows);
            float scores[1][tile_rows / 8][4], slopes[1][tile_rows / 8][4];
            wait_for_copies();
            __syncthreads();
            if (query0 + tile_rows < end) {
                copy_queries(head, query0 + tile_rows, 1 - turn);
            } else if (head < last_head) {
                copy_queries(head + 1, row0, 1 - turn);
            }
            if (query0 + tile_rows > key && query0 - key - 15 < window) {
                dot_tiles<HS, T>(scores, keys + row_bytes<HS>(first), queries + now);
                dot_tiles<HS, T>(slopes, values + row_bytes<HS>(first), grads + now);
                column_gradients(scores, slopes, both_facts[turn], key, query0, context, window, scale);
                add_rows<HS, T>(dv, scores, grads + now);
                add_rows<HS, T>(dk, slopes, queries + now);
            }
            turn = 1 - turn;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = key + mma_row(2 * half);
        T *to = dqkv + (at.begin + r) * width;
        if (r >= context) continue;
        store_half<HS>(to + shape.k_col(at.head), dk[0], half, 1);
        store_half<HS>(to + shape.v_col(at.head), dv[0], half, 1);
    }
}

template <int HS, typename T> cudaError_t launch_backward(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const attention_shape shape = shape_of(kernel);
    const T *qk = qk_of<T>(kernel), *qkv = (const T *)kernel->u.attention.qkv;
    const T *y = (const T *)kernel->u.attention.y, *dy = (const T *)kernel->u.attention.dy;
    const float *log_sums = (const float *)kernel->u.attention.saved;
    float *deltas = (float *)kernel->u.attention.work;
    T *dqkv = (T *)kernel->u.attention.out;
    const float scale = (float)kernel->u.attention.scale;
    LAUNCH_TRY(launch_each(target, shape.n_rows * shape.n_heads * 32, sum_deltas<HS, T>, shape, y, dy, deltas));
    LAUNCH_TRY(launch_mma(target, count_tiles(shape, shape.n_heads, q_rows), row_bytes<HS>(2 * q_rows + 4 * tile_rows),
                          backward_queries<HS, T>, shape, scale, qk, qkv, dy, log_sums, deltas, dqkv));
    return launch_mma(target, count_tiles(shape, shape.n_kv_heads, k_rows),
                      row_bytes<HS>(2 * k_rows + 4 * tile_rows) + 2 * sizeof(query_facts), backward_keys<HS, T>, shape,
                      scale, qk, qkv, dy, log_sums, deltas, dqkv);
}

template <typename T> cudaError_t launch_type(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    return with_head_size(kernel->u.attention.head_size, [&](auto size) {
        constexpr int HS = decltype(size)::value;
        return kernel->kind == QDRI_K_ATTENTION_BACKWARD ? launch_backward<HS, T>(kernel, target)
                                                         : launch_forward<HS, T>(kernel, target);
    });
}
} // namespace

cudaError_t qdri_cuda_attention_mma(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const uintptr_t all = (uintptr_t)kernel->u.attention.qkv | (uintptr_t)kernel->u.attention.out |
                          (uintptr_t)kernel->u.attention.y | (uintptr_t)kernel->u.attention.dy;
    if (!qdri_is_narrow(kernel->dtype) || all % 16 != 0 || kernel->u.attention.context > most_context ||
        kernel->u.attention.cap > 0 || kernel->u.attention.first_keys)
        return cudaErrorNotSupported;
    return kernel->dtype == QDR_F16 ? launch_type<f16>(kernel, target) : launch_type<bf16>(kernel, target);
}
