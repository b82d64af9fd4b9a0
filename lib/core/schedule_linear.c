/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of a linear layer. */
#include "core/schedule_rows.h"

static size_t bytes_of(int64_t n_elems, qdr_dtype dtype)
{
    return (size_t)n_elems * qdr_dtype_bytes(dtype);
}

void qdri_set_product(qdri_task *task, qdri_product_kind kind, qdr_storage storage, int64_t m,
                      int64_t n, int64_t k)
{
    const int turned = storage == QDR_IN_OUT;
    task->m = m;
    task->n = kind == QDRI_PRODUCT_Y ? n : k;
    task->k = kind == QDRI_PRODUCT_Y ? k : n;
    task->trans_b = kind == QDRI_PRODUCT_Y ? !turned : turned;
    if (kind == QDRI_PRODUCT_DW) {
        task->m = turned ? k : n;
        task->n = turned ? n : k;
        task->k = m;
        task->trans_a = 1;
        task->trans_b = 0;
    }
    task->flops = 2.0 * (double)m * (double)n * (double)k;
}

static qdri_rows input_rows(const qdri_layer_shape *shape)
{
    return (qdri_rows){shape->out_axis, shape->in_scattered, shape->k, shape->in_unit};
}

static qdri_rows output_rows(const qdri_layer_shape *shape)
{
    return (qdri_rows){shape->in_axis, shape->out_scattered, shape->n, shape->out_unit};
}

static qdri_summed output_of(const qdri_layer_shape *shape, qdri_ref y, int accumulate)
{
    return (qdri_summed){.in = input_rows(shape),
                         .out = output_rows(shape),
                         .n_panels = shape->forward_panels,
                         .local_rows = shape->out_rows,
                         .target = y,
                         .accumulate = accumulate};
}

/* X with all rows of the cell: x itself, or gathered into `whole`. */
static qdri_ref whole_input(qdri_builder *builder, const qdri_layer_shape *shape,
                            const qdri_layer_refs *refs, qdri_ref whole, int n_panels)
{
    const qdri_rows rows = input_rows(shape);
    if (!shape->in_scattered) return refs->x;
    qdri_gather_rows(builder, shape, &rows, refs->x, whole, n_panels);
    return whole;
}

static void add_bias(qdri_builder *builder, const qdri_layer_shape *shape, qdri_ref b,
                     const qdri_summed *y)
{
    int64_t begin, end;
    for (int i = 0; qdri_rows_arriving(builder, shape, y, i, &begin, &end); i++) {
        if (i > 0 && begin == end) continue;
        qdri_task task = qdri_layer_task(
            shape, QDRI_TASK_BIAS_ADD, b, QDRI_NO_REF,
            qdri_rows_ref(y->target, begin, end, shape->n, shape->dtype));
        task.m = end - begin;
        task.n = shape->n;
        qdri_schedule_add(builder, &task);
    }
}

void qdri_linear_forward_tasks(qdri_builder *builder, const qdri_layer_shape *shape,
                               const qdri_layer_refs *refs, int accumulate_y)
{
    const qdri_ref temporary = qdri_take_rows(builder, shape->in_scattered && shape->drop_gathered,
                                              shape->m, shape->k, shape->dtype);
    const qdri_ref w = qdri_next_weight(builder);
    const qdri_ref x = whole_input(builder, shape, refs,
                                   shape->drop_gathered ? temporary : refs->gathered,
                                   shape->forward_panels);
    qdri_summed y = output_of(shape, refs->y, accumulate_y);
    qdri_begin_summed(builder, shape, &y);
    qdri_add_summed(builder, shape, &y, QDRI_PRODUCT_Y, x, w);
    qdri_end_summed(builder, shape, &y);
    qdri_buffers_give(builder->buffers, temporary);
    if (shape->bias) add_bias(builder, shape, refs->b, &y);
}

/* Where a whole dW goes before it is summed over z: two slots that take turns, so that a product
 * need not wait for the previous layer's sum. */
static qdri_ref gradient_slot(qdri_builder *builder, const qdri_layer_shape *shape)
{
    const int turn = builder->next_gradient_slot;
    builder->next_gradient_slot = 1 - turn;
    const size_t bytes = (size_t)builder->place.size[QDR_Z] *
                         bytes_of(shape->shard_elems, shape->grad_dtype);
    qdri_ref *slot = &builder->gradient_slots[turn];
    if (slot->buffer < 0)
        *slot = qdri_buffers_take(builder->buffers, bytes);
    else if (builder->buffers->items[slot->buffer].bytes < bytes)
        builder->buffers->items[slot->buffer].bytes = bytes;
    return *slot;
}

static qdri_ref gradient_temp(qdri_builder *builder, const qdri_layer_shape *shape)
{
    const size_t bytes = bytes_of(shape->shard_elems, shape->grad_dtype);
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
    qdri_task task = qdri_layer_task(shape, QDRI_TASK_COLLECTIVE, whole, QDRI_NO_REF, dw);
    task.part = QDRI_CLASS_GRADIENTS;
    task.dtype = task.out_dtype = shape->grad_dtype;
    task.count = shape->shard_elems;
    if (builder->place.size[QDR_Z] > 1) {
        if (mode->accumulate_dw) task.writes[0] = gradient_temp(builder, shape);
        task.coll = QDR_REDUCE_SCATTER;
        task.channel = QDR_CHANNEL_Z_REDUCE;
        qdri_add_collective(builder, &task);
        if (mode->accumulate_dw) {
            qdri_task addition = qdri_layer_task(shape, QDRI_TASK_ADD, task.writes[0], QDRI_NO_REF,
                                                 dw);
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
    const int turned = shape->storage == QDR_IN_OUT;
    qdri_task task = qdri_layer_task(shape, QDRI_TASK_PRODUCT, turned ? x : dy, turned ? dy : x,
                                     whole);
    task.accumulate = gz == 1 && mode->accumulate_dw;
    task.out_dtype = shape->grad_dtype;
    if (gz > 1)
        task.zero_tail = bytes_of(shape->shard_elems * gz - shape->n * shape->k, shape->grad_dtype);
    qdri_set_product(&task, QDRI_PRODUCT_DW, shape->storage, shape->m, shape->n, shape->k);
    qdri_schedule_add(builder, &task);
    sum_gradient(builder, shape, whole, refs->dw, mode);
}

static void bias_gradient(qdri_builder *builder, const qdri_layer_shape *shape, qdri_ref db,
                          qdri_ref dy, const qdri_backward_mode *mode)
{
    qdri_task task = qdri_layer_task(shape, QDRI_TASK_COLUMN_SUM, dy, QDRI_NO_REF, db);
    task.out_dtype = shape->grad_dtype;
    task.accumulate = mode->accumulate_db;
    task.m = shape->m;
    task.n = shape->n;
    qdri_schedule_add(builder, &task);
}

void qdri_linear_backward_tasks(qdri_builder *builder, const qdri_layer_shape *shape,
                                const qdri_layer_refs *refs, const qdri_backward_mode *mode)
{
    const int regather = shape->in_scattered && shape->drop_gathered;
    const int with_dx = refs->dx.buffer >= 0;
    const qdri_rows rows = output_rows(shape);
    const qdri_ref dy_whole = qdri_take_rows(builder, shape->out_scattered, shape->m, shape->n,
                                             shape->dtype);
    const qdri_ref x_whole = qdri_take_rows(builder, regather, shape->m, shape->k, shape->dtype);
    if (shape->out_scattered)
        qdri_gather_rows(builder, shape, &rows, refs->dy, dy_whole,
                         with_dx ? shape->backward_panels : 1);
    const qdri_ref dy = shape->out_scattered ? dy_whole : refs->dy;
    qdri_ref x = shape->in_scattered ? refs->gathered : refs->x;
    if (regather) x = whole_input(builder, shape, refs, x_whole, 1);
    qdri_summed dx = {.in = rows,
                      .out = input_rows(shape),
                      .n_panels = shape->backward_panels,
                      .local_rows = shape->in_rows,
                      .target = refs->dx,
                      .accumulate = mode->accumulate_dx};
    if (with_dx) {
        qdri_begin_summed(builder, shape, &dx);
        qdri_add_summed(builder, shape, &dx, QDRI_PRODUCT_DX, dy, qdri_next_weight(builder));
    }
    weight_gradient(builder, shape, refs, x, dy, mode);
    if (shape->bias) bias_gradient(builder, shape, refs->db, dy, mode);
    if (with_dx) qdri_end_summed(builder, shape, &dx);
    qdri_buffers_give(builder->buffers, dy_whole);
    qdri_buffers_give(builder->buffers, x_whole);
}

void qdri_embedding_forward_tasks(qdri_builder *builder, const qdri_layer_shape *shape,
                                  const qdri_layer_refs *refs)
{
    const qdri_ref e = qdri_next_weight(builder);
    qdri_summed y = output_of(shape, refs->y, 0);
    y.n_panels = 1;
    qdri_begin_summed(builder, shape, &y);
    qdri_task task = qdri_layer_task(shape, QDRI_TASK_EMBED, refs->x, e, y.partial);
    task.m = shape->m;
    task.n = shape->n;
    qdri_schedule_add(builder, &task);
    if (y.active) qdri_sum_whole(builder, shape, &y);
    qdri_end_summed(builder, shape, &y);
    if (!shape->context) return;
    task = qdri_layer_task(shape, QDRI_TASK_POSITION_ADD, refs->b, QDRI_NO_REF, refs->y);
    task.m = shape->out_rows;
    task.n = shape->n;
    task.k = shape->first_row;
    task.context = shape->context;
    qdri_schedule_add(builder, &task);
}

void qdri_embedding_backward_tasks(qdri_builder *builder, const qdri_layer_shape *shape,
                                   const qdri_layer_refs *refs, const qdri_backward_mode *mode)
{
    const qdri_rows rows = output_rows(shape);
    const qdri_ref dy_whole = qdri_take_rows(builder, shape->out_scattered, shape->m, shape->n,
                                             shape->dtype);
    if (shape->out_scattered) qdri_gather_rows(builder, shape, &rows, refs->dy, dy_whole, 1);
    qdri_task task = qdri_layer_task(shape, QDRI_TASK_POSITION_SUM, refs->dy, QDRI_NO_REF,
                                     refs->db);
    task.out_dtype = shape->grad_dtype;
    task.accumulate = mode->accumulate_db;
    task.m = shape->out_rows;
    task.n = shape->n;
    task.k = shape->first_row;
    task.context = shape->context;
    if (shape->context) qdri_schedule_add(builder, &task);
    const int gz = builder->place.size[QDR_Z];
    const qdri_ref whole = gz > 1 ? gradient_slot(builder, shape) : refs->dw;
    task = qdri_layer_task(shape, QDRI_TASK_EMBED_SUM, refs->x,
                           shape->out_scattered ? dy_whole : refs->dy, whole);
    task.out_dtype = shape->grad_dtype;
    task.accumulate = gz == 1 && mode->accumulate_dw;
    task.m = shape->m;
    task.n = shape->n;
    task.k = shape->k;
    if (gz > 1)
        task.zero_tail = bytes_of(shape->shard_elems * gz - shape->n * shape->k, shape->grad_dtype);
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
