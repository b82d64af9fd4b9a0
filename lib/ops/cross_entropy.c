/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy of logits whose vocabulary is split over an axis: maximum, Σexp and target logit are reduced over
 * it. */
#include "core/size.h"
#include "ops/ops.h"
#include "ops/steps.h"

static const char who[] = "cross-entropy";

static qdr_status ce_check(const qdr_grid *grid, const qdr_cross_entropy *ce)
{
    int64_t n_elems = 0;
    QDR_TRY(qdri_check_object(who, grid, "the grid"));
    QDR_TRY(qdri_check_object(who, ce, "the description"));
    QDR_TRY(qdri_check_version(who, ce->version));
    QDR_TRY(qdri_check_dtype(who, ce->dtype));
    QDR_TRY(qdri_check_axis(who, ce->axis));
    QDR_TRY(qdri_check_extent(who, "n_rows", ce->n_rows));
    QDR_TRY(qdri_check_extent(who, "n_cols", ce->n_cols));
    QDR_TRY(qdri_check_extent(who, "vocab_begin", ce->vocab_begin));
    return qdri_mul_elems(ce->n_rows, ce->n_cols, &n_elems);
}

qdr_status qdr_cross_entropy_sizes(const qdr_grid *grid, const qdr_cross_entropy *ce, size_t *saved_bytes,
                                   size_t *work_bytes)
{
    QDR_TRY(qdri_check_object(who, saved_bytes, "saved_bytes"));
    QDR_TRY(qdri_check_object(who, work_bytes, "work_bytes"));
    *saved_bytes = *work_bytes = 0;
    QDR_TRY(ce_check(grid, ce));
    return qdri_cross_entropy_bytes(ce, saved_bytes, work_bytes);
}

static qdri_kernel ce_kernel(const qdr_cross_entropy *ce, qdri_kernel_kind kind, const void *logits,
                             const int32_t *targets)
{
    qdri_kernel kernel = {.kind = kind, .dtype = ce->dtype};
    kernel.u.ce.n_rows = ce->n_rows;
    kernel.u.ce.n_cols = ce->n_cols;
    kernel.u.ce.begin = ce->vocab_begin;
    kernel.u.ce.vocab = ce->vocab;
    kernel.u.ce.logits = logits;
    kernel.u.ce.targets = targets;
    return kernel;
}

qdri_kernel qdri_loss_max(const qdr_cross_entropy *ce, const void *logits, void *maxima)
{
    qdri_kernel kernel = ce_kernel(ce, QDRI_K_CE_MAX, logits, NULL);
    kernel.u.ce.work = maxima;
    return kernel;
}

qdri_kernel qdri_loss_sums(const qdr_cross_entropy *ce, const void *logits, const int32_t *targets, const void *maxima,
                           void *sums)
{
    qdri_kernel kernel = ce_kernel(ce, QDRI_K_CE_SUMS, logits, targets);
    kernel.u.ce.work = qdri_only_read(maxima);
    kernel.u.ce.work2 = sums;
    return kernel;
}

qdri_kernel qdri_loss(const qdr_cross_entropy *ce, const int32_t *targets, const void *maxima, const void *sums,
                      double *result, void *saved)
{
    qdri_kernel kernel = ce_kernel(ce, QDRI_K_CE_LOSS, NULL, targets);
    kernel.u.ce.work = qdri_only_read(maxima);
    kernel.u.ce.work2 = qdri_only_read(sums);
    kernel.u.ce.result = result;
    kernel.u.ce.saved = saved;
    return kernel;
}

qdri_kernel qdri_loss_backward(const qdr_cross_entropy *ce, const void *logits, const int32_t *targets,
                               const void *saved, double scale, void *dlogits)
{
    qdri_kernel kernel = ce_kernel(ce, QDRI_K_CE_BACKWARD, logits, targets);
    kernel.u.ce.saved = qdri_only_read(saved);
    kernel.u.ce.scale = scale;
    kernel.u.ce.dlogits = dlogits;
    return kernel;
}

qdr_status qdr_cross_entropy_forward(qdr_grid *grid, const qdr_cross_entropy *ce, const void *logits,
                                     const int32_t *targets, double result[2], void *saved, void *work,
                                     qdr_stream *stream)
{
    QDR_TRY(ce_check(grid, ce));
    const qdr_dtype sum_type = qdri_sum_type(ce->dtype);
    size_t saved_bytes = 0, work_bytes = 0;
    QDR_TRY(qdri_check_object(who, result, "result"));
    QDR_TRY(qdri_cross_entropy_bytes(ce, &saved_bytes, &work_bytes));
    QDR_TRY(QDRI_ARRAYS_CHECK(qdri_grid_dev(grid), who, qdri_read("logits", logits, ce->n_rows * ce->n_cols, ce->dtype),
                              qdri_read("targets", targets, ce->n_rows, QDR_I32),
                              qdri_write("result", result, 2, QDR_F64),
                              qdri_memory("saved", saved, ce->n_rows, sum_type, saved_bytes, 1),
                              qdri_memory("work", work, ce->n_rows, sum_type, work_bytes, 1)));
    void *sums = work ? (char *)work + qdri_cross_entropy_sums(ce) : NULL;
    stream = qdri_stream_or_default(grid, stream);
    QDR_TRY(qdri_step(qdri_loss_max(ce, logits, work), stream));
    QDR_TRY(qdri_axis_reduce(grid, who, ce->axis, QDR_MAX, work, ce->n_rows, sum_type, stream));
    QDR_TRY(qdri_step(qdri_loss_sums(ce, logits, targets, work, sums), stream));
    QDR_TRY(qdri_axis_reduce(grid, who, ce->axis, QDR_SUM, sums, 2 * ce->n_rows, sum_type, stream));
    return qdri_step(qdri_loss(ce, targets, work, sums, result, saved), stream);
}

qdr_status qdr_cross_entropy_backward(qdr_grid *grid, const qdr_cross_entropy *ce, const void *logits,
                                      const int32_t *targets, const void *saved, double scale, void *dlogits,
                                      qdr_stream *stream)
{
    QDR_TRY(ce_check(grid, ce));
    const int64_t n_elems = ce->n_rows * ce->n_cols;
    size_t saved_bytes = 0, work_bytes = 0;
    QDR_TRY(qdri_cross_entropy_bytes(ce, &saved_bytes, &work_bytes));
    QDR_TRY(QDRI_ARRAYS_CHECK(qdri_grid_dev(grid), who, qdri_read("logits", logits, n_elems, ce->dtype),
                              qdri_read("targets", targets, ce->n_rows, QDR_I32),
                              qdri_memory("saved", saved, ce->n_rows, qdri_sum_type(ce->dtype), saved_bytes, 0),
                              qdri_write_in_place("dlogits", dlogits, n_elems, ce->dtype)));
    return qdri_step(qdri_loss_backward(ce, logits, targets, saved, scale, dlogits),
                     qdri_stream_or_default(grid, stream));
}
