/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention of the local heads. */
#include "core/size.h"
#include "ops/ops.h"
#include "ops/steps.h"

static const char who[] = "attention";

static qdr_status heads_check(const qdr_attention *a)
{
    QDR_TRY(qdri_check_extent(who, "n_heads", a->n_heads));
    QDR_TRY(qdri_check_extent(who, "n_kv_heads", a->n_kv_heads));
    if (a->head_size < 1)
        return QDR_FAIL(QDR_ERR_SHAPE, "attention: head_size is %" PRId64 "; it must be ≥ 1", a->head_size);
    if (a->n_heads && (a->n_kv_heads == 0 || a->n_heads % a->n_kv_heads))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "attention: %" PRId64 " key heads do not divide %" PRId64
                        " query heads; each key head must serve the same number of query heads",
                        a->n_kv_heads, a->n_heads);
    return QDR_OK;
}

/* *n_qkv and *n_y: elements of qkv and of y. */
static qdr_status attention_check(const qdr_attention *a, int64_t *n_qkv, int64_t *n_y)
{
    int64_t cols = 0, heads = 0;
    QDR_TRY(qdri_check_object(who, a, "the description"));
    QDR_TRY(qdri_check_version(who, a->version));
    QDR_TRY(qdri_check_dtype(who, a->dtype));
    QDR_TRY(qdri_check_extent(who, "n_rows", a->n_rows));
    if (a->context < 1 || a->n_rows % a->context)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "attention: n_rows %" PRId64 " is not a multiple of the context %" PRId64
                        "; give whole sequences",
                        a->n_rows, a->context);
    QDR_TRY(heads_check(a));
    QDR_TRY(qdri_mul_elems(2, a->n_kv_heads, &heads));
    if (heads > INT64_MAX - a->n_heads)
        return QDR_FAIL(QDR_ERR_SHAPE, "attention: %" PRId64 " heads are too many", a->n_heads);
    QDR_TRY(qdri_mul_elems(a->n_heads + heads, a->head_size, &cols));
    QDR_TRY(qdri_mul_elems(a->n_rows, cols, n_qkv));
    return qdri_mul_elems(a->n_rows, a->n_heads * a->head_size, n_y);
}

qdr_status qdr_attention_sizes(const qdr_attention *attention, size_t *saved_bytes, size_t *work_bytes)
{
    int64_t n_qkv = 0, n_y = 0;
    QDR_TRY(qdri_check_object(who, saved_bytes, "saved_bytes"));
    QDR_TRY(qdri_check_object(who, work_bytes, "work_bytes"));
    *saved_bytes = *work_bytes = 0;
    QDR_TRY(attention_check(attention, &n_qkv, &n_y));
    return qdri_attention_bytes(attention, saved_bytes, work_bytes);
}

static qdri_kernel attention_kernel(const qdr_attention *a, qdri_kernel_kind kind)
{
    qdri_kernel kernel = {.kind = kind, .dtype = a->dtype};
    kernel.u.attention.n_rows = a->n_rows;
    kernel.u.attention.context = a->context;
    kernel.u.attention.n_heads = a->n_heads;
    kernel.u.attention.n_kv_heads = a->n_kv_heads;
    kernel.u.attention.head_size = a->head_size;
    return kernel;
}

qdri_kernel qdri_attention_forward(const qdr_attention *attention, const void *qkv, void *y, void *saved, void *work)
{
    qdri_kernel kernel = attention_kernel(attention, QDRI_K_ATTENTION_FORWARD);
    kernel.u.attention.qkv = qkv;
    kernel.u.attention.out = y;
    kernel.u.attention.saved = saved;
    kernel.u.attention.work = work;
    return kernel;
}

qdri_kernel qdri_attention_backward(const qdr_attention *attention, const void *dy, const void *qkv, const void *y,
                                    const void *saved, void *dqkv, void *work)
{
    qdri_kernel kernel = attention_kernel(attention, QDRI_K_ATTENTION_BACKWARD);
    kernel.u.attention.dy = dy;
    kernel.u.attention.qkv = qkv;
    kernel.u.attention.y = y;
    kernel.u.attention.saved = qdri_only_read(saved);
    kernel.u.attention.out = dqkv;
    kernel.u.attention.work = work;
    return kernel;
}

/* What both directions need. */
static qdr_status check(const qdr_context *ctx, const qdr_attention *attention, int64_t *n_qkv, int64_t *n_y,
                        size_t *saved_bytes, size_t *work_bytes)
{
    QDR_TRY(qdri_check_object(who, ctx, "the context"));
    QDR_TRY(attention_check(attention, n_qkv, n_y));
    return qdri_attention_bytes(attention, saved_bytes, work_bytes);
}

qdr_status qdr_attention_forward(qdr_context *ctx, const qdr_attention *attention, const void *qkv, void *y,
                                 void *saved, void *work, qdr_stream *stream)
{
    int64_t n_qkv = 0, n_y = 0;
    size_t saved_bytes = 0, work_bytes = 0;
    QDR_TRY(check(ctx, attention, &n_qkv, &n_y, &saved_bytes, &work_bytes));
    const qdr_dtype dtype = attention->dtype, sum_type = qdri_sum_type(dtype);
    QDR_TRY(QDRI_ARRAYS_CHECK(qdri_context_dev(ctx), who, qdri_read("qkv", qkv, n_qkv, dtype),
                              qdri_write("y", y, n_y, dtype),
                              qdri_memory("saved", saved, n_y, sum_type, saved_bytes, 1),
                              qdri_memory("work", work, n_y, sum_type, work_bytes, 1)));
    const qdri_kernel kernel = qdri_attention_forward(attention, qkv, y, saved, work);
    return qdri_kernel_run(stream ? stream : qdr_context_stream(ctx), &kernel);
}

qdr_status qdr_attention_backward(qdr_context *ctx, const qdr_attention *attention, const void *qkv, const void *y,
                                  const void *saved, const void *dy, void *dqkv, void *work, qdr_stream *stream)
{
    int64_t n_qkv = 0, n_y = 0;
    size_t saved_bytes = 0, work_bytes = 0;
    QDR_TRY(check(ctx, attention, &n_qkv, &n_y, &saved_bytes, &work_bytes));
    const qdr_dtype dtype = attention->dtype, sum_type = qdri_sum_type(dtype);
    QDR_TRY(QDRI_ARRAYS_CHECK(qdri_context_dev(ctx), who, qdri_read("qkv", qkv, n_qkv, dtype),
                              qdri_read("y", y, n_y, dtype), qdri_memory("saved", saved, n_y, sum_type, saved_bytes, 0),
                              qdri_read("dy", dy, n_y, dtype), qdri_write("dqkv", dqkv, n_qkv, dtype),
                              qdri_memory("work", work, n_y, sum_type, work_bytes, 1)));
    const qdri_kernel kernel = qdri_attention_backward(attention, dy, qkv, y, saved, dqkv, work);
    return qdri_kernel_run(stream ? stream : qdr_context_stream(ctx), &kernel);
}
