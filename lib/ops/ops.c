/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and statistics shared by the operations. */
#include "ops/ops.h"

qdr_status qdri_check_object(const char *who, const void *object, const char *what)
{
    if (!object) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s is NULL", who, what);
    return QDR_OK;
}

qdr_status qdri_check_version(const char *who, uint32_t version)
{
    if (version != QDR_OPTS_INIT)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: version is %u; begin the description with QDR_OPTS_INIT", who, version);
    return QDR_OK;
}

qdr_status qdri_check_dtype(const char *who, qdr_dtype dtype)
{
    if (!qdri_is_float(dtype))
        return QDR_FAIL(QDR_ERR_DTYPE, "%s: type %s (%d) cannot be computed with; use " QDRI_FLOAT_NAMES, who,
                        qdr_dtype_name(dtype), (int)dtype);
    return QDR_OK;
}

qdr_status qdri_check_axis(const char *who, qdr_axis axis)
{
    if ((int)axis < 0 || (int)axis >= QDR_N_AXES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: there is no axis %d; axes are QDR_X to QDR_D", who, (int)axis);
    return QDR_OK;
}

qdr_status qdri_check_extent(const char *who, const char *what, int64_t n)
{
    if (n < 0) return QDR_FAIL(QDR_ERR_SHAPE, "%s: %s is %" PRId64 "; it must be ≥ 0", who, what, n);
    return QDR_OK;
}

qdr_status qdri_check_data(qdri_dev *dev, const char *who, qdri_array array)
{
    const char *what = array.range.what;
    if (!array.n_elems) return QDR_OK;
    if (!array.range.begin)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s is NULL, but has %" PRId64 " elements", who, what, array.n_elems);
    return qdri_dev_check_argument(dev, array.range.begin, qdr_dtype_bytes(array.dtype), who, what);
}

enum { MOST_ARRAYS = 8 };

qdr_status qdri_arrays_check(qdri_dev *dev, const char *who, const qdri_array *arrays, int n)
{
    qdri_range ranges[MOST_ARRAYS];
    for (int i = 0; i < n; i++) {
        QDR_TRY(qdri_check_data(dev, who, arrays[i]));
        ranges[i] = arrays[i].range;
    }
    return qdri_ranges_check(who, ranges, n);
}

static qdri_comm *stat_comm(const qdr_grid *grid, qdr_axis axis)
{
    return qdri_grid_comm(grid, (qdr_channel)((int)QDR_CHANNEL_X_STAT + (int)axis));
}

int qdri_axis_size(const qdr_grid *grid, qdr_axis axis) { return qdri_comm_size(stat_comm(grid, axis)); }

int qdri_axis_rank(const qdr_grid *grid, qdr_axis axis) { return qdri_comm_rank(stat_comm(grid, axis)); }

qdr_status qdri_axis_launch(qdr_grid *grid, const char *who, qdr_axis axis, qdri_coll coll, qdr_stream *stream)
{
    coll.label = qdri_grid_label(grid, who);
    return qdri_axis_size(grid, axis) > 1 ? qdri_comm_launch(stat_comm(grid, axis), &coll, stream) : QDR_OK;
}

qdr_status qdri_axis_reduce(qdr_grid *grid, const char *who, qdr_axis axis, qdr_reduce op, void *data, int64_t n_elems,
                            qdr_dtype dtype, qdr_stream *stream)
{
    const qdri_coll sum = {.kind = QDR_ALL_REDUCE, .dtype = dtype, .op = op, .recv = data, .count = n_elems};
    return qdri_axis_launch(grid, who, axis, sum, stream);
}
