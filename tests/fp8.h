/* SPDX-License-Identifier: Apache-2.0 */
/* E4M3 and E5M2 by their definition, in double: an independent conversion from and to their codes. */
#ifndef QDR_TESTS_FP8_H
#define QDR_TESTS_FP8_H

#include <math.h>
#include <stdint.h>

#include "core/dtype.h"

static inline int fp8_fraction(qdri_rounding rounding) { return rounding == QDRI_E4M3 ? 3 : 2; }
static inline int fp8_lowest(qdri_rounding rounding) { return rounding == QDRI_E4M3 ? -9 : -16; }
static inline double fp8_most(qdri_rounding rounding) { return rounding == QDRI_E4M3 ? 448 : 57344; }

/* What code 0 to 255 means. */
static inline double fp8_value(qdri_rounding rounding, int code)
{
    const int n_fraction = fp8_fraction(rounding), size = code & 0x7f;
    const int fraction = size & ((1 << n_fraction) - 1), exponent = size >> n_fraction;
    const double sign = code & 0x80 ? -1 : 1;
    if (rounding == QDRI_E4M3 && size == 0x7f) return (double)NAN;
    if (rounding == QDRI_E5M2 && size >= 0x7c) return fraction ? (double)NAN : sign * HUGE_VAL;
    if (exponent == 0) return sign * ldexp(fraction, fp8_lowest(rounding));
    return sign * ldexp(fraction + (1 << n_fraction), fp8_lowest(rounding) + exponent - 1);
}

/* The number nearest to x, of two the one of even code: codes grow with what they mean. */
static inline double fp8_nearest(qdri_rounding rounding, double x)
{
    const double size = fabs(x);
    int below = 0, above = 0x7f;
    if (!isfinite(x)) return rounding == QDRI_E5M2 ? x : (double)NAN;
    if (size > fp8_most(rounding)) return copysign(fp8_most(rounding), x);
    while (above - below > 1) {
        const int middle = (below + above) / 2;
        if (fp8_value(rounding, middle) <= size)
            below = middle;
        else
            above = middle;
    }
    const double low = fp8_value(rounding, below), high = fp8_value(rounding, above);
    const int is_above = high - size < size - low || (high - size == size - low && above % 2 == 0);
    return copysign(is_above ? high : low, x);
}

/* The largest power of two that keeps `most` within the format; 2^100 at most. */
static inline double fp8_scale(qdri_rounding rounding, double most)
{
    int scale = 100;
    if (most == 0 || !isfinite(most)) return 1;
    while (ldexp(most, scale) > fp8_most(rounding)) scale--;
    return ldexp(1, scale);
}

#endif
