/* SPDX-License-Identifier: Apache-2.0 */
/* The lossless codec, see quadrille/codec.h: blocks of 128 elements whose exponents are near one another need 4 bits
 * less each of fp32 and bf16. Only bits are moved. */
#include <stdint.h>
#include <string.h>

#include "core/codec_format.h"
#include "dev/cpu/kernels/kernels.h"
#include "dev/cpu/narrow.h"

#define PRAGMA(text) _Pragma(#text)
#define SIMD PRAGMA(omp simd)
#define NAME_(name, isa) name##_##isa
#define NAME(name, isa) NAME_(name, isa)

enum {
    BLOCK = QDRI_LOSSLESS_BLOCK,
    CODES_BYTES = BLOCK / 2,
    WIDEST = 14, /* distance from the largest exponent */
    NO_EXPONENT = 15 /* of zeros and subnormal numbers */
};

/* ---- exponents ---- */

/* Writes the block's header and 4 bits for each exponent. @return 0: they are too far apart */
static int write_exponents(const uint8_t *exponents, unsigned char *wire)
{
    uint8_t codes[BLOCK], largest = 0, n_far = 0;
    PRAGMA(omp simd reduction(max : largest))
    for (int i = 0; i < BLOCK; i++) largest = exponents[i] > largest ? exponents[i] : largest;
    PRAGMA(omp simd reduction(| : n_far))
    for (int i = 0; i < BLOCK; i++) {
        const uint8_t distance = (uint8_t)(largest - exponents[i]);
        n_far |= (uint8_t)(exponents[i] > 0 && distance > WIDEST);
        codes[i] = exponents[i] > 0 ? distance : NO_EXPONENT;
    }
    wire[0] = largest;
    wire[1] = QDRI_LOSSLESS_PACKED;
    SIMD for (ptrdiff_t i = 0; i < CODES_BYTES; i++)
        wire[QDRI_LOSSLESS_HEADER + i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
    return !n_far;
}

static void read_exponents(const unsigned char *wire, uint8_t *exponents)
{
    const uint8_t largest = wire[0];
    uint8_t codes[BLOCK];
    SIMD for (ptrdiff_t i = 0; i < CODES_BYTES; i++)
    {
        codes[2 * i] = wire[QDRI_LOSSLESS_HEADER + i] & 15;
        codes[2 * i + 1] = wire[QDRI_LOSSLESS_HEADER + i] >> 4;
    }
    SIMD for (int i = 0; i < BLOCK; i++) exponents[i] = codes[i] == NO_EXPONENT ? 0 : (uint8_t)(largest - codes[i]);
}

/* ---- the other bits: planes of bytes, the last of which has the sign ---- */

static int pack_f32(const void *from, unsigned char *wire)
{
    uint32_t x[BLOCK];
    uint8_t exponents[BLOCK];
    unsigned char *planes = wire + QDRI_LOSSLESS_HEADER + CODES_BYTES, *last = planes + 2 * (ptrdiff_t)BLOCK;
    memcpy(x, from, sizeof x);
    SIMD for (int i = 0; i < BLOCK; i++) exponents[i] = (uint8_t)(x[i] >> 23);
    if (!write_exponents(exponents, wire)) return 0;
    SIMD for (int i = 0; i < BLOCK; i++) planes[i] = (uint8_t)x[i];
    SIMD for (int i = 0; i < BLOCK; i++) planes[BLOCK + i] = (uint8_t)(x[i] >> 8);
    SIMD for (int i = 0; i < BLOCK; i++) last[i] = (uint8_t)((x[i] >> 16 & 0x7f) | (x[i] >> 24 & 0x80));
    return 1;
}

static void unpack_f32(const unsigned char *wire, uint32_t *x)
{
    uint8_t exponents[BLOCK];
    const unsigned char *planes = wire + QDRI_LOSSLESS_HEADER + CODES_BYTES, *last = planes + 2 * (ptrdiff_t)BLOCK;
    read_exponents(wire, exponents);
    SIMD for (int i = 0; i < BLOCK; i++) x[i] = planes[i] | (uint32_t)planes[BLOCK + i] << 8 |
                                                (uint32_t)(last[i] & 0x7f) << 16 | (uint32_t)exponents[i] << 23 |
                                                (uint32_t)(last[i] & 0x80) << 24;
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

/* Stores or adds n elements. */
static void put(const qdri_kernel *kernel, const void *from, void *to, int64_t n)
{
    if (!kernel->u.codec.accumulate) {
        memcpy(to, from, (size_t)n * (kernel->dtype == QDR_F32 ? sizeof(float) : sizeof(uint16_t)));
    } else if (kernel->dtype == QDR_F32) {
        float more[BLOCK], *y = to;
        memcpy(more, from, (size_t)n * sizeof *more);
        SIMD for (int64_t i = 0; i < n; i++) y[i] += more[i];
    } else {
        uint16_t more[BLOCK], *y = to;
        memcpy(more, from, (size_t)n * sizeof *more);
        SIMD for (int64_t i = 0; i < n; i++) y[i] = qdri_bf16_round(qdri_bf16_load(y[i]) + qdri_bf16_load(more[i]));
    }
}

void NAME(qdri_unpack, QDRI_ISA)(const qdri_kernel *kernel)
{
    const size_t each = kernel->dtype == QDR_F32 ? sizeof(float) : sizeof(uint16_t);
    const unsigned char *wire = kernel->u.codec.wire;
    char *y = kernel->u.codec.y;
    for (int64_t left = kernel->u.codec.n, n; left > 0; left -= n) {
        uint32_t wide[BLOCK];
        uint16_t narrow[BLOCK];
        n = left < BLOCK ? left : BLOCK;
        if (wire[1] == QDRI_LOSSLESS_PLAIN) {
            put(kernel, wire + QDRI_LOSSLESS_HEADER, y, n);
        } else if (kernel->dtype == QDR_F32) {
            unpack_f32(wire, wide);
            put(kernel, wide, y, n);
        } else {
            unpack_bf16(wire, narrow);
            put(kernel, narrow, y, n);
        }
        wire += qdri_lossless_bytes(wire[1], each, n);
        y += (size_t)n * each;
    }
}
