/* SPDX-License-Identifier: Apache-2.0 */
/* What may be asked of an element type. */
#ifndef QDRI_CORE_DTYPE_H
#define QDRI_CORE_DTYPE_H

#include "quadrille/types.h"

/* The types that layers compute in, as sentences name them. */
#define QDRI_FLOAT_NAMES "f32, f64, bf16 or f16"

/* Narrower than its sums: rounded when stored, and parameters have fp32 master copies. */
static inline int qdri_is_narrow(qdr_dtype dtype) { return dtype == QDR_BF16 || dtype == QDR_F16; }

/* Layers compute in it. */
static inline int qdri_is_float(qdr_dtype dtype)
{
    return dtype == QDR_F32 || dtype == QDR_F64 || qdri_is_narrow(dtype);
}

/* The type of sums and of gradients of parameters. */
static inline qdr_dtype qdri_sum_type(qdr_dtype dtype) { return dtype == QDR_F64 ? QDR_F64 : QDR_F32; }

/* To what the factors of a product are rounded on their way into it, by a scale of each. */
typedef enum qdri_rounding {
    QDRI_AS_STORED = 0, /* not at all */
    QDRI_E4M3, /* 3 bits of fraction, to 448, no infinity */
    QDRI_E5M2 /* 2 bits of fraction, to 57344 */
} qdri_rounding;

/* 1: a type of that name that layers compute in; else 0, and *dtype is as it was. */
int qdri_float_named(const char *name, qdr_dtype *dtype);

#endif
