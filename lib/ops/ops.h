/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the operations: argument checks, and sums of statistics over an axis. */
#ifndef QDRI_OPS_OPS_H
#define QDRI_OPS_OPS_H

#include "core/ranges.h"
#include "dev/kernels.h"
#include "grid/internal.h"
#include "quadrille/ops.h"
#include "schedule/op_bytes.h"

/* Checks; the message begins with `who`. */
QDR_NODISCARD qdr_status qdri_check_object(const char *who, const void *object, const char *what);
QDR_NODISCARD qdr_status qdri_check_version(const char *who, uint32_t version);
QDR_NODISCARD qdr_status qdri_check_dtype(const char *who, qdr_dtype dtype);
QDR_NODISCARD qdr_status qdri_check_axis(const char *who, qdr_axis axis);
QDR_NODISCARD qdr_status qdri_check_extent(const char *who, const char *what, int64_t n);
/* An array that a call reads or writes. NULL is valid only if it has no elements. */
typedef struct qdri_array {
    qdri_range range;
    int64_t n_elems;
    qdr_dtype dtype;
} qdri_array;
static inline qdri_array qdri_read(const char *what, const void *data, int64_t n_elems, qdr_dtype dtype)
{
    return (qdri_array){
        {.what = what, .begin = data, .bytes = (size_t)n_elems * qdr_dtype_bytes(dtype)}, n_elems, dtype};
}
static inline qdri_array qdri_write(const char *what, const void *data, int64_t n_elems, qdr_dtype dtype)
{
    qdri_array array = qdri_read(what, data, n_elems, dtype);
    array.range.writes = 1;
    return array;
}
/* Written element by element: may be exactly one of the inputs. */
static inline qdri_array qdri_write_in_place(const char *what, const void *data, int64_t n_elems, qdr_dtype dtype)
{
    qdri_array array = qdri_write(what, data, n_elems, dtype);
    array.range.in_place = 1;
    return array;
}
/* Saved state (writes: or workspace) of this many bytes, needed if there are n_elems. */
static inline qdri_array qdri_memory(const char *what, const void *data, int64_t n_elems, qdr_dtype dtype, size_t bytes,
                                     int writes)
{
    return (qdri_array){{.what = what, .begin = data, .bytes = bytes, .writes = writes}, n_elems, dtype};
}
/* The array alone. */
QDR_NODISCARD qdr_status qdri_check_data(qdri_dev *dev, const char *who, qdri_array array);
/* Checks each array, and that none that is written overlaps another one. */
QDR_NODISCARD qdr_status qdri_arrays_check(qdri_dev *dev, const char *who, const qdri_array *arrays, int n);
#define QDRI_ARRAYS_CHECK(dev, who, ...)                                                                               \
    qdri_arrays_check(dev, who, (const qdri_array[]){__VA_ARGS__},                                                     \
                      (int)(sizeof((const qdri_array[]){__VA_ARGS__}) / sizeof(qdri_array)))
/* A kernel of steps.h. */
static inline qdr_status qdri_step(qdri_kernel kernel, qdr_stream *stream) { return qdri_kernel_run(stream, &kernel); }
/* The inputs of a kernel that other kernels write are not const there. */
static inline void *qdri_only_read(const void *data) { return (void *)(uintptr_t)data; }
static inline qdri_dev *qdri_grid_dev(const qdr_grid *grid) { return qdri_context_dev(qdr_grid_context(grid)); }

/* Number of ranks along an axis, and the caller's coordinate on it. */
int qdri_axis_size(const qdr_grid *grid, qdr_axis axis);
int qdri_axis_rank(const qdr_grid *grid, qdr_axis axis);
/* A collective over the axis' statistics channel; does nothing in a group of one. who: the operation, used if the grid
 * has no label. */
QDR_NODISCARD qdr_status qdri_axis_launch(qdr_grid *grid, const char *who, qdr_axis axis, qdri_coll coll,
                                          qdr_stream *stream);
/* All-reduce in place. */
QDR_NODISCARD qdr_status qdri_axis_reduce(qdr_grid *grid, const char *who, qdr_axis axis, qdr_reduce op, void *data,
                                          int64_t n_elems, qdr_dtype dtype, qdr_stream *stream);

#endif
