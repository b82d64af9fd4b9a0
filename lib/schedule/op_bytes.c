/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of operations. */
#include "schedule/op_bytes.h"

#include "core/size.h"

enum { ALIGN = 64 };

qdr_status qdri_norm_bytes(const qdr_layer_norm *norm, int64_t n_parts, size_t *saved_bytes, size_t *work_bytes)
{
    const qdr_dtype sum_type = qdri_sum_type(norm->dtype);
    QDR_TRY(qdri_block_bytes(norm->n_rows, 3 * n_parts, sum_type, work_bytes));
    return qdri_block_bytes(norm->n_rows, 2, sum_type, saved_bytes);
}

/* On a CPU: blocks of scores, and panels of one head; on a GPU: a sum for each row and head. */
size_t qdri_attention_work_bytes(const qdr_attention *a)
{
    const size_t real_bytes = qdr_dtype_bytes(qdri_sum_type(a->dtype));
    const size_t n_panels = qdri_is_narrow(a->dtype) ? 7 : 0; /* q, k, v, dy or y, dq, dk, dv */
    const size_t n_elems = (size_t)a->context * ((size_t)2 * QDRI_ATTENTION_BLOCK + n_panels * (size_t)a->head_size);
    const size_t n_sums = (size_t)a->n_heads * (size_t)a->n_rows;
    return qdri_align_bytes((n_sums > n_elems ? n_sums : n_elems) * real_bytes, ALIGN);
}

qdr_status qdri_attention_bytes(const qdr_attention *attention, size_t *saved_bytes, size_t *work_bytes)
{
    QDR_TRY(qdri_block_bytes(attention->n_heads, attention->n_rows, qdri_sum_type(attention->dtype), saved_bytes));
    *work_bytes = qdri_attention_work_bytes(attention);
    return QDR_OK;
}

size_t qdri_cross_entropy_sums(const qdr_cross_entropy *ce)
{
    return qdri_align_bytes((size_t)ce->n_rows * qdr_dtype_bytes(qdri_sum_type(ce->dtype)), ALIGN);
}

qdr_status qdri_cross_entropy_bytes(const qdr_cross_entropy *ce, size_t *saved_bytes, size_t *work_bytes)
{
    QDR_TRY(qdri_block_bytes(ce->n_rows, 2, qdri_sum_type(ce->dtype), saved_bytes));
    *work_bytes = qdri_cross_entropy_sums(ce) + *saved_bytes;
    return QDR_OK;
}
