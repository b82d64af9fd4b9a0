/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of a linear layer. */
#include "core/group.h"
#include "schedule/rows.h"

static size_t bytes_of(int64_t n_elems, qdr_dtype dtype) { return (size_t)n_elems * qdr_dtype_bytes(dtype); }

static qdri_rows input_rows(const qdri_layer_shape *shape, qdr_traffic_class class)
{
    return (qdri_rows){shape->out_axis, shape->in_scattered, shape->k, shape->in_unit, class};
}

static qdri_rows output_rows(const qdri_layer_shape *shape, qdr_traffic_class class)
{
    return (qdri_rows){shape->in_axis, shape->out_scattered, shape->n, shape->out_unit, class};
}

/* The layer restricted to one part of the rows. */
static qdri_layer_shape shape_of_part(const qdri_builder *builder, const qdri_layer_shape *shape, int part)
{
    const int n = builder->n_parts;
    qdri_layer_shape cut = *shape;
    int64_t begin, end;
    if (n == 1) return cut;
    qdri_part_rows(builder, part, shape->m, &begin, &end);
    cut.m = cut.in_rows = cut.out_rows = end - begin;
    cut.first_row += begin;
    cut.forward_panels = (shape->forward_panels + n - 1) / n;
    cut.backward_panels = (shape->backward_panels + n - 1) / n;
    return cut;
}

/* The rows of a matrix that belong to one part. */
static qdri_ref part_of(const qdri_builder *builder, int part, qdri_ref matrix, int64_t n_rows, int64_t n_cols,
                        qdr_dtype dtype)
{
    int64_t begin, end;
    if (builder->n_parts == 1) return matrix;
    qdri_part_rows(builder, part, n_rows, &begin, &end);
    return qdri_rows_ref(matrix, begin, end, n_cols, dtype);
}

static qdri_layer_refs refs_of_part(const qdri_builder *builder, const qdri_layer_shape *shape,
                                    const qdri_layer_refs *refs, int part)
{
    qdri_layer_refs cut = *refs;
    cut.x = part_of(builder, part, refs->x, shape->m, shape->k, shape->dtype);
    cut.y = part_of(builder, part, refs->y, shape->m, shape->n, shape->dtype);
    cut.dx = part_of(builder, part, refs->dx, shape->m, shape->k, shape->dtype);
    cut.dy = part_of(builder, part, refs->dy, shape->m, shape->n, shape->dtype);
    return cut;
}

static qdri_summed output_of(const qdri_builder *builder, const qdri_layer_shape *shape, qdri_ref y, int accumulate)
{
    return (qdri_summed){.in = input_rows(shape, QDR_TRAFFIC_ACTIVATION),
                         .out = output_rows(shape, QDR_TRAFFIC_ACTIVATION),
                         .n_panels = shape->forward_panels,
                         .local_rows = shape->out_rows,
                         .target = y,
                         .accumulate = accumulate,
                         .active = builder->position.size[shape->in_axis] > 1};
}

/* X with all rows of the cell: x itself, or gathered into `whole`. */
static qdri_ref whole_input(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                            qdri_ref whole, int n_panels)
{
    const qdri_rows rows = input_rows(shape, QDR_TRAFFIC_ACTIVATION);
    if (!shape->in_scattered) return refs->x;
    qdri_gather_rows(builder, shape, &rows, refs->x, whole, n_panels);
    return whole;
}

void qdri_linear_forward_product(qdri_builder *builder, const qdri_layer_shape *whole,
                                 const qdri_layer_refs *whole_refs, int part, qdri_ref w, int accumulate_y)
{
    const qdri_layer_shape shape = shape_of_part(builder, whole, part);
    const qdri_layer_refs refs = refs_of_part(builder, whole, whole_refs, part);
    const qdri_ref temporary = qdri_take_rows(builder, shape.in_scattered && shape.drop_gathered, shape.m, shape.k,
                                              shape.dtype);
    const qdri_ref x = whole_input(builder, &shape, &refs, shape.drop_gathered ? temporary : refs.gathered,
                                   shape.forward_panels);
    qdri_summed y = output_of(builder, &shape, refs.y, accumulate_y);
    qdri_begin_summed(builder, &shape, &y);
    qdri_add_summed(builder, &shape, &y, QDRI_PRODUCT_Y, x, w);
    qdri_end_summed(builder, &shape, &y);
    qdri_builder_give(builder, temporary);
}

void qdri_linear_forward_bias(qdri_builder *builder, const qdri_layer_shape *whole, const qdri_layer_refs *whole_refs,
                              int part, int accumulate_y)
{
    const qdri_layer_shape shape = shape_of_part(builder, whole, part);
    const qdri_layer_refs refs = refs_of_part(builder, whole, whole_refs, part);
    const qdri_summed y = output_of(builder, &shape, refs.y, accumulate_y);
    int64_t begin, end;
    for (int i = 0; shape.bias && qdri_rows_arriving(builder, &shape, &y, i, &begin, &end); i++) {
        if (i > 0 && begin == end) continue;
        const qdri_kernel bias_add = {.kind = QDRI_K_BIAS_ADD, .u.rows = {.n_rows = end - begin, .n_cols = shape.n}};
        qdri_task task = qdri_layer_kernel(&shape, &bias_add, refs.b, QDRI_NO_REF,
                                           qdri_rows_ref(y.target, begin, end, shape.n, shape.dtype));
        qdri_set_pass(&task, end - begin, shape.n, 2);
        task.work.cost = QDRI_COST_FUSED;
        qdri_schedule_add(builder, &task);
    }
}

/* A value that several layers use one after the other, with room for the largest. */
static qdri_ref take_turn(qdri_builder *builder, qdri_ref *value, size_t bytes)
{
    if (value->buffer < 0)
        *value = qdri_builder_take(builder, bytes);
    else
        qdri_builder_enlarge(builder, *value, bytes);
    return (qdri_ref){value->buffer, 0, bytes};
}

static int group_size(const qdri_builder *builder, qdr_channel channel)
{
    return qdri_channel_group_of(&builder->position, channel).size;
}

/* Whether this rank stores all of a dW that products write. */
static int stores_whole(const qdri_builder *builder)
{
    return builder->position.size[QDR_Z] * group_size(builder, QDR_CHANNEL_D_NEAR) == 1;
}

/* Elements of the gradient that this rank stores. */
static int64_t stored_elems(const qdri_builder *builder, const qdri_layer_shape *shape)
{
    return shape->shard_elems / group_size(builder, QDR_CHANNEL_D_NEAR);
}

/* Where products write dW: where this rank stores it, if it stores all; else two values used alternately, so that a
 * product need not wait for the sums of the previous layer. */
static qdri_ref whole_gradient(qdri_builder *builder, const qdri_layer_shape *shape, qdri_ref dw)
{
    if (stores_whole(builder)) return dw;
    return take_turn(builder, &builder->whole_gradients[builder->n_whole_gradients++ % 2],
                     (size_t)builder->position.size[QDR_Z] * bytes_of(shape->shard_elems, shape->grad_dtype));
}

static qdri_task gradient_task(const qdri_layer_shape *shape, qdri_task_kind kind, qdri_ref from, qdri_ref to)
{
    qdri_task task = qdri_layer_task(shape, kind, from, QDRI_NO_REF, to);
    task.overlap_class = QDRI_CLASS_GRADIENTS;
    task.parameter_gradient = 1;
    task.dtype = task.out_dtype = shape->grad_dtype;
    return task;
}

/* The part of a channel's member, this rank, of n_elems gradients in equal parts. */
static qdri_ref own_part(const qdri_builder *builder, const qdri_layer_shape *shape, qdr_channel channel,
                         qdri_ref whole, int64_t n_elems)
{
    const qdri_channel_group group = qdri_channel_group_of(&builder->position, channel);
    const size_t each = bytes_of(n_elems / group.size, shape->grad_dtype);
    return (qdri_ref){whole.buffer, whole.offset + (size_t)group.index * each, each};
}

qdr_channel qdri_gradient_sum_channel(qdri_gradient_sum sum)
{
    static const qdr_channel channels[] = {QDR_CHANNEL_Z_REDUCE, QDR_CHANNEL_D_NEAR, QDR_CHANNEL_D_FAR,
                                           QDR_CHANNEL_D_REDUCE, QDR_CHANNEL_D_COPIES};
    return channels[sum];
}

int64_t qdri_gradient_sum_elems(const qdri_position *position, qdri_gradient_sum sum, int64_t shard_elems)
{
    const int64_t stored = shard_elems / qdri_channel_group_of(position, QDR_CHANNEL_D_NEAR).size;
    switch (sum) {
    case QDRI_SUM_Z: return shard_elems * position->size[QDR_Z];
    case QDRI_SUM_NEAR: return shard_elems;
    case QDRI_SUM_COPIES: return stored / qdri_channel_group_of(position, QDR_CHANNEL_D_FAR).size;
    default: return stored;
    }
}

/* Sums gradients over a channel: `from` scattered, of which this rank gets the part that `to` refers to; or
 * QDRI_NO_REF: `to` in place. */
static void add_sum(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                    qdri_gradient_sum sum, qdri_ref from, qdri_ref to)
{
    qdri_task task = gradient_task(shape, QDRI_TASK_COLLECTIVE, from, to);
    const int64_t n_elems = qdri_gradient_sum_elems(&builder->position, sum, shape->shard_elems);
    task.coll = from.buffer < 0 ? QDR_ALL_REDUCE : QDR_REDUCE_SCATTER;
    task.channel = qdri_gradient_sum_channel(sum);
    task.count = from.buffer < 0 ? n_elems : n_elems / group_size(builder, task.channel);
    task.traffic = 1 + (int)QDR_TRAFFIC_GRADIENT;
    if (refs->feedback && refs->feedback[sum].buffer >= 0) task.writes[task.n_writes++] = refs->feedback[sum];
    qdri_add_collective(builder, &task);
}

/* Sums a whole dW over z and the near ranks of d into what this rank stores of it. The addition to old values runs on
 * the stream of the last sum. */
static void store_gradient(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                           qdri_ref whole, int accumulate)
{
    const int z = builder->position.size[QDR_Z];
    const int near = group_size(builder, QDR_CHANNEL_D_NEAR);
    qdri_ref sums = whole;
    if (z > 1) {
        sums = refs->dw;
        if (near > 1 || accumulate)
            sums = take_turn(builder, &builder->reduced_gradient, bytes_of(shape->shard_elems, shape->grad_dtype));
        add_sum(builder, shape, refs, QDRI_SUM_Z, whole, sums);
    }
    if (near > 1) {
        const qdri_ref to = accumulate ? own_part(builder, shape, QDR_CHANNEL_D_NEAR, sums, shape->shard_elems)
                                       : refs->dw;
        add_sum(builder, shape, refs, QDRI_SUM_NEAR, sums, to);
        sums = to;
    }
    if (!accumulate || z * near == 1) return;
    qdri_task addition = gradient_task(shape, QDRI_TASK_KERNEL, sums, refs->dw);
    addition.stream = QDRI_STREAM_OF_CHANNEL(near > 1 ? QDR_CHANNEL_D_NEAR : QDR_CHANNEL_Z_REDUCE);
    qdri_set_sum(&addition, 1, stored_elems(builder, shape), refs->dw, sums, refs->dw);
    qdri_schedule_add(builder, &addition);
}

/* The same, and then over the other ranks of d, if they do not follow later: with levels, of the part of the gradient
 * whose state this rank has. */
static void sum_gradient(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                         qdri_ref whole, const qdri_backward_mode *mode)
{
    store_gradient(builder, shape, refs, whole, mode->accumulate_dw);
    if (mode->keep_for_later) return;
    if (!qdri_has_levels(&builder->position)) {
        add_sum(builder, shape, refs, QDRI_SUM_D, QDRI_NO_REF, refs->dw);
        return;
    }
    const qdri_ref part = own_part(builder, shape, QDR_CHANNEL_D_FAR, refs->dw, stored_elems(builder, shape));
    add_sum(builder, shape, refs, QDRI_SUM_FAR, refs->dw, part);
    add_sum(builder, shape, refs, QDRI_SUM_COPIES, QDRI_NO_REF, part);
}

static void zero(qdri_builder *builder, const qdri_layer_shape *shape, int buffer, size_t begin, size_t end)
{
    const qdri_ref what = {buffer, begin, end - begin};
    qdri_task task = gradient_task(shape, QDRI_TASK_KERNEL, QDRI_NO_REF, what);
    if (begin == end) return;
    task.overlap_class = QDRI_CLASS_NONE;
    task.kernel = (qdri_kernel){.kind = QDRI_K_ZERO, .u.block = {.row_bytes = what.bytes}};
    qdri_set_pass(&task, 1, (int64_t)(what.bytes / qdr_dtype_bytes(shape->grad_dtype)), 1);
    qdri_schedule_add(builder, &task);
}

/* If gradients are added to complete ones, only this rank's part of the state is complete: everything else that it
 * stores begins at zero. */
static void zero_incomplete(qdri_builder *builder, const qdri_layer_shape *shape, qdri_ref dw)
{
    const qdri_ref part = own_part(builder, shape, QDR_CHANNEL_D_FAR, dw, stored_elems(builder, shape));
    zero(builder, shape, dw.buffer, dw.offset, part.offset);
    zero(builder, shape, dw.buffer, part.offset + part.bytes, dw.offset + dw.bytes);
}

/* dW of one part of the rows; later parts add to that of the first. */
static void weight_gradient(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs, int part,
                            qdri_ref whole, const qdri_backward_mode *mode)
{
    const int gz = builder->position.size[QDR_Z], is_stored = stores_whole(builder);
    const int turned = shape->storage == QDR_IN_OUT;
    qdri_task task = qdri_layer_task(shape, QDRI_TASK_PRODUCT, turned ? refs->x : refs->dy, turned ? refs->dy : refs->x,
                                     whole);
    task.accumulate = part > 0 || (is_stored && mode->accumulate_dw);
    task.parameter_gradient = 1;
    task.out_dtype = shape->grad_dtype;
    if (!is_stored && part == 0)
        task.zero_tail = bytes_of(shape->shard_elems * gz - shape->n * shape->k, shape->grad_dtype);
    qdri_set_product(&task, QDRI_PRODUCT_DW, shape->storage, shape->m, shape->n, shape->k);
    task.algorithm = shape->algorithms[QDRI_PRODUCT_DW];
    qdri_set_rounding(&task, QDRI_PRODUCT_DW, shape);
    qdri_schedule_add(builder, &task);
}

/* dX of all parts. */
static void input_gradients(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                            int accumulate, qdri_ref w, qdri_summed *dx)
{
    for (int part = 0; part < builder->n_parts; part++) {
        const qdri_layer_shape cut = shape_of_part(builder, shape, part);
        const qdri_layer_refs cut_refs = refs_of_part(builder, shape, refs, part);
        dx[part] = (qdri_summed){.in = output_rows(shape, QDR_TRAFFIC_ACTIVATION_GRADIENT),
                                 .out = input_rows(shape, QDR_TRAFFIC_ACTIVATION_GRADIENT),
                                 .n_panels = cut.backward_panels,
                                 .local_rows = cut.in_rows,
                                 .target = cut_refs.dx,
                                 .accumulate = accumulate};
        builder->part = part;
        qdri_begin_summed(builder, &cut, &dx[part]);
        qdri_add_summed(builder, &cut, &dx[part], QDRI_PRODUCT_DX, cut_refs.dy, w);
    }
}

void qdri_linear_backward_tasks(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                                const qdri_backward_mode *mode)
{
    const int regather = shape->in_scattered && shape->drop_gathered;
    const int with_dx = refs->dx.buffer >= 0;
    const qdri_rows rows = output_rows(shape, QDR_TRAFFIC_ACTIVATION_GRADIENT);
    const qdri_ref dy_whole = qdri_take_rows(builder, shape->out_scattered, shape->m, shape->n, shape->dtype);
    const qdri_ref x_whole = qdri_take_rows(builder, regather, shape->m, shape->k, shape->dtype);
    qdri_layer_refs whole = *refs;
    qdri_summed dx[QDRI_MAX_BATCH_PARTS];
    if (shape->out_scattered) {
        qdri_gather_rows(builder, shape, &rows, refs->dy, dy_whole, with_dx ? shape->backward_panels : 1);
        whole.dy = dy_whole;
    }
    if (shape->in_scattered) whole.x = refs->gathered;
    if (regather) whole.x = whole_input(builder, shape, refs, x_whole, 1);
    builder->part = QDRI_BEFORE_PARTS;
    const qdri_ref w = with_dx ? qdri_next_weight(builder) : QDRI_NO_REF;
    const qdri_ref dw = whole_gradient(builder, shape, refs->dw);
    if (mode->zero_dw) zero_incomplete(builder, shape, refs->dw);
    /* dX is computed first if its own sum overlaps with the product of dW, or if it uses the rows of dY as they arrive.
     * Otherwise dW is first: its sum begins earlier, W has more time to arrive, and the operations on dX directly
     * follow its product, so that a device may fuse both. */
    const int dx_first = builder->position.size[shape->out_axis] > 1 ||
                         (shape->out_scattered && shape->backward_panels > 1);
    if (with_dx && dx_first) input_gradients(builder, shape, &whole, mode->accumulate_dx, w, dx);
    for (int part = 0; part < builder->n_parts; part++) {
        const qdri_layer_shape cut = shape_of_part(builder, shape, part);
        const qdri_layer_refs cut_refs = refs_of_part(builder, shape, &whole, part);
        builder->part = part;
        weight_gradient(builder, &cut, &cut_refs, part, dw, mode);
        if (!shape->bias) continue;
        const qdri_kernel column_sum = {.kind = QDRI_K_COLUMN_SUM, .u.rows = {.n_rows = cut.m, .n_cols = cut.n}};
        qdri_task task = qdri_layer_kernel(shape, &column_sum, cut_refs.dy, QDRI_NO_REF, refs->db);
        task.out_dtype = shape->grad_dtype;
        task.accumulate = part > 0 || mode->accumulate_db;
        task.parameter_gradient = 1;
        qdri_set_pass(&task, cut.m, cut.n, 1);
        qdri_schedule_add(builder, &task);
    }
    builder->part = QDRI_AFTER_PARTS;
    sum_gradient(builder, shape, refs, dw, mode);
    if (with_dx && !dx_first) input_gradients(builder, shape, &whole, mode->accumulate_dx, w, dx);
    builder->part = QDRI_AFTER_PARTS;
    for (int part = 0; with_dx && part < builder->n_parts; part++) {
        const qdri_layer_shape cut = shape_of_part(builder, shape, part);
        qdri_end_summed(builder, &cut, &dx[part]);
    }
    qdri_builder_give(builder, dy_whole);
    qdri_builder_give(builder, x_whole);
}

static qdri_kernel embedding(const qdri_layer_shape *shape, qdri_kernel_kind kind)
{
    return (qdri_kernel){.kind = kind,
                         .factor = shape->factor,
                         .u.embed = {.n_rows = shape->m,
                                     .n_cols = shape->n,
                                     .begin = shape->vocab_begin,
                                     .end = shape->vocab_begin + shape->k,
                                     .vocab = shape->vocab}};
}

static qdri_kernel positions(const qdri_layer_shape *shape, qdri_kernel_kind kind)
{
    return (qdri_kernel){
        .kind = kind,
        .u.rows = {.n_rows = shape->out_rows, .n_cols = shape->n, .row0 = shape->first_row, .context = shape->context}};
}

void qdri_embedding_forward_lookup(qdri_builder *builder, const qdri_layer_shape *whole, const qdri_layer_refs *refs,
                                   int part, qdri_ref e)
{
    const qdri_layer_shape shape = shape_of_part(builder, whole, part);
    const qdri_ref tokens = part_of(builder, part, refs->x, whole->m, 1, QDR_I32);
    qdri_summed y = output_of(builder, &shape, part_of(builder, part, refs->y, whole->m, whole->n, whole->dtype), 0);
    y.n_panels = 1;
    qdri_begin_summed(builder, &shape, &y);
    const qdri_kernel embed = embedding(&shape, QDRI_K_EMBED_FORWARD);
    qdri_task task = qdri_layer_kernel(&shape, &embed, tokens, e, y.partial);
    qdri_set_pass(&task, shape.m, shape.n, 2);
    qdri_schedule_add(builder, &task);
    if (y.active) qdri_sum_rows(builder, &shape, &y, 0, shape.m);
    qdri_end_summed(builder, &shape, &y);
}

void qdri_embedding_forward_positions(qdri_builder *builder, const qdri_layer_shape *whole, const qdri_layer_refs *refs,
                                      int part)
{
    const qdri_layer_shape shape = shape_of_part(builder, whole, part);
    const qdri_ref y = part_of(builder, part, refs->y, whole->m, whole->n, whole->dtype);
    const qdri_kernel position_add = positions(&shape, QDRI_K_POSITION_ADD);
    qdri_task task = qdri_layer_kernel(&shape, &position_add, refs->b, QDRI_NO_REF, y);
    qdri_set_pass(&task, shape.out_rows, shape.n, 2);
    if (shape.context) qdri_schedule_add(builder, &task);
}

void qdri_embedding_backward_tasks(qdri_builder *builder, const qdri_layer_shape *shape, const qdri_layer_refs *refs,
                                   const qdri_backward_mode *mode)
{
    const qdri_rows rows = output_rows(shape, QDR_TRAFFIC_ACTIVATION_GRADIENT);
    const qdri_ref dy_whole = qdri_take_rows(builder, shape->out_scattered, shape->m, shape->n, shape->dtype);
    if (shape->out_scattered) qdri_gather_rows(builder, shape, &rows, refs->dy, dy_whole, 1);
    const qdri_kernel position_sum = positions(shape, QDRI_K_POSITION_SUM);
    qdri_task task = qdri_layer_kernel(shape, &position_sum, refs->dy, QDRI_NO_REF, refs->db);
    task.out_dtype = shape->grad_dtype;
    task.accumulate = mode->accumulate_db;
    task.parameter_gradient = 1;
    qdri_set_pass(&task, shape->out_rows, shape->n, 1);
    if (shape->context) qdri_schedule_add(builder, &task);
    const int gz = builder->position.size[QDR_Z], is_stored = stores_whole(builder);
    const qdri_ref whole = whole_gradient(builder, shape, refs->dw);
    if (mode->zero_dw) zero_incomplete(builder, shape, refs->dw);
    const qdri_kernel embed_sum = embedding(shape, QDRI_K_EMBED_BACKWARD);
    task = qdri_layer_kernel(shape, &embed_sum, refs->x, shape->out_scattered ? dy_whole : refs->dy, whole);
    task.out_dtype = shape->grad_dtype;
    task.accumulate = is_stored && mode->accumulate_dw;
    task.parameter_gradient = 1;
    qdri_set_pass(&task, shape->m, shape->n, 3);
    if (!is_stored) task.zero_tail = bytes_of(shape->shard_elems * gz - shape->n * shape->k, shape->grad_dtype);
    qdri_schedule_add(builder, &task);
    sum_gradient(builder, shape, refs, whole, mode);
    qdri_builder_give(builder, dy_whole);
}

void qdri_small_gradient_task(qdri_builder *builder, qdr_axis axis, qdri_ref gradients, int64_t n_elems,
                              qdr_dtype dtype)
{
    qdri_add_collective(builder, &(qdri_task){.coll = QDR_ALL_REDUCE,
                                              .overlap_class = QDRI_CLASS_GRADIENTS,
                                              .parameter_gradient = 1,
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
