/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of element types. */
#ifndef QDRI_CORE_DTYPE_H
#define QDRI_CORE_DTYPE_H

#include "quadrille/types.h"

/* The types in which layers compute, for messages. */
#define QDRI_FLOAT_NAMES "f32, f64, bf16 or f16"

/* Narrower than its sums: values are rounded when stored, and parameters have fp32 master copies. */
static inline int qdri_is_narrow(qdr_dtype dtype) { return dtype == QDR_BF16 || dtype == QDR_F16; }

/* Layers can compute in this type. */
static inline int qdri_is_float(qdr_dtype dtype)
{
    return dtype == QDR_F32 || dtype == QDR_F64 || qdri_is_narrow(dtype);
}

/* The type of sums and of gradients of parameters. */
static inline qdr_dtype qdri_sum_type(qdr_dtype dtype) { return dtype == QDR_F64 ? QDR_F64 : QDR_F32; }

/* The format to which the factors of a product are rounded first, each with its own scale. */
typedef enum qdri_rounding {
    QDRI_AS_STORED = 0, /* not at all */
    QDRI_E4M3, /* 3 bits of fraction, up to 448, no infinity */
    QDRI_E5M2 /* 2 bits of fraction, up to 57344 */
} qdri_rounding;

/* 1: the name of a type in which layers compute; else 0, and *dtype does not change. */
int qdri_float_named(const char *name, qdr_dtype *dtype);

#endif
