/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32 by runs, with zlib, and several times as fast where the processor can multiply without carries. */
#include "checkpoint/crc.h"

#include <zlib.h>

#if defined(__x86_64__)

#include <immintrin.h>

/* After V. Gopal and others, "Fast CRC computation for generic polynomials using PCLMULQDQ instruction", Intel 2009: a
 * block of bits is congruent, modulo the polynomial, to its products with powers of x, which are added to the blocks
 * after it. The powers are reflected, as the bits of this CRC are. */
#define FOLDS __attribute__((target("pclmul,sse4.1")))

FOLDS static inline __m128i load(const char *from) { return _mm_loadu_si128((const __m128i *)(const void *)from); }

/* The block, as many bits further on as the powers say, added to what is there. */
FOLDS static inline __m128i fold(__m128i block, __m128i powers, __m128i there)
{
    const __m128i low = _mm_clmulepi64_si128(block, powers, 0x00), high = _mm_clmulepi64_si128(block, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

/* 128 bits to the 32 of the remainder, the last step by Barrett's method. */
FOLDS static inline uint32_t reduce(__m128i block, __m128i by_128)
{
    const __m128i by_64 = _mm_set_epi64x(0, 0x163cd6124), words = _mm_set_epi32(0, ~0, 0, ~0);
    const __m128i polynomial = _mm_set_epi64x(0x1f7011641, 0x1db710641); /* the quotient of x^64, and itself */
    __m128i at = _mm_xor_si128(_mm_srli_si128(block, 8), _mm_clmulepi64_si128(block, by_128, 0x10));
    at = _mm_xor_si128(_mm_srli_si128(at, 4), _mm_clmulepi64_si128(_mm_and_si128(at, words), by_64, 0x00));
    const __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(at, words), polynomial, 0x10);
    at = _mm_xor_si128(at, _mm_clmulepi64_si128(_mm_and_si128(quotient, words), polynomial, 0x00));
    return (uint32_t)_mm_extract_epi32(at, 1);
}

/* Of a multiple of 16 bytes, at least 64. */
FOLDS static uint32_t fold_all(uint32_t crc, const char *bytes, size_t n_bytes)
{
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const char *at = bytes, *end = at + n_bytes;
    __m128i blocks[4]; /* four, so that multiplications need not wait for each other */
    for (size_t i = 0; i < 4; i++) blocks[i] = load(at + 16 * i);
    blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi32_si128((int)~crc));
    for (at += 64; end - at >= 64; at += 64)
        for (size_t i = 0; i < 4; i++) blocks[i] = fold(blocks[i], by_512, load(at + 16 * i));
    __m128i block = blocks[0];
    for (int i = 1; i < 4; i++) block = fold(block, by_128, blocks[i]);
    for (; at < end; at += 16) block = fold(block, by_128, load(at));
    return ~reduce(block, by_128);
}

/* Of most of the bytes; returns of how many. */
static size_t fold_most(uint32_t *crc, const char *bytes, size_t n_bytes)
{
    const size_t n = n_bytes / 16 * 16;
    if (n < 64 || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1")) return 0;
    *crc = fold_all(*crc, bytes, n);
    return n;
}

#else

static size_t fold_most(uint32_t *crc, const char *bytes, size_t n_bytes)
{
    (void)crc, (void)bytes, (void)n_bytes;
    return 0;
}

#endif

/* A CRC without constants, multiplied by x^(8n). */
static uint32_t shifted(uint32_t crc, int64_t n_bytes) { return (uint32_t)crc32_combine(crc, 0, (z_off_t)n_bytes); }

/* What the constants make of zeros. */
static uint32_t of_zeros(int64_t n_bytes) { return shifted(UINT32_MAX, n_bytes) ^ UINT32_MAX; }

uint32_t qdri_crc(uint32_t crc, const void *bytes, size_t n_bytes)
{
    const size_t n = fold_most(&crc, bytes, n_bytes);
    return (uint32_t)crc32_z(crc, (const unsigned char *)bytes + n, n_bytes - n);
}

qdri_crc_runs qdri_crc_runs_begin(int64_t n_bytes, int64_t distance)
{
    return (qdri_crc_runs){.step = (uint32_t)crc32_combine_gen((z_off_t)distance), .zeros = of_zeros(n_bytes)};
}

void qdri_crc_runs_add(qdri_crc_runs *runs, uint32_t crc)
{
    runs->sum = (uint32_t)crc32_combine_op(runs->sum, crc ^ runs->zeros, runs->step);
}

uint32_t qdri_crc_runs_share(const qdri_crc_runs *runs, int64_t n_after) { return shifted(runs->sum, n_after); }

uint32_t qdri_crc_share(const void *run, size_t n_bytes, int64_t n_after)
{
    qdri_crc_runs runs = qdri_crc_runs_begin((int64_t)n_bytes, 0);
    qdri_crc_runs_add(&runs, qdri_crc(0, run, n_bytes));
    return qdri_crc_runs_share(&runs, n_after);
}

uint32_t qdri_crc_of_shares(uint32_t shares, int64_t n_bytes) { return shares ^ of_zeros(n_bytes); }
