/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs of integers: blocks of elements as an fp32 scale and small integers, see quadrille/codec.h. All arithmetic is
 * in fp32, element by element and without contraction, so that every instruction set gives the same bits. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "core/codec_format.h"
#include "dev/cpu/kernels/kernels.h"
#include "dev/cpu/kernels/nibbles.h"
#include "dev/cpu/kernels/rotation.h"
#include "dev/cpu/narrow.h"

#define PRAGMA(text) _Pragma(#text)
#define SIMD PRAGMA(omp simd)

/* Blocks are coded in groups, stage by stage, so that no block waits for the maximum or the division of its own. */
enum { MOST_BLOCK = QDRI_CODEC_MOST_BLOCK, GROUP = 1024 /* elements */, MOST_BLOCKS = GROUP / QDRI_CODEC_LEAST_BLOCK };

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
static const float *load(const void *x, qdr_dtype dtype, int n, float own[GROUP])
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

/* ---- codes ---- */

/* What codes depend on beside elements and scale. */
typedef struct coding {
    int bits, block, flags;
    uint64_t seed;
} coding;

static inline int32_t nearest(float x)
{
    return (int32_t)(qdri_float_bits(x + QDRI_CODEC_ROUND) - qdri_float_bits(QDRI_CODEC_ROUND));
}

typedef int16_t int16_anywhere __attribute__((aligned(1), may_alias));

#if defined(__AVX2__)
/* The codes of 32 elements. */
static inline void quantise32(const float *x, float inverse, int8_t *codes)
{
    const __m256 factor = _mm256_set1_ps(inverse), round = _mm256_set1_ps(QDRI_CODEC_ROUND);
    __m256i wide[4];
    PRAGMA(GCC unroll 4)
    for (ptrdiff_t i = 0; i < 4; i++) {
        const __m256 moved = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i * N_FLOATS), factor), round);
        wide[i] = _mm256_sub_epi32(_mm256_castps_si256(moved), _mm256_castps_si256(round));
    }
    const __m256i first = _mm256_packs_epi32(wide[0], wide[1]), second = _mm256_packs_epi32(wide[2], wide[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((__m256i *)codes, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), order));
}
#else
static inline void quantise32(const float *x, float inverse, int8_t *codes)
{
    SIMD for (int i = 0; i < 32; i++) codes[i] = (int8_t)nearest(x[i] * inverse);
}
#endif

static void quantise8(const float *x, int n, float inverse, int8_t *codes)
{
    int i = 0;
    for (; i + 32 <= n; i += 32) quantise32(x + i, inverse, codes + i);
    for (; i < n; i++) codes[i] = (int8_t)nearest(x[i] * inverse);
}

static void quantise16(const float *x, int n, float inverse, int16_anywhere *codes)
{
    SIMD for (int i = 0; i < n; i++) codes[i] = (int16_anywhere)nearest(x[i] * inverse);
}

static void quantise4(const float *x, int n, float inverse, uint8_t *wire)
{
    int i = 0;
    for (; i + N_NIBBLES <= n; i += N_NIBBLES) {
        nibbles codes;
        quantise32(x + i, inverse, (int8_t *)&codes);
        pack_nibbles(&codes, wire + i / 2);
    }
    for (; i < n; i += 2) {
        const int32_t first = nearest(x[i] * inverse), second = i + 1 < n ? nearest(x[i + 1] * inverse) : 0;
        wire[i / 2] = (uint8_t)((first & 15) | (second & 15) << 4);
    }
}

static void unpack4(const uint8_t *wire, int n, int8_t *codes)
{
    int i = 0;
    for (; i + N_NIBBLES <= n; i += N_NIBBLES) {
        nibbles some;
        unpack_nibbles(wire + i / 2, &some);
        some = (some ^ 8) - 8; /* with their signs */
        memcpy(codes + i, &some, sizeof some);
    }
    for (; i < n; i++) codes[i] = (int8_t)((int8_t)(i % 2 ? wire[i / 2] : wire[i / 2] << 4) >> 4);
}

#define UNQUANTISE(name, type, assign)                                                                                 \
    static void name(const type *codes, int n, float scale, float *x)                                                  \
    {                                                                                                                  \
        SIMD for (int i = 0; i < n; i++) x[i] assign(float) codes[i] * scale;                                          \
    }
UNQUANTISE(store8, int8_t, =)
UNQUANTISE(add8, int8_t, +=)
UNQUANTISE(store16, int16_anywhere, =)
UNQUANTISE(add16, int16_anywhere, +=)

static size_t code_bytes(int bits, int64_t n) { return (size_t)((n * bits + 7) / 8); }

static int largest_code(int bits) { return (1 << (bits - 1)) - 1; }

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
    int8_t *bytes = wire;
    if (bits == 16) memcpy(wire, codes, code_bytes(bits, n));
    if (bits == 8) SIMD for (int i = 0; i < n; i++) bytes[i] = (int8_t)codes[i];
    if (bits > 4) return;
    for (int i = 0; i < n; i += 2) bytes[i / 2] = (int8_t)((codes[i] & 15) | (i + 1 < n ? codes[i + 1] & 15 : 0) << 4);
}

static void encode_at_random(const float *x, int n, float inverse, const coding *how, int64_t number, void *wire)
{
    uint64_t bits[QDRI_CODEC_WORDS];
    int16_t up[MOST_BLOCK], codes[MOST_BLOCK];
    for (int i = 0; i < (n + 3) / 4; i++)
        bits[i] = random_bits(how->seed, (uint64_t)number * QDRI_CODEC_WORDS + (uint64_t)i);
    memcpy(up, bits, (size_t)n * sizeof *up);
    quantise_at_random(x, n, inverse, largest_code(how->bits), up, codes);
    write_codes(codes, n, how->bits, wire);
}

/* number: of the block in its message */
static void encode_codes(const float *x, int n, float inverse, const coding *how, int64_t number, void *wire)
{
    if (how->flags & QDR_CODEC_STOCHASTIC) {
        encode_at_random(x, n, inverse, how, number, wire);
    } else if (how->bits == 8) {
        quantise8(x, n, inverse, wire);
    } else if (how->bits == 16) {
        quantise16(x, n, inverse, wire);
    } else {
        quantise4(x, n, inverse, wire);
    }
}

static void decode_codes(const void *wire, int n, int bits, float scale, int accumulate, float *x)
{
    int8_t unpacked[MOST_BLOCK];
    if (bits == 16) {
        accumulate ? add16(wire, n, scale, x) : store16(wire, n, scale, x);
        return;
    }
    if (bits == 4) unpack4(wire, n, unpacked);
    const int8_t *codes = bits == 4 ? unpacked : wire;
    accumulate ? add8(codes, n, scale, x) : store8(codes, n, scale, x);
}

/* ---- blocks ---- */

/* The bits of max |x|: more than those of any finite number if one is NaN or Inf. */
static int32_t max_bits(const float *x, int n)
{
    int32_t most = 0;
    for (int i = 0; i < n; i++) { /* vectorised without a pragma, with which GCC 12 keeps the maximum in memory */
        const int32_t bits = (int32_t)(qdri_float_bits(x[i]) & 0x7fffffffu);
        most = bits > most ? bits : most;
    }
    return most;
}

static int min_int(int a, int b) { return a < b ? a : b; }

/* Finds the scales of n elements' blocks and what elements are multiplied by to become codes: NaN where an element is
 * not finite, and 0 in a block of zeros. */
static void find_scales(const float *x, int n, const coding *how, float scales[MOST_BLOCKS],
                        float inverses[MOST_BLOCKS])
{
    const float levels = (float)largest_code(how->bits), nan = qdri_float_of_bits(QDRI_CODEC_NAN);
    const int n_blocks = (n + how->block - 1) / how->block;
    const int32_t limit = how->flags & QDR_CODEC_HADAMARD ? QDRI_CODEC_ABOVE_ROTATED : QDRI_CODEC_ABOVE_FINITE;
    int32_t most[MOST_BLOCKS];
    for (int b = 0; b < n_blocks; b++)
        most[b] = max_bits(x + (ptrdiff_t)b * how->block, min_int(n - b * how->block, how->block));
    SIMD for (int b = 0; b < n_blocks; b++)
    {
        const float max = qdri_float_of_bits((uint32_t)most[b]), nearby = max / levels;
        const int32_t back = (int32_t)qdri_float_bits(nearby * levels); /* which may not overflow */
        const float scale = qdri_float_of_bits(qdri_float_bits(nearby) - (back >= QDRI_CODEC_ABOVE_FINITE));
        const int is_zero = most[b] < QDRI_CODEC_LEAST_MAX, is_coded = most[b] < limit;
        scales[b] = is_zero ? 0 : is_coded ? scale : nan;
        inverses[b] = is_zero ? 0 : is_coded ? levels / max : nan;
    }
}

/* Whether a block is rotated: one that is shorter than the others is not. */
static int is_rotated(const coding *how, int n) { return (how->flags & QDR_CODEC_HADAMARD) && n == how->block; }

static void rotate(const float *x, int n, const coding *how, float *y)
{
    for (int i = 0; i < n; i += how->block) {
        if (is_rotated(how, min_int(n - i, how->block)))
            turn(x + i, how->block, y + i);
        else
            memcpy(y + i, x + i, (size_t)(n - i) * sizeof *y);
    }
}

static void decode_block(const void *wire, int n, const coding *how, float scale, int accumulate, float *x)
{
    _Alignas(64) float turned[MOST_BLOCK];
    if (!is_rotated(how, n)) {
        decode_codes(wire, n, how->bits, scale, accumulate, x);
        return;
    }
    decode_codes(wire, n, how->bits, scale, 0, turned);
    turn_back(turned, n, accumulate, x);
}

/* What this message loses is added to the next one; what a block that is all NaN loses is not known. */
static void keep_lost(const float *wanted, const void *wire, int n, const coding *how, float scale, float *lost)
{
    _Alignas(64) float got[MOST_BLOCK];
    if (!(scale >= 0)) return;
    if (scale == 0) {
        memset(lost, 0, (size_t)n * sizeof *lost);
        return;
    }
    decode_block(wire, n, how, scale, 0, got);
    /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): all n were decoded */
    SIMD for (int i = 0; i < n; i++) lost[i] = wanted[i] - got[i];
}

/* ---- groups of blocks ---- */

/* A group: at most GROUP elements of one run, and where their scales and codes are. */
typedef struct block_group {
    int n;
    int64_t number; /* of the first block in the message */
    char *scales, *codes;
} block_group;

/* `next` is what of `each` bytes an element is read after the group. x may be changed if it is `own`. */
static void encode_group(const block_group *at, const coding *how, const float *x, const void *next, size_t each,
                         float *lost, float own[GROUP])
{
    _Alignas(64) float turned[GROUP], scales[MOST_BLOCKS], inverses[MOST_BLOCKS];
    const float *coded = x;
    if (lost) {
        SIMD for (int i = 0; i < at->n; i++) own[i] = x[i] + lost[i];
        coded = x = own;
    }
    if (how->flags & QDR_CODEC_HADAMARD) {
        rotate(x, at->n, how, turned);
        coded = turned;
    }
    find_scales(coded, at->n, how, scales, inverses);
    for (int i = 0, b = 0; i < at->n; i += how->block, b++) {
        const int n = min_int(at->n - i, how->block);
        char *codes = at->codes + code_bytes(how->bits, i);
        if (next) qdri_fetch((const char *)next + (size_t)i * each, (size_t)n * each);
        if (scales[b] >= 0)
            encode_codes(coded + i, n, inverses[b], how, at->number + b, codes);
        else
            memset(codes, 0, code_bytes(how->bits, n));
        if (lost) {
            qdri_fetch(lost + at->n + i, (size_t)n * sizeof *lost);
            keep_lost(x + i, codes, n, how, scales[b], lost + i);
        }
    }
    memcpy(at->scales, scales, (size_t)((at->n + how->block - 1) / how->block) * sizeof *scales);
}

/* `next` is what of `each` bytes an element is read after the group. */
static void decode_group(const block_group *at, const coding *how, int accumulate, const void *next, size_t each,
                         float *x)
{
    for (int i = 0, b = 0; i < at->n; i += how->block, b++) {
        const int n = min_int(at->n - i, how->block);
        float scale;
        memcpy(&scale, at->scales + (size_t)b * sizeof scale, sizeof scale);
        qdri_fetch(at->codes + code_bytes(how->bits, (int64_t)at->n + i), code_bytes(how->bits, n));
        qdri_fetch((const char *)next + (size_t)i * each, (size_t)n * each);
        decode_block(at->codes + code_bytes(how->bits, i), n, how, scale, accumulate, x + i);
    }
}

/* ---- messages ---- */

/* Goes over the groups of a message. */
typedef struct message_walk {
    int64_t left, run_left, run, number; /* elements; the next block */
    size_t scale_at, codes_at; /* bytes of the wire format */
    coding how;
} message_walk;

static void begin_run(message_walk *walk)
{
    walk->run_left = walk->run < walk->left ? walk->run : walk->left;
    walk->scale_at = walk->codes_at;
    walk->codes_at += (size_t)((walk->run_left + walk->how.block - 1) / walk->how.block) * sizeof(float);
}

static message_walk begin(const qdri_kernel *kernel)
{
    message_walk walk = {.left = kernel->u.codec.n,
                         .run = kernel->u.codec.run ? kernel->u.codec.run : kernel->u.codec.n,
                         .how = {.bits = kernel->u.codec.bits,
                                 .block = kernel->u.codec.block,
                                 .flags = kernel->u.codec.flags,
                                 .seed = kernel->u.codec.seed}};
    if (walk.left > 0) begin_run(&walk);
    return walk;
}

/* Elements of the next group; 0: none is left. */
static int size_of(const message_walk *walk) { return (int)(walk->run_left < GROUP ? walk->run_left : GROUP); }

/* The next group, of n elements, of a message that begins at wire. */
static block_group group_at(const message_walk *walk, int n, void *wire)
{
    return (block_group){.n = n,
                         .number = walk->number,
                         .scales = (char *)wire + walk->scale_at,
                         .codes = (char *)wire + walk->codes_at};
}

static void step(message_walk *walk, int n)
{
    const int n_blocks = (n + walk->how.block - 1) / walk->how.block;
    walk->left -= n;
    walk->run_left -= n;
    walk->number += n_blocks;
    walk->scale_at += (size_t)n_blocks * sizeof(float);
    walk->codes_at += code_bytes(walk->how.bits, n);
    if (walk->run_left == 0 && walk->left > 0) begin_run(walk);
}

static void encode(const qdri_kernel *kernel)
{
    const size_t each = qdr_dtype_bytes(kernel->dtype);
    const char *x = kernel->u.codec.x;
    _Alignas(64) float own[GROUP], *lost = kernel->u.codec.feedback;
    message_walk walk = begin(kernel);
    for (int n; (n = size_of(&walk)) > 0; step(&walk, n)) {
        const block_group at = group_at(&walk, n, kernel->u.codec.wire);
        const char *next = x + (size_t)n * each;
        encode_group(&at, &walk.how, load(x, kernel->dtype, n, own), next, each, lost, own);
        x = next;
        if (lost) lost += n;
    }
}

static void decode(const qdri_kernel *kernel)
{
    const size_t each = qdr_dtype_bytes(kernel->dtype);
    const int accumulate = kernel->accumulate;
    char *y = kernel->u.codec.y;
    _Alignas(64) float x[GROUP];
    message_walk walk = begin(kernel);
    for (int n; (n = size_of(&walk)) > 0; step(&walk, n)) {
        const block_group at = group_at(&walk, n, kernel->u.codec.wire);
        char *next = y + (size_t)n * each;
        if (kernel->dtype == QDR_F32) {
            decode_group(&at, &walk.how, accumulate, next, each, (float *)y);
        } else {
            decode_group(&at, &walk.how, 0, next, each, x);
            store(y, kernel->dtype, n, x, accumulate);
        }
        y = next;
    }
}

/* Stores or adds the group of one source in fp32. */
static void add_source(const qdri_kernel *kernel, const message_walk *walk, int source, const char *x, int n,
                       int accumulate, float *total)
{
    const int mine = kernel->u.codec.own, message = source - (mine >= 0 && source > mine);
    if (x && source == mine) {
        _Alignas(64) float own[GROUP];
        store(total, QDR_F32, n, load(x, kernel->dtype, n, own), accumulate);
    } else {
        const block_group at = group_at(walk, n,
                                        (char *)kernel->u.codec.sources + (size_t)message * kernel->u.codec.stride);
        decode_group(&at, &walk->how, accumulate, total, 0, total);
    }
}

static void decode_sum(const qdri_kernel *kernel)
{
    const size_t each = qdr_dtype_bytes(kernel->dtype);
    const char *x = kernel->u.codec.own >= 0 ? kernel->u.codec.x : NULL;
    char *y = kernel->u.codec.y, *wire = kernel->u.codec.wire;
    _Alignas(64) float total[GROUP] = {0}, *lost = kernel->u.codec.feedback;
    message_walk walk = begin(kernel);
    for (int n; (n = size_of(&walk)) > 0; step(&walk, n)) {
        const char *next_x = x ? x + (size_t)n * each : NULL;
        char *next_y = y + (size_t)n * each;
        float *result = total;
        add_source(kernel, &walk, 0, x, n, 0, total);
        for (int i = 1; i < kernel->u.codec.n_sources; i++) add_source(kernel, &walk, i, x, n, 1, total);
        if (wire) {
            const block_group at = group_at(&walk, n, wire);
            encode_group(&at, &walk.how, total, next_x, each, lost, total);
            if (kernel->dtype == QDR_F32) result = (float *)y;
            decode_group(&at, &walk.how, 0, next_y, each, result);
            if (lost) lost += n;
        }
        if (result == total) store(y, kernel->dtype, n, total, 0);
        x = next_x;
        y = next_y;
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
