/* SPDX-License-Identifier: Apache-2.0 */
/* The scale of an operand that is rounded to fp8: a power of two, so that scaling is exact. Shared by CPU and GPUs. */
#ifndef QDRI_DEV_FP8_H
#define QDRI_DEV_FP8_H

#include <stdint.h>

#include "core/dtype.h"
#include "dev/host_device.h"

#define QDRI_FP8_INFINITY 0x7f800000u /* bits of fp32 */
#define QDRI_FP8_SCALE_MOST 100 /* exponent; scaled back, even the smallest number is far from the limits of fp32 */

/* The exponent of the scale for an operand whose largest |x| has these fp32 bits (NaN is larger than any number): the
 * largest power of two for which that number stays within the format. 0 if all elements are zero, or if one is not
 * finite. The largest number of both formats begins with 1.75. */
QDRI_HOST_DEVICE int qdri_fp8_scale_exponent(qdri_rounding rounding, uint32_t most)
{
    const int exponent = (int)(most >> 23) - 127, is_above = (most & 0x7fffffu) > 0x600000u;
    const int scale = (rounding == QDRI_E4M3 ? 8 : 15) - exponent - is_above;
    if (most == 0 || most >= QDRI_FP8_INFINITY) return 0;
    return scale < QDRI_FP8_SCALE_MOST ? scale : QDRI_FP8_SCALE_MOST;
}

/* Bits of 2^exponent, for -126 to 127. */
QDRI_HOST_DEVICE uint32_t qdri_fp8_power(int exponent) { return (uint32_t)(exponent + 127) << 23; }

#endif
