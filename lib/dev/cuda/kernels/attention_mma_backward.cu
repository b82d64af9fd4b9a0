/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention for bf16 and f16 heads of certain sizes on tensor cores, backward: first Σ dy·y of each row, then
 * the gradients of queries, 128 rows per block, and those of keys and values, 64 rows per block; no result is added to
 * by two blocks. Weights are recomputed from the saved log-sum-exp. */
#include "dev/cuda/kernels/attention_mma.cuh"

namespace
{
constexpr int tile_rows = 32; /* rows per loaded tile; the next tile is loaded meanwhile */

/* ---- Σ dy·y ---- */

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

/* ---- queries ---- */

constexpr int q_tiles = 2, q_rows = mma_warps * q_tiles * 16;

/* A lane's data about its rows: log-sum-exp in base 2, and delta. */
struct row_facts {
    float log2_sum[q_tiles][2], delta[q_tiles][2];
};

/* From scores of keys and their slopes: the slopes are replaced by the gradients of the scores. */
__device__ inline void score_gradients(const float (&scores)[q_tiles][tile_rows / 8][4],
                                       float (&slopes)[q_tiles][tile_rows / 8][4], const row_facts &facts, int row,
                                       int key0, float scale)
{
#pragma unroll
    for (int m = 0; m < q_tiles; m++)
#pragma unroll
        for (int n = 0; n < tile_rows / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const bool is_seen = key0 + n * 8 + mma_col(i) <= row + m * 16 + mma_row(i);
                const float exponent = scores[m][n][i] * (scale * log2_of_e) - facts.log2_sum[m][i / 2];
                const float weight = is_seen ? fast_exp2(exponent) : 0;
                slopes[m][n][i] = weight * (slopes[m][n][i] - facts.delta[m][i / 2]) * scale;
            }
}

template <int HS, typename T>
__global__ void __launch_bounds__(mma_threads)
    backward_queries(attention_shape shape, float scale, const T *qkv, const T *dy, const float *log_sums,
                     const float *deltas, T *dqkv)
{
    const unsigned queries = dynamic_shared_address();
    const unsigned grads = queries + row_bytes<HS>(q_rows);
    const unsigned keys = grads + row_bytes<HS>(q_rows);
    const unsigned values = keys + row_bytes<HS>(2 * tile_rows);
    const attention_tile at = find_tile(shape, shape.n_heads, q_rows, true);
    const int64_t kv = at.head / shape.group(), width = shape.in_width();
    const head_rows<T> k = rows_of(qkv, at.begin, width, shape.k_col(kv));
    const head_rows<T> v = rows_of(qkv, at.begin, width, shape.v_col(kv));
    const int context = (int)shape.context, row0 = (int)at.row0;
    const int first = mma_warp() * q_tiles * 16, row = row0 + first, last = row + q_tiles * 16 - 1;
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
    copy_tile<HS, q_rows>(queries, rows_of(qkv, at.begin, width, at.head * HS), row0, context);
    copy_tile<HS, q_rows>(grads, rows_of(dy, at.begin, shape.out_width(), at.head * HS), row0, context);
    copy_tile<HS, tile_rows>(keys, k, 0, context);
    copy_tile<HS, tile_rows>(values, v, 0, context);
    end_copies();
    for (int key0 = 0; key0 < end; key0 += tile_rows) {
        const unsigned now = (unsigned)(key0 / tile_rows % 2) * row_bytes<HS>(tile_rows);
        const unsigned next = row_bytes<HS>(tile_rows) - now;
        float scores[q_tiles][tile_rows / 8][4], slopes[q_tiles][tile_rows / 8][4];
        wait_for_copies();
        __syncthreads();
        if (key0 + tile_rows < end) {
            copy_tile<HS, tile_rows>(keys + next, k, key0 + tile_rows, context);
            copy_tile<HS, tile_rows>(values + next, v, key0 + tile_rows, context);
        }
        end_copies();
        if (key0 > last) continue;
        dot_tiles<HS, T>(scores, queries + row_bytes<HS>(first), keys + now);
        dot_tiles<HS, T>(slopes, grads + row_bytes<HS>(first), values + now);
        score_gradients(scores, slopes, facts, row, key0, scale);
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

/* ---- keys and values ---- */

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
                                        const query_facts &facts, int key, int query0, int n, float scale)
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
                const bool is_seen = key + mma_row(i) <= query && query < n;
                const float exponent = scores[0][t][i] * (scale * log2_of_e) - log2_sum;
                const float weight = is_seen ? fast_exp2(exponent) : 0;
                scores[0][t][i] = weight;
                slopes[0][t][i] = weight * (slopes[0][t][i] - delta) * scale;
            }
        }
}

template <int HS, typename T>
__global__ void __launch_bounds__(mma_threads)
    backward_keys(attention_shape shape, float scale, const T *qkv, const T *dy, const float *log_sums,
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
    const int context = (int)shape.context, row0 = (int)at.row0;
    const int first = mma_warp() * 16, key = row0 + first;
    const int64_t last_head = (at.head + 1) * shape.group() - 1;
    float dk[1][HS / 8][4] = {}, dv[1][HS / 8][4] = {};
    const auto copy_queries = [&](int64_t head, int query0, unsigned turn) {
        const unsigned to = turn * row_bytes<HS>(tile_rows);
        const int64_t first_fact = shape.sums_at(head, at.begin);
        copy_tile<HS, tile_rows>(queries + to, rows_of(qkv, at.begin, width, head * HS), query0, context);
        copy_tile<HS, tile_rows>(grads + to, rows_of(dy, at.begin, out_width, head * HS), query0, context);
        copy_facts(facts + turn * (unsigned)sizeof(query_facts), log_sums + first_fact, deltas + first_fact, query0,
                   context);
        end_copies();
    };
    copy_tile<HS, k_rows>(keys, rows_of(qkv, at.begin, width, shape.k_col(at.head)), row0, context);
    copy_tile<HS, k_rows>(values, rows_of(qkv, at.begin, width, shape.v_col(at.head)), row0, context);
    copy_queries(at.head * shape.group(), row0, 0);
    unsigned turn = 0;
    for (int64_t head = at.head * shape.group(); head <= last_head; head++) {
        for (int query0 = row0; query0 < context; query0 += tile_rows) {
            const unsigned now = turn * row_bytes<HS>(tile_rows);
            float scores[1][tile_rows / 8][4], slopes[1][tile_rows / 8][4];
            wait_for_copies();
            __syncthreads();
            if (query0 + tile_rows < context) {
                copy_queries(head, query0 + tile_rows, 1 - turn);
            } else if (head < last_head) {
                copy_queries(head + 1, row0, 1 - turn);
            }
            if (query0 + tile_rows > key) {
                dot_tiles<HS, T>(scores, keys + row_bytes<HS>(first), queries + now);
                dot_tiles<HS, T>(slopes, values + row_bytes<HS>(first), grads + now);
                column_gradients(scores, slopes, both_facts[turn], key, query0, context, scale);
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

template <int HS, typename T> cudaError_t launch_backward(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    const attention_shape shape = shape_of(kernel);
    const T *qkv = (const T *)kernel->u.attention.qkv;
    const T *y = (const T *)kernel->u.attention.y, *dy = (const T *)kernel->u.attention.dy;
    const float *log_sums = (const float *)kernel->u.attention.saved;
    float *deltas = (float *)kernel->u.attention.work;
    T *dqkv = (T *)kernel->u.attention.out;
    const float scale = mma_scale(shape);
    LAUNCH_TRY(launch_each(place, shape.n_rows * shape.n_heads * 32, sum_deltas<HS, T>, shape, y, dy, deltas));
    LAUNCH_TRY(launch_mma(place, count_tiles(shape, shape.n_heads, q_rows), row_bytes<HS>(2 * q_rows + 4 * tile_rows),
                          backward_queries<HS, T>, shape, scale, qkv, dy, log_sums, deltas, dqkv));
    return launch_mma(place, count_tiles(shape, shape.n_kv_heads, k_rows),
                      row_bytes<HS>(2 * k_rows + 4 * tile_rows) + 2 * sizeof(query_facts), backward_keys<HS, T>, shape,
                      scale, qkv, dy, log_sums, deltas, dqkv);
}

template <typename T> cudaError_t launch_type(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    return with_head_size(kernel->u.attention.head_size,
                          [&](auto size) { return launch_backward<decltype(size)::value, T>(kernel, place); });
}
} // namespace

cudaError_t qdri_cuda_attention_mma_backward(const qdri_kernel *kernel, const qdri_cuda_place *place)
{
    return kernel->dtype == QDR_F16 ? launch_type<f16>(kernel, place) : launch_type<bf16>(kernel, place);
}
