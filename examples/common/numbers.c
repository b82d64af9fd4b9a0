/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers on a device. */
#include "numbers.h"

#include <quadrille/convert.h>
#include <stdlib.h>

/* Depends on all bits of the position, so that a product of regular numbers cannot look faster than it is. */
static double number_at(int64_t i)
{
    uint64_t x = (uint64_t)i + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-52 - 1;
}

qdr_status numbers_fill(qdr_context *ctx, void *data, int64_t n, qdr_dtype dtype)
{
    const size_t bytes = (size_t)n * qdr_dtype_bytes(dtype);
    void *host = malloc(bytes ? bytes : 1);
    if (!host) return QDR_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        const float narrow = (float)number_at(i);
        if (dtype == QDR_F64) ((double *)host)[i] = number_at(i);
        if (dtype == QDR_F32) ((float *)host)[i] = narrow;
        if (dtype == QDR_BF16) qdr_bf16_from_f32((uint16_t *)host + i, &narrow, 1);
        if (dtype == QDR_F16) qdr_f16_from_f32((uint16_t *)host + i, &narrow, 1);
    }
    qdr_status status = qdr_copy(ctx, data, host, bytes, NULL);
    if (status >= 0) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    free(host);
    return status;
}
