/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and gradients in fp32: for f32, bf16 and f16 elements. exp is written so that loops over it can be
 * vectorised. */
#include <math.h>

#include "dev/cpu/narrow.h"
#include "dev/normal.h"

typedef float real;
#define REAL_IS_FLOAT 1
#define REAL_GEMM cblas_sgemm
/* Beyond this limit the logistic function in GELU is 0 or 1; up to it, its exp is finite and normal. */
#define GELU_LIMIT 10
#define NORMAL_LIMIT 13 /* beyond, the normal distribution is nearly 0, or 1, and exp(-x²/2) may be subnormal */
#define EXP_LIMIT 87

/* x = n·ln 2 + r, |r| ≤ ln 2 / 2: exp(x) = 2^n·exp(r), within 2 units in the last place. Adding EXP_ROUND leaves n in
 * the lowest bits. The coefficients are the minimax polynomial for exp(r) from Cephes (Moshier 1989). */
#define EXP_ROUND 12582912.0f /* 1.5·2^23 */

/* Returns exp(r); *shifted = n + EXP_ROUND. */
static inline float exp_rest(float x, float *shifted)
{
    *shifted = x * 1.44269504f + EXP_ROUND;
    const float n = *shifted - EXP_ROUND;
    const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * (r * r) + r) + 1.0f;
}

/* Multiplies by 2^n in two steps, so that results may be subnormal, and become infinite only if they are too large. The
 * limits keep NaN. */
static inline real real_exp(real x)
{
    float shifted;
    x = x < -105.0f ? -105.0f : x;
    x = x > 89.5f ? 89.5f : x;
    const float p = exp_rest(x, &shifted);
    const uint32_t whole = qdri_float_bits(shifted) - qdri_float_bits(EXP_ROUND) + 256u; /* n + 256, not negative */
    const uint32_t half = whole >> 1;
    return p * qdri_float_of_bits((half - 1u) << 23) * qdri_float_of_bits((whole - half - 1u) << 23);
}

/* For results that are finite and normal, |x| < 87.6; NaN stays NaN. */
static inline real real_exp_normal(real x)
{
    float shifted;
    const float p = exp_rest(x, &shifted);
    return p * qdri_float_of_bits((qdri_float_bits(shifted) - qdri_float_bits(EXP_ROUND) + 127u) << 23);
}

/* exp(-x) within 3 + |x| units of 2^-24; beyond ±EXP_LIMIT as there, of NaN anything. Few steps, of which few wait for
 * others: -x = (n + r)·ln 2, |r| ≤ 1/2, and n is added to the exponent of a minimax polynomial for 2^r. Limits compare
 * bits, which is faster than masks. */
static inline real real_exp_minus(real x)
{
    const uint32_t least = 0xc2ae0000, bits = qdri_float_bits(x) < least ? qdri_float_bits(x) : least;
    const int32_t most = 0x42ae0000;
    const float near = qdri_float_of_bits((int32_t)bits < most ? bits : (uint32_t)most);
    const float shifted = EXP_ROUND - near * 1.44269504f;
    const float r = (EXP_ROUND - shifted) - near * 1.44269504f, r2 = r * r;
    const float high = (9.6184889571e-3f + 1.3399931220e-3f * r) + 1.5345812021e-4f * r2;
    const float p = (1.0f + 6.9314720574e-1f * r) + r2 * ((2.4022646891e-1f + 5.5503287770e-2f * r) + r2 * high);
    return qdri_float_of_bits(qdri_float_bits(p) + (qdri_float_bits(shifted) << 23));
}

static inline real real_sqrt(real x) { return sqrtf(x); }

/* Within 3 units in the last place: the polynomial of Cephes (Moshier 1989) below 5/8, and 1 - 2 / (exp(2x) + 1). NaN
 * stays NaN. */
static inline real real_tanh(real x)
{
    const float size = x < 0 ? -x : x, x2 = x * x;
    float p = -5.70498872745e-3f;
    p = p * x2 + 2.06390887954e-2f;
    p = p * x2 - 5.37397155531e-2f;
    p = p * x2 + 1.33314422036e-1f;
    p = p * x2 - 3.33332819422e-1f;
    const float large = 1 - 2 / (real_exp_normal(2 * (size > 10 ? 10 : size)) + 1);
    return size < 0.625f ? p * x2 * x + x : x < 0 ? -large : large;
}

/* The normal distribution at |x| ≤ NORMAL_LIMIT. */
static inline real real_normal(real x)
{
    const float a = x < 0 ? -x : x;
    const float tail = qdri_normal_tail(1 / (1 + QDRI_NORMAL_SCALE * a), real_exp_normal(-0.5f * (a * a)));
    return x < 0 ? tail : 1 - tail;
}
