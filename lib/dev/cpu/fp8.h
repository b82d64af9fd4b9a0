/* SPDX-License-Identifier: Apache-2.0 */
/* E4M3 and E5M2 on the CPU, represented as fp32 numbers. */
#ifndef QDRI_DEV_CPU_FP8_H
#define QDRI_DEV_CPU_FP8_H

#include <math.h>

#include "dev/cpu/narrow.h"
#include "dev/fp8.h"

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
