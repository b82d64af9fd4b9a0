/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and gradients in fp32: for f32 and bf16 elements. exp is written so that loops over it
 * become vector code. */
#include <math.h>
#include <string.h>

typedef float real;
#define REAL_GEMM cblas_sgemm
/* Beyond it the logistic function in GELU is 0 or 1; up to it its exp is finite. */
#define GELU_LIMIT 10

static inline float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* x = n·ln 2 + r, |r| ≤ ln 2 / 2: exp(x) = 2^n·exp(r), within 2 units in the last place. Adding
 * `round` leaves n in the lowest bits. 2^n is multiplied on in two steps, so that results may be
 * subnormal, and infinite only where they are. The limits keep NaN. The coefficients are the
 * minimax polynomial of Cephes (Moshier 1989) for exp(r). */
static inline real real_exp(real x)
{
    const float round = 12582912.0f; /* 1.5·2^23 */
    x = x < -105.0f ? -105.0f : x;
    x = x > 89.5f ? 89.5f : x;
    const float shifted = x * 1.44269504f + round;
    const float n = shifted - round;
    const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    const uint32_t whole = to_bits(shifted) - to_bits(round) + 256u; /* n + 256, not negative */
    const uint32_t half = whole >> 1;
    return p * from_bits((half - 1u) << 23) * from_bits((whole - half - 1u) << 23);
}

static inline real real_sqrt(real x) { return sqrtf(x); }
