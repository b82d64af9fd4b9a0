/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention for any type and head size, without storing the matrix of scores: scores are computed tile by tile,
 * with an online softmax. A block has 32 rows of one head, a warp 8 of them; a lane has one column of the scores, and
 * every 32nd column of the results, of which a block computes at most 128. */
#include "dev/cuda/kernels/attention.cuh"

namespace
{
constexpr int tile = 32, warp_rows = 8, threads = tile / warp_rows * 32;
constexpr int chunk = 64, padded = chunk + 4; /* columns in shared memory */
constexpr int out_cols = 128;

/* Read in packs. */
template <typename R> struct alignas(pack<R, 4>) tiles {
    R a[tile][padded], b[tile][padded], weights[tile][tile + 4];
};

/* The block's. */
template <typename R> __device__ inline tiles<R> &shared_tiles()
{
    __shared__ tiles<R> shared;
    return shared;
}

__device__ inline int lane_number() { return (int)threadIdx.x % 32; }
__device__ inline int warp_number() { return (int)threadIdx.x / 32; }

/* Columns col, … of 32 rows; zeros outside the matrix. */
template <typename R, typename T>
__device__ inline void load_tile(R (&to)[tile][padded], const attention_shape &shape, const head_rows<T> &from,
                                 int64_t row, int64_t col)
{
    const int c = (int)threadIdx.x % chunk;
#pragma unroll 4
    for (int r = (int)threadIdx.x / chunk; r < tile; r += threads / chunk) {
        const bool is_there = row + r < shape.context && col + c < shape.head_size;
        to[r][c] = is_there ? get(from.at[(row + r) * from.stride + col + c]) : (R)0;
    }
}

/* dots[i] = (row i of the warp's rows of a) · (the lane's row of b). */
template <typename R, typename T>
__device__ inline void dot_rows(R (&dots)[warp_rows], tiles<R> &shared, const attention_shape &shape,
                                const head_rows<T> &a, int64_t a_row, const head_rows<T> &b, int64_t b_row)
{
    const int first = warp_number() * warp_rows;
#pragma unroll
    for (int i = 0; i < warp_rows; i++) dots[i] = 0;
    for (int64_t col = 0; col < shape.head_size; col += chunk) {
        __syncthreads();
        load_tile(shared.a, shape, a, a_row, col);
        load_tile(shared.b, shape, b, b_row, col);
        __syncthreads();
        for (int c = 0; c < chunk && col + c < shape.head_size; c += 4) {
            const pack<R, 4> y = *(const pack<R, 4> *)&shared.b[lane_number()][c];
#pragma unroll
            for (int i = 0; i < warp_rows; i++) {
                const pack<R, 4> x = *(const pack<R, 4> *)&shared.a[first + i][c];
#pragma unroll
                for (int k = 0; k < 4; k++) dots[i] += x.at[k] * y.at[k];
            }
        }
    }
}

/* out[i][k] += Σ over rows r of b of weight(row i, r) · b[r, 32·k + lane]. */
template <int D, typename R, typename T>
__device__ inline void add_rows(R (&out)[warp_rows][D], tiles<R> &shared, const attention_shape &shape,
                                const head_rows<T> &b, int64_t b_row, int64_t col)
{
    const int first = warp_number() * warp_rows;
#pragma unroll
    for (int half = 0; half < D; half += 2) {
        __syncthreads();
        load_tile(shared.b, shape, b, b_row, col + half * 32);
        __syncthreads();
        for (int r = 0; r < tile; r += 4) {
            pack<R, 4> weights[warp_rows];
#pragma unroll
            for (int i = 0; i < warp_rows; i++) weights[i] = *(const pack<R, 4> *)&shared.weights[first + i][r];
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int d = half; d < half + 2 && d < D; d++) {
                    const R value = shared.b[r + k][(d - half) * 32 + lane_number()];
#pragma unroll
                    for (int i = 0; i < warp_rows; i++) out[i][d] += weights[i].at[k] * value;
                }
        }
    }
}

template <int D, typename T, typename R>
__device__ inline void store_row(T *row, const attention_shape &shape, int64_t col, const R (&out)[D], R factor)
{
#pragma unroll
    for (int d = 0; d < D; d++) {
        const int64_t c = col + d * 32 + lane_number();
        if (c < shape.head_size) row[c] = put<T>(out[d] * factor);
    }
}

/* From dots of queries and keys to scores. */
template <typename R> struct scoring {
    R scale, cap;
    __device__ R score(R dot) const { return cap > 0 ? cap * real_tanh(dot * scale / cap) : dot * scale; }
    /* The slope of a score, over the dot. */
    __device__ R slope(R score) const { return cap > 0 ? (1 - score / cap) * (1 + score / cap) * scale : scale; }
};

/* ---- forward ---- */

template <typename T, int D>
__global__ void __launch_bounds__(threads) forward(attention_shape shape, scoring<real_of<T>> how, const T *sinks,
                                                   const T *qk, const T *qkv, T *y, real_of<T> *log_sums)
{
    typedef real_of<T> R;
    tiles<R> &shared = shared_tiles<R>();
    const attention_tile at = find_tile(shape, shape.n_heads, tile, true);
    const int64_t kv = at.head / shape.group();
    const head_rows<T> q = rows_of(qk, at.begin, shape.qk_width, at.head * shape.head_size);
    const head_rows<T> k = rows_of(qk, at.begin, shape.qk_width, shape.k_col(kv));
    const head_rows<T> v = rows_of(qkv, at.begin, shape.in_width(), shape.v_col(kv));
    const int64_t col = (int64_t)blockIdx.y * out_cols;
    const int first = warp_number() * warp_rows;
    R out[warp_rows][D] = {}, scores[warp_rows], top[warp_rows], sum[warp_rows];
#pragma unroll
    for (int i = 0; i < warp_rows; i++) {
        top[i] = sinks ? get(sinks[at.head]) : no_score<R>;
        sum[i] = sinks && lane_number() == 0 ? 1 : 0;
    }
    for (int64_t key0 = shape.first_key(at.begin, at.row0, tile); key0 <= at.row0; key0 += tile) {
        dot_rows(scores, shared, shape, q, at.row0, k, key0);
#pragma unroll
        for (int i = 0; i < warp_rows; i++) {
            const bool is_seen = shape.sees(at.begin, at.row0 + first + i, key0 + lane_number());
            const R score = is_seen ? how.score(scores[i]) : no_score<R>;
            const R above = larger::of(top[i], warp_total<larger>(score));
            const R weight = is_seen ? real_exp(score - above) : 0;
            const R keeps = real_exp(top[i] - above);
            top[i] = above;
            sum[i] = sum[i] * keeps + weight;
            shared.weights[first + i][lane_number()] = weight;
#pragma unroll
            for (int d = 0; d < D; d++) out[i][d] *= keeps;
        }
        add_rows(out, shared, shape, v, key0, col);
    }
#pragma unroll
    for (int i = 0; i < warp_rows; i++) {
        const int64_t row = at.row0 + first + i;
        const R total = warp_total<plus>(sum[i]);
        if (row >= shape.context) continue;
        store_row(y + (at.begin + row) * shape.out_width() + at.head * shape.head_size, shape, col, out[i], 1 / total);
        if (lane_number() == 0 && col == 0) log_sums[shape.sums_at(at.head, at.begin) + row] = top[i] + real_log(total);
    }
}

/* ---- backward ---- */

/* Everything that belongs to one query head. */
template <typename T> struct query_head {
    int64_t begin; /* of the sequence */
    head_rows<T> q, k, v, dy;
    const real_of<T> *log_sums;
    real_of<T> *deltas; /* Σ P·dP of each row, which equals Σ dy·y */
};

template <typename T>
__device__ inline query_head<T> find_head(const attention_shape &shape, int64_t head, int64_t begin, const T *qk,
                                          const T *qkv, const T *dy, const real_of<T> *log_sums, real_of<T> *deltas)
{
    const int64_t kv = head / shape.group();
    return {begin,
            rows_of(qk, begin, shape.qk_width, head * shape.head_size),
            rows_of(qk, begin, shape.qk_width, shape.k_col(kv)),
            rows_of(qkv, begin, shape.in_width(), shape.v_col(kv)),
            rows_of(dy, begin, shape.out_width(), head * shape.head_size),
            log_sums + shape.sums_at(head, begin),
            deltas + shape.sums_at(head, begin)};
}

/* Rows of queries with a tile of keys: weights P, their gradients dP, and the slopes of their scores. */
template <typename T>
__device__ inline void query_weights(real_of<T> (&weights)[warp_rows], real_of<T> (&slopes)[warp_rows],
                                     real_of<T> (&steep)[warp_rows], tiles<real_of<T>> &shared,
                                     const attention_shape &shape, const query_head<T> &head, int64_t row0,
                                     int64_t key0, const scoring<real_of<T>> &how)
{
    const int64_t first = row0 + warp_number() * warp_rows;
    dot_rows(weights, shared, shape, head.q, row0, head.k, key0);
    dot_rows(slopes, shared, shape, head.dy, row0, head.v, key0);
#pragma unroll
    for (int i = 0; i < warp_rows; i++) {
        const int64_t row = first + i;
        const bool is_seen = shape.sees(head.begin, row, key0 + lane_number()) && row < shape.context;
        const real_of<T> score = how.score(weights[i]);
        steep[i] = how.slope(score);
        weights[i] = is_seen ? real_exp(score - head.log_sums[row]) : 0;
    }
}

/* Σ P·dP computed directly: y was rounded to T. */
template <typename T>
__device__ inline void sum_deltas(real_of<T> (&deltas)[warp_rows], tiles<real_of<T>> &shared,
                                  const attention_shape &shape, const query_head<T> &head, int64_t row0,
                                  const scoring<real_of<T>> &how)
{
    real_of<T> weights[warp_rows], slopes[warp_rows], steep[warp_rows];
#pragma unroll
    for (int i = 0; i < warp_rows; i++) deltas[i] = 0;
    for (int64_t key0 = shape.first_key(head.begin, row0, tile); key0 <= row0; key0 += tile) {
        query_weights(weights, slopes, steep, shared, shape, head, row0, key0, how);
#pragma unroll
        for (int i = 0; i < warp_rows; i++) deltas[i] += weights[i] * slopes[i];
    }
#pragma unroll
    for (int i = 0; i < warp_rows; i++) deltas[i] = warp_total<plus>(deltas[i]);
}

template <typename T, int D>
__global__ void __launch_bounds__(threads)
    backward_queries(attention_shape shape, scoring<real_of<T>> how, const T *qk, const T *qkv, const T *dy,
                     const real_of<T> *log_sums, real_of<T> *all_deltas, T *dqkv)
{
    typedef real_of<T> R;
    tiles<R> &shared = shared_tiles<R>();
    const attention_tile at = find_tile(shape, shape.n_heads, tile, true);
    const query_head<T> head = find_head(shape, at.head, at.begin, qk, qkv, dy, log_sums, all_deltas);
    const int64_t col = (int64_t)blockIdx.y * out_cols;
    const int first = warp_number() * warp_rows;
    R out[warp_rows][D] = {}, weights[warp_rows], slopes[warp_rows], steep[warp_rows], deltas[warp_rows];
    sum_deltas(deltas, shared, shape, head, at.row0, how);
    for (int64_t key0 = shape.first_key(at.begin, at.row0, tile); key0 <= at.row0; key0 += tile) {
        query_weights(weights, slopes, steep, shared, shape, head, at.row0, key0, how);
#pragma unroll
        for (int i = 0; i < warp_rows; i++)
            shared.weights[first + i][lane_number()] = weights[i] * (slopes[i] - deltas[i]) * steep[i];
        add_rows(out, shared, shape, head.k, key0, col);
    }
#pragma unroll
    for (int i = 0; i < warp_rows; i++) {
        const int64_t row = at.row0 + first + i;
        if (row >= shape.context) continue;
        store_row(dqkv + (at.begin + row) * shape.in_width() + at.head * shape.head_size, shape, col, out[i], (R)1);
        if (lane_number() == 0 && col == 0) head.deltas[row] = deltas[i];
    }
}

/* All query heads of one key head add to a tile of its dk and dv, in order. */
template <typename T, int D>
__global__ void __launch_bounds__(threads)
    backward_keys(attention_shape shape, scoring<real_of<T>> how, const T *qk, const T *qkv, const T *dy,
                  const real_of<T> *log_sums, real_of<T> *all_deltas, T *dqkv)
{
    typedef real_of<T> R;
    tiles<R> &shared = shared_tiles<R>();
    const attention_tile at = find_tile(shape, shape.n_kv_heads, tile, false);
    const int64_t col = (int64_t)blockIdx.y * out_cols;
    const int first = warp_number() * warp_rows;
    const int64_t end = shape.rows_end(at.begin, at.row0, tile);
    R dk[warp_rows][D] = {}, dv[warp_rows][D] = {}, weights[warp_rows], slopes[warp_rows];
    for (int64_t i = 0; i < shape.group(); i++) {
        const query_head<T> head = find_head(shape, at.head * shape.group() + i, at.begin, qk, qkv, dy, log_sums,
                                             all_deltas);
        for (int64_t row0 = at.row0; row0 < end; row0 += tile) {
            const int64_t row = row0 + lane_number();
            const R log_sum = row < shape.context ? head.log_sums[row] : 0;
            const R delta = row < shape.context ? head.deltas[row] : 0;
            dot_rows(weights, shared, shape, head.k, at.row0, head.q, row0);
            dot_rows(slopes, shared, shape, head.v, at.row0, head.dy, row0);
#pragma unroll
            for (int r = 0; r < warp_rows; r++) {
                const bool is_seen = shape.sees(at.begin, row, at.row0 + first + r) && row < shape.context;
                const R score = how.score(weights[r]);
                weights[r] = is_seen ? real_exp(score - log_sum) : 0;
                slopes[r] = weights[r] * (slopes[r] - delta) * how.slope(score);
                shared.weights[first + r][lane_number()] = weights[r];
            }
            add_rows(dv, shared, shape, head.dy, row0, col);
            __syncwarp();
#pragma unroll
            for (int r = 0; r < warp_rows; r++) shared.weights[first + r][lane_number()] = slopes[r];
            add_rows(dk, shared, shape, head.q, row0, col);
        }
    }
#pragma unroll
    for (int r = 0; r < warp_rows; r++) {
        const int64_t row = at.row0 + first + r;
        T *to = dqkv + (at.begin + row) * shape.in_width();
        if (row >= shape.context) continue;
        store_row(to + shape.k_col(at.head), shape, col, dk[r], (R)1);
        store_row(to + shape.v_col(at.head), shape, col, dv[r], (R)1);
    }
}

/* ---- norms and turns of queries and keys ---- */

/* Each row of a head is changed once, in memory: a tile of keys is loaded anew for each tile of queries, and on tensor
 * cores by asynchronous copies, which cannot change it. */

/* Heads of queries or of keys: columns of a matrix of qkv from `col` on. */
template <typename R> struct turned_heads {
    int64_t n, col, rotary_columns;
    bool interleaved;
    R shift, epsilon;
};

/* The row of a head that a warp gets as its number i, of n_rows·n. */
struct head_row {
    int64_t row, col, in_sequence;
};

template <typename R>
__device__ inline head_row find_row(const attention_shape &shape, const turned_heads<R> &heads, int64_t i)
{
    const int64_t row = i / heads.n;
    return {row, heads.col + i % heads.n * shape.head_size, row % shape.context};
}

/* What the norm of a row multiplies by; gamma NULL: 1. */
template <typename R, typename T>
__device__ inline R head_scale(const attention_shape &shape, const turned_heads<R> &heads, const T *x, const T *gamma)
{
    R sum = 0;
    for (int64_t c = lane_number(); gamma && c < shape.head_size; c += 32) sum += get(x[c]) * get(x[c]);
    return gamma ? 1 / real_sqrt(warp_total<plus>(sum) / (R)shape.head_size + heads.epsilon) : 1;
}

/* Calls f(column, number) with the lane's numbers x(column), turned. Both of a pair are read before f is called. */
template <typename R, typename X, typename F>
__device__ inline void for_turned(const attention_shape &shape, const turned_heads<R> &heads, const R *rotation,
                                  int64_t in_sequence, bool back, X x, F f)
{
    const int64_t n = heads.rotary_columns / 2;
    const R *cosines = rotation + in_sequence * heads.rotary_columns, *sines = cosines + n;
    for (int64_t k = lane_number(); k < n; k += 32) {
        const int64_t a = heads.interleaved ? 2 * k : k, b = heads.interleaved ? a + 1 : k + n;
        const R first = x(a), second = x(b), sine = back ? -sines[k] : sines[k];
        f(a, first * cosines[k] - second * sine);
        f(b, second * cosines[k] + first * sine);
    }
    for (int64_t c = heads.rotary_columns + lane_number(); c < shape.head_size; c += 32) f(c, x(c));
}

template <typename T>
__global__ void turn(attention_shape shape, turned_heads<real_of<T>> heads, const real_of<T> *rotation, const T *gamma,
                     const T *qkv, T *qk)
{
    typedef real_of<T> R;
    const int64_t i = thread_number() / 32;
    if (i >= shape.n_rows * heads.n) return;
    const head_row at = find_row(shape, heads, i);
    const T *x = qkv + at.row * shape.in_width() + at.col;
    T *to = qk + at.row * shape.qk_width + at.col;
    const R scale = head_scale(shape, heads, x, gamma);
    for_turned(
        shape, heads, rotation, at.in_sequence, false,
        [&](int64_t c) { return gamma ? get(x[c]) * scale * (get(gamma[c]) + heads.shift) : get(x[c]); },
        [&](int64_t c, R value) { to[c] = put<T>(value); });
}

constexpr int turn_warps = 4;

/* Turns gradients back, in place. Each warp sums those of gamma over its rows; sums: [blocks, head_size] */
template <typename T>
__global__ void turn_back(attention_shape shape, turned_heads<real_of<T>> heads, const real_of<T> *rotation,
                          const T *gamma, const T *qkv, T *dqkv, real_of<T> *sums)
{
    typedef real_of<T> R;
    const int64_t size = shape.head_size;
    R *all = (R *)dynamic_shared(), *mine = all + warp_number() * size;
    for (int64_t c = lane_number(); gamma && c < size; c += 32) mine[c] = 0;
    for (int64_t i = blockIdx.x * turn_warps + warp_number(); i < shape.n_rows * heads.n; i += gridDim.x * turn_warps) {
        const head_row at = find_row(shape, heads, i);
        const T *x = qkv + at.row * shape.in_width() + at.col;
        T *d = dqkv + at.row * shape.in_width() + at.col;
        const R scale = head_scale(shape, heads, x, gamma);
        const auto gradient = [&](int64_t c) { return get(d[c]); };
        R dot = 0;
        if (gamma)
            for_turned(shape, heads, rotation, at.in_sequence, true, gradient,
                       [&](int64_t c, R value) { dot += value * (get(gamma[c]) + heads.shift) * get(x[c]); });
        dot = warp_total<plus>(dot) * scale * scale / (R)size;
        for_turned(shape, heads, rotation, at.in_sequence, true, gradient, [&](int64_t c, R value) {
            if (gamma) mine[c] += value * get(x[c]) * scale;
            d[c] = put<T>(gamma ? scale * (value * (get(gamma[c]) + heads.shift) - get(x[c]) * dot) : value);
        });
    }
    __syncthreads();
    for (int64_t c = threadIdx.x; gamma && c < size; c += blockDim.x) {
        R sum = 0;
        for (int warp = 0; warp < turn_warps; warp++) sum += all[warp * size + c];
        sums[blockIdx.x * size + c] = sum;
    }
}

template <typename T>
cudaError_t launch_turn_back(const qdri_kernel *kernel, const qdri_cuda_target *target,
                             const turned_heads<real_of<T>> &heads, const T *gamma, real_of<T> *d_gamma)
{
    typedef real_of<T> R;
    const attention_shape shape = shape_of(kernel);
    const int64_t room = (int64_t)(QDRI_CUDA_SCRATCH_BYTES / sizeof(R)) / shape.head_size;
    const int64_t n_blocks = least(least(room, 8 * (int64_t)target->n_sms),
                                   ceil_div(shape.n_rows * heads.n, turn_warps));
    const size_t shared_bytes = gamma ? turn_warps * (size_t)shape.head_size * sizeof(R) : 0;
    R *sums = (R *)target->scratch;
    LAUNCH_TRY(launch(target, dim3((unsigned)n_blocks), dim3(turn_warps * 32), shared_bytes, turn_back<T>, shape, heads,
                      (const R *)kernel->u.attention.rotation, gamma, (const T *)kernel->u.attention.qkv,
                      (T *)kernel->u.attention.out, sums));
    if (!gamma) return cudaSuccess;
    return launch_column_sums<R>(target, 0, n_blocks, shape.head_size, sums, d_gamma, kernel->accumulate);
}

/* Copies queries and keys to the workspace, or turns their gradients back. */
template <typename T> cudaError_t launch_turns(const qdri_kernel *kernel, const qdri_cuda_target *target, bool back)
{
    typedef real_of<T> R;
    const attention_shape shape = shape_of(kernel);
    for (int keys = 0; keys < 2; keys++) {
        const turned_heads<R> heads = {
            keys ? shape.n_kv_heads : shape.n_heads,     keys ? shape.k_col(0) : 0,
            kernel->u.attention.rotary_columns,          kernel->u.attention.interleaved != 0,
            kernel->u.attention.one_plus ? (R)1 : -(R)0, (R)kernel->u.attention.epsilon};
        const T *gamma = (const T *)(keys ? kernel->u.attention.k_gamma : kernel->u.attention.q_gamma);
        if (back) {
            R *d_gamma = (R *)(keys ? kernel->u.attention.d_k_gamma : kernel->u.attention.d_q_gamma);
            LAUNCH_TRY(launch_turn_back<T>(kernel, target, heads, gamma, d_gamma));
        } else {
            LAUNCH_TRY(launch_each(target, shape.n_rows * heads.n * 32, turn<T>, shape, heads,
                                   (const R *)kernel->u.attention.rotation, gamma, (const T *)kernel->u.attention.qkv,
                                   turned_of<T>(kernel)));
        }
    }
    return cudaSuccess;
}

/* ---- sinks ---- */

/* One block for each query head: -Σ P(sink)·Σ P·dP over all rows. */
template <typename T>
__global__ void sum_sinks(attention_shape shape, const T *sinks, const real_of<T> *log_sums, const real_of<T> *deltas,
                          real_of<T> *d_sinks, bool accumulate)
{
    typedef real_of<T> R;
    const int64_t head = blockIdx.x;
    const R sink = get(sinks[head]);
    R sum = 0;
    for (int64_t row = threadIdx.x; row < shape.n_rows; row += blockDim.x) {
        const int64_t in_sequence = row % shape.context, i = shape.sums_at(head, row - in_sequence) + in_sequence;
        sum -= real_exp(sink - log_sums[i]) * deltas[i];
    }
    sum = row_total<plus>(sum);
    if (threadIdx.x == 0) d_sinks[head] = accumulate ? d_sinks[head] + sum : sum;
}

template <typename T> cudaError_t launch_sinks(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const attention_shape shape = shape_of(kernel);
    return launch(target, dim3((unsigned)shape.n_heads), dim3(block_threads), 0, sum_sinks<T>, shape,
                  (const T *)kernel->u.attention.sinks, (const real_of<T> *)kernel->u.attention.saved,
                  (const real_of<T> *)kernel->u.attention.work, (real_of<T> *)kernel->u.attention.d_sinks,
                  kernel->accumulate != 0);
}

/* ---- launches ---- */

template <typename T> scoring<real_of<T>> scoring_of(const qdri_kernel *kernel)
{
    return {(real_of<T>)kernel->u.attention.scale, (real_of<T>)kernel->u.attention.cap};
}

inline dim3 grid_of(const attention_shape &shape, int64_t n_heads)
{
    return dim3((unsigned)count_tiles(shape, n_heads, tile), (unsigned)ceil_div(shape.head_size, out_cols));
}

template <typename T, int D> cudaError_t launch_forward(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const attention_shape shape = shape_of(kernel);
    return launch(target, grid_of(shape, shape.n_heads), dim3(threads), 0, forward<T, D>, shape, scoring_of<T>(kernel),
                  (const T *)kernel->u.attention.sinks, qk_of<T>(kernel), (const T *)kernel->u.attention.qkv,
                  (T *)kernel->u.attention.out, (real_of<T> *)kernel->u.attention.saved);
}

template <typename T, int D> cudaError_t launch_backward(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    typedef real_of<T> R;
    const attention_shape shape = shape_of(kernel);
    const T *qk = qk_of<T>(kernel), *qkv = (const T *)kernel->u.attention.qkv;
    const T *dy = (const T *)kernel->u.attention.dy;
    const R *log_sums = (const R *)kernel->u.attention.saved;
    R *deltas = (R *)kernel->u.attention.work;
    T *dqkv = (T *)kernel->u.attention.out;
    LAUNCH_TRY(launch(target, grid_of(shape, shape.n_heads), dim3(threads), 0, backward_queries<T, D>, shape,
                      scoring_of<T>(kernel), qk, qkv, dy, log_sums, deltas, dqkv));
    return launch(target, grid_of(shape, shape.n_kv_heads), dim3(threads), 0, backward_keys<T, D>, shape,
                  scoring_of<T>(kernel), qk, qkv, dy, log_sums, deltas, dqkv);
}

template <typename T, int D> cudaError_t launch_either(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    return kernel->kind == QDRI_K_ATTENTION_FORWARD ? launch_forward<T, D>(kernel, target)
                                                    : launch_backward<T, D>(kernel, target);
}

template <typename T> cudaError_t launch_heads(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const cudaError_t error = qdri_cuda_attention_mma(kernel, target);
    if (error != cudaErrorNotSupported) return error;
    if (kernel->u.attention.head_size <= 32) return launch_either<T, 1>(kernel, target);
    if (kernel->u.attention.head_size <= 64) return launch_either<T, 2>(kernel, target);
    return launch_either<T, out_cols / 32>(kernel, target);
}

/* Gradients of parameters to which no row adds. */
cudaError_t clear_sums(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const size_t each = qdr_dtype_bytes(qdri_sum_type(kernel->dtype));
    const size_t n = (size_t)kernel->u.attention.head_size, n_heads = (size_t)kernel->u.attention.n_heads;
    if (kernel->u.attention.head_norm) {
        LAUNCH_TRY(cudaMemsetAsync(kernel->u.attention.d_q_gamma, 0, n * each, target->stream));
        LAUNCH_TRY(cudaMemsetAsync(kernel->u.attention.d_k_gamma, 0, n * each, target->stream));
    }
    if (!kernel->u.attention.has_sinks || n_heads == 0) return cudaSuccess;
    return cudaMemsetAsync(kernel->u.attention.d_sinks, 0, n_heads * each, target->stream);
}

/* One block; the first thread that finds an invalid first key writes it. */
__global__ void check_first_keys(attention_shape shape, qdri_cuda_fault *fault)
{
    int64_t row = shape.n_rows;
    for (int64_t r = threadIdx.x; r < row; r += blockDim.x) {
        const int32_t key = shape.first_keys[r];
        if (key < shape.least_first_key(r) || key > r % shape.context) row = r;
    }
    const int64_t first = -row_total<larger>(-row);
    if (threadIdx.x > 0 || first == shape.n_rows || atomicCAS(&fault->claimed, 0, 1) != 0) return;
    fault->kind = QDRI_FAULT_FIRST_KEY;
    fault->id = shape.first_keys[first];
    fault->least = shape.least_first_key(first);
    fault->row = first;
    fault->most = first % shape.context;
    __threadfence_system();
    *(volatile int32_t *)&fault->found = 1;
}

} // namespace

cudaError_t qdri_cuda_attention(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const attention_shape shape = shape_of(kernel);
    const size_t bytes = (size_t)(shape.n_rows * shape.in_width()) * qdr_dtype_bytes(kernel->dtype);
    const bool is_backward = kernel->kind == QDRI_K_ATTENTION_BACKWARD, turns = qdri_attention_turns(kernel);
    if (is_backward && !kernel->accumulate && (shape.n_rows == 0 || shape.n_heads == 0))
        LAUNCH_TRY(clear_sums(kernel, target));
    if (shape.n_rows == 0) return cudaSuccess;
    if (shape.first_keys)
        LAUNCH_TRY(launch(target, dim3(1), dim3(block_threads), 0, check_first_keys, shape, target->fault));
    if (shape.n_heads == 0) { /* the gradients of keys are zero */
        if (bytes == 0 || kernel->kind == QDRI_K_ATTENTION_FORWARD) return cudaSuccess;
        return cudaMemsetAsync(kernel->u.attention.out, 0, bytes, target->stream);
    }
    return with_type(kernel->dtype, [&](auto t) {
        typedef decltype(t) T;
        if (turns) LAUNCH_TRY(launch_turns<T>(kernel, target, false));
        LAUNCH_TRY(launch_heads<T>(kernel, target));
        if (is_backward && turns) LAUNCH_TRY(launch_turns<T>(kernel, target, true));
        return is_backward && kernel->u.attention.has_sinks ? launch_sinks<T>(kernel, target) : cudaSuccess;
    });
}
