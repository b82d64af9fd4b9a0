/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers on a device. */
#include "numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* To the nearest bf16, the upper half of an f32. */
static uint16_t bf16_of(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* To the nearest f16 of a number below 65504: 11 significant bits, but no step below 2^-24. */
static uint16_t f16_of(float number)
{
    int exponent;
    (void)frexpf(number, &exponent);
    const int step = exponent - 11 > -24 ? exponent - 11 : -24;
    const long n_steps = number == 0 ? 0 : lrintf(ldexpf(fabsf(number), -step));
    const long size = number == 0 ? 0 : (step + 24) * 1024L + n_steps;
    return (uint16_t)(size | (signbit(number) ? 0x8000 : 0));
}

/* All bits of the place count, so that a fast product of regular numbers deceives nobody. */
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
        if (dtype == QDR_F64) ((double *)host)[i] = number_at(i);
        if (dtype == QDR_F32) ((float *)host)[i] = (float)number_at(i);
        if (dtype == QDR_BF16) ((uint16_t *)host)[i] = bf16_of((float)number_at(i));
        if (dtype == QDR_F16) ((uint16_t *)host)[i] = f16_of((float)number_at(i));
    }
    qdr_status status = qdr_copy(ctx, data, host, bytes, NULL);
    if (status >= 0) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    free(host);
    return status;
}
