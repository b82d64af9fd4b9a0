/* SPDX-License-Identifier: Apache-2.0 */
/* Elements from one type to another, in host memory. */
#include <string.h>

#include "dev/cpu/narrow.h"

static double load(qdr_dtype type, const void *from, int64_t i)
{
    if (type == QDR_F64) return ((const double *)from)[i];
    if (type == QDR_F32) return (double)((const float *)from)[i];
    return (double)qdri_narrow_load(type, ((const uint16_t *)from)[i]);
}

/* The nearest fp32 number towards zero, with a last bit of 1 if it is not exact: rounding it once more, to fewer bits,
 * gives the nearest number of these (round to odd). */
static float to_odd(double x)
{
    const float nearest = (float)x;
    uint32_t bits = qdri_float_bits(nearest);
    if (x != x || (double)nearest == x) return nearest;
    if (nearest > 0 ? (double)nearest > x : (double)nearest < x) bits--;
    return qdri_float_of_bits(bits | 1);
}

static void store(qdr_dtype type, void *to, int64_t i, double x)
{
    if (type == QDR_F64)
        ((double *)to)[i] = x;
    else if (type == QDR_F32)
        ((float *)to)[i] = (float)x;
    else
        ((uint16_t *)to)[i] = qdri_narrow_round(type, to_odd(x));
}

void qdri_convert(qdr_dtype as, void *to, qdr_dtype type, const void *from, int64_t n)
{
    if (as == type)
        memcpy(to, from, (size_t)n * qdr_dtype_bytes(as));
    else if (type == QDR_F32 && qdri_is_narrow(as))
        qdri_narrow(as, to, from, n);
    else
        for (int64_t i = 0; i < n; i++) store(as, to, i, load(type, from, i));
}
