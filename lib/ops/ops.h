/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the operations: argument checks, and sums of statistics over an axis. */
#ifndef QDRI_OPS_OPS_H
#define QDRI_OPS_OPS_H

#include "core/ranges.h"
#include "grid/internal.h"
#include "quadrille/ops.h"
#include "schedule/op_bytes.h"

/* Checks; the message begins with `who`. */
QDR_NODISCARD qdr_status qdri_check_object(const char *who, const void *object, const char *what);
QDR_NODISCARD qdr_status qdri_check_version(const char *who, uint32_t version);
QDR_NODISCARD qdr_status qdri_check_dtype(const char *who, qdr_dtype dtype);
QDR_NODISCARD qdr_status qdri_check_axis(const char *who, qdr_axis axis);
QDR_NODISCARD qdr_status qdri_check_extent(const char *who, const char *what, int64_t n);
/* An array of the caller's. NULL is valid only if there is nothing to read or write. */
QDR_NODISCARD qdr_status qdri_check_data(qdri_dev *dev, const char *who, const char *what, const void *data,
                                         int64_t n_elems, qdr_dtype dtype);
/* The ranges that a call reads or writes, for QDRI_RANGES_CHECK(). */
static inline qdri_range qdri_read(const char *what, const void *data, int64_t n_elems, qdr_dtype dtype)
{
    return (qdri_range){.what = what, .begin = data, .bytes = (size_t)n_elems * qdr_dtype_bytes(dtype)};
}
static inline qdri_range qdri_write(const char *what, const void *data, int64_t n_elems, qdr_dtype dtype)
{
    return (qdri_range){.what = what, .begin = data, .bytes = (size_t)n_elems * qdr_dtype_bytes(dtype), .writes = 1};
}
/* Written element by element: may be exactly one of the inputs. */
static inline qdri_range qdri_write_in_place(const char *what, const void *data, int64_t n_elems, qdr_dtype dtype)
{
    qdri_range range = qdri_write(what, data, n_elems, dtype);
    range.in_place = 1;
    return range;
}
static inline qdri_range qdri_write_bytes(const char *what, const void *data, size_t bytes)
{
    return (qdri_range){.what = what, .begin = data, .bytes = bytes, .writes = 1};
}
static inline qdri_range qdri_read_bytes(const char *what, const void *data, size_t bytes)
{
    return (qdri_range){.what = what, .begin = data, .bytes = bytes};
}
static inline qdri_dev *qdri_grid_dev(const qdr_grid *grid) { return qdri_context_dev(qdr_grid_context(grid)); }

/* Number of ranks along an axis, and the caller's coordinate on it. */
int qdri_axis_size(const qdr_grid *grid, qdr_axis axis);
int qdri_axis_rank(const qdr_grid *grid, qdr_axis axis);
/* All-reduce in place over the axis' statistics channel; does nothing in a group of one. who: the operation, used if
 * the grid has no label. */
QDR_NODISCARD qdr_status qdri_axis_reduce(qdr_grid *grid, const char *who, qdr_axis axis, qdr_reduce op, void *data,
                                          int64_t n_elems, qdr_dtype dtype, qdr_stream *stream);
/* All-gather in place: the caller's n_elems are at their place among the group's. */
QDR_NODISCARD qdr_status qdri_axis_gather(qdr_grid *grid, const char *who, qdr_axis axis, void *data, int64_t n_elems,
                                          qdr_dtype dtype, qdr_stream *stream);

#endif
