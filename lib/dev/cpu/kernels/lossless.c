/* SPDX-License-Identifier: Apache-2.0 */
/* The lossless codec, see quadrille/codec.h: blocks of 128 elements whose exponents are near one another need 4 bits
 * less each of fp32 and bf16. Only bits are moved. */
#include <stdint.h>
#include <string.h>

#include "core/codec_format.h"
#include "dev/cpu/kernels/kernels.h"
#include "dev/cpu/kernels/nibbles.h"
#include "dev/cpu/narrow.h"

#define PRAGMA(text) _Pragma(#text)
#define SIMD PRAGMA(omp simd)
#define NAME_(name, isa) name##_##isa
#define NAME(name, isa) NAME_(name, isa)

enum {
    BLOCK = QDRI_LOSSLESS_BLOCK,
    CODES_BYTES = BLOCK / 2,
    WIDEST = 14, /* distance from the largest exponent */
    NO_EXPONENT = 15, /* of zeros and subnormal numbers */
    AHEAD = 4096 /* bytes; of memory that is soon read */
};

/* ---- exponents ---- */

/* Writes the block's header and 4 bits for each exponent. @return 0: they are too far apart */
static int write_exponents(const uint8_t *exponents, unsigned char *wire)
{
    uint8_t codes[BLOCK], largest = 0, below = 255; /* one below the smallest exponent that is not 0 */
    for (int i = 0; i < BLOCK; i++) {
        const uint8_t one_less = (uint8_t)(exponents[i] - 1);
        largest = exponents[i] > largest ? exponents[i] : largest;
        below = one_less < below ? one_less : below;
    }
    SIMD for (int i = 0; i < BLOCK; i++) codes[i] = exponents[i] > 0 ? (uint8_t)(largest - exponents[i]) : NO_EXPONENT;
    wire[0] = largest;
    wire[1] = QDRI_LOSSLESS_PACKED;
    for (ptrdiff_t i = 0; i < BLOCK; i += N_NIBBLES) {
        nibbles some;
        memcpy(&some, codes + i, sizeof some);
        pack_nibbles(&some, wire + QDRI_LOSSLESS_HEADER + i / 2);
    }
    return largest - 1 - below <= WIDEST; /* less than 0: all are 0 */
}

static void read_exponents(const unsigned char *wire, uint8_t *exponents)
{
    const uint8_t largest = wire[0];
    uint8_t codes[BLOCK];
    for (ptrdiff_t i = 0; i < BLOCK; i += N_NIBBLES) {
        nibbles some;
        unpack_nibbles(wire + QDRI_LOSSLESS_HEADER + i / 2, &some);
        memcpy(codes + i, &some, sizeof some);
    }
    SIMD for (int i = 0; i < BLOCK; i++) exponents[i] = codes[i] == NO_EXPONENT ? 0 : (uint8_t)(largest - codes[i]);
}

/* ---- the other bits: planes of bytes, the last of which has the sign ---- */

enum { N_BYTES = 32 };
typedef uint8_t bytes __attribute__((vector_size(N_BYTES)));

#if defined(__AVX2__)
/* 32 elements are four vectors. All shuffles but the last, or back the first, stay within halves of 16 bytes. */
typedef uint16_t pairs __attribute__((vector_size(N_BYTES)));
typedef uint32_t words __attribute__((vector_size(N_BYTES)));
typedef uint64_t longs __attribute__((vector_size(N_BYTES)));

/* planes[k]: byte k of each of 32 elements. */
static inline void split(const unsigned char *x, bytes planes[4])
{
    words fours[4]; /* of each half of a vector: byte 0 of its four elements, byte 1, … */
    for (ptrdiff_t k = 0; k < 4; k++) {
        bytes v;
        memcpy(&v, x + k * N_BYTES, sizeof v);
        fours[k] = (words)__builtin_shufflevector(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 16, 20,
                                                  24, 28, 17, 21, 25, 29, 18, 22, 26, 30, 19, 23, 27, 31);
    }
    for (ptrdiff_t k = 0; k < 2; k++) { /* bytes 2k and 2k + 1 */
        const int lower = k == 0;
        const longs a = (longs)(lower ? __builtin_shufflevector(fours[0], fours[1], 0, 8, 1, 9, 4, 12, 5, 13)
                                      : __builtin_shufflevector(fours[0], fours[1], 2, 10, 3, 11, 6, 14, 7, 15));
        const longs b = (longs)(lower ? __builtin_shufflevector(fours[2], fours[3], 0, 8, 1, 9, 4, 12, 5, 13)
                                      : __builtin_shufflevector(fours[2], fours[3], 2, 10, 3, 11, 6, 14, 7, 15));
        const words first = (words)__builtin_shufflevector(a, b, 0, 4, 2, 6),
                    second = (words)__builtin_shufflevector(a, b, 1, 5, 3, 7);
        planes[2 * k] = (bytes)__builtin_shufflevector(first, first, 0, 4, 1, 5, 2, 6, 3, 7);
        planes[2 * k + 1] = (bytes)__builtin_shufflevector(second, second, 0, 4, 1, 5, 2, 6, 3, 7);
    }
}

static inline void join(const bytes planes[4], unsigned char *x)
{
    pairs low[2], high[2]; /* bytes 0 and 1, bytes 2 and 3: of elements 0 to 7 and 16 to 23; of the others */
    for (ptrdiff_t k = 0; k < 2; k++) {
        const bytes a = planes[2 * k], b = planes[2 * k + 1];
        pairs *to = k ? high : low;
        to[0] = (pairs)__builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 16, 48, 17,
                                               49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55);
        to[1] = (pairs)__builtin_shufflevector(a, b, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 24,
                                               56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
    }
    for (ptrdiff_t k = 0; k < 2; k++) {
        const longs a = (longs)__builtin_shufflevector(low[k], high[k], 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10,
                                                       26, 11, 27);
        const longs b = (longs)__builtin_shufflevector(low[k], high[k], 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14,
                                                       30, 15, 31);
        const longs first = __builtin_shufflevector(a, b, 0, 1, 4, 5),
                    second = __builtin_shufflevector(a, b, 2, 3, 6, 7);
        memcpy(x + k * N_BYTES, &first, sizeof first);
        memcpy(x + (k + 2) * N_BYTES, &second, sizeof second);
    }
}
#else /* without shuffles of bytes */
static inline void split(const unsigned char *x, bytes planes[4])
{
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < N_BYTES; i++) planes[k][i] = x[4 * i + k];
}

static inline void join(const bytes planes[4], unsigned char *x)
{
    for (int i = 0; i < N_BYTES; i++)
        for (int k = 0; k < 4; k++) x[4 * i + k] = planes[k][i];
}
#endif

static int pack_f32(const void *from, unsigned char *wire)
{
    uint8_t exponents[BLOCK];
    unsigned char *to = wire + QDRI_LOSSLESS_HEADER + CODES_BYTES;
    for (ptrdiff_t i = 0; i < BLOCK; i += N_BYTES) {
        bytes of[4];
        split((const unsigned char *)from + 4 * i, of);
        const bytes last = (of[2] & 0x7f) | (of[3] & 0x80), exponent = of[3] << 1 | of[2] >> 7;
        memcpy(to + i, &of[0], sizeof of[0]);
        memcpy(to + BLOCK + i, &of[1], sizeof of[1]);
        memcpy(to + 2 * (ptrdiff_t)BLOCK + i, &last, sizeof last);
        memcpy(exponents + i, &exponent, sizeof exponent);
    }
    return write_exponents(exponents, wire);
}

static void unpack_f32(const unsigned char *wire, unsigned char *x)
{
    uint8_t exponents[BLOCK];
    const unsigned char *from = wire + QDRI_LOSSLESS_HEADER + CODES_BYTES;
    read_exponents(wire, exponents);
    for (ptrdiff_t i = 0; i < BLOCK; i += N_BYTES) {
        bytes of[4], last, exponent;
        memcpy(&of[0], from + i, sizeof of[0]);
        memcpy(&of[1], from + BLOCK + i, sizeof of[1]);
        memcpy(&last, from + 2 * (ptrdiff_t)BLOCK + i, sizeof last);
        memcpy(&exponent, exponents + i, sizeof exponent);
        of[2] = (last & 0x7f) | exponent << 7;
        of[3] = (last & 0x80) | exponent >> 1;
        join(of, x + 4 * i);
    }
}

static int pack_bf16(const void *from, unsigned char *wire)
{
    uint16_t x[BLOCK];
    uint8_t exponents[BLOCK];
    unsigned char *plane = wire + QDRI_LOSSLESS_HEADER + CODES_BYTES;
    memcpy(x, from, sizeof x);
    SIMD for (int i = 0; i < BLOCK; i++) exponents[i] = (uint8_t)(x[i] >> 7);
    if (!write_exponents(exponents, wire)) return 0;
    SIMD for (int i = 0; i < BLOCK; i++) plane[i] = (uint8_t)((x[i] & 0x7f) | (x[i] >> 8 & 0x80));
    return 1;
}

static void unpack_bf16(const unsigned char *wire, uint16_t *x)
{
    uint8_t exponents[BLOCK];
    const unsigned char *plane = wire + QDRI_LOSSLESS_HEADER + CODES_BYTES;
    read_exponents(wire, exponents);
    SIMD for (int i = 0; i < BLOCK; i++)
        x[i] = (uint16_t)((plane[i] & 0x7f) | exponents[i] << 7 | (plane[i] & 0x80) << 8);
}

/* ---- messages ---- */

void NAME(qdri_pack, QDRI_ISA)(const qdri_kernel *kernel)
{
    const size_t each = kernel->dtype == QDR_F32 ? sizeof(float) : sizeof(uint16_t);
    const char *x = kernel->u.codec.x;
    unsigned char *wire = kernel->u.codec.wire;
    for (int64_t left = kernel->u.codec.n, n; left > 0; left -= n) {
        n = left < BLOCK ? left : BLOCK;
        int is_packed = 0;
        if (n == BLOCK) is_packed = kernel->dtype == QDR_F32 ? pack_f32(x, wire) : pack_bf16(x, wire);
        if (!is_packed) {
            wire[0] = 0;
            wire[1] = QDRI_LOSSLESS_PLAIN;
            memcpy(wire + QDRI_LOSSLESS_HEADER, x, (size_t)n * each);
        }
        wire += qdri_lossless_bytes(wire[1], each, n);
        x += (size_t)n * each;
    }
    *kernel->u.codec.n_bytes = wire - (unsigned char *)kernel->u.codec.wire;
}

static void add_f32(float *y, const float *x, ptrdiff_t n) { SIMD for (ptrdiff_t i = 0; i < n; i++) y[i] += x[i]; }

static void add_bf16(uint16_t *y, const uint16_t *x, ptrdiff_t n)
{
    SIMD for (ptrdiff_t i = 0; i < n; i++) y[i] = qdri_bf16_round(qdri_bf16_load(y[i]) + qdri_bf16_load(x[i]));
}

void NAME(qdri_unpack, QDRI_ISA)(const qdri_kernel *kernel)
{
    const int is_wide = kernel->dtype == QDR_F32, is_added = kernel->accumulate;
    const size_t each = is_wide ? sizeof(float) : sizeof(uint16_t);
    const unsigned char *wire = kernel->u.codec.wire;
    _Alignas(64) float wide[BLOCK];
    _Alignas(64) uint16_t narrow[BLOCK] = {0};
    char *y = kernel->u.codec.y;
    for (int64_t left = kernel->u.codec.n, n; left > 0; left -= n) {
        n = left < BLOCK ? left : BLOCK;
        void *to = !is_added ? (void *)y : is_wide ? (void *)wide : narrow;
        qdri_fetch(wire + AHEAD, (size_t)n * each);
        if (wire[1] == QDRI_LOSSLESS_PLAIN)
            memcpy(to, wire + QDRI_LOSSLESS_HEADER, (size_t)n * each);
        else if (is_wide)
            unpack_f32(wire, to);
        else
            unpack_bf16(wire, to);
        if (is_added && is_wide) add_f32((float *)y, wide, n);
        if (is_added && !is_wide) add_bf16((uint16_t *)y, narrow, n);
        wire += qdri_lossless_bytes(wire[1], each, n);
        y += (size_t)n * each;
    }
}
