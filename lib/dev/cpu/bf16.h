/* SPDX-License-Identifier: Apache-2.0 */
/* bfloat16 is the upper half of fp32; rounding is to nearest even and keeps NaN a NaN. */
#ifndef QDRI_DEV_CPU_BF16_H
#define QDRI_DEV_CPU_BF16_H

#include "dev/cpu/bits.h"

static inline float qdri_bf16_load(uint16_t x) { return qdri_float_of_bits((uint32_t)x << 16); }

static inline uint16_t qdri_bf16_round(float value)
{
    const uint32_t bits = qdri_float_bits(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

#endif
