/* SPDX-License-Identifier: Apache-2.0 */
/* The rotation of blocks by signs and a Walsh-Hadamard transform, see quadrille/codec.h. */
#ifndef QDRI_DEV_CPU_KERNELS_ROTATION_H
#define QDRI_DEV_CPU_KERNELS_ROTATION_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/codec_format.h"

typedef float floats __attribute__((vector_size(32)));
typedef int32_t masks __attribute__((vector_size(32)));
enum { N_FLOATS = 8, MOST_VECTORS = QDRI_CODEC_MOST_BLOCK / N_FLOATS, MINUS = INT32_MIN };

#define SIGN(word, i) (int32_t)((word) << (i)&0x80000000u)
#define FOUR_SIGNS(word, i) SIGN(word, i), SIGN(word, i + 1), SIGN(word, i + 2), SIGN(word, i + 3)
#define SIGNS(word)                                                                                                    \
    {FOUR_SIGNS(word, 0), FOUR_SIGNS(word, 4)}, {FOUR_SIGNS(word, 8), FOUR_SIGNS(word, 12)},                           \
        {FOUR_SIGNS(word, 16), FOUR_SIGNS(word, 20)}, {FOUR_SIGNS(word, 24), FOUR_SIGNS(word, 28)},

/* Sign bits; the exclusive or with them multiplies elements by the signs of their places. */
static const masks signs[MOST_VECTORS] = {QDRI_CODEC_SIGNS(SIGNS)};

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

/* The Walsh-Hadamard transform, scaled so that it is its own inverse. The elements are multiplied by their signs before
 * it, or after it to turn them back, and stored or added. For a constant n_vectors, all loops are unrolled. */
static inline __attribute__((always_inline)) void transform_vectors(const float *x, ptrdiff_t n_vectors, int back,
                                                                    int accumulate, float *y)
{
    floats all[MOST_VECTORS];
    const float unit = 1 / sqrtf((float)((int)n_vectors * N_FLOATS)); /* first, lest it overflow */
    ptrdiff_t half = 4;
#pragma GCC unroll 8
    for (ptrdiff_t i = 0; i < n_vectors; i += 4) {
#pragma GCC unroll 4
        for (ptrdiff_t j = i; j < i + 4; j++) {
            memcpy(&all[j], x + j * N_FLOATS, sizeof *all);
            if (!back) all[j] = (floats)((masks)all[j] ^ signs[j]);
            all[j] *= unit;
            within(&all[j]);
        }
        among_four(all + i, 1);
    }
#pragma GCC unroll 2
    for (; 4 * half <= n_vectors; half *= 4) {
#pragma GCC unroll 8
        for (ptrdiff_t i = 0; i < n_vectors / 4; i++) among_four(all + i / half * 4 * half + i % half, half);
    }
#pragma GCC unroll 16
    for (ptrdiff_t i = 0; i < n_vectors - half; i++) between_two(all + i, half);
#pragma GCC unroll 32
    for (ptrdiff_t i = 0; i < n_vectors; i++) {
        floats sum = back ? (floats)((masks)all[i] ^ signs[i]) : all[i], before;
        if (accumulate) {
            memcpy(&before, y + i * N_FLOATS, sizeof before);
            sum = before + sum;
        }
        memcpy(y + i * N_FLOATS, &sum, sizeof sum);
    }
}

/* Rotates a block of n elements, 32 to 256. */
static inline void turn(const float *x, int n, float *y)
{
    if (n == 32)
        transform_vectors(x, 4, 0, 0, y);
    else if (n == 64)
        transform_vectors(x, 8, 0, 0, y);
    else if (n == 128)
        transform_vectors(x, 16, 0, 0, y);
    else
        transform_vectors(x, 32, 0, 0, y);
}

static inline void turn_back(const float *x, int n, int accumulate, float *y)
{
    if (n == 32)
        transform_vectors(x, 4, 1, accumulate, y);
    else if (n == 64)
        transform_vectors(x, 8, 1, accumulate, y);
    else if (n == 128)
        transform_vectors(x, 16, 1, accumulate, y);
    else
        transform_vectors(x, 32, 1, accumulate, y);
}

#endif
