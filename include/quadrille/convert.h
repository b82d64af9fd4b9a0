/* SPDX-License-Identifier: Apache-2.0 */
/** @file convert.h  Arrays of fp32 to bfloat16 and IEEE half, and back.
 *
 * Elements of QDR_BF16 and QDR_F16 are 16-bit integers that hold the bits of the number: a sign,
 * 8 bits of exponent and 7 of fraction for bfloat16, and 5 and 10 for half. Parameters of a stack of
 * either type are loaded and gathered in that form.
 *
 * Narrowing rounds to nearest, ties to even:
 *  - Subnormals are rounded like other numbers; nothing is flushed to zero, and zeros keep their sign.
 *  - Values that round beyond the largest number become infinity: from 65520 on for half (largest 65504).
 *  - A NaN stays a NaN: it becomes quiet and keeps its sign and the upper bits of its payload.
 *
 * Widening is exact, subnormals included; a signalling NaN of a half becomes quiet, one of a bfloat16
 * keeps its bits. Widening and narrowing again gives the same bits for all numbers that are not
 * signalling NaN.
 *
 * All arrays are in host memory; `from` and `to` may not overlap. n elements, none if n ≤ 0. Local, blocking,
 * thread-safe; these functions cannot fail. The calling thread's rounding mode must be the default, to nearest. */
#ifndef QUADRILLE_CONVERT_H
#define QUADRILLE_CONVERT_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

QDR_API void qdr_bf16_from_f32(uint16_t *to, const float *from, int64_t n);
QDR_API void qdr_f32_from_bf16(float *to, const uint16_t *from, int64_t n);
QDR_API void qdr_f16_from_f32(uint16_t *to, const float *from, int64_t n);
QDR_API void qdr_f32_from_f16(float *to, const uint16_t *from, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
