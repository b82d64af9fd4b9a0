/* SPDX-License-Identifier: Apache-2.0 */
/* E4M3 and E5M2 by their definition, in double: an independent way from and to their codes. */
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

/* The number nearest to x, of two the one of even code: by a look at all of them. */
static inline double fp8_nearest(qdri_rounding rounding, double x)
{
    int best = 0;
    if (!isfinite(x)) return rounding == QDRI_E5M2 ? x : (double)NAN;
    if (fabs(x) > fp8_most(rounding)) return copysign(fp8_most(rounding), x);
    for (int code = 1; code < 0x7f; code++) {
        const double error = fabs(fp8_value(rounding, code) - fabs(x)),
                     least = fabs(fp8_value(rounding, best) - fabs(x));
        if (error < least || (error == least && code % 2 == 0)) best = code;
    }
    return copysign(fp8_value(rounding, best), x);
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
