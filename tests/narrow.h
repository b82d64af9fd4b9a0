/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 and F16 by their definition, in double: an independent conversion from and to their bits. */
#ifndef QDR_TESTS_NARROW_H
#define QDR_TESTS_NARROW_H

#include <math.h>
#include <stdint.h>

#include "quadrille/types.h"

/* Bits of the fraction, and the exponent of the smallest step. */
static inline int narrow_fraction(qdr_dtype dtype) { return dtype == QDR_F16 ? 10 : 7; }
static inline int narrow_lowest(qdr_dtype dtype) { return dtype == QDR_F16 ? -24 : -133; }

static inline double narrow_value(qdr_dtype dtype, uint16_t bits)
{
    const int n_fraction = narrow_fraction(dtype), n_exponent = 15 - n_fraction;
    const int fraction = bits & ((1 << n_fraction) - 1);
    const int exponent = bits >> n_fraction & ((1 << n_exponent) - 1);
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << n_exponent) - 1) return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, narrow_lowest(dtype));
    return sign * ldexp(fraction + (1 << n_fraction), narrow_lowest(dtype) + exponent - 1);
}

/* The nearest; of two the even one. */
static inline uint16_t narrow_bits(qdr_dtype dtype, double value)
{
    const int n_fraction = narrow_fraction(dtype), lowest = narrow_lowest(dtype);
    const int sign = signbit(value) ? 1 << 15 : 0, infinite = 0x7fff >> n_fraction << n_fraction;
    int exponent = lowest;
    if (isnan(value)) return (uint16_t)(sign | infinite | 1 << (n_fraction - 1));
    if (isinf(value)) return (uint16_t)(sign | infinite);
    if (value != 0) (void)frexp(value, &exponent);
    const int wanted = exponent - n_fraction - 1, step = wanted > lowest ? wanted : lowest;
    const double n_steps = nearbyint(ldexp(fabs(value), -step));
    const double bits = ldexp(step - lowest, n_fraction) + n_steps; /* a carry goes on */
    return (uint16_t)(sign | (bits < infinite ? (int)bits : infinite));
}

static inline int is_narrow(qdr_dtype dtype) { return dtype == QDR_BF16 || dtype == QDR_F16; }

/* Half a unit in the last place, as a share of the number, and below all shares. */
static inline double narrow_roundoff(qdr_dtype dtype) { return ldexp(1, -narrow_fraction(dtype) - 1); }
static inline double narrow_least(qdr_dtype dtype) { return ldexp(1, narrow_lowest(dtype) - 1); }

#endif
