/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of integers: blocks of elements as an fp32 scale and small integers, see quadrille/codec.h. All arithmetic is
 * in fp32, element by element and without contraction, so that every instruction set gives the same bits. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/codec_format.h"
#include "dev/cpu/kernels/kernels.h"
#include "dev/cpu/narrow.h"

#define PRAGMA(text) _Pragma(#text)
#define SIMD PRAGMA(omp simd)

enum { MOST_BLOCK = QDRI_CODEC_MOST_BLOCK };

/* ---- elements ---- */

/* To fp32 and back, or added to what is there. */
#define NARROW(type)                                                                                                   \
    static void load_##type(const uint16_t *narrow, int n, float *wide)                                                \
    {                                                                                                                  \
        SIMD for (int i = 0; i < n; i++) wide[i] = qdri_##type##_load(narrow[i]);                                      \
    }                                                                                                                  \
    static void store_##type(uint16_t *narrow, int n, const float *wide)                                               \
    {                                                                                                                  \
        SIMD for (int i = 0; i < n; i++) narrow[i] = qdri_##type##_round(wide[i]);                                     \
    }                                                                                                                  \
    static void add_##type(uint16_t *narrow, int n, const float *wide)                                                 \
    {                                                                                                                  \
        SIMD for (int i = 0; i < n; i++) narrow[i] = qdri_##type##_round(qdri_##type##_load(narrow[i]) + wide[i]);     \
    }
NARROW(bf16)
NARROW(f16)

static void add_f32(float *y, int n, const float *x) { SIMD for (int i = 0; i < n; i++) y[i] += x[i]; }

/* n elements in fp32; kept in `own` unless they are. */
static const float *load(const void *x, qdr_dtype dtype, int n, float own[MOST_BLOCK])
{
    if (dtype == QDR_F32) return x;
    if (dtype == QDR_BF16)
        load_bf16(x, n, own);
    else
        load_f16(x, n, own);
    return own;
}

static void store(void *y, qdr_dtype dtype, int n, const float *x, int accumulate)
{
    if (dtype == QDR_F32 && accumulate)
        add_f32(y, n, x);
    else if (dtype == QDR_F32)
        memcpy(y, x, (size_t)n * sizeof *x);
    else if (dtype == QDR_BF16)
        accumulate ? add_bf16(y, n, x) : store_bf16(y, n, x);
    else
        accumulate ? add_f16(y, n, x) : store_f16(y, n, x);
}

static uint64_t random_bits(uint64_t seed, uint64_t counter)
{
    uint64_t x;
    return QDRI_CODEC_RANDOM(seed, counter, x);
}

/* ---- rotation ---- */

typedef float floats __attribute__((vector_size(32)));
typedef int32_t masks __attribute__((vector_size(32)));
enum { N_FLOATS = 8, MOST_VECTORS = MOST_BLOCK / N_FLOATS, MINUS = INT32_MIN };

/* Multiplies n elements by the signs of their places; y may be x. */
static void flip(const float *x, int n, float *y)
{
    static const uint32_t signs[] = QDRI_CODEC_SIGNS;
    for (int i = 0; i < n; i += 32) {
        SIMD for (int j = 0; j < 32; j++)
            y[i + j] = qdri_float_of_bits(qdri_float_bits(x[i + j]) ^ (signs[i / 32] << j & 0x80000000u));
    }
}

/* Replaces elements j and j + half, where bit `half` of j is 0, by their sum and difference. */
static inline void within(floats *all)
{
    floats x = *all;
    x = __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6) +
        (floats)((masks)x ^ (masks){0, MINUS, 0, MINUS, 0, MINUS, 0, MINUS});
    x = __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5) +
        (floats)((masks)x ^ (masks){0, 0, MINUS, MINUS, 0, 0, MINUS, MINUS});
    *all = __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3) +
           (floats)((masks)x ^ (masks){0, 0, 0, 0, MINUS, MINUS, MINUS, MINUS});
}

/* The same for vectors that are `half`, and then 2·half, apart. */
static inline void among_four(floats *x, ptrdiff_t half)
{
    const floats a = x[0] + x[half], b = x[0] - x[half], c = x[2 * half] + x[3 * half], d = x[2 * half] - x[3 * half];
    x[0] = a + c;
    x[half] = b + d;
    x[2 * half] = a - c;
    x[3 * half] = b - d;
}

static inline void between_two(floats *x, ptrdiff_t half)
{
    const floats a = x[0], b = x[half];
    x[0] = a + b;
    x[half] = a - b;
}

/* For a constant n_vectors, all loops are unrolled. */
static inline __attribute__((always_inline)) void transform_vectors(float *x, ptrdiff_t n_vectors)
{
    floats all[MOST_VECTORS];
    const float unit = 1 / sqrtf((float)((int)n_vectors * N_FLOATS)); /* first, lest it overflow */
    ptrdiff_t half = 4;
    PRAGMA(GCC unroll 8)
    for (ptrdiff_t i = 0; i < n_vectors; i += 4) {
        PRAGMA(GCC unroll 4)
        for (ptrdiff_t j = i; j < i + 4; j++) {
            memcpy(&all[j], x + j * N_FLOATS, sizeof *all);
            all[j] *= unit;
            within(&all[j]);
        }
        among_four(all + i, 1);
    }
    PRAGMA(GCC unroll 2)
    for (; 4 * half <= n_vectors; half *= 4) {
        PRAGMA(GCC unroll 8)
        for (ptrdiff_t i = 0; i < n_vectors / 4; i++) among_four(all + i / half * 4 * half + i % half, half);
    }
    PRAGMA(GCC unroll 16)
    for (ptrdiff_t i = 0; i < n_vectors - half; i++) between_two(all + i, half);
    PRAGMA(GCC unroll 32)
    for (ptrdiff_t i = 0; i < n_vectors; i++) memcpy(x + i * N_FLOATS, &all[i], sizeof *all);
}

/* The Walsh-Hadamard transform of n elements, 32 to 256, scaled so that it is its own inverse. */
static void transform(float *x, int n)
{
    if (n == 32) transform_vectors(x, 4);
    if (n == 64) transform_vectors(x, 8);
    if (n == 128) transform_vectors(x, 16);
    if (n == 256) transform_vectors(x, 32);
}

/* ---- codes ---- */

/* A block of a message, for what depends on more than its elements. */
typedef struct block_place {
    int bits, block, flags;
    uint64_t seed;
    int64_t number; /* of the block in the message */
} block_place;

/* The bits of max |x|: more than those of any finite number if one is NaN or Inf. */
static uint32_t max_bits(const float *x, int n)
{
    int32_t most = 0;
    PRAGMA(omp simd reduction(max : most))
    for (int i = 0; i < n; i++) {
        const int32_t bits = (int32_t)(qdri_float_bits(x[i]) & 0x7fffffffu);
        most = bits > most ? bits : most;
    }
    return (uint32_t)most;
}

/* levels * scale may not overflow. */
static float scale_of(float most, float levels)
{
    const float scale = most / levels;
    const int is_above = (qdri_float_bits(scale * levels) & 0x7fffffffu) >= QDRI_CODEC_ABOVE_FINITE;
    return is_above ? qdri_float_of_bits(qdri_float_bits(scale) - 1) : scale;
}

static inline int32_t nearest(float x)
{
    return (int32_t)(qdri_float_bits(x + QDRI_CODEC_ROUND) - qdri_float_bits(QDRI_CODEC_ROUND));
}

#define QUANTISE(name, type)                                                                                           \
    static void name(const float *x, int n, float inverse, type *codes)                                                \
    {                                                                                                                  \
        SIMD for (int i = 0; i < n; i++) codes[i] = (type)nearest(x[i] * inverse);                                     \
    }                                                                                                                  \
    static void un##name(const type *codes, int n, float scale, float *x)                                              \
    {                                                                                                                  \
        SIMD for (int i = 0; i < n; i++) x[i] = (float)codes[i] * scale;                                               \
    }
QUANTISE(quantise8, int8_t)
QUANTISE(quantise16, int16_t)

/* Of two codes the first in the lower half of the byte. */
static void pack4(const int8_t *codes, int n, uint8_t *wire)
{
    SIMD for (ptrdiff_t i = 0; i < n / 2; i++)
        wire[i] = (uint8_t)(((uint8_t)codes[2 * i] & 15) | (uint8_t)codes[2 * i + 1] << 4);
    if (n % 2) wire[n / 2] = (uint8_t)codes[n - 1] & 15;
}

static void unpack4(const uint8_t *wire, int n, int8_t *codes)
{
    SIMD for (ptrdiff_t i = 0; i < n / 2; i++)
    {
        codes[2 * i] = (int8_t)((int8_t)(wire[i] << 4) >> 4);
        codes[2 * i + 1] = (int8_t)((int8_t)wire[i] >> 4);
    }
    if (n % 2) codes[n - 1] = (int8_t)((int8_t)(wire[n / 2] << 4) >> 4);
}

static size_t code_bytes(int bits, int64_t n) { return (size_t)((n * bits + 7) / 8); }

/* Rounds up or down, up with the probability that makes the mean right. */
static void quantise_at_random(const float *x, int n, float inverse, int levels, const int16_t *up, int16_t *codes)
{
    SIMD for (int i = 0; i < n; i++)
    {
        const float moved = x[i] * inverse + (float)up[i] * 0x1p-16f; /* up: -0.5 to 0.5 */
        const int32_t code = nearest(moved);
        codes[i] = (int16_t)(code > levels ? levels : code < -levels ? -levels : code);
    }
}

static void write_codes(const int16_t *codes, int n, int bits, void *wire)
{
    int8_t small[MOST_BLOCK];
    if (bits == 16) {
        memcpy(wire, codes, code_bytes(bits, n));
        return;
    }
    SIMD for (int i = 0; i < n; i++) small[i] = (int8_t)codes[i];
    if (bits == 8)
        memcpy(wire, small, code_bytes(bits, n));
    else
        pack4(small, n, wire);
}

static void encode_at_random(const float *x, int n, float inverse, const block_place *place, void *wire)
{
    uint64_t bits[QDRI_CODEC_WORDS];
    int16_t up[MOST_BLOCK], codes[MOST_BLOCK];
    for (int i = 0; i < (n + 3) / 4; i++)
        bits[i] = random_bits(place->seed, (uint64_t)place->number * QDRI_CODEC_WORDS + (uint64_t)i);
    memcpy(up, bits, (size_t)n * sizeof *up);
    quantise_at_random(x, n, inverse, (1 << (place->bits - 1)) - 1, up, codes);
    write_codes(codes, n, place->bits, wire);
}

/* ---- one block ---- */

/* @return the block's scale */
static float encode_block(const float *x, int n, const block_place *place, void *wire)
{
    const uint32_t most = max_bits(x, n);
    const float levels = (float)((1 << (place->bits - 1)) - 1);
    if (most >= QDRI_CODEC_ABOVE_FINITE || most < QDRI_CODEC_LEAST_MAX) {
        memset(wire, 0, code_bytes(place->bits, n));
        return most >= QDRI_CODEC_ABOVE_FINITE ? qdri_float_of_bits(QDRI_CODEC_NAN) : 0;
    }
    const float inverse = levels / qdri_float_of_bits(most);
    if (place->flags & QDR_CODEC_STOCHASTIC) {
        encode_at_random(x, n, inverse, place, wire);
    } else if (place->bits == 8) {
        quantise8(x, n, inverse, wire);
    } else if (place->bits == 16) {
        int16_t codes[MOST_BLOCK];
        quantise16(x, n, inverse, codes);
        memcpy(wire, codes, code_bytes(16, n));
    } else {
        int8_t codes[MOST_BLOCK];
        quantise8(x, n, inverse, codes);
        pack4(codes, n, wire);
    }
    return scale_of(qdri_float_of_bits(most), levels);
}

static void decode_codes(const void *wire, int n, int bits, float scale, float *x)
{
    if (bits == 8) {
        unquantise8(wire, n, scale, x);
    } else if (bits == 16) {
        int16_t codes[MOST_BLOCK];
        memcpy(codes, wire, code_bytes(bits, n));
        unquantise16(codes, n, scale, x);
    } else {
        int8_t codes[MOST_BLOCK];
        unpack4(wire, n, codes);
        unquantise8(codes, n, scale, x);
    }
}

/* Whether a block is rotated: one that is shorter than the others is not. */
static int is_rotated(const block_place *place, int n)
{
    return (place->flags & QDR_CODEC_HADAMARD) && n == place->block;
}

static void decode_block(const void *wire, int n, const block_place *place, float scale, float *x)
{
    decode_codes(wire, n, place->bits, scale, x);
    if (!is_rotated(place, n)) return;
    transform(x, n);
    flip(x, n, x);
}

/* What this message loses is added to the next one; what a block that is all NaN loses is not known. */
static void keep_lost(const float *wanted, const void *wire, int n, const block_place *place, float scale, float *lost)
{
    _Alignas(64) float got[MOST_BLOCK];
    if (!(scale >= 0)) return;
    if (scale == 0) {
        memset(lost, 0, (size_t)n * sizeof *lost);
        return;
    }
    decode_block(wire, n, place, scale, got);
    SIMD for (int i = 0; i < n; i++) lost[i] = wanted[i] - got[i];
}

/* x may be changed if it is `own`. */
static float encode_elements(const float *x, int n, const block_place *place, float *lost, float own[MOST_BLOCK],
                             void *wire)
{
    _Alignas(64) float turned[MOST_BLOCK];
    const float *coded = x;
    if (lost) {
        SIMD for (int i = 0; i < n; i++) own[i] = x[i] + lost[i];
        coded = x = own;
    }
    if (is_rotated(place, n)) {
        flip(x, n, turned);
        transform(turned, n);
        coded = turned;
    }
    const float scale = encode_block(coded, n, place, wire);
    if (lost) keep_lost(x, wire, n, place, scale, lost);
    return scale;
}

/* ---- messages ---- */

/* The next block of a message: its elements, and where its scale and its codes are. */
typedef struct block_walk {
    int64_t left, run_left, run; /* elements */
    block_place place;
    size_t scale_at, codes_at; /* bytes of the wire format */
} block_walk;

static void begin_run(block_walk *walk)
{
    const int64_t n_blocks = ((walk->run < walk->left ? walk->run : walk->left) + walk->place.block - 1) /
                             walk->place.block;
    walk->run_left = walk->run < walk->left ? walk->run : walk->left;
    walk->scale_at = walk->codes_at;
    walk->codes_at += (size_t)n_blocks * sizeof(float);
}

static block_walk begin(const qdri_kernel *kernel)
{
    block_walk walk = {.left = kernel->u.codec.n,
                       .run = kernel->u.codec.run ? kernel->u.codec.run : kernel->u.codec.n,
                       .place = {.bits = kernel->u.codec.bits,
                                 .block = kernel->u.codec.block,
                                 .flags = kernel->u.codec.flags,
                                 .seed = kernel->u.codec.seed}};
    if (walk.left > 0) begin_run(&walk);
    return walk;
}

/* Elements of the next block; 0: none is left. */
static int size_of(const block_walk *walk)
{
    return (int)(walk->run_left < walk->place.block ? walk->run_left : walk->place.block);
}

static void step(block_walk *walk, int n)
{
    walk->left -= n;
    walk->run_left -= n;
    walk->place.number++;
    walk->scale_at += sizeof(float);
    walk->codes_at += code_bytes(walk->place.bits, n);
    if (walk->run_left == 0 && walk->left > 0) begin_run(walk);
}

static void encode(const qdri_kernel *kernel)
{
    const size_t each = qdr_dtype_bytes(kernel->dtype);
    const char *x = kernel->u.codec.x;
    char *wire = kernel->u.codec.wire;
    _Alignas(64) float own[MOST_BLOCK], *lost = kernel->u.codec.feedback;
    block_walk walk = begin(kernel);
    for (int n; (n = size_of(&walk)) > 0; step(&walk, n)) {
        const float scale = encode_elements(load(x, kernel->dtype, n, own), n, &walk.place, lost, own,
                                            wire + walk.codes_at);
        memcpy(wire + walk.scale_at, &scale, sizeof scale);
        x += (size_t)n * each;
        if (lost) lost += n;
    }
}

static void decode(const qdri_kernel *kernel)
{
    const size_t each = qdr_dtype_bytes(kernel->dtype);
    const char *wire = kernel->u.codec.wire;
    char *y = kernel->u.codec.y;
    _Alignas(64) float x[MOST_BLOCK];
    block_walk walk = begin(kernel);
    for (int n; (n = size_of(&walk)) > 0; step(&walk, n)) {
        float scale;
        memcpy(&scale, wire + walk.scale_at, sizeof scale);
        decode_block(wire + walk.codes_at, n, &walk.place, scale, x);
        store(y, kernel->dtype, n, x, kernel->u.codec.accumulate);
        y += (size_t)n * each;
    }
}

/* The block of one source in fp32; kept in `own` unless it is stored so. */
static const float *source_block(const qdri_kernel *kernel, const block_walk *walk, int source, const char *x, int n,
                                 float own[MOST_BLOCK])
{
    const int mine = kernel->u.codec.own, message = source - (mine >= 0 && source > mine);
    if (source == mine) return load(x, kernel->dtype, n, own);
    const char *wire = (const char *)kernel->u.codec.sources + (size_t)message * kernel->u.codec.stride;
    float scale;
    memcpy(&scale, wire + walk->scale_at, sizeof scale);
    decode_block(wire + walk->codes_at, n, &walk->place, scale, own);
    return own;
}

static void sum_block(const qdri_kernel *kernel, const block_walk *walk, const char *x, int n, float *total)
{
    _Alignas(64) float own[MOST_BLOCK];
    memcpy(total, source_block(kernel, walk, 0, x, n, own), (size_t)n * sizeof *total);
    for (int i = 1; i < kernel->u.codec.n_sources; i++) {
        const float *more = source_block(kernel, walk, i, x, n, own);
        SIMD for (int j = 0; j < n; j++) total[j] += more[j];
    }
}

static void decode_sum(const qdri_kernel *kernel)
{
    const size_t each = qdr_dtype_bytes(kernel->dtype);
    const char *x = kernel->u.codec.own >= 0 ? kernel->u.codec.x : NULL;
    char *y = kernel->u.codec.y, *wire = kernel->u.codec.wire;
    _Alignas(64) float total[MOST_BLOCK], *lost = kernel->u.codec.feedback;
    block_walk walk = begin(kernel);
    for (int n; (n = size_of(&walk)) > 0; step(&walk, n)) {
        sum_block(kernel, &walk, x, n, total);
        if (wire) {
            const float scale = encode_elements(total, n, &walk.place, lost, total, wire + walk.codes_at);
            memcpy(wire + walk.scale_at, &scale, sizeof scale);
            decode_block(wire + walk.codes_at, n, &walk.place, scale, total);
        }
        store(y, kernel->dtype, n, total, 0);
        if (x) x += (size_t)n * each;
        y += (size_t)n * each;
        if (wire && lost) lost += n;
    }
}

#define NAME_(name, isa) name##_##isa
#define NAME(name, isa) NAME_(name, isa)

const qdri_kernel_fn NAME(qdri_codec_kernels, QDRI_ISA)[QDRI_N_KERNELS] = {
    [QDRI_K_ENCODE] = encode,
    [QDRI_K_DECODE] = decode,
    [QDRI_K_DECODE_SUM] = decode_sum,
    [QDRI_K_PACK] = NAME(qdri_pack, QDRI_ISA), /* lossless.c */
    [QDRI_K_UNPACK] = NAME(qdri_unpack, QDRI_ISA),
};
