/* SPDX-License-Identifier: Apache-2.0 */
/* From nodes to schedules: forward in order of execution, backward in reverse with gradients in
 * borrowed workspace. Where the rows are in parts, one after the other runs from one sum over other
 * ranks to the next, so that the sum of one travels beside the work of the others. */
#include <string.h>

#include "core/size.h"
#include "linear/operations.h"

/* One layer. */
static void begin(qdri_builder *builder, qdr_stack *stack, qdri_schedule *schedule)
{
    qdri_builder_begin(builder, schedule, &stack->buffers, &stack->place,
                       stack->opts.overlap & QDR_OVERLAP_ALL, stack->opts.prefetch);
}

static void begin_whole(qdri_builder *builder, qdr_stack *stack, qdri_schedule *schedule)
{
    begin(builder, stack, schedule);
    qdri_builder_cut_rows(builder, stack->cell_rows, stack->opts.row_unit,
                          qdri_stack_batch_parts(stack));
}

void qdri_plan_layer_weight(qdri_builder *builder, const qdr_linear *layer)
{
    const qdri_parameter *w = &layer->stack->parameters[layer->weight];
    qdri_plan_weight(builder, layer->shape.node, layer->shape.name, w->data, w->shard_elems,
                     layer->shape.dtype);
}

static qdri_layer_refs layer_refs(const qdr_linear *layer)
{
    const qdr_stack *stack = layer->stack;
    const qdri_node *node = &stack->nodes[layer->node];
    qdri_layer_refs refs = {.x = stack->edges[node->in[0]].value,
                            .y = stack->edges[node->out].value,
                            .dx = QDRI_NO_REF,
                            .dy = QDRI_NO_REF,
                            .b = QDRI_NO_REF,
                            .db = QDRI_NO_REF,
                            .gathered = layer->gathered};
    refs.w = stack->parameters[layer->weight].data;
    refs.dw = stack->parameters[layer->weight].gradient;
    if (layer->bias >= 0) {
        refs.b = stack->parameters[layer->bias].data;
        refs.db = stack->parameters[layer->bias].gradient;
    }
    return refs;
}

qdri_ref qdri_saved_rows(const qdr_stack *stack, const qdri_node *node, int64_t begin, int64_t end)
{
    const int64_t n_rows = stack->edges[node->in[0]].owned.n_rows;
    if (node->saved.buffer < 0 || end - begin == n_rows) return node->saved;
    const size_t row_bytes = node->saved_bytes / (size_t)n_rows;
    return (qdri_ref){node->saved.buffer, (size_t)begin * row_bytes,
                      (size_t)(end - begin) * row_bytes};
}

/* Two numbers. */
static qdri_ref loss_of_part(const qdr_stack *stack, int part)
{
    const size_t bytes = 2 * sizeof(double);
    return (qdri_ref){stack->loss.buffer, (size_t)part * bytes, bytes};
}

/* The rows of a part, where the operation takes parts. */
static void op_rows(const qdri_builder *builder, const qdr_stack *stack, const qdri_node *node,
                    int part, int64_t *begin, int64_t *end)
{
    *begin = 0;
    *end = stack->edges[node->in[0]].owned.n_rows;
    if (!node->needs_all_rows) qdri_part_rows(builder, part, *end, begin, end);
}

/* An operation on rows [begin, end); its share of the flops. */
static qdri_task op_task(const qdr_stack *stack, int number, qdri_task_kind kind, int64_t begin,
                         int64_t end)
{
    const qdri_node *node = &stack->nodes[number];
    const double flops = kind == QDRI_TASK_FORWARD ? node->cost.forward_flops
                                                   : node->cost.backward_flops;
    const int64_t n_rows = stack->edges[node->in[0]].owned.n_rows;
    return (qdri_task){.kind = kind,
                       .node = number,
                       .name = node->name,
                       .m = end - begin,
                       .k = begin,
                       .flops = n_rows ? flops * (double)(end - begin) / (double)n_rows : 0};
}

static void add_op_forward(qdri_builder *builder, const qdr_stack *stack, int number, int part)
{
    const qdri_node *node = &stack->nodes[number];
    int64_t begin, end;
    op_rows(builder, stack, node, part, &begin, &end);
    qdri_task task = op_task(stack, number, QDRI_TASK_FORWARD, begin, end);
    task.n_reads = node->n_in;
    for (int i = 0; i < node->n_in; i++) {
        const qdri_edge *edge = &stack->edges[node->in[i]];
        task.reads[i] = qdri_edge_rows(edge, edge->value, begin, end);
    }
    task.n_writes = 2;
    task.writes[0] = node->out >= 0 ? qdri_edge_rows(&stack->edges[node->out],
                                                     stack->edges[node->out].value, begin, end)
                                    : loss_of_part(stack, part);
    task.writes[1] = qdri_saved_rows(stack, node, begin, end);
    qdri_schedule_add(builder, &task);
}

/* What is done to a node's output once it is summed. */
static void end_node(qdri_builder *builder, const qdr_stack *stack, int number, int part)
{
    const qdri_node *node = &stack->nodes[number];
    if (node->kind == QDRI_NODE_OP) return;
    const qdri_layer_refs refs = layer_refs(node->layer);
    if (node->kind == QDRI_NODE_EMBEDDING)
        qdri_embedding_forward_positions(builder, &node->layer->shape, &refs, part);
    else
        qdri_linear_forward_bias(builder, &node->layer->shape, &refs, part, 0);
}

static void begin_node(qdri_builder *builder, const qdr_stack *stack, int number, int part,
                       qdri_ref w)
{
    const qdri_node *node = &stack->nodes[number];
    if (node->kind == QDRI_NODE_OP) {
        add_op_forward(builder, stack, number, part);
        return;
    }
    const qdri_layer_refs refs = layer_refs(node->layer);
    if (node->kind == QDRI_NODE_EMBEDDING)
        qdri_embedding_forward_lookup(builder, &node->layer->shape, &refs, part, w);
    else
        qdri_linear_forward_product(builder, &node->layer->shape, &refs, part, w, 0);
}

static int is_summed(const qdr_stack *stack, qdr_axis axis) { return stack->place.size[axis] > 1; }

/* A segment, in which one part after the other goes through all nodes, ends with a layer whose
 * result is summed over other ranks; with each layer where W is gathered, since a slot is there for
 * one; and at nodes that take all parts at once. */
static int ends_segment(const qdr_stack *stack, int number, int next, int backward)
{
    const qdri_node *node = &stack->nodes[number];
    if (node->needs_all_rows ||
        (next >= 0 && next < stack->n_nodes &&
         (stack->nodes[next].needs_all_rows || stack->nodes[next].kind == QDRI_NODE_EMBEDDING)))
        return 1;
    if (node->kind == QDRI_NODE_OP) return 0;
    const qdri_layer_shape *shape = &node->layer->shape;
    return node->kind == QDRI_NODE_EMBEDDING || is_summed(stack, QDR_Z) ||
           is_summed(stack, backward ? shape->out_axis : shape->in_axis);
}

/* Node `number` of a forward for all parts; first what is done to the sums of the one before it. */
static void add_node(qdri_builder *builder, const qdr_stack *stack, int number)
{
    const qdri_node *node = &stack->nodes[number];
    const qdri_ref w = node->kind == QDRI_NODE_OP ? QDRI_NO_REF : qdri_next_weight(builder);
    for (int part = 0; part < builder->n_parts; part++) {
        builder->part = part;
        if (number > 0) end_node(builder, stack, number - 1, part);
        if (!node->needs_all_rows) begin_node(builder, stack, number, part, w);
    }
    builder->part = QDRI_AFTER_PARTS;
    if (node->needs_all_rows) begin_node(builder, stack, number, 0, w);
    builder->part = QDRI_BEFORE_PARTS;
}

qdr_status qdri_build_forward(qdr_stack *stack)
{
    qdri_builder builder;
    begin_whole(&builder, stack, &stack->forward);
    for (int i = 0; i < stack->n_nodes; i++)
        if (stack->nodes[i].kind != QDRI_NODE_OP)
            qdri_plan_layer_weight(&builder, stack->nodes[i].layer);
    stack->n_loss_parts = builder.n_parts;
    qdri_builder_hold(&builder);
    for (int i = 0; i < stack->n_nodes; i++) {
        add_node(&builder, stack, i);
        if (!ends_segment(stack, i, i + 1, 0)) continue;
        qdri_builder_release(&builder);
        qdri_builder_hold(&builder);
    }
    qdri_builder_release(&builder);
    for (int part = 0; part < builder.n_parts; part++)
        end_node(&builder, stack, stack->n_nodes - 1, part);
    return qdri_builder_end(&builder);
}

/* Adds b to a (or copies it there), as large as an edge. */
static void add_edge_task(qdri_builder *builder, const qdri_edge *edge, int number,
                          const char *name, qdri_ref a, qdri_ref b, int accumulate)
{
    const int part_before = builder->part;
    for (int part = 0; part < builder->n_parts; part++) {
        int64_t begin, end;
        qdri_part_rows(builder, part, edge->owned.n_rows, &begin, &end);
        if (part_before != QDRI_AFTER_PARTS) builder->part = part;
        qdri_schedule_add(builder, &(qdri_task){.kind = QDRI_TASK_ADD,
                                                .node = number,
                                                .name = name,
                                                .n_reads = 1,
                                                .reads = {qdri_edge_rows(edge, b, begin, end)},
                                                .n_writes = 1,
                                                .writes = {qdri_edge_rows(edge, a, begin, end)},
                                                .accumulate = accumulate,
                                                .m = end - begin,
                                                .n = edge->owned.n_cols,
                                                .dtype = edge->dtype,
                                                .out_dtype = edge->dtype});
    }
    builder->part = part_before;
}

static qdri_ref take_edge(qdri_builder *builder, const qdri_edge *edge)
{
    return qdri_buffers_take(builder->buffers, qdri_edge_bytes(edge));
}

/* Where a node writes the gradient of one of its inputs; *accumulate where another node has written
 * it before. A gradient that is shared with another edge is copied before it is added to. */
static qdri_ref gradient_target(qdri_builder *builder, qdr_stack *stack, int input, int number,
                                int *accumulate)
{
    qdri_edge *edge = &stack->edges[input];
    *accumulate = edge->d.buffer >= 0;
    if (!edge->with_gradient) return QDRI_NO_REF;
    if (!*accumulate) {
        edge->d = edge->keeps_gradient ? edge->gradient : take_edge(builder, edge);
    } else if (!edge->keeps_gradient && builder->buffers->status == QDR_OK &&
               builder->buffers->items[edge->d.buffer].busy > 1) {
        const qdri_ref copy = take_edge(builder, edge);
        add_edge_task(builder, edge, number, stack->nodes[number].name, copy, edge->d, 0);
        qdri_builder_give(builder, edge->d);
        edge->d = copy;
    }
    return edge->d;
}

/* A node's output gradient has been used. */
static void release_gradient(qdri_builder *builder, qdri_edge *edge)
{
    if (!edge->keeps_gradient) qdri_builder_give(builder, edge->d);
    edge->d = QDRI_NO_REF;
}

/* Residual: each input's gradient is the output's. The first to come shares its memory. */
static void pass_gradient(qdri_builder *builder, qdr_stack *stack, int number)
{
    const qdri_node *node = &stack->nodes[number];
    const qdri_edge *out = &stack->edges[node->out];
    for (int i = 0; i < node->n_in; i++) {
        qdri_edge *edge = &stack->edges[node->in[i]];
        if (!edge->with_gradient) continue;
        if (edge->d.buffer < 0 && !edge->keeps_gradient && !out->keeps_gradient) {
            edge->d = out->d;
            qdri_buffers_share(builder->buffers, out->d);
            continue;
        }
        int accumulate = 0;
        const qdri_ref target = gradient_target(builder, stack, node->in[i], number, &accumulate);
        add_edge_task(builder, edge, number, node->name, target, out->d, accumulate);
    }
}

/* The library's own operations write the gradients of features even where nobody wants them (of an
 * input of the stack): into memory that is used again. */
static int must_write(const qdr_stack *stack, const qdri_node *node, int i)
{
    const qdri_edge *edge = &stack->edges[node->in[i]];
    return !edge->with_gradient && edge->dtype != QDR_I32 &&
           node->backward != qdri_run_user_backward;
}

/* The gradients of inputs go to `writes`; bits of `accumulates` as in qdri_op_run. */
static void add_op_backward_part(qdri_builder *builder, const qdr_stack *stack, int number,
                                 int part, const qdri_ref *writes, int accumulates)
{
    const qdri_node *node = &stack->nodes[number];
    int64_t begin, end;
    op_rows(builder, stack, node, part, &begin, &end);
    qdri_task task = op_task(stack, number, QDRI_TASK_BACKWARD, begin, end);
    task.accumulate = accumulates;
    task.n_writes = node->n_in;
    task.n_reads = 1 + node->n_in;
    task.reads[0] = node->out >= 0 ? qdri_edge_rows(&stack->edges[node->out],
                                                    stack->edges[node->out].d, begin, end)
                                   : QDRI_NO_REF;
    for (int i = 0; i < node->n_in; i++) {
        const qdri_edge *edge = &stack->edges[node->in[i]];
        task.reads[1 + i] = qdri_edge_rows(edge, edge->value, begin, end);
        task.writes[i] = qdri_edge_rows(edge, writes[i], begin, end);
    }
    for (int j = 0; j < node->n_parameters; j++)
        task.writes[task.n_writes++] = stack->parameters[node->parameter + j].gradient;
    qdri_schedule_add(builder, &task);
}

static void add_op_backward(qdri_builder *builder, qdr_stack *stack, int number,
                            int accumulate_parameters)
{
    const qdri_node *node = &stack->nodes[number];
    qdri_ref late[QDR_MAX_OP_INPUTS], unwanted[QDR_MAX_OP_INPUTS], writes[QDR_MAX_OP_INPUTS];
    int accumulates = accumulate_parameters << QDR_MAX_OP_INPUTS;
    for (int i = 0; i < node->n_in; i++) {
        int accumulate = 0;
        writes[i] = gradient_target(builder, stack, node->in[i], number, &accumulate);
        late[i] = QDRI_NO_REF;
        unwanted[i] = QDRI_NO_REF;
        if (must_write(stack, node, i)) {
            unwanted[i] = writes[i] = take_edge(builder, &stack->edges[node->in[i]]);
        } else if (accumulate && node->overwrites_only) {
            late[i] = writes[i];
            writes[i] = take_edge(builder, &stack->edges[node->in[i]]);
        } else {
            accumulates |= accumulate << i;
        }
    }
    for (int part = 0; part < (node->needs_all_rows ? 1 : builder->n_parts); part++) {
        if (!node->needs_all_rows) builder->part = part;
        add_op_backward_part(builder, stack, number, part, writes, accumulates);
        accumulates |= 1 << QDR_MAX_OP_INPUTS; /* the parameters': to those of the parts before */
    }
    for (int i = 0; i < node->n_in; i++) {
        qdri_builder_give(builder, unwanted[i]);
        if (late[i].buffer < 0) continue;
        add_edge_task(builder, &stack->edges[node->in[i]], number, node->name, late[i], writes[i],
                      1);
        qdri_builder_give(builder, writes[i]);
    }
}

/* How one layer's gradients are written in a mode. */
static qdri_backward_mode layer_mode(const qdr_linear *layer, qdri_gradient_mode mode, int deferred)
{
    const qdr_stack *stack = layer->stack;
    const int partial = mode == QDRI_GRADIENT_ADD_TO_PARTIAL,
              complete = mode == QDRI_GRADIENT_ADD_TO_COMPLETE;
    const int small_first = layer->bias >= 0 && stack->parameters[layer->bias].first_copy;
    return (qdri_backward_mode){
        .accumulate_dw = layer->shares_last || partial ||
                         (complete && stack->place.coordinate[QDR_D] == 0),
        .accumulate_db = partial || (complete && small_first),
        .keep_for_later = deferred || layer->shares_first,
    };
}

static void add_layer_backward(qdri_builder *builder, qdr_stack *stack, int number,
                               qdri_gradient_mode mode, int deferred)
{
    const qdri_node *node = &stack->nodes[number];
    qdri_layer_refs refs = layer_refs(node->layer);
    qdri_backward_mode how = layer_mode(node->layer, mode, deferred);
    refs.dy = stack->edges[node->out].d;
    if (node->kind == QDRI_NODE_EMBEDDING) {
        qdri_embedding_backward_tasks(builder, &node->layer->shape, &refs, &how);
        return;
    }
    refs.dx = gradient_target(builder, stack, node->in[0], number, &how.accumulate_dx);
    qdri_linear_backward_tasks(builder, &node->layer->shape, &refs, &how);
}

/* Gradients of biases, norms and positions: summed over the axes that hold copies, all at once. */
static void sum_small_gradients(qdri_builder *builder, const qdr_stack *stack)
{
    const size_t bytes = qdr_dtype_bytes(stack->grad_dtype);
    for (int axis = QDR_X; axis <= QDR_Y; axis++) {
        const int64_t begin_elem = stack->small_begin[1 + axis],
                      n = stack->small_end[1 + axis] - begin_elem;
        const qdri_ref part = {stack->small_gradients.buffer, (size_t)begin_elem * bytes,
                               (size_t)n * bytes};
        if (n > 0) qdri_small_gradient_task(builder, (qdr_axis)axis, part, n, stack->grad_dtype);
    }
    if (stack->n_small == 0) return;
    qdri_small_gradient_task(builder, QDR_Z, stack->small_gradients, stack->n_small,
                             stack->grad_dtype);
    qdri_small_gradient_task(builder, QDR_D, stack->small_gradients, stack->n_small,
                             stack->grad_dtype);
}

static int norm_accumulates(const qdr_stack *stack, const qdri_node *node, qdri_gradient_mode mode)
{
    if (!node->n_parameters) return 0;
    return mode == QDRI_GRADIENT_ADD_TO_PARTIAL ||
           (mode == QDRI_GRADIENT_ADD_TO_COMPLETE && stack->parameters[node->parameter].first_copy);
}

qdr_status qdri_build_backward(qdr_stack *stack, qdri_gradient_mode mode, int deferred)
{
    qdri_builder builder;
    begin_whole(&builder, stack, &stack->backward[2 * (int)mode + deferred]);
    for (int i = 0; i < stack->n_edges; i++)
        stack->edges[i].d = stack->edges[i].keeps_gradient && stack->edges[i].n_uses == 0
                                ? stack->edges[i].gradient
                                : QDRI_NO_REF;
    for (int i = stack->n_nodes - 1; i >= 0; i--) {
        const qdri_node *node = &stack->nodes[i];
        if (node->kind == QDRI_NODE_LINEAR && stack->edges[node->in[0]].with_gradient)
            qdri_plan_layer_weight(&builder, node->layer);
    }
    qdri_builder_hold(&builder);
    for (int i = stack->n_nodes - 1; i >= 0; i--) {
        const qdri_node *node = &stack->nodes[i];
        builder.part = node->needs_all_rows ? QDRI_AFTER_PARTS : QDRI_BEFORE_PARTS;
        if (node->passes_gradient)
            pass_gradient(&builder, stack, i);
        else if (node->kind == QDRI_NODE_OP)
            add_op_backward(&builder, stack, i, norm_accumulates(stack, node, mode));
        else
            add_layer_backward(&builder, stack, i, mode, deferred);
        if (node->out >= 0) release_gradient(&builder, &stack->edges[node->out]);
        if (!ends_segment(stack, i, i - 1, 1)) continue;
        qdri_builder_release(&builder);
        qdri_builder_hold(&builder);
    }
    qdri_builder_release(&builder);
    if (!deferred) sum_small_gradients(&builder, stack);
    return qdri_builder_end(&builder);
}

qdr_status qdri_build_layer_forward(qdr_linear *layer, int accumulate_y)
{
    qdr_stack *stack = layer->stack;
    qdri_builder builder;
    qdri_layer_refs refs = layer_refs(layer);
    refs.x = stack->caller[QDRI_CALLER_X];
    refs.y = stack->caller[QDRI_CALLER_Y];
    begin(&builder, stack, &stack->single);
    qdri_plan_layer_weight(&builder, layer);
    qdri_linear_forward_product(&builder, &layer->shape, &refs, 0, qdri_next_weight(&builder),
                                accumulate_y);
    qdri_linear_forward_bias(&builder, &layer->shape, &refs, 0, accumulate_y);
    return qdri_builder_end(&builder);
}

static void sum_bias_gradient(qdri_builder *builder, const qdr_linear *layer)
{
    const qdri_parameter *b = &layer->stack->parameters[layer->bias];
    if (b->n_elems == 0) return; /* nothing on the other copies either */
    qdri_small_gradient_task(builder, QDR_Z, b->gradient, b->n_elems, layer->stack->grad_dtype);
    qdri_small_gradient_task(builder, QDR_D, b->gradient, b->n_elems, layer->stack->grad_dtype);
}

qdr_status qdri_build_layer_backward(qdr_linear *layer, int flags, qdri_gradient_mode mode)
{
    qdr_stack *stack = layer->stack;
    qdri_builder builder;
    qdri_layer_refs refs = layer_refs(layer);
    qdri_backward_mode how = layer_mode(layer, mode, (flags & QDR_DEFER_SYNC) != 0);
    how.accumulate_dx = (flags & QDR_DX_ACCUMULATE) != 0;
    refs.x = stack->caller[QDRI_CALLER_X];
    refs.dy = stack->caller[QDRI_CALLER_DY];
    if (!(flags & QDR_NO_DX)) refs.dx = stack->caller[QDRI_CALLER_DX];
    begin(&builder, stack, &stack->single);
    if (!(flags & QDR_NO_DX)) qdri_plan_layer_weight(&builder, layer);
    qdri_linear_backward_tasks(&builder, &layer->shape, &refs, &how);
    if (layer->shape.bias && !how.keep_for_later) sum_bias_gradient(&builder, layer);
    return qdri_builder_end(&builder);
}
