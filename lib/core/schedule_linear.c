/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of a linear layer. */
#include "core/schedule_linear.h"

static size_t bytes_of(int64_t rows, int64_t cols, qdr_dtype dtype)
{
    return (size_t)rows * (size_t)cols * qdr_dtype_bytes(dtype);
}

/* A task of this layer on the compute stream, with up to two reads and one write. */
static qdri_task task_of(const qdri_layer_shape *shape, qdri_task_kind kind, qdri_ref a, qdri_ref b,
                         qdri_ref out)
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

static void product(qdri_builder *builder, qdri_task task, int64_t m, int64_t n, int64_t k)
{
    task.m = m;
    task.n = n;
    task.k = k;
    task.flops = 2.0 * (double)m * (double)n * (double)k;
    qdri_schedule_add(builder, &task);
}

/* out (+)= a, on the compute stream. */
static void add(qdri_builder *builder, const qdri_layer_shape *shape, qdri_ref out, qdri_ref a,
                int64_t m, int64_t n)
{
    qdri_task task = task_of(shape, QDRI_TASK_ADD, a, QDRI_NO_REF, out);
    task.accumulate = 1;
    task.m = m;
    task.n = n;
    qdri_schedule_add(builder, &task);
}

/* All rows of a cell from the parts that the members of `axis` hold. */
static void gather_rows(qdri_builder *builder, const qdri_layer_shape *shape, qdr_axis axis,
                        qdri_ref part, qdri_ref whole, int64_t cols, int64_t row_unit)
{
    qdri_task task = task_of(shape, QDRI_TASK_COLLECTIVE, part, QDRI_NO_REF, whole);
    task.coll = QDR_ALL_GATHER;
    task.part = QDRI_CLASS_ROWS;
    task.channel = qdri_gather_channel(axis);
    task.count = shape->m * cols;
    task.split_unit = row_unit * cols;
    qdri_add_collective(builder, &task);
}

/* An activation on its way through a product and a sum over `axis`: where the product writes, and
 * where the sum arrives. */
typedef struct reduced {
    qdr_axis axis;
    int active; /* the group has more than one member */
    int scattered; /* reduce-scatter of rows, else all-reduce */
    int64_t m, local_rows, cols, row_unit;
    qdri_ref target; /* the caller's */
    int accumulate;
    qdri_ref partial, sum;
} reduced;

static void begin_reduced(qdri_builder *builder, const qdri_layer_shape *shape, reduced *r)
{
    r->active = builder->place.size[r->axis] > 1;
    r->partial = r->sum = r->target;
    if (!r->active) return;
    if (r->accumulate)
        r->sum = qdri_buffers_take(builder->buffers,
                                   bytes_of(r->local_rows, r->cols, shape->dtype));
    r->partial = r->scattered
                     ? qdri_buffers_take(builder->buffers, bytes_of(r->m, r->cols, shape->dtype))
                     : r->sum;
}

static void sum_reduced(qdri_builder *builder, const qdri_layer_shape *shape, const reduced *r)
{
    qdri_task task = task_of(shape, QDRI_TASK_COLLECTIVE, r->scattered ? r->partial : QDRI_NO_REF,
                             QDRI_NO_REF, r->sum);
    task.coll = r->scattered ? QDR_REDUCE_SCATTER : QDR_ALL_REDUCE;
    task.part = QDRI_CLASS_ROWS;
    task.channel = qdri_reduce_channel(r->axis);
    task.count = r->m * r->cols;
    task.split_unit = r->scattered ? r->row_unit * r->cols : 0;
    qdri_add_collective(builder, &task);
}

/* Accumulates once, after the sum, and gives the slots back. */
static void end_reduced(qdri_builder *builder, const qdri_layer_shape *shape, const reduced *r)
{
    if (!r->active) return;
    if (r->accumulate) add(builder, shape, r->target, r->sum, r->local_rows, r->cols);
    if (r->scattered) qdri_buffers_give(builder->buffers, r->partial);
    if (r->accumulate) qdri_buffers_give(builder->buffers, r->sum);
}

static reduced output_of(const qdri_layer_shape *shape, qdri_ref y, int accumulate)
{
    return (reduced){.axis = shape->in_axis,
                     .scattered = shape->out_scattered,
                     .row_unit = shape->out_unit,
                     .m = shape->m,
                     .local_rows = shape->out_rows,
                     .cols = shape->n,
                     .target = y,
                     .accumulate = accumulate};
}

/* X with all rows of the cell: x itself, or gathered into `whole`. */
static qdri_ref whole_input(qdri_builder *builder, const qdri_layer_shape *shape,
                            const qdri_layer_refs *refs, qdri_ref whole)
{
    if (!shape->in_scattered) return refs->x;
    gather_rows(builder, shape, shape->out_axis, refs->x, whole, shape->k, shape->in_unit);
    return whole;
}

static qdri_ref take_if(qdri_builder *builder, int wanted, int64_t rows, int64_t cols,
                        qdr_dtype dtype)
{
    return wanted ? qdri_buffers_take(builder->buffers, bytes_of(rows, cols, dtype)) : QDRI_NO_REF;
}

void qdri_linear_forward_tasks(qdri_builder *builder, const qdri_layer_shape *shape,
                               const qdri_layer_refs *refs, int accumulate_y)
{
    const qdri_ref temporary = take_if(builder, shape->in_scattered && shape->drop_gathered,
                                       shape->m, shape->k, shape->dtype);
    const qdri_ref w = qdri_next_weight(builder);
    const qdri_ref x = whole_input(builder, shape, refs,
                                   shape->drop_gathered ? temporary : refs->gathered);
    reduced y = output_of(shape, refs->y, accumulate_y);
    begin_reduced(builder, shape, &y);
    qdri_task task = task_of(shape, QDRI_TASK_PRODUCT, x, w, y.partial);
    task.trans_b = 1;
    task.accumulate = !y.active && accumulate_y;
    product(builder, task, shape->m, shape->n, shape->k);
    sum_reduced(builder, shape, &y);
    end_reduced(builder, shape, &y);
    qdri_buffers_give(builder->buffers, temporary);
    if (!shape->bias) return;
    task = task_of(shape, QDRI_TASK_BIAS_ADD, refs->b, QDRI_NO_REF, refs->y);
    task.m = shape->out_rows;
    task.n = shape->n;
    qdri_schedule_add(builder, &task);
}

/* Where a whole dW goes before it is summed over z: two slots that take turns, so that a product
 * need not wait for the previous layer's sum. */
static qdri_ref gradient_slot(qdri_builder *builder, const qdri_layer_shape *shape)
{
    const int turn = builder->next_gradient_slot;
    builder->next_gradient_slot = 1 - turn;
    const size_t bytes = (size_t)builder->place.size[QDR_Z] *
                         bytes_of(shape->shard_elems, 1, shape->grad_dtype);
    qdri_ref *slot = &builder->gradient_slots[turn];
    if (slot->buffer < 0)
        *slot = qdri_buffers_take(builder->buffers, bytes);
    else if (builder->buffers->items[slot->buffer].bytes < bytes)
        builder->buffers->items[slot->buffer].bytes = bytes;
    return *slot;
}

static qdri_ref gradient_temp(qdri_builder *builder, const qdri_layer_shape *shape)
{
    const size_t bytes = bytes_of(shape->shard_elems, 1, shape->grad_dtype);
    qdri_ref *temp = &builder->gradient_temp;
    if (temp->buffer < 0)
        *temp = qdri_buffers_take(builder->buffers, bytes);
    else if (builder->buffers->items[temp->buffer].bytes < bytes)
        builder->buffers->items[temp->buffer].bytes = bytes;
    return *temp;
}

/* Sums a whole dW over z into the shard, and the shard over d. The addition to what was there runs
 * on the stream of the sum. */
static void sum_gradient(qdri_builder *builder, const qdri_layer_shape *shape, qdri_ref whole,
                         qdri_ref dw, const qdri_backward_mode *mode)
{
    qdri_task task = task_of(shape, QDRI_TASK_COLLECTIVE, whole, QDRI_NO_REF, dw);
    task.part = QDRI_CLASS_GRADIENTS;
    task.dtype = task.out_dtype = shape->grad_dtype;
    task.count = shape->shard_elems;
    if (builder->place.size[QDR_Z] > 1) {
        if (mode->accumulate_dw) task.writes[0] = gradient_temp(builder, shape);
        task.coll = QDR_REDUCE_SCATTER;
        task.channel = QDR_CHANNEL_Z_REDUCE;
        qdri_add_collective(builder, &task);
        if (mode->accumulate_dw) {
            qdri_task addition = task_of(shape, QDRI_TASK_ADD, task.writes[0], QDRI_NO_REF, dw);
            addition.part = QDRI_CLASS_GRADIENTS;
            addition.stream = QDRI_STREAM_OF_CHANNEL(QDR_CHANNEL_Z_REDUCE);
            addition.dtype = addition.out_dtype = shape->grad_dtype;
            addition.accumulate = 1;
            addition.m = 1;
            addition.n = shape->shard_elems;
            qdri_schedule_add(builder, &addition);
        }
    }
    if (mode->keep_for_later) return;
    task.reads[0] = QDRI_NO_REF;
    task.writes[0] = dw;
    task.coll = QDR_ALL_REDUCE;
    task.channel = QDR_CHANNEL_D_REDUCE;
    qdri_add_collective(builder, &task);
}

static void weight_gradient(qdri_builder *builder, const qdri_layer_shape *shape,
                            const qdri_layer_refs *refs, qdri_ref x, qdri_ref dy,
                            const qdri_backward_mode *mode)
{
    const int gz = builder->place.size[QDR_Z];
    const qdri_ref whole = gz > 1 ? gradient_slot(builder, shape) : refs->dw;
    qdri_task task = task_of(shape, QDRI_TASK_PRODUCT, dy, x, whole);
    task.trans_a = 1;
    task.accumulate = gz == 1 && mode->accumulate_dw;
    task.out_dtype = shape->grad_dtype;
    if (gz > 1)
        task.zero_tail = bytes_of(shape->shard_elems * gz - shape->n * shape->k, 1,
                                  shape->grad_dtype);
    product(builder, task, shape->n, shape->k, shape->m);
    sum_gradient(builder, shape, whole, refs->dw, mode);
}

static void bias_gradient(qdri_builder *builder, const qdri_layer_shape *shape, qdri_ref db,
                          qdri_ref dy, const qdri_backward_mode *mode)
{
    qdri_task task = task_of(shape, QDRI_TASK_COLUMN_SUM, dy, QDRI_NO_REF, db);
    task.out_dtype = shape->grad_dtype;
    task.accumulate = mode->accumulate_db;
    task.m = shape->m;
    task.n = shape->n;
    qdri_schedule_add(builder, &task);
}

/* dX = dY·W; its sum runs beside whatever follows, and is added to the old dX in end_reduced(). */
static void input_gradient(qdri_builder *builder, const qdri_layer_shape *shape, reduced *dx,
                           qdri_ref dy)
{
    begin_reduced(builder, shape, dx);
    qdri_task task = task_of(shape, QDRI_TASK_PRODUCT, dy, qdri_next_weight(builder), dx->partial);
    task.accumulate = !dx->active && dx->accumulate;
    product(builder, task, shape->m, shape->k, shape->n);
    sum_reduced(builder, shape, dx);
}

void qdri_linear_backward_tasks(qdri_builder *builder, const qdri_layer_shape *shape,
                                const qdri_layer_refs *refs, const qdri_backward_mode *mode)
{
    const int regather = shape->in_scattered && shape->drop_gathered;
    const qdri_ref dy_whole = take_if(builder, shape->out_scattered, shape->m, shape->n,
                                      shape->dtype);
    const qdri_ref x_whole = take_if(builder, regather, shape->m, shape->k, shape->dtype);
    if (shape->out_scattered)
        gather_rows(builder, shape, shape->in_axis, refs->dy, dy_whole, shape->n, shape->out_unit);
    const qdri_ref dy = shape->out_scattered ? dy_whole : refs->dy;
    qdri_ref x = shape->in_scattered ? refs->gathered : refs->x;
    if (regather) x = whole_input(builder, shape, refs, x_whole);
    reduced dx = {.axis = shape->out_axis,
                  .scattered = shape->in_scattered,
                  .row_unit = shape->in_unit,
                  .m = shape->m,
                  .local_rows = shape->in_rows,
                  .cols = shape->k,
                  .target = refs->dx,
                  .accumulate = mode->accumulate_dx};
    const int with_dx = refs->dx.buffer >= 0;
    if (with_dx) input_gradient(builder, shape, &dx, dy);
    weight_gradient(builder, shape, refs, x, dy, mode);
    if (shape->bias) bias_gradient(builder, shape, refs->db, dy, mode);
    if (with_dx) end_reduced(builder, shape, &dx);
    qdri_buffers_give(builder->buffers, dy_whole);
    qdri_buffers_give(builder->buffers, x_whole);
}

void qdri_embedding_forward_tasks(qdri_builder *builder, const qdri_layer_shape *shape,
                                  const qdri_layer_refs *refs)
{
    const qdri_ref e = qdri_next_weight(builder);
    reduced y = output_of(shape, refs->y, 0);
    begin_reduced(builder, shape, &y);
    qdri_task task = task_of(shape, QDRI_TASK_EMBED, refs->x, e, y.partial);
    task.m = shape->m;
    task.n = shape->n;
    qdri_schedule_add(builder, &task);
    sum_reduced(builder, shape, &y);
    end_reduced(builder, shape, &y);
    if (!shape->context) return;
    task = task_of(shape, QDRI_TASK_POSITION_ADD, refs->b, QDRI_NO_REF, refs->y);
    task.m = shape->out_rows;
    task.n = shape->n;
    task.k = shape->first_row;
    task.context = shape->context;
    qdri_schedule_add(builder, &task);
}

void qdri_embedding_backward_tasks(qdri_builder *builder, const qdri_layer_shape *shape,
                                   const qdri_layer_refs *refs, const qdri_backward_mode *mode)
{
    const qdri_ref dy_whole = take_if(builder, shape->out_scattered, shape->m, shape->n,
                                      shape->dtype);
    if (shape->out_scattered)
        gather_rows(builder, shape, shape->in_axis, refs->dy, dy_whole, shape->n, shape->out_unit);
    qdri_task task = task_of(shape, QDRI_TASK_POSITION_SUM, refs->dy, QDRI_NO_REF, refs->db);
    task.out_dtype = shape->grad_dtype;
    task.accumulate = mode->accumulate_db;
    task.m = shape->out_rows;
    task.n = shape->n;
    task.k = shape->first_row;
    task.context = shape->context;
    if (shape->context) qdri_schedule_add(builder, &task);
    const int gz = builder->place.size[QDR_Z];
    const qdri_ref whole = gz > 1 ? gradient_slot(builder, shape) : refs->dw;
    task = task_of(shape, QDRI_TASK_EMBED_SUM, refs->x, shape->out_scattered ? dy_whole : refs->dy,
                   whole);
    task.out_dtype = shape->grad_dtype;
    task.accumulate = gz == 1 && mode->accumulate_dw;
    task.m = shape->m;
    task.n = shape->n;
    task.k = shape->k;
    if (gz > 1)
        task.zero_tail = bytes_of(shape->shard_elems * gz - shape->n * shape->k, 1,
                                  shape->grad_dtype);
    qdri_schedule_add(builder, &task);
    sum_gradient(builder, shape, whole, refs->dw, mode);
    qdri_buffers_give(builder->buffers, dy_whole);
}

void qdri_small_gradient_task(qdri_builder *builder, qdr_axis axis, qdri_ref gradients,
                              int64_t n_elems, qdr_dtype dtype)
{
    qdri_add_collective(builder, &(qdri_task){.coll = QDR_ALL_REDUCE,
                                              .part = QDRI_CLASS_GRADIENTS,
                                              .channel = qdri_reduce_channel(axis),
                                              .node = -1,
                                              .name = "small gradients",
                                              .n_writes = 1,
                                              .writes = {gradients},
                                              .n_reads = 0,
                                              .count = n_elems,
                                              .dtype = dtype,
                                              .out_dtype = dtype});
}
