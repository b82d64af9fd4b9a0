/* SPDX-License-Identifier: Apache-2.0 */
/* Element types. */
#include <string.h>

#include "core/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [QDR_F32] = {"f32", 4}, [QDR_F64] = {"f64", 8}, [QDR_BF16] = {"bf16", 2},
    [QDR_I32] = {"i32", 4}, [QDR_U8] = {"u8", 1},   [QDR_F16] = {"f16", 2},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

static int known(qdr_dtype dtype) { return (size_t)dtype < N_DTYPES; }

size_t qdr_dtype_bytes(qdr_dtype dtype) { return known(dtype) ? dtypes[dtype].bytes : 0; }

const char *qdr_dtype_name(qdr_dtype dtype) { return known(dtype) ? dtypes[dtype].name : "?"; }

int qdri_float_named(const char *name, qdr_dtype *dtype)
{
    for (int i = 0; i < N_DTYPES; i++) {
        if (!qdri_is_float((qdr_dtype)i) || strcmp(name, dtypes[i].name) != 0) continue;
        *dtype = (qdr_dtype)i;
        return 1;
    }
    return 0;
}
