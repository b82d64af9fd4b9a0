/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that every rank can compute for every other rank, and the results of reducing them, for comm.c. */
#ifndef TESTS_CONFORM_COMM_VALUES_H
#define TESTS_CONFORM_COMM_VALUES_H

#include <stdint.h>
#include <string.h>

#include "narrow.h"

static uint64_t hash(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t draw(uint64_t seed, int64_t a, int64_t b) { return hash(hash(seed ^ hash((uint64_t)a)) ^ (uint64_t)b); }

typedef union element {
    float f32;
    double f64;
    uint16_t narrow;
    int32_t i32;
    unsigned char u8;
} element;

/* Element i of what `rank` brings. Of many magnitudes, so that another order of sums gives other bits; in F16 of fewer,
 * so that none overflows. */
static element value(uint64_t seed, qdr_dtype dtype, int rank, int64_t i)
{
    const uint64_t bits = draw(seed, rank, i);
    const double x = (double)(int64_t)bits * 0x1p-63 * (double)(1 << (bits & (dtype == QDR_F16 ? 7 : 15)));
    element e;
    memset(&e, 0, sizeof e);
    switch (dtype) {
    case QDR_F32: e.f32 = (float)x; break;
    case QDR_F64: e.f64 = x; break;
    case QDR_BF16:
    case QDR_F16: e.narrow = narrow_bits(dtype, (double)(float)x); break;
    case QDR_I32: e.i32 = (int32_t)(bits >> 32); break;
    case QDR_U8: e.u8 = (unsigned char)bits; break;
    }
    return e;
}

#define PICK(op, a, b) ((op) == QDR_SUM ? (a) + (b) : ((op) == QDR_MAX) == ((b) > (a)) ? (b) : (a))

/* In their order, in fp32 if they are BF16 or F16, rounded once. */
static inline element combined(qdr_dtype dtype, qdr_reduce op, const element *of, int n)
{
    element sum = of[0];
    float wide = (float)narrow_value(dtype, sum.narrow);
    for (int k = 1; k < n; k++) {
        const element e = of[k];
        if (dtype == QDR_F32) sum.f32 = PICK(op, sum.f32, e.f32);
        if (dtype == QDR_F64) sum.f64 = PICK(op, sum.f64, e.f64);
        if (is_narrow(dtype)) wide = PICK(op, wide, (float)narrow_value(dtype, e.narrow));
        if (dtype == QDR_I32)
            sum.i32 = op == QDR_SUM ? (int32_t)((uint32_t)sum.i32 + (uint32_t)e.i32) : PICK(op, sum.i32, e.i32);
    }
    if (is_narrow(dtype)) sum.narrow = narrow_bits(dtype, (double)wide);
    return sum;
}

/* The ranks of a sum: `together` consecutive ones are added first (1: all in rank order). */
typedef struct summed {
    int size, together;
} summed;

static inline element reduced(uint64_t seed, qdr_dtype dtype, qdr_reduce op, summed ranks, int64_t i)
{
    element each[64], groups[64] = {{0}};
    const int n_groups = ranks.size / ranks.together;
    for (int rank = 0; rank < ranks.size; rank++) each[rank] = value(seed, dtype, rank, i);
    for (int k = 0; k < n_groups; k++) groups[k] = combined(dtype, op, each + k * ranks.together, ranks.together);
    return combined(dtype, op, groups, n_groups);
}

static inline void fill(void *to, uint64_t seed, qdr_dtype dtype, int rank, int64_t first, int64_t n)
{
    const size_t bytes = qdr_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++) {
        const element e = value(seed, dtype, rank, first + i);
        memcpy((char *)to + (size_t)i * bytes, &e, bytes);
    }
}

/* Index of the first element that differs from what rank `from` brought (from < 0: from the reduction), or -1. */
static inline int64_t first_wrong(const void *got, uint64_t seed, qdr_dtype dtype, qdr_reduce op, summed ranks,
                                  int from, int64_t first, int64_t n)
{
    const size_t bytes = qdr_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++) {
        const element e = from < 0 ? reduced(seed, dtype, op, ranks, first + i) : value(seed, dtype, from, first + i);
        if (memcmp((const char *)got + (size_t)i * bytes, &e, bytes) != 0) return i;
    }
    return -1;
}

#endif
