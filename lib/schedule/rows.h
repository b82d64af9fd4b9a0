/* SPDX-License-Identifier: Apache-2.0 */
/* How activations pass through a product of a layer: rows gathered before it, and sums over a group after it, as a
 * whole or in panels. A panel is a set of rows: its product runs while the previous panel is summed, and while the rows
 * of later panels are gathered. */
#ifndef QDRI_SCHEDULE_ROWS_H
#define QDRI_SCHEDULE_ROWS_H

#include "schedule/linear.h"

/* A task of this layer on the compute stream, with up to two reads and one write. */
qdri_task qdri_layer_task(const qdri_layer_shape *shape, qdri_task_kind kind, qdri_ref a, qdri_ref b, qdri_ref out);
/* The same of a kernel with these extents. */
qdri_task qdri_layer_kernel(const qdri_layer_shape *shape, const qdri_kernel *kernel, qdri_ref a, qdri_ref b,
                            qdri_ref out);
/* Rows [begin, end) of a matrix at `matrix` with `cols` columns. */
qdri_ref qdri_rows_ref(qdri_ref matrix, int64_t begin, int64_t end, int64_t cols, qdr_dtype dtype);
/* A new value for a matrix if `wanted`, else none. */
qdri_ref qdri_take_rows(qdri_builder *builder, int wanted, int64_t rows, int64_t cols, qdr_dtype dtype);

/* The rows of a cell: complete on each member of `axis`, or scattered over the members. */
typedef struct qdri_rows {
    qdr_axis axis;
    int scattered;
    int64_t cols, unit; /* rows that stay together */
    qdr_traffic_class class; /* an activation, or the gradient of one */
} qdri_rows;

/* Gathers all rows of a cell into `whole`, from the parts of the members; if in panels, one member's after the
 * other's. */
void qdri_gather_rows(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_rows *rows, qdri_ref part,
                      qdri_ref whole, int n_panels);

/* A product whose result is summed over the members of out.axis. */
typedef struct qdri_summed {
    int64_t local_rows; /* of the target */
    qdri_rows in, out; /* in: used only for the order of panels */
    qdri_ref target; /* the caller's */
    qdri_ref partial, parts, sum; /* set by qdri_begin_summed(), as is `active` */
    int n_panels, accumulate;
    int active; /* the group has more than one member */
} qdri_summed;

/* Takes the values that the sum needs. */
void qdri_begin_summed(qdri_builder *builder, const qdri_layer_shape *shape, qdri_summed *summed);
/* Adds the layer's product (Y or dX) of a and the W at b, and its sum. */
void qdri_add_summed(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_summed *summed,
                     qdri_product_kind kind, qdri_ref a, qdri_ref b);
/* Adds the sum of rows [begin, end) of `partial`, whatever wrote them; all rows if they are scattered then. */
void qdri_sum_rows(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_summed *summed, int64_t begin,
                   int64_t end);
/* Adds the result to the old value if required, and gives the values back. The sum overlaps with the tasks
 * scheduled before. */
void qdri_end_summed(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_summed *summed);
/* The target's rows that become available together, number `index`, so that row-wise work on them need not wait for the
 * others. @return 0: there are no more */
int qdri_rows_arriving(const qdri_builder *builder, const qdri_layer_shape *shape, const qdri_summed *summed, int index,
                       int64_t *begin, int64_t *end);

#endif
