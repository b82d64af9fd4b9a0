/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 and F16, two-byte types whose elements are computed with in fp32. */
#ifndef QDRI_DEV_CPU_NARROW_H
#define QDRI_DEV_CPU_NARROW_H

#include "core/dtype.h"
#include "dev/cpu/bf16.h"
#include "dev/cpu/f16.h"

static inline float qdri_narrow_load(qdr_dtype dtype, uint16_t x)
{
    return dtype == QDR_F16 ? qdri_f16_load(x) : qdri_bf16_load(x);
}

static inline uint16_t qdri_narrow_round(qdr_dtype dtype, float value)
{
    return dtype == QDR_F16 ? qdri_f16_round(value) : qdri_bf16_round(value);
}

/* Converts n elements, vectorised (kernels.c). */
void qdri_widen(qdr_dtype dtype, float *to, const uint16_t *from, int64_t n);
void qdri_narrow(qdr_dtype dtype, uint16_t *to, const float *from, int64_t n);

#endif
