/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow number types, rounded to nearest even. */
#include <math.h>
#include <string.h>

#include "lt.h"

int fake_type_is_fp8(int type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

int fake_type_bytes(int type)
{
    switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return 1;
    default: return 0;
    }
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Drops the last n bits of a float. */
static uint32_t round_bits(float value, int n)
{
    const uint32_t bits = bits_of(value);
    if (isnan(value)) return bits | 0x400000u;
    return bits + ((1u << (n - 1)) - 1 + (bits >> n & 1));
}

float fake_round_tf32(float value) { return isfinite(value) ? of_bits(round_bits(value, 13) & ~0x1fffu) : value; }

/* sign, n_exponent, n_mantissa bits. */
static double small_load(unsigned bits, int n_exponent, int n_mantissa)
{
    const unsigned mantissa = bits & ((1u << n_mantissa) - 1);
    const int exponent = (int)(bits >> n_mantissa & ((1u << n_exponent) - 1));
    const int bias = (1 << (n_exponent - 1)) - 1;
    const double sign = bits >> (n_exponent + n_mantissa) & 1 ? -1 : 1;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - n_mantissa);
    return sign * ldexp(mantissa + (1u << n_mantissa), exponent - bias - n_mantissa);
}

static double half_load(unsigned bits)
{
    if ((bits & 0x7c00) == 0x7c00) {
        if (bits & 0x3ff) return NAN;
        return bits & 0x8000 ? -INFINITY : INFINITY;
    }
    return small_load(bits, 5, 10);
}

static double e5m2_load(unsigned bits) { return half_load(bits << 8); }

/* No infinity, and one NaN. */
static double e4m3_load(unsigned bits) { return (bits & 0x7f) == 0x7f ? NAN : small_load(bits, 4, 3); }

static uint16_t half_store(double value)
{
    const unsigned sign = signbit(value) ? 0x8000 : 0;
    const double size = fabs(value);
    int exponent;
    if (isnan(value)) return 0x7fff;
    if (size >= 65520) return (uint16_t)(sign | 0x7c00);
    if (size == 0) return (uint16_t)sign;
    frexp(size, &exponent);
    const int last = (exponent < -13 ? -13 : exponent) - 11; /* of the last bit */
    const double n = nearbyint(ldexp(size, -last)); /* of them; 2048 carries into the exponent */
    const unsigned begin = (unsigned)(last + 24) << 10;
    return (uint16_t)(sign | (begin + (unsigned)n));
}

double fake_load(const void *data, int64_t index, int type)
{
    switch (type) {
    case CUDA_R_64F: return ((const double *)data)[index];
    case CUDA_R_32F: return (double)((const float *)data)[index];
    case CUDA_R_16BF: return (double)of_bits((uint32_t)((const uint16_t *)data)[index] << 16);
    case CUDA_R_16F: return half_load(((const uint16_t *)data)[index]);
    case CUDA_R_8F_E4M3: return e4m3_load(((const uint8_t *)data)[index]);
    default: return e5m2_load(((const uint8_t *)data)[index]);
    }
}

void fake_store(void *data, int64_t index, int type, double value)
{
    switch (type) {
    case CUDA_R_64F: ((double *)data)[index] = value; break;
    case CUDA_R_32F: ((float *)data)[index] = (float)value; break;
    case CUDA_R_16BF: ((uint16_t *)data)[index] = (uint16_t)(round_bits((float)value, 16) >> 16); break;
    default: ((uint16_t *)data)[index] = half_store(value); break;
    }
}
