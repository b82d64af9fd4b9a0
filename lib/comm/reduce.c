/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, maxima and minima of several vectors, in rank order: the inner loops of every reduction. */
#include <string.h>

#include "comm/internal.h"
#include "core/size.h"
#include "dev/cpu/narrow.h"

enum { BLOCK = 1024 }; /* elements that stay in the L1 cache while all sources are added */

#if defined(__clang__)
#define VECTORISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define VECTORISE _Pragma("GCC ivdep") /* y may be a or b, element by element */
#endif

typedef void (*combine_fn)(void *y, void *copy, const void *a, const void *b, int64_t n);

/* Stores to two places at once: copying afterwards would leave the memory idle meanwhile. */
#define COMBINE(name, type, expression)                                                                                \
    static void name(void *y, void *copy, const void *a, const void *b, int64_t n)                                     \
    {                                                                                                                  \
        type *result = y, *other = copy;                                                                               \
        const type *left = a, *right = b;                                                                              \
        VECTORISE                                                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const type p = left[i], q = right[i];                                                                      \
            const type r = (expression);                                                                               \
            result[i] = r;                                                                                             \
            other[i] = r;                                                                                              \
        }                                                                                                              \
    }

/* If equal, the first wins; a NaN is kept, and replaces a number. */
COMBINE(sum_f32, float, p + q)
COMBINE(max_f32, float, (q > p) || (q != q) ? q : p)
COMBINE(min_f32, float, (q < p) || (q != q) ? q : p)
COMBINE(sum_f64, double, p + q)
COMBINE(max_f64, double, (q > p) || (q != q) ? q : p)
COMBINE(min_f64, double, (q < p) || (q != q) ? q : p)
COMBINE(sum_i32, int32_t, (int32_t)((uint32_t)p + (uint32_t)q))
COMBINE(max_i32, int32_t, q > p ? q : p)
COMBINE(min_i32, int32_t, q < p ? q : p)

static const combine_fn combine_table[3][3] = {
    [0] = {[QDR_SUM] = sum_f32, [QDR_MAX] = max_f32, [QDR_MIN] = min_f32},
    [1] = {[QDR_SUM] = sum_f64, [QDR_MAX] = max_f64, [QDR_MIN] = min_f64},
    [2] = {[QDR_SUM] = sum_i32, [QDR_MAX] = max_i32, [QDR_MIN] = min_i32},
};

/* For two-byte elements, rounded once. */
static void reduce_block_narrow(qdr_dtype dtype, combine_fn combine, void *dst, void *copy, const void *const *sources,
                                int n_sources, int64_t at, int64_t n)
{
    float sum[BLOCK], next[BLOCK];
    qdri_widen(dtype, sum, (const uint16_t *)sources[0] + at, n);
    for (int k = 1; k < n_sources; k++) {
        qdri_widen(dtype, next, (const uint16_t *)sources[k] + at, n);
        combine(sum, sum, sum, next, n);
    }
    qdri_narrow(dtype, (uint16_t *)dst + at, sum, n);
    if (copy != dst) memcpy((uint16_t *)copy + at, (uint16_t *)dst + at, (size_t)n * sizeof(uint16_t));
}

static void reduce_block(combine_fn combine, void *dst, void *copy, const void *const *sources, int n_sources,
                         size_t at_bytes, int64_t n)
{
    double sum[BLOCK];
    const void *left = (const char *)sources[0] + at_bytes;
    for (int k = 1; k < n_sources; k++) {
        const int is_last = k == n_sources - 1;
        void *result = is_last ? (void *)((char *)dst + at_bytes) : sum;
        void *other = is_last ? (void *)((char *)copy + at_bytes) : sum;
        combine(result, other, left, (const char *)sources[k] + at_bytes, n);
        left = result;
    }
}

void qdri_reduce_twice(qdr_dtype dtype, qdr_reduce op, void *dst, void *copy, const void *const *sources, int n_sources,
                       int64_t n)
{
    const size_t bytes_each = qdr_dtype_bytes(dtype);
    const combine_fn combine = combine_table[dtype == QDR_F64 ? 1 : dtype == QDR_I32 ? 2 : 0][op];
    if (n_sources == 1) {
        if (dst != sources[0] && n > 0) memmove(dst, sources[0], (size_t)n * bytes_each);
        if (copy != dst && n > 0) memmove(copy, dst, (size_t)n * bytes_each);
        return;
    }
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t n_block = qdri_least(n - at, BLOCK);
        if (qdri_is_narrow(dtype))
            reduce_block_narrow(dtype, combine, dst, copy, sources, n_sources, at, n_block);
        else
            reduce_block(combine, dst, copy, sources, n_sources, (size_t)at * bytes_each, n_block);
    }
}

void qdri_reduce(qdr_dtype dtype, qdr_reduce op, void *dst, const void *const *sources, int n_sources, int64_t n)
{
    qdri_reduce_twice(dtype, op, dst, dst, sources, n_sources, n);
}
