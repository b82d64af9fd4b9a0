/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 and F16, two-byte types whose elements are computed with in fp32; E4M3 and E5M2, represented as fp32 numbers. */
#ifndef QDRI_DEV_CPU_NARROW_H
#define QDRI_DEV_CPU_NARROW_H

#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "dev/fp8.h"

/* An fp32 number as its bits, and back. */
static inline uint32_t qdri_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float qdri_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* bfloat16 is the upper half of fp32; rounding is to nearest even and keeps NaN a NaN. */
static inline float qdri_bf16_load(uint16_t x) { return qdri_float_of_bits((uint32_t)x << 16); }

static inline uint16_t qdri_bf16_round(float value)
{
    const uint32_t bits = qdri_float_bits(value);
    const uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u), quiet = bits | 0x400000u;
    return (uint16_t)((value == value ? rounded : quiet) >> 16);
}

/* IEEE half precision: 5 bits of exponent and 10 of fraction, so the largest number is 65504, and numbers below 2^-14
 * are multiples of 2^-24. Rounding is to nearest even, and to Inf from 65520 on; NaN stays NaN, becomes quiet and keeps
 * its upper bits, as with F16C. Without branches, so that loops can be vectorised; all steps are exact except the
 * rounding itself. */

/* Moves the fraction to its place in fp32, and adds 127 - 15 to the exponent. A subnormal number gets the exponent of
 * 2^-14, and then 2^-14 is subtracted. */
static inline float qdri_f16_load(uint16_t x)
{
    const uint32_t size = x & 0x7fffu, sign = (uint32_t)(x & 0x8000u) << 16;
    const uint32_t normal = (size << 13) + (112u << 23);
    const uint32_t special = (normal + (112u << 23)) | (size > 0x7c00u ? 0x400000u : 0u);
    const uint32_t small = qdri_float_bits(qdri_float_of_bits(normal + (1u << 23)) - qdri_float_of_bits(113u << 23));
    const uint32_t finite = size < 0x400u ? small : normal;
    return qdri_float_of_bits(sign | (size >= 0x7c00u ? special : finite));
}

/* Numbers below 2^-14 are rounded by adding 0.5, whose last bit is 2^-24; the others as integers, where a carry
 * propagates into the exponent. */
static inline uint16_t qdri_f16_round(float value)
{
    const uint32_t bits = qdri_float_bits(value), size = bits & 0x7fffffffu;
    const uint32_t small = qdri_float_bits(qdri_float_of_bits(size) + 0.5f) - (126u << 23);
    const uint32_t normal = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
    const uint32_t finite = size < 113u << 23 ? small : normal;
    const uint32_t special = size > 0x7f800000u ? 0x7e00u | ((size >> 13) & 0x3ffu) : 0x7c00u;
    return (uint16_t)(((bits >> 16) & 0x8000u) | (size >= 0x477ff000u ? special : finite));
}

static inline float qdri_narrow_load(qdr_dtype dtype, uint16_t x)
{
    return dtype == QDR_F16 ? qdri_f16_load(x) : qdri_bf16_load(x);
}

static inline uint16_t qdri_narrow_round(qdr_dtype dtype, float value)
{
    return dtype == QDR_F16 ? qdri_f16_round(value) : qdri_bf16_round(value);
}

/* Converts n elements, vectorised (kernels.c). */
void qdri_widen(qdr_dtype dtype, float *to, const uint16_t *from, int64_t n);
void qdri_narrow(qdr_dtype dtype, uint16_t *to, const float *from, int64_t n);
/* Between F32, F64, BF16 and F16: rounded once, to nearest; the same type: the same bits (convert.c). */
void qdri_convert(qdr_dtype as, void *to, qdr_dtype type, const void *from, int64_t n);

/* The nearest number of the format, ties to even; saturates at the format's largest number. NaN stays NaN; infinity
 * stays infinity in E5M2 and becomes NaN in E4M3, which has no infinity. */
static inline float qdri_fp8_nearest(qdri_rounding rounding, float x)
{
    const int is_e4m3 = rounding == QDRI_E4M3;
    const uint32_t least_normal = qdri_fp8_power(is_e4m3 ? -6 : -14);
    const float most = is_e4m3 ? 448.0f : 57344.0f;
    const uint32_t bits = qdri_float_bits(x), size = bits & 0x7fffffffu;
    const uint32_t exponent = bits & QDRI_FP8_INFINITY;
    if (size >= QDRI_FP8_INFINITY) return is_e4m3 ? NAN : x;
    if (qdri_float_of_bits(size) > most) return copysignf(most, x);
    /* A number whose last bit is the last one that is kept: adding it rounds x at that bit. */
    const float step = qdri_float_of_bits((exponent > least_normal ? exponent : least_normal) +
                                          ((is_e4m3 ? 20u : 21u) << 23));
    const float shift = copysignf(1.5f * step, x);
    return copysignf((x + shift) - shift, x);
}

#endif
