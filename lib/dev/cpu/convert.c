/* SPDX-License-Identifier: Apache-2.0 */
/* The public conversions of arrays: they use the casts of the CPU kernels. */
#include "quadrille/convert.h"

#include "dev/cpu/narrow.h"

void qdr_bf16_from_f32(uint16_t *to, const float *from, int64_t n) { qdri_narrow(QDR_BF16, to, from, n); }

void qdr_f32_from_bf16(float *to, const uint16_t *from, int64_t n) { qdri_widen(QDR_BF16, to, from, n); }

void qdr_f16_from_f32(uint16_t *to, const float *from, int64_t n) { qdri_narrow(QDR_F16, to, from, n); }

void qdr_f32_from_f16(float *to, const uint16_t *from, int64_t n) { qdri_widen(QDR_F16, to, from, n); }
