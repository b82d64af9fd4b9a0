/* SPDX-License-Identifier: Apache-2.0 */
/* Elements from one type to another, in host memory. */
#ifndef QDRI_CHECKPOINT_CONVERT_H
#define QDRI_CHECKPOINT_CONVERT_H

#include "core/dtype.h"

/* Between F32, F64, BF16 and F16: rounded once, to nearest; the same type: the same bits. */
void qdri_convert(qdr_dtype as, void *to, qdr_dtype type, const void *from, int64_t n);
/* Makes each F32 master, in place, the parameter that it is not rounded to: one that was set since the last step. */
void qdri_follow_parameters(qdr_dtype type, float *masters, const uint16_t *parameters, int64_t n);

#endif
