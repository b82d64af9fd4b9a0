/* SPDX-License-Identifier: Apache-2.0 */
/* Element types. */
#include "quadrille/types.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [QDR_F32] = {"f32", 4}, [QDR_F64] = {"f64", 8}, [QDR_BF16] = {"bf16", 2},
    [QDR_I32] = {"i32", 4}, [QDR_U8] = {"u8", 1},
};

static int known(qdr_dtype dtype) { return (size_t)dtype < sizeof dtypes / sizeof dtypes[0]; }

size_t qdr_dtype_bytes(qdr_dtype dtype) { return known(dtype) ? dtypes[dtype].bytes : 0; }

const char *qdr_dtype_name(qdr_dtype dtype) { return known(dtype) ? dtypes[dtype].name : "?"; }
