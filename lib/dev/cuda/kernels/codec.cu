/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs: a few lanes of a warp for each block of elements. The arithmetic of integers is the CPU's, operation by
 * operation, and the products are not contracted, for the same bits (dev/cpu/kernels/codec.c). BITS = 0 is BF16, whose
 * blocks only divide the work. */
#include "core/codec_format.h"
#include "dev/cuda/kernels/launch.cuh"

namespace
{
constexpr unsigned whole_warp = ~0u;
template <int BLOCK> constexpr int each = BLOCK < 128 ? 4 : 8; /* elements of a lane */
template <int BLOCK> constexpr int lanes = BLOCK / each<BLOCK>; /* of a block */

/* ---- messages ---- */

struct message {
    int64_t n, run, run_bytes; /* n: of the longest of several */
    uint32_t run_blocks, n_blocks;
    uint64_t seed; /* of DECODE_SUM's message */
    float unit; /* 1/sqrt(block), by which a rotation multiplies */
    int flags;
    uint32_t signs[QDRI_CODEC_MOST_BLOCK / 32];
};

int64_t run_of(const qdri_kernel *kernel)
{
    const auto &codec = kernel->u.codec;
    return codec.run && codec.bits ? least(codec.run, codec.n) : codec.n;
}

int64_t count_blocks(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.codec.n, block = kernel->u.codec.block, run = run_of(kernel);
    return n / run * ceil_div(run, block) + ceil_div(n % run, block);
}

message message_of(const qdri_kernel *kernel)
{
    const int64_t run = run_of(kernel), block = kernel->u.codec.block, run_blocks = ceil_div(run, block);
    message m = {kernel->u.codec.n,
                 run,
                 run_blocks * (int64_t)sizeof(float) + ceil_div(run * kernel->u.codec.bits, 8),
                 (uint32_t)run_blocks,
                 (uint32_t)count_blocks(kernel),
                 kernel->u.codec.seed,
                 1 / sqrtf((float)block),
                 kernel->u.codec.flags,
                 {QDRI_CODEC_SIGNS(QDRI_CODEC_LISTED)}};
    return m;
}

/* A lane's place in a block, and the block's in the message. */
struct place {
    uint64_t seed; /* of the message */
    uint32_t number; /* of the block */
    int n, at, n_mine; /* elements of the block, the lane's first one, and how many it has */
    int64_t first; /* element of the block */
    int64_t scale_at, codes_at; /* bytes; the lane's codes */
};

template <int BLOCK, int BITS> __device__ place find_place(const message &m, int64_t n_elems, uint64_t seed)
{
    constexpr int V = each<BLOCK>;
    const uint32_t number = (blockIdx.x * blockDim.x + threadIdx.x) / lanes<BLOCK>;
    const uint32_t run = m.run_blocks == m.n_blocks ? 0 : number / m.run_blocks, b = number - run * m.run_blocks;
    const int64_t run_first = run * m.run, left = n_elems - run_first, run_n = left < m.run ? left : m.run;
    const int64_t rest = run_n - (int64_t)b * BLOCK, run_at = run * m.run_bytes;
    const int64_t scales_bytes = (run_n + BLOCK - 1) / BLOCK * (int64_t)sizeof(float);
    const int n = rest < 0 ? 0 : rest < BLOCK ? (int)rest : BLOCK;
    const int at = threadIdx.x % lanes<BLOCK> * V, mine = n - at;
    return {seed,
            number,
            n,
            at,
            mine < 0   ? 0
            : mine < V ? mine
                       : V,
            run_first + (int64_t)b * BLOCK,
            run_at + b * (int64_t)sizeof(float),
            run_at + scales_bytes + (int64_t)b * (BLOCK * BITS / 8) + at * BITS / 8};
}

template <typename W> __device__ bool is_aligned(const void *at) { return (uintptr_t)at % sizeof(W) == 0; }

/* n of the bytes of a word. */
__device__ uint32_t read_word(const char *from, int n)
{
    uint32_t word = 0;
    if (n >= 4 && is_aligned<uint32_t>(from)) return *(const uint32_t *)from;
    if (n == 2 && is_aligned<uint16_t>(from)) return *(const uint16_t *)from;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < n) word |= (uint32_t)(unsigned char)from[i] << 8 * i;
    return word;
}

__device__ void write_word(char *to, int n, uint32_t word)
{
    if (n >= 4 && is_aligned<uint32_t>(to)) {
        *(uint32_t *)to = word;
    } else if (n == 2 && is_aligned<uint16_t>(to)) {
        *(uint16_t *)to = (uint16_t)word;
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (i < n) to[i] = (char)(word >> 8 * i);
    }
}

/* ---- elements ---- */

template <int V> struct numbers {
    float at[V];
};

template <int BLOCK, typename T> __device__ numbers<each<BLOCK>> load_block(const T *x, const place &p)
{
    constexpr int V = each<BLOCK>;
    const T *mine = x + p.first + p.at;
    numbers<V> wide;
    const pack<T, V> all = load<V>(mine, 0, p.n_mine, (uintptr_t)mine % alignof(pack<T, V>) == 0);
#pragma unroll
    for (int k = 0; k < V; k++) wide.at[k] = get(all.at[k]);
    return wide;
}

template <int BLOCK, typename T> __device__ void store_block(T *y, const place &p, const numbers<each<BLOCK>> &x)
{
    constexpr int V = each<BLOCK>;
    T *mine = y + p.first + p.at;
    pack<T, V> all;
#pragma unroll
    for (int k = 0; k < V; k++) all.at[k] = put<T>(x.at[k]);
    store<V>(mine, 0, p.n_mine, (uintptr_t)mine % alignof(pack<T, V>) == 0, all);
}

/* ---- rotation ---- */

template <int BLOCK> __device__ void flip(const message &m, const place &p, numbers<each<BLOCK>> &x)
{
#pragma unroll
    for (int k = 0; k < each<BLOCK>; k++) {
        const int i = p.at + k;
        x.at[k] = __uint_as_float(__float_as_uint(x.at[k]) ^ (m.signs[i / 32] << i % 32 & 0x80000000u));
    }
}

/* By all lanes of a warp. */
template <int BLOCK> __device__ void rotate(const message &m, const place &p, numbers<each<BLOCK>> &x)
{
    constexpr int V = each<BLOCK>;
#pragma unroll
    for (int k = 0; k < V; k++) x.at[k] = __fmul_rn(x.at[k], m.unit);
#pragma unroll
    for (int half = 1; half < V; half *= 2) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            if (k & half) continue;
            const float a = x.at[k], b = x.at[k + half];
            x.at[k] = a + b;
            x.at[k + half] = a - b;
        }
    }
#pragma unroll
    for (int half = V; half < BLOCK; half *= 2) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            const float other = __shfl_xor_sync(whole_warp, x.at[k], half / V);
            x.at[k] = p.at & half ? other - x.at[k] : x.at[k] + other;
        }
    }
}

/* ---- codes ---- */

/* The bits of max |x| of the block. By all lanes of a warp. */
template <int BLOCK> __device__ uint32_t max_bits(const numbers<each<BLOCK>> &x)
{
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < each<BLOCK>; k++) {
        const uint32_t bits = __float_as_uint(x.at[k]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
#pragma unroll
    for (int step = 1; step < lanes<BLOCK>; step *= 2) {
        const uint32_t other = __shfl_xor_sync(whole_warp, most, step);
        most = other > most ? other : most;
    }
    return most;
}

__device__ float scale_of(float most, float levels)
{
    const float scale = most / levels;
    const bool is_above = (__float_as_uint(__fmul_rn(scale, levels)) & 0x7fffffffu) >= QDRI_CODEC_ABOVE_FINITE;
    return is_above ? __uint_as_float(__float_as_uint(scale) - 1) : scale;
}

__device__ int32_t nearest(float x)
{
    return (int32_t)(__float_as_uint(x + QDRI_CODEC_ROUND) - __float_as_uint(QDRI_CODEC_ROUND));
}

__device__ int32_t nearest_at_random(const place &p, int i, float x, int levels)
{
    uint64_t x_bits;
    const uint64_t bits = QDRI_CODEC_RANDOM(p.seed, (uint64_t)p.number * QDRI_CODEC_WORDS + (uint64_t)i / 4, x_bits);
    const float up = __fmul_rn((float)(int16_t)(bits >> i % 4 * 16), 0x1p-16f);
    const int32_t code = nearest(x + up);
    return code > levels ? levels : code < -levels ? -levels : code;
}

/* Those of a lane. */
template <int BLOCK, int BITS> struct codes {
    static constexpr int n_bytes = each<BLOCK> * BITS / 8, n_words = (n_bytes + 3) / 4, per_word = 32 / BITS;
    uint32_t words[n_words];

    __device__ void set(int k, int32_t code)
    {
        words[k / per_word] |= ((uint32_t)code & ((1u << BITS) - 1)) << k % per_word * BITS;
    }
    __device__ int32_t get(int k) const
    {
        return (int32_t)(words[k / per_word] << (32 - BITS - k % per_word * BITS)) >> (32 - BITS);
    }
    __device__ void read(const char *from, int n_mine)
    {
        const int bytes = (n_mine * BITS + 7) / 8;
        if constexpr (n_words > 1) {
            using wide = words_type<4 * n_words>;
            if (bytes == n_bytes && is_aligned<wide>(from)) {
                const wide all = *(const wide *)from;
                memcpy(words, &all, sizeof all);
                return;
            }
        }
#pragma unroll
        for (int i = 0; i < n_words; i++) words[i] = read_word(from + 4 * i, bytes - 4 * i);
    }
    __device__ void write(char *to, int n_mine) const
    {
        const int bytes = (n_mine * BITS + 7) / 8;
        if constexpr (n_words > 1) {
            using wide = words_type<4 * n_words>;
            if (bytes == n_bytes && is_aligned<wide>(to)) {
                wide all;
                memcpy(&all, words, sizeof all);
                *(wide *)to = all;
                return;
            }
        }
#pragma unroll
        for (int i = 0; i < n_words; i++) write_word(to + 4 * i, bytes - 4 * i, words[i]);
    }
};

/* ---- blocks, by all lanes of a warp ---- */

template <int BLOCK, int BITS>
__device__ numbers<each<BLOCK>> decode_codes(const message &m, const place &p, const codes<BLOCK, BITS> &coded,
                                             float scale)
{
    constexpr int V = each<BLOCK>;
    numbers<V> x;
#pragma unroll
    for (int k = 0; k < V; k++) x.at[k] = __fmul_rn((float)coded.get(k), scale);
    if (!(m.flags & QDR_CODEC_HADAMARD)) return x;
    numbers<V> turned = x;
    rotate<BLOCK>(m, p, turned);
    flip<BLOCK>(m, p, turned);
    return p.n == BLOCK ? turned : x;
}

template <int BLOCK, int BITS>
__device__ numbers<each<BLOCK>> decode_block(const message &m, const place &p, const char *wire)
{
    codes<BLOCK, BITS> coded = {};
    const float scale = p.n > 0 ? __uint_as_float(read_word(wire + p.scale_at, 4)) : 0;
    coded.read(wire + p.codes_at, p.n_mine);
    return decode_codes(m, p, coded, scale);
}

/* What the block's message loses of x. */
template <int BLOCK>
__device__ void keep_lost(const place &p, const numbers<each<BLOCK>> &x, const numbers<each<BLOCK>> &got, float scale,
                          float *lost)
{
    constexpr int V = each<BLOCK>;
    numbers<V> left;
#pragma unroll
    for (int k = 0; k < V; k++) left.at[k] = scale == 0 ? 0 : x.at[k] - got.at[k];
    if (scale >= 0) store_block<BLOCK>(lost, p, left);
}

/* Writes the block's message, and returns what it decodes to. lost: NULL or what is added to x, and then kept. */
template <int BLOCK, int BITS>
__device__ numbers<each<BLOCK>> encode_block(const message &m, const place &p, numbers<each<BLOCK>> x, float *lost,
                                             char *wire)
{
    constexpr int V = each<BLOCK>;
    if (lost) {
        const numbers<V> more = load_block<BLOCK>(lost, p);
#pragma unroll
        for (int k = 0; k < V; k++) x.at[k] = x.at[k] + more.at[k];
    }
    numbers<V> turned = x;
    if (m.flags & QDR_CODEC_HADAMARD) {
        flip<BLOCK>(m, p, turned);
        rotate<BLOCK>(m, p, turned);
        if (p.n < BLOCK) turned = x;
    }
    const uint32_t most = max_bits<BLOCK>(turned);
    constexpr int levels = (1 << (BITS - 1)) - 1;
    codes<BLOCK, BITS> coded = {};
    const uint32_t limit = m.flags & QDR_CODEC_HADAMARD ? QDRI_CODEC_ABOVE_ROTATED : QDRI_CODEC_ABOVE_FINITE;
    float scale = most >= limit ? __uint_as_float(QDRI_CODEC_NAN) : 0;
    if (most >= QDRI_CODEC_LEAST_MAX && most < limit) {
        const float inverse = (float)levels / __uint_as_float(most);
        scale = scale_of(__uint_as_float(most), (float)levels);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const float steps = __fmul_rn(turned.at[k], inverse);
            coded.set(k,
                      m.flags & QDR_CODEC_STOCHASTIC ? nearest_at_random(p, p.at + k, steps, levels) : nearest(steps));
        }
    }
    if (p.n > 0 && p.at == 0) write_word(wire + p.scale_at, 4, __float_as_uint(scale));
    coded.write(wire + p.codes_at, p.n_mine);
    const numbers<V> got = decode_codes(m, p, coded, scale);
    if (lost) keep_lost<BLOCK>(p, x, got, scale, lost);
    return got;
}

/* ---- blocks of any codec ---- */

template <int BLOCK, int BITS>
__device__ numbers<each<BLOCK>> read_block(const message &m, const place &p, const char *wire)
{
    if constexpr (BITS == 0) {
        return load_block<BLOCK>((const bf16 *)wire, p);
    } else {
        return decode_block<BLOCK, BITS>(m, p, wire);
    }
}

/* As encode_block(). */
template <int BLOCK, int BITS>
__device__ numbers<each<BLOCK>> write_block(const message &m, const place &p, numbers<each<BLOCK>> x, float *lost,
                                            char *wire)
{
    if constexpr (BITS == 0) {
        store_block<BLOCK>((bf16 *)wire, p, x);
#pragma unroll
        for (int k = 0; k < each<BLOCK>; k++) x.at[k] = get(put<bf16>(x.at[k]));
        return x;
    } else {
        return encode_block<BLOCK, BITS>(m, p, x, lost, wire);
    }
}

/* ---- kernels ---- */

/* Several messages: one for each row of thread blocks. */
template <int BLOCK, int BITS, typename T>
__global__ void encode(const __grid_constant__ message m, const __grid_constant__ qdri_cuda_code_parts parts)
{
    const qdri_code_part &part = parts.at[blockIdx.y];
    const place p = find_place<BLOCK, BITS>(m, part.n, part.seed);
    write_block<BLOCK, BITS>(m, p, load_block<BLOCK>((const T *)part.x, p), part.feedback, (char *)part.wire);
}

template <int BLOCK, int BITS, typename T>
__global__ void decode(const __grid_constant__ message m, const __grid_constant__ qdri_cuda_code_parts parts,
                       bool accumulate)
{
    constexpr int V = each<BLOCK>;
    const qdri_code_part &part = parts.at[blockIdx.y];
    const place p = find_place<BLOCK, BITS>(m, part.n, 0);
    numbers<V> x = read_block<BLOCK, BITS>(m, p, (const char *)part.wire);
    T *y = (T *)part.y;
    if (accumulate) {
        const numbers<V> old = load_block<BLOCK>(y, p);
#pragma unroll
        for (int k = 0; k < V; k++) x.at[k] = old.at[k] + x.at[k];
    }
    store_block<BLOCK>(y, p, x);
}

struct message_list {
    int n, own;
    int64_t stride;
};

template <int BLOCK, int BITS, typename T>
__global__ void decode_sum(const __grid_constant__ message m, message_list list, const char *sources, const T *x,
                           char *wire, T *y, float *lost)
{
    constexpr int V = each<BLOCK>;
    const place p = find_place<BLOCK, BITS>(m, m.n, m.seed);
    numbers<V> total;
    for (int s = 0; s < list.n; s++) {
        const int at = s - (list.own >= 0 && s > list.own);
        const numbers<V> more = s == list.own ? load_block<BLOCK>(x, p)
                                              : read_block<BLOCK, BITS>(m, p, sources + at * list.stride);
#pragma unroll
        for (int k = 0; k < V; k++) total.at[k] = s ? total.at[k] + more.at[k] : more.at[k];
    }
    if (wire) total = write_block<BLOCK, BITS>(m, p, total, lost, wire);
    store_block<BLOCK>(y, p, total);
}

/* One thread for each of n > 0 items of each message. */
template <typename... A>
cudaError_t launch_parts(const qdri_cuda_target *target, int64_t n, const qdri_kernel *kernel,
                         void (*code)(message, qdri_cuda_code_parts, A...), A... more)
{
    const auto &codec = kernel->u.codec;
    const unsigned threads = threads_for(n);
    const int n_parts = codec.n_parts ? codec.n_parts : 1;
    qdri_cuda_code_parts parts = {{{codec.n, codec.seed, codec.x, codec.wire, codec.y, codec.feedback}}};
    for (int i = 0; i < codec.n_parts; i++) parts.at[i] = codec.parts[i];
    return launch(target, dim3((unsigned)ceil_div(n, threads), (unsigned)n_parts), dim3(threads), 0, code,
                  message_of(kernel), parts, more...);
}

template <int BLOCK, int BITS, typename T>
cudaError_t launch_codec(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    const message m = message_of(kernel);
    const int64_t n_threads = (int64_t)m.n_blocks * lanes<BLOCK>;
    const auto &codec = kernel->u.codec;
    if (kernel->kind == QDRI_K_ENCODE) return launch_parts(target, n_threads, kernel, encode<BLOCK, BITS, T>);
    if (kernel->kind == QDRI_K_DECODE)
        return launch_parts(target, n_threads, kernel, decode<BLOCK, BITS, T>, kernel->accumulate != 0);
    const message_list list = {codec.n_sources, codec.own, (int64_t)codec.stride};
    return launch_each(target, n_threads, decode_sum<BLOCK, BITS, T>, m, list, (const char *)codec.sources,
                       (const T *)codec.x, (char *)codec.wire, (T *)codec.y, codec.feedback);
}

template <int BLOCK, typename T> cudaError_t launch_bits(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    switch (kernel->u.codec.bits) {
    case 4: return launch_codec<BLOCK, 4, T>(kernel, target);
    case 8: return launch_codec<BLOCK, 8, T>(kernel, target);
    case 16: return launch_codec<BLOCK, 16, T>(kernel, target);
    default: return cudaErrorNotSupported;
    }
}

template <typename T> cudaError_t launch_type(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    switch (kernel->u.codec.block) {
    case 32: return launch_bits<32, T>(kernel, target);
    case 64: return launch_bits<64, T>(kernel, target);
    case 128: return launch_bits<128, T>(kernel, target);
    case 256: return launch_bits<256, T>(kernel, target);
    default: return cudaErrorNotSupported;
    }
}
} // namespace

cudaError_t qdri_cuda_codec(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    if (kernel->u.codec.n == 0) return cudaSuccess;
    if (count_blocks(kernel) > UINT32_MAX / 32) return cudaErrorInvalidValue; /* threads are counted in 32 bits */
    if (kernel->u.codec.bits == 0) return launch_codec<128, 0, float>(kernel, target);
    switch (kernel->dtype) {
    case QDR_F32: return launch_type<float>(kernel, target);
    case QDR_BF16: return launch_type<bf16>(kernel, target);
    case QDR_F16: return launch_type<f16>(kernel, target);
    default: return cudaErrorNotSupported;
    }
}
