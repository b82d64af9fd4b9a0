/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm over features that are split over an axis: local moments, merged in rank order. */
#include "core/size.h"
#include "ops/ops.h"
#include "ops/steps.h"

static const char who[] = "layer norm";

static qdr_status norm_check(const qdr_grid *grid, const qdr_layer_norm *norm)
{
    int64_t n_elems = 0;
    QDR_TRY(qdri_check_object(who, grid, "the grid"));
    QDR_TRY(qdri_check_object(who, norm, "the description"));
    QDR_TRY(qdri_check_version(who, norm->version));
    QDR_TRY(qdri_check_dtype(who, norm->dtype));
    QDR_TRY(qdri_check_axis(who, norm->axis));
    QDR_TRY(qdri_check_extent(who, "n_rows", norm->n_rows));
    QDR_TRY(qdri_check_extent(who, "n_cols", norm->n_cols));
    QDR_TRY(qdri_mul_elems(norm->n_rows, norm->n_cols, &n_elems));
    if (norm->n_features < norm->n_cols)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "layer norm: n_features is %" PRId64 ", less than this rank's n_cols %" PRId64
                        "; it counts the features of all ranks of the axis",
                        norm->n_features, norm->n_cols);
    if (!(norm->epsilon >= 0))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "layer norm: epsilon is %g; it must be ≥ 0 (0: 1e-5)", norm->epsilon);
    return QDR_OK;
}

qdr_status qdr_layer_norm_sizes(const qdr_grid *grid, const qdr_layer_norm *norm, size_t *stats_bytes,
                                size_t *work_bytes)
{
    QDR_TRY(qdri_check_object(who, stats_bytes, "stats_bytes"));
    QDR_TRY(qdri_check_object(who, work_bytes, "work_bytes"));
    *stats_bytes = *work_bytes = 0;
    QDR_TRY(norm_check(grid, norm));
    return qdri_norm_bytes(norm, qdri_axis_size(grid, norm->axis), stats_bytes, work_bytes);
}

/* ---- steps ---- */

static qdri_kernel norm_kernel(const qdr_layer_norm *norm, qdri_kernel_kind kind)
{
    qdri_kernel kernel = {.kind = kind, .dtype = norm->dtype};
    kernel.u.norm.n_rows = norm->n_rows;
    kernel.u.norm.n_cols = norm->n_cols;
    kernel.u.norm.n_features = norm->n_features;
    kernel.u.norm.epsilon = norm->epsilon > 0 ? norm->epsilon : 1e-5;
    return kernel;
}

qdri_kernel qdri_norm_moments(const qdr_layer_norm *norm, const void *x, void *own_moments)
{
    qdri_kernel kernel = norm_kernel(norm, QDRI_K_NORM_MOMENTS);
    kernel.u.norm.x = x;
    kernel.u.norm.work = own_moments;
    return kernel;
}

qdri_kernel qdri_norm_merge(const qdr_layer_norm *norm, int n_parts, const void *moments, void *stats)
{
    qdri_kernel kernel = norm_kernel(norm, QDRI_K_NORM_MERGE);
    kernel.u.norm.n_parts = n_parts;
    kernel.u.norm.work = qdri_only_read(moments);
    kernel.u.norm.stats = stats;
    return kernel;
}

qdri_kernel qdri_norm_apply(const qdr_layer_norm *norm, const void *x, const void *stats, const void *gamma,
                            const void *beta, void *y)
{
    qdri_kernel kernel = norm_kernel(norm, QDRI_K_NORM_APPLY);
    kernel.u.norm.x = x;
    kernel.u.norm.stats = qdri_only_read(stats);
    kernel.u.norm.gamma = gamma;
    kernel.u.norm.beta = beta;
    kernel.u.norm.y = y;
    return kernel;
}

static qdri_kernel backward_kernel(const qdr_layer_norm *norm, qdri_kernel_kind kind, const qdri_norm_inputs *in)
{
    qdri_kernel kernel = norm_kernel(norm, kind);
    kernel.u.norm.dy = in->dy;
    kernel.u.norm.x = in->x;
    kernel.u.norm.stats = qdri_only_read(in->stats);
    kernel.u.norm.gamma = in->gamma;
    return kernel;
}

qdri_kernel qdri_norm_sums(const qdr_layer_norm *norm, const qdri_norm_inputs *in, void *sums, void *dgamma,
                           void *dbeta, int accumulate)
{
    qdri_kernel kernel = backward_kernel(norm, QDRI_K_NORM_SUMS, in);
    kernel.u.norm.work = sums;
    kernel.u.norm.dgamma = dgamma;
    kernel.u.norm.dbeta = dbeta;
    kernel.u.norm.accumulate_params = accumulate;
    return kernel;
}

qdri_kernel qdri_norm_backward(const qdr_layer_norm *norm, const qdri_norm_inputs *in, const void *sums, void *dx,
                               int accumulate)
{
    qdri_kernel kernel = backward_kernel(norm, QDRI_K_NORM_BACKWARD, in);
    kernel.u.norm.work = qdri_only_read(sums);
    kernel.u.norm.dx = dx;
    kernel.u.norm.accumulate_dx = accumulate;
    return kernel;
}

/* ---- calls ---- */

qdr_status qdr_layer_norm_forward(qdr_grid *grid, const qdr_layer_norm *norm, const void *x, const void *gamma,
                                  const void *beta, void *y, void *stats, void *work, qdr_stream *stream)
{
    QDR_TRY(norm_check(grid, norm));
    const int64_t n_elems = norm->n_rows * norm->n_cols;
    const qdr_dtype sum_type = qdri_sum_type(norm->dtype);
    size_t stats_bytes = 0, work_bytes = 0;
    QDR_TRY(qdri_norm_bytes(norm, qdri_axis_size(grid, norm->axis), &stats_bytes, &work_bytes));
    QDR_TRY(QDRI_ARRAYS_CHECK(
        qdri_grid_dev(grid), who, qdri_read("x", x, n_elems, norm->dtype),
        qdri_read("gamma", gamma, norm->n_cols, norm->dtype), qdri_read("beta", beta, norm->n_cols, norm->dtype),
        qdri_write("y", y, n_elems, norm->dtype), qdri_memory("stats", stats, norm->n_rows, sum_type, stats_bytes, 1),
        qdri_memory("work", work, norm->n_rows, sum_type, work_bytes, 1)));
    stream = qdri_stream_or_default(grid, stream);
    /* The moments of the local columns are stored at this rank's place among those of the group. */
    const size_t own = (size_t)qdri_axis_rank(grid, norm->axis) * (size_t)norm->n_rows * 3 * qdr_dtype_bytes(sum_type);
    QDR_TRY(qdri_step(qdri_norm_moments(norm, x, work ? (char *)work + own : NULL), stream));
    const qdri_coll gather = {.kind = QDR_ALL_GATHER, .dtype = sum_type, .recv = work, .count = 3 * norm->n_rows};
    QDR_TRY(qdri_axis_launch(grid, who, norm->axis, gather, stream));
    QDR_TRY(qdri_step(qdri_norm_merge(norm, qdri_axis_size(grid, norm->axis), work, stats), stream));
    return qdri_step(qdri_norm_apply(norm, x, stats, gamma, beta, y), stream);
}

qdr_status qdr_layer_norm_backward(qdr_grid *grid, const qdr_layer_norm *norm, const void *x, const void *gamma,
                                   const void *dy, const void *stats, void *dx, int accumulate_dx, void *dgamma,
                                   void *dbeta, int accumulate_params, void *work, qdr_stream *stream)
{
    QDR_TRY(norm_check(grid, norm));
    QDR_TRY(qdri_check_switch(who, "accumulate_dx", accumulate_dx));
    QDR_TRY(qdri_check_switch(who, "accumulate_params", accumulate_params));
    if (norm->n_cols && !dgamma != !dbeta)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "layer norm: only one of dgamma and dbeta is NULL; pass both or neither");
    const int64_t n_elems = norm->n_rows * norm->n_cols, n_sums = dgamma ? norm->n_cols : 0;
    const qdr_dtype sum_type = qdri_sum_type(norm->dtype);
    size_t stats_bytes = 0, work_bytes = 0;
    QDR_TRY(qdri_norm_bytes(norm, qdri_axis_size(grid, norm->axis), &stats_bytes, &work_bytes));
    QDR_TRY(QDRI_ARRAYS_CHECK(
        qdri_grid_dev(grid), who, qdri_read("x", x, n_elems, norm->dtype),
        qdri_read("gamma", gamma, norm->n_cols, norm->dtype), qdri_read("dy", dy, n_elems, norm->dtype),
        qdri_memory("stats", stats, norm->n_rows, sum_type, stats_bytes, 0), qdri_write("dx", dx, n_elems, norm->dtype),
        qdri_write("dgamma", dgamma, n_sums, sum_type), qdri_write("dbeta", dbeta, n_sums, sum_type),
        qdri_memory("work", work, norm->n_rows, sum_type, work_bytes, 1)));
    stream = qdri_stream_or_default(grid, stream);
    const qdri_norm_inputs in = {.dy = dy, .x = x, .stats = stats, .gamma = gamma};
    QDR_TRY(qdri_step(qdri_norm_sums(norm, &in, work, dgamma, dbeta, accumulate_params), stream));
    QDR_TRY(qdri_axis_reduce(grid, who, norm->axis, QDR_SUM, work, 2 * norm->n_rows, sum_type, stream));
    return qdri_step(qdri_norm_backward(norm, &in, work, dx, accumulate_dx), stream);
}
