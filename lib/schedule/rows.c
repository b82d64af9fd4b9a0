/* SPDX-License-Identifier: Apache-2.0 */
/* How the rows of activations pass through a product. */
#include "schedule/rows.h"

#include "core/block.h"

static size_t bytes_of(int64_t rows, int64_t cols, qdr_dtype dtype)
{
    return (size_t)rows * (size_t)cols * qdr_dtype_bytes(dtype);
}

qdri_task qdri_layer_task(const qdri_layer_shape *shape, qdri_task_kind kind, qdri_ref a, qdri_ref b, qdri_ref out)
{
    return (qdri_task){.kind = kind,
                       .node = shape->node,
                       .name = shape->name,
                       .n_reads = 2,
                       .reads = {a, b},
                       .n_writes = 1,
                       .writes = {out},
                       .dtype = shape->dtype,
                       .out_dtype = shape->dtype};
}

qdri_task qdri_layer_kernel(const qdri_layer_shape *shape, const qdri_kernel *kernel, qdri_ref a, qdri_ref b,
                            qdri_ref out)
{
    qdri_task task = qdri_layer_task(shape, QDRI_TASK_KERNEL, a, b, out);
    task.kernel = *kernel;
    return task;
}

qdri_ref qdri_rows_ref(qdri_ref matrix, int64_t begin, int64_t end, int64_t cols, qdr_dtype dtype)
{
    if (matrix.buffer < 0) return matrix;
    return (qdri_ref){matrix.buffer, matrix.offset + bytes_of(begin, cols, dtype), bytes_of(end - begin, cols, dtype)};
}

qdri_ref qdri_take_rows(qdri_builder *builder, int wanted, int64_t rows, int64_t cols, qdr_dtype dtype)
{
    return wanted ? qdri_builder_take(builder, bytes_of(rows, cols, dtype)) : QDRI_NO_REF;
}

/* out (+)= a, on the compute stream. */
static void add_rows(qdri_builder *builder, const qdri_layer_shape *shape, qdri_ref out, qdri_ref a, int64_t m,
                     int64_t n, int accumulate)
{
    qdri_task task = qdri_layer_task(shape, QDRI_TASK_KERNEL, a, QDRI_NO_REF, out);
    if (accumulate)
        qdri_set_sum(&task, m, n, out, a, out);
    else
        qdri_set_copy(&task, m, n, a, out);
    qdri_schedule_add(builder, &task);
}

static int size_of(const qdri_builder *builder, const qdri_rows *rows) { return builder->position.size[rows->axis]; }

/* The member `steps` places after this one. */
static int member_at(const qdri_builder *builder, const qdri_rows *rows, int steps)
{
    const int g = size_of(builder, rows);
    return (builder->position.coordinate[rows->axis] + g + steps % g) % g;
}

static int own(const qdri_builder *builder, const qdri_rows *rows) { return builder->position.coordinate[rows->axis]; }

/* ---- gathers ---- */

/* A collective of rows. */
static qdri_task transfer(const qdri_layer_shape *shape, qdr_coll_kind kind, qdr_channel channel, qdri_ref from,
                          qdri_ref to, int64_t count)
{
    qdri_task task = qdri_layer_task(shape, QDRI_TASK_COLLECTIVE, from, QDRI_NO_REF, to);
    task.coll = kind;
    task.overlap_class = QDRI_CLASS_ROWS;
    task.channel = channel;
    task.count = count;
    return task;
}

/* Sends `from` to member `peer`, and receives `to` from member `peer2`. */
static void exchange(qdri_builder *builder, const qdri_layer_shape *shape, qdr_channel channel, const qdri_task *what)
{
    qdri_task task = transfer(shape, QDR_SEND_RECV, channel, what->reads[0], what->writes[0], what->count);
    task.recv_count = what->recv_count;
    task.peer = what->peer;
    task.peer2 = what->peer2;
    qdri_add_collective(builder, &task);
}

void qdri_gather_rows(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_rows *rows, qdri_ref part,
                      qdri_ref whole, int n_panels)
{
    const int g = size_of(builder, rows), rank = own(builder, rows);
    if (n_panels <= 1) {
        qdri_task task = transfer(shape, QDR_ALL_GATHER, qdri_gather_channel(rows->axis), part, whole,
                                  shape->m * rows->cols);
        task.split_unit = rows->unit * rows->cols;
        task.traffic = 1 + (int)rows->class;
        task.row_elems = rows->cols;
        qdri_add_collective(builder, &task);
        return;
    }
    int64_t begin, end;
    qdri_split(shape->m, rows->unit, g, rank, &begin, &end);
    const int64_t n_own = end - begin;
    add_rows(builder, shape, qdri_rows_ref(whole, begin, end, rows->cols, shape->dtype), part, n_own, rows->cols, 0);
    for (int step = 1; step < g; step++) {
        const int from = member_at(builder, rows, step);
        qdri_split(shape->m, rows->unit, g, from, &begin, &end);
        exchange(builder, shape, qdri_gather_channel(rows->axis),
                 &(qdri_task){.reads = {part},
                              .writes = {qdri_rows_ref(whole, begin, end, rows->cols, shape->dtype)},
                              .count = n_own * rows->cols,
                              .recv_count = (end - begin) * rows->cols,
                              .peer = member_at(builder, rows, -step),
                              .peer2 = from});
    }
}

/* ---- panels of a product ---- */

/* How the rows of a cell are divided into panels: into slices of the rows of each member of the group `by`, beginning
 * with the member `first_step` places after this one; or (by = NULL) evenly. The same on all members of the group that
 * sums. */
typedef struct cut {
    const qdri_rows *by;
    int first_step, n_slices, n;
} cut;

/* Rows [begin, end), which belong to member `to` as its slice number `slice`. */
typedef struct panel {
    int64_t begin, end;
    int to, slice;
} panel;

/* Scattered results: the next member's rows first, own rows last. Gathered inputs: own rows first, then in order of
 * arrival. */
static cut cut_of(const qdri_builder *builder, const qdri_summed *summed)
{
    const int n = summed->n_panels;
    if (n > 1 && summed->active && summed->out.scattered) {
        const int g = size_of(builder, &summed->out), n_slices = (n + g - 1) / g;
        return (cut){&summed->out, 1, n_slices, g * n_slices};
    }
    if (n > 1 && summed->in.scattered) {
        const int g = size_of(builder, &summed->in), n_slices = summed->active ? (n + g - 1) / g : 1;
        return (cut){&summed->in, 0, n_slices, g * n_slices};
    }
    return (cut){NULL, 0, 1, n > 1 && summed->active ? n : 1};
}

static panel panel_at(const qdri_builder *builder, const cut *rows, int64_t m, int index)
{
    panel p = {.begin = 0, .end = m};
    if (!rows->by) {
        qdri_split(m, 1, rows->n, index, &p.begin, &p.end);
        return p;
    }
    int64_t begin, end;
    p.to = member_at(builder, rows->by, rows->first_step + index / rows->n_slices);
    p.slice = index % rows->n_slices;
    qdri_split(m, rows->by->unit, size_of(builder, rows->by), p.to, &begin, &end);
    qdri_split(end - begin, 1, rows->n_slices, p.slice, &p.begin, &p.end);
    p.begin += begin;
    p.end += begin;
    return p;
}

/* ---- sums ---- */

static int sends_panels(const qdri_summed *summed)
{
    return summed->active && summed->out.scattered && summed->n_panels > 1;
}

void qdri_begin_summed(qdri_builder *builder, const qdri_layer_shape *shape, qdri_summed *summed)
{
    const int64_t cols = summed->out.cols;
    summed->active = size_of(builder, &summed->out) > 1;
    summed->partial = summed->sum = summed->target;
    summed->parts = QDRI_NO_REF;
    if (!summed->active) return;
    if (summed->accumulate) summed->sum = qdri_take_rows(builder, 1, summed->local_rows, cols, shape->dtype);
    summed->partial = summed->out.scattered ? qdri_take_rows(builder, 1, shape->m, cols, shape->dtype) : summed->sum;
    summed->parts = qdri_take_rows(builder, sends_panels(summed), summed->local_rows * size_of(builder, &summed->out),
                                   cols, shape->dtype);
}

void qdri_sum_rows(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_summed *summed, int64_t begin,
                   int64_t end)
{
    const int scattered = summed->out.scattered;
    const int64_t cols = summed->out.cols;
    const qdri_ref to = scattered ? summed->sum : qdri_rows_ref(summed->sum, begin, end, cols, shape->dtype);
    qdri_task task = transfer(shape, scattered ? QDR_REDUCE_SCATTER : QDR_ALL_REDUCE,
                              qdri_reduce_channel(summed->out.axis), scattered ? summed->partial : QDRI_NO_REF, to,
                              (end - begin) * cols);
    task.split_unit = scattered ? summed->out.unit * cols : 0;
    task.traffic = 1 + (int)summed->out.class;
    task.row_elems = cols;
    qdri_add_collective(builder, &task);
}

/* The location of member j's version of slice `slice` of this rank's rows. */
static qdri_ref part_ref(const qdri_layer_shape *shape, const qdri_summed *summed, const cut *rows, int j, int slice)
{
    int64_t begin, end;
    qdri_split(summed->local_rows, 1, rows->n_slices, slice, &begin, &end);
    return qdri_rows_ref(summed->parts, j * summed->local_rows + begin, j * summed->local_rows + end, summed->out.cols,
                         shape->dtype);
}

/* Sends a panel to its owner, and receives another member's version of the same slice of this rank's rows. */
static void send_panel(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_summed *summed, const cut *rows,
                       const panel *p)
{
    const qdri_rows *out = &summed->out;
    const int from = member_at(builder, out, own(builder, out) - p->to);
    int64_t begin, end;
    qdri_split(summed->local_rows, 1, rows->n_slices, p->slice, &begin, &end);
    exchange(builder, shape, qdri_reduce_channel(out->axis),
             &(qdri_task){.reads = {qdri_rows_ref(summed->partial, p->begin, p->end, out->cols, shape->dtype)},
                          .writes = {part_ref(shape, summed, rows, from, p->slice)},
                          .count = (p->end - p->begin) * out->cols,
                          .recv_count = (end - begin) * out->cols,
                          .peer = p->to,
                          .peer2 = from});
}

static void add_product(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_summed *summed,
                        qdri_product_kind kind, int64_t n_rows, qdri_ref a, qdri_ref b, qdri_ref to)
{
    qdri_task task = qdri_layer_task(shape, QDRI_TASK_PRODUCT, a, b, to);
    qdri_set_product(&task, kind, shape->storage, n_rows, shape->n, shape->k);
    qdri_set_rounding(&task, kind, shape);
    task.accumulate = !summed->active && summed->accumulate;
    if (task.m == shape->m) task.algorithm = shape->algorithms[kind];
    qdri_schedule_add(builder, &task);
}

void qdri_add_summed(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_summed *summed,
                     qdri_product_kind kind, qdri_ref a, qdri_ref b)
{
    const cut rows = cut_of(builder, summed);
    const int sends = sends_panels(summed), rank = own(builder, &summed->out);
    for (int i = 0; i < rows.n; i++) {
        const panel p = panel_at(builder, &rows, shape->m, i);
        const int stays = sends && p.to == rank, is_one = p.end > p.begin || rows.n == 1;
        const qdri_ref to = stays ? part_ref(shape, summed, &rows, rank, p.slice)
                                  : qdri_rows_ref(summed->partial, p.begin, p.end, summed->out.cols, shape->dtype);
        if (is_one)
            add_product(builder, shape, summed, kind, p.end - p.begin,
                        qdri_rows_ref(a, p.begin, p.end, summed->in.cols, shape->dtype), b, to);
        if (sends && !stays) send_panel(builder, shape, summed, &rows, &p);
        if (is_one && summed->active && !summed->out.scattered) qdri_sum_rows(builder, shape, summed, p.begin, p.end);
    }
    if (sends) {
        const int64_t n_rows = summed->local_rows, n_cols = summed->out.cols;
        const qdri_kernel sum = {.kind = QDRI_K_SUM_PARTS,
                                 .u.parts = {.n = n_rows * n_cols, .n_parts = size_of(builder, &summed->out)}};
        qdri_task task = qdri_layer_kernel(shape, &sum, summed->parts, QDRI_NO_REF, summed->sum);
        task.overlap_class = QDRI_CLASS_ROWS;
        task.stream = QDRI_STREAM_OF_CHANNEL(qdri_reduce_channel(summed->out.axis));
        qdri_set_pass(&task, n_rows, n_cols, 2);
        qdri_schedule_add(builder, &task);
    } else if (summed->active && summed->out.scattered) {
        qdri_sum_rows(builder, shape, summed, 0, shape->m);
    }
}

void qdri_end_summed(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_summed *summed)
{
    if (!summed->active) return;
    if (summed->accumulate)
        add_rows(builder, shape, summed->target, summed->sum, summed->local_rows, summed->out.cols, 1);
    if (summed->out.scattered) qdri_builder_give(builder, summed->partial);
    qdri_builder_give(builder, summed->parts);
    if (summed->accumulate) qdri_builder_give(builder, summed->sum);
}

int qdri_rows_arriving(const qdri_builder *builder, const qdri_layer_shape *shape, const qdri_summed *summed, int index,
                       int64_t *begin, int64_t *end)
{
    const cut rows = cut_of(builder, summed);
    *begin = 0;
    *end = summed->local_rows;
    if (!summed->active || summed->out.scattered || summed->accumulate) return index == 0;
    if (index >= rows.n) return 0;
    const panel p = panel_at(builder, &rows, shape->m, index);
    *begin = p.begin;
    *end = p.end;
    return 1;
}
