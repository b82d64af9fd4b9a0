/* SPDX-License-Identifier: Apache-2.0 */
/* An fp32 number as its bits, and back. */
#ifndef QDRI_DEV_CPU_BITS_H
#define QDRI_DEV_CPU_BITS_H

#include <stdint.h>
#include <string.h>

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

#endif
