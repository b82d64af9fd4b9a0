/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tensors, and what their tensors are. */
#include <string.h>

#include "ckpt/ckpt.h"

int ckpt_open(const char *path, qdr_safetensors **file, failure *why)
{
    return fail_loading(why, qdr_safetensors_open(path, file));
}

int ckpt_is_real(const qdr_tensor *tensor)
{
    return tensor->dtype == QDR_F32 || tensor->dtype == QDR_F64 || tensor->dtype == QDR_BF16 ||
           tensor->dtype == QDR_F16;
}

int64_t ckpt_bytes(const qdr_safetensors *file, int only_real)
{
    int64_t bytes = 0;
    for (int i = 0; i < qdr_safetensors_count(file); i++) {
        const qdr_tensor *tensor = qdr_safetensors_tensor(file, i);
        if (!only_real || ckpt_is_real(tensor)) bytes += tensor->bytes;
    }
    return bytes;
}

int ckpt_same_shape(const qdr_tensor *a, const qdr_tensor *b)
{
    return a->n_dims == b->n_dims && memcmp(a->shape, b->shape, (size_t)a->n_dims * sizeof *a->shape) == 0;
}

int64_t ckpt_rows(const qdr_tensor *tensor) { return tensor->n_dims ? tensor->shape[0] : 1; }

int64_t ckpt_columns_of(const qdr_tensor *tensor)
{
    int64_t n = 1;
    for (int i = 1; i < tensor->n_dims; i++)
        if (__builtin_mul_overflow(n, tensor->shape[i], &n)) return INT64_MAX;
    return n;
}
