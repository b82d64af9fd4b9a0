/* SPDX-License-Identifier: Apache-2.0 */
/* From nodes to schedules: forward in order of execution, backward in reverse order, with gradients in values.
 * If the rows are divided into parts, these run one after the other from one sum across ranks to the next, so that the
 * sum of one part overlaps with the work of the others. */
#include "core/group.h"
#include "quadrille/linear.h"
#include "schedule/net_parts.h"
#include "schedule/rows.h"

qdr_status qdri_net_finish(qdri_net *net, qdri_schedule *schedule)
{
    QDR_TRY(qdri_schedule_allocate(schedule, net->workspace));
    qdri_buffer *workspace = &net->buffers.items[net->workspace.buffer];
    if (schedule->workspace_bytes > workspace->bytes) workspace->bytes = schedule->workspace_bytes;
    if (schedule->n_tasks > net->most_tasks) net->most_tasks = schedule->n_tasks;
    return qdri_schedule_set_waits(schedule, &net->hazards, net->opts.overlap & QDR_OVERLAP_ALL);
}

void qdri_net_begin_list(qdri_builder *builder, const qdri_net *net, qdri_schedule *schedule)
{
    qdri_builder_begin(builder, schedule, net->buffers.n, &net->position, net->opts.prefetch);
    builder->coding = &net->coding;
}

static void begin_whole(qdri_builder *builder, qdri_net *net, qdri_schedule *schedule)
{
    qdri_net_begin_list(builder, net, schedule);
    qdri_builder_cut_rows(builder, net->cell_rows, net->opts.row_unit, qdri_net_batch_parts(net));
}

static void plan_weight(qdri_builder *builder, const qdri_net *net, const qdri_layer *layer)
{
    const qdri_parameter *w = &net->parameters[layer->weight];
    qdri_plan_weight(builder, layer->shape.node, layer->shape.name, w->data, w->shard_elems, layer->shape.dtype);
}

static qdri_layer_refs layer_refs(const qdri_net *net, const qdri_node *node)
{
    const qdri_layer *layer = &node->layer;
    qdri_layer_refs refs = {.x = net->edges[node->in[0]].value,
                            .y = net->edges[node->out].value,
                            .dx = QDRI_NO_REF,
                            .dy = QDRI_NO_REF,
                            .b = QDRI_NO_REF,
                            .db = QDRI_NO_REF,
                            .gathered = layer->gathered};
    refs.w = net->parameters[layer->weight].data;
    refs.dw = net->parameters[layer->weight].gradient;
    refs.feedback = net->parameters[layer->weight].feedback;
    if (layer->bias >= 0) {
        refs.b = net->parameters[layer->bias].data;
        refs.db = net->parameters[layer->bias].gradient;
    }
    return refs;
}

/* The layer where its gathered rows are a value of the list that is built; else as it is. */
static qdri_layer_shape shape_of(const qdri_node *node)
{
    qdri_layer_shape shape = node->layer.shape;
    if (node->layer.gathered_passes) shape.drop_gathered = node->layer.gathered.buffer < 0;
    return shape;
}

/* The operations on a node's output after it has been summed. */
static void end_node(qdri_builder *builder, const qdri_net *net, int number, int part)
{
    const qdri_node *node = &net->nodes[number];
    if (!qdri_node_is_layer(node)) return;
    const qdri_layer_refs refs = layer_refs(net, node);
    if (node->kind == QDRI_NODE_EMBEDDING)
        qdri_embedding_forward_positions(builder, &node->layer.shape, &refs, part);
    else
        qdri_linear_forward_bias(builder, &node->layer.shape, &refs, part, 0);
}

static void begin_node(qdri_builder *builder, const qdri_net *net, int number, int part, int again, qdri_ref w)
{
    const qdri_node *node = &net->nodes[number];
    if (!qdri_node_is_layer(node)) {
        (again ? qdri_op_repeat_tasks : qdri_op_forward_tasks)(builder, net, number, part);
        return;
    }
    const qdri_layer_refs refs = layer_refs(net, node);
    const qdri_layer_shape shape = shape_of(node);
    if (node->kind == QDRI_NODE_EMBEDDING)
        qdri_embedding_forward_lookup(builder, &shape, &refs, part, w);
    else
        qdri_linear_forward_product(builder, &shape, &refs, part, w, 0);
}

static int is_summed(const qdri_net *net, qdr_axis axis) { return net->position.size[axis] > 1; }

/* A segment, in which the parts pass through all nodes one after the other, ends with a layer whose result is summed
 * across ranks; with each layer whose W is gathered or whose dW is summed over near ranks, since few of these are kept
 * at a time; and at nodes that need all parts at once. */
static int ends_segment(const qdri_net *net, int number, int next, int backward)
{
    const qdri_node *node = &net->nodes[number];
    if (node->needs_all_rows || (next >= 0 && next < net->n_nodes &&
                                 (net->nodes[next].needs_all_rows || net->nodes[next].kind == QDRI_NODE_EMBEDDING)))
        return 1;
    if (!qdri_node_is_layer(node)) return 0;
    const qdri_layer_shape *shape = &node->layer.shape;
    const int sums_parts = backward && qdri_channel_group_of(&net->position, QDR_CHANNEL_D_NEAR).size > 1;
    return node->kind == QDRI_NODE_EMBEDDING || is_summed(net, QDR_Z) || sums_parts ||
           is_summed(net, backward ? shape->out_axis : shape->in_axis);
}

/* ---- returns ---- */

/* Gathers n_elems of a shard from its parts, in place. */
static void gather_parts(qdri_builder *builder, const qdri_net *net, int number, qdr_channel channel, int64_t begin,
                         int64_t n_elems)
{
    const qdri_node *node = &net->nodes[number];
    const size_t each = qdr_dtype_bytes(net->opts.dtype);
    const qdri_ref shard = net->parameters[node->layer.weight].data;
    qdri_task task = {.coll = QDR_ALL_GATHER,
                      .overlap_class = QDRI_CLASS_WEIGHTS,
                      .channel = channel,
                      .node = number,
                      .name = node->name,
                      .n_writes = 1,
                      .writes = {{shard.buffer, shard.offset + (size_t)begin * each, (size_t)n_elems * each}},
                      .count = n_elems / qdri_channel_group_of(&net->position, channel).size,
                      .dtype = net->opts.dtype};
    qdri_add_collective(builder, &task);
}

/* Makes a shard whole again after its parts have been updated: first what the gradient's part lacks. */
static void return_weight(qdri_builder *builder, const qdri_net *net, int number)
{
    const qdri_parameter *w = &net->parameters[net->nodes[number].layer.weight];
    gather_parts(builder, net, number, QDR_CHANNEL_D_FAR, w->gradient_begin, w->gradient_elems);
    gather_parts(builder, net, number, QDR_CHANNEL_D_NEAR, 0, w->shard_elems);
}

/* In the order in which a forward pass needs them. */
static void return_weights(qdri_builder *builder, const qdri_net *net)
{
    for (int i = 0; i < net->n_nodes; i++)
        if (qdri_node_is_layer(&net->nodes[i]) && !net->nodes[i].layer.shares_first) return_weight(builder, net, i);
}

qdr_status qdri_net_returns(qdri_net *net, int node, qdri_schedule *schedule)
{
    qdri_builder builder;
    qdri_net_begin_list(&builder, net, schedule);
    if (node < 0)
        return_weights(&builder, net);
    else
        return_weight(&builder, net, node);
    QDR_TRY(qdri_builder_end(&builder));
    return qdri_net_finish(net, schedule);
}

/* ---- forward ---- */

static qdri_ref take_edge(qdri_builder *builder, const qdri_edge *edge)
{
    return qdri_builder_take(builder, qdri_edge_bytes(edge));
}

/* The values of a list begin with the node that makes them, and end with the last one that reads them: in a forward
 * list a node, in a backward list one that is made again, or one whose backward it is. */
static void begin_values(qdri_builder *builder, qdri_net *net, int number, int again)
{
    qdri_node *node = &net->nodes[number];
    qdri_layer *layer = &node->layer;
    if (node->out >= 0 && net->edges[node->out].passes)
        net->edges[node->out].value = take_edge(builder, &net->edges[node->out]);
    if (node->saved_passes) node->saved = qdri_builder_take(builder, node->saved_bytes);
    if (again && layer->gathered_passes)
        layer->gathered = qdri_take_rows(builder, 1, layer->shape.m, layer->shape.k, layer->shape.dtype);
}

static void end_value(qdri_builder *builder, qdri_ref *value)
{
    qdri_builder_give(builder, *value);
    *value = QDRI_NO_REF;
}

static void end_values(qdri_builder *builder, qdri_net *net, int number, int again)
{
    qdri_node *node = &net->nodes[number];
    for (int i = 0; i < node->n_in; i++) {
        qdri_edge *edge = &net->edges[node->in[i]];
        if (edge->passes && (again ? edge->last_again == number && edge->read_to < 0 : edge->last_use == number))
            end_value(builder, &edge->value);
    }
    if (!again && node->saved_passes) end_value(builder, &node->saved);
}

/* The node after number i; again_at: of those that run again before the backward of that node; -1: of all. */
static int next_node(const qdri_net *net, int i, int again_at)
{
    do i++;
    while (i < net->n_nodes && again_at >= 0 && net->nodes[i].again_at != again_at);
    return i;
}

static void plan_weights(qdri_builder *builder, const qdri_net *net, int again_at)
{
    for (int i = next_node(net, -1, again_at); i < net->n_nodes; i = next_node(net, i, again_at))
        if (qdri_node_is_layer(&net->nodes[i])) plan_weight(builder, net, &net->nodes[i].layer);
}

/* Runs these nodes in a list that holds tasks. @return the last one, which has not ended; -1: there is none */
static int run_nodes(qdri_builder *builder, qdri_net *net, int again_at)
{
    const int again = again_at >= 0;
    int before = -1;
    for (int i = next_node(net, -1, again_at), next; i < net->n_nodes; before = i, i = next) {
        const int needs_all_rows = net->nodes[i].needs_all_rows;
        const qdri_ref w = qdri_node_is_layer(&net->nodes[i]) ? qdri_next_weight(builder) : QDRI_NO_REF;
        next = next_node(net, i, again_at);
        begin_values(builder, net, i, again);
        for (int part = 0; part < builder->n_parts; part++) {
            builder->part = part;
            if (before >= 0) end_node(builder, net, before, part);
            if (!needs_all_rows) begin_node(builder, net, i, part, again, w);
        }
        builder->part = QDRI_AFTER_PARTS;
        if (needs_all_rows) begin_node(builder, net, i, 0, again, w);
        builder->part = QDRI_BEFORE_PARTS;
        end_values(builder, net, i, again);
        if (!ends_segment(net, i, next, 0)) continue;
        qdri_builder_release(builder);
        qdri_builder_hold(builder);
    }
    return before;
}

qdr_status qdri_net_forward_tasks(qdri_net *net, int returns, qdri_schedule *schedule)
{
    qdri_builder builder;
    begin_whole(&builder, net, schedule);
    if (returns) return_weights(&builder, net);
    plan_weights(&builder, net, -1);
    net->n_loss_parts = builder.n_parts;
    qdri_builder_hold(&builder);
    const int last = run_nodes(&builder, net, -1);
    qdri_builder_release(&builder);
    for (int part = 0; part < builder.n_parts; part++) end_node(&builder, net, last, part);
    return qdri_builder_end(&builder);
}

/* ---- backward ---- */

/* Adds factor · b, of the size of an edge, to a, or writes it there. */
static void add_edge_task(qdri_builder *builder, const qdri_edge *edge, int number, const char *name, qdri_ref a,
                          qdri_ref b, double factor, int accumulate)
{
    const int part_before = builder->part;
    for (int part = 0; part < builder->n_parts; part++) {
        int64_t begin, end;
        qdri_part_rows(builder, part, edge->owned.n_rows, &begin, &end);
        if (part_before != QDRI_AFTER_PARTS) builder->part = part;
        const qdri_ref from = qdri_edge_rows(edge, b, begin, end), to = qdri_edge_rows(edge, a, begin, end);
        qdri_task task = {.node = number, .name = name, .dtype = edge->dtype, .out_dtype = edge->dtype};
        if (accumulate)
            qdri_set_sum(&task, end - begin, edge->owned.n_cols, to, from, to);
        else
            qdri_set_copy(&task, end - begin, edge->owned.n_cols, from, to);
        if (!accumulate && factor != 1)
            task.kernel = (qdri_kernel){.kind = QDRI_K_CAST, .u.binary = {.n = task.m * task.n, .dtype2 = task.dtype}};
        task.kernel.factor = factor;
        qdri_schedule_add(builder, &task);
    }
    builder->part = part_before;
}

/* Where a node writes the gradient of one of its inputs; *accumulate is set if another node has written it before. A
 * gradient that is shared with another edge is copied before it is added to. */
static qdri_ref gradient_target(qdri_builder *builder, qdri_net *net, int input, int number, int *accumulate)
{
    qdri_edge *edge = &net->edges[input];
    *accumulate = edge->d.buffer >= 0;
    if (!edge->with_gradient) return QDRI_NO_REF;
    if (!*accumulate) {
        edge->d = edge->keeps_gradient ? edge->gradient : take_edge(builder, edge);
    } else if (qdri_builder_users(builder, edge->d) > 1) {
        const qdri_ref copy = take_edge(builder, edge);
        add_edge_task(builder, edge, number, net->nodes[number].name, copy, edge->d, 1, 0);
        qdri_builder_give(builder, edge->d);
        edge->d = copy;
    }
    return edge->d;
}

/* The same for an operation. If nothing else needs the output's gradient, that of the input replaces it. */
static qdri_ref op_gradient_target(qdri_builder *builder, qdri_net *net, int number, int i, int *accumulate)
{
    const qdri_node *node = &net->nodes[number];
    qdri_edge *edge = &net->edges[node->in[i]];
    if (!node->in_place || !edge->with_gradient || edge->keeps_gradient || edge->d.buffer >= 0 ||
        qdri_builder_users(builder, net->edges[node->out].d) != 1)
        return gradient_target(builder, net, node->in[i], number, accumulate);
    const qdri_edge *out = &net->edges[node->out];
    edge->d = out->d;
    qdri_builder_share(builder, out->d);
    *accumulate = 0;
    return edge->d;
}

/* Residual: each input's gradient is that of the output, of the second one times a factor. One that is the same shares
 * its memory. */
static void pass_gradient(qdri_builder *builder, qdri_net *net, int number)
{
    const qdri_node *node = &net->nodes[number];
    const qdri_edge *out = &net->edges[node->out];
    for (int i = 0; i < node->n_in; i++) {
        qdri_edge *edge = &net->edges[node->in[i]];
        const double factor = i ? qdri_factor_of(&node->kernel) : 1;
        if (!edge->with_gradient) continue;
        if (factor == 1 && edge->d.buffer < 0 && !edge->keeps_gradient && !out->keeps_gradient) {
            edge->d = out->d;
            qdri_builder_share(builder, out->d);
            continue;
        }
        int accumulate = 0;
        const qdri_ref target = gradient_target(builder, net, node->in[i], number, &accumulate);
        add_edge_task(builder, edge, number, node->name, target, out->d, factor, accumulate);
    }
}

/* Whether this rank adds to the gradient of a small parameter. */
static int adds_to_small(const qdri_net *net, int parameter, qdri_gradient_mode mode)
{
    return mode == QDRI_GRADIENT_ADD_TO_PARTIAL ||
           (mode == QDRI_GRADIENT_ADD_TO_COMPLETE && net->parameters[parameter].first_copy);
}

static void add_op_backward(qdri_builder *builder, qdri_net *net, int number, qdri_gradient_mode mode)
{
    const qdri_node *node = &net->nodes[number];
    qdri_ref late[QDR_MAX_OP_INPUTS], unwanted[QDR_MAX_OP_INPUTS], writes[QDR_MAX_OP_INPUTS];
    const int every_parameter = ((1 << QDRI_MOST_NODE_PARAMETERS) - 1) << QDR_MAX_OP_INPUTS;
    int accumulates = 0;
    for (int i = 0; i < node->n_parameters; i++)
        accumulates |= adds_to_small(net, node->parameter + i, mode) << (QDR_MAX_OP_INPUTS + i);
    for (int i = 0; i < node->n_in; i++) {
        const qdri_edge *edge = &net->edges[node->in[i]];
        int accumulate = 0;
        writes[i] = op_gradient_target(builder, net, number, i, &accumulate);
        late[i] = QDRI_NO_REF;
        unwanted[i] = QDRI_NO_REF;
        /* The library's own operations write the gradients of features even if they are not wanted (for an input of the
         * stack): to memory that is reused. */
        if (!edge->with_gradient && edge->dtype != QDR_I32 && node->kind != QDRI_NODE_CALLER) {
            unwanted[i] = writes[i] = take_edge(builder, edge);
        } else if (accumulate && node->overwrites_only) {
            late[i] = writes[i];
            writes[i] = take_edge(builder, edge);
        } else {
            accumulates |= accumulate << i;
        }
    }
    for (int part = 0; part < (node->needs_all_rows ? 1 : builder->n_parts); part++) {
        if (!node->needs_all_rows) builder->part = part;
        qdri_op_backward_tasks(builder, net, number, part, writes, accumulates);
        accumulates |= every_parameter; /* added to those of earlier parts */
    }
    for (int i = 0; i < node->n_in; i++) {
        qdri_builder_give(builder, unwanted[i]);
        if (late[i].buffer < 0) continue;
        add_edge_task(builder, &net->edges[node->in[i]], number, node->name, late[i], writes[i], 1, 1);
        qdri_builder_give(builder, writes[i]);
    }
}

/* How one layer's gradients are written in a mode. */
static qdri_backward_mode layer_mode(const qdri_net *net, const qdri_layer *layer, qdri_gradient_mode mode,
                                     int deferred)
{
    const qdri_parameter *w = &net->parameters[layer->weight];
    const int adds_to_complete = mode == QDRI_GRADIENT_ADD_TO_COMPLETE && w->first_copy && !layer->shares_last;
    return (qdri_backward_mode){
        .accumulate_dw = layer->shares_last || mode == QDRI_GRADIENT_ADD_TO_PARTIAL || adds_to_complete,
        .zero_dw = adds_to_complete && w->state_elems < w->gradient_elems,
        .accumulate_db = layer->bias >= 0 && adds_to_small(net, layer->bias, mode),
        .keep_for_later = deferred || layer->shares_first,
    };
}

static void add_layer_backward(qdri_builder *builder, qdri_net *net, int number, qdri_gradient_mode mode, int deferred)
{
    const qdri_node *node = &net->nodes[number];
    qdri_layer_refs refs = layer_refs(net, node);
    qdri_backward_mode how = layer_mode(net, &node->layer, mode, deferred);
    const qdri_layer_shape shape = shape_of(node);
    refs.dy = net->edges[node->out].d;
    if (node->kind == QDRI_NODE_EMBEDDING) {
        qdri_embedding_backward_tasks(builder, &shape, &refs, &how);
        return;
    }
    refs.dx = gradient_target(builder, net, node->in[0], number, &how.accumulate_dx);
    qdri_linear_backward_tasks(builder, &shape, &refs, &how);
}

/* Sums of small gradients over the axes that hold copies of all of them. */
static void sum_copies(qdri_builder *builder, const qdri_net *net, qdri_ref gradients, int64_t n_elems)
{
    if (n_elems == 0) return; /* on the other copies, too */
    qdri_small_gradient_task(builder, QDR_Z, gradients, n_elems, net->grad_dtype);
    qdri_small_gradient_task(builder, QDR_D, gradients, n_elems, net->grad_dtype);
}

/* Makes again what the backward from this node on reads. */
static void begin_again(qdri_builder *builder, qdri_net *net, int number)
{
    const int part_before = builder->part;
    builder->again = 1;
    builder->part = QDRI_BEFORE_PARTS;
    const int last = run_nodes(builder, net, number);
    for (int part = 0; last >= 0 && part < builder->n_parts; part++) {
        builder->part = part;
        end_node(builder, net, last, part);
    }
    builder->part = part_before;
    builder->again = 0;
}

static void end_again(qdri_builder *builder, qdri_net *net, int number)
{
    qdri_node *node = &net->nodes[number];
    for (int i = -1; i < node->n_in; i++) {
        const int edge = i < 0 ? node->out : node->in[i];
        if (edge >= 0 && net->edges[edge].read_to == number && net->edges[edge].passes)
            end_value(builder, &net->edges[edge].value);
    }
    if (node->saved_passes) end_value(builder, &node->saved);
    if (node->layer.gathered_passes) end_value(builder, &node->layer.gathered);
}

qdr_status qdri_net_backward_tasks(qdri_net *net, qdri_gradient_mode mode, int deferred, qdri_schedule *schedule)
{
    qdri_builder builder;
    begin_whole(&builder, net, schedule);
    for (int i = 0; i < net->n_edges; i++)
        net->edges[i].d = net->edges[i].keeps_gradient && net->edges[i].n_uses == 0 ? net->edges[i].gradient
                                                                                    : QDRI_NO_REF;
    for (int i = net->n_nodes - 1; i >= 0; i--) {
        const qdri_node *node = &net->nodes[i];
        plan_weights(&builder, net, i);
        if (node->kind == QDRI_NODE_LINEAR && net->edges[node->in[0]].with_gradient)
            plan_weight(&builder, net, &node->layer);
    }
    qdri_builder_hold(&builder);
    for (int i = net->n_nodes - 1; i >= 0; i--) {
        const qdri_node *node = &net->nodes[i];
        builder.part = node->needs_all_rows ? QDRI_AFTER_PARTS : QDRI_BEFORE_PARTS;
        begin_again(&builder, net, i);
        if (node->passes_gradient)
            pass_gradient(&builder, net, i);
        else if (!qdri_node_is_layer(node))
            add_op_backward(&builder, net, i, mode);
        else
            add_layer_backward(&builder, net, i, mode, deferred);
        end_again(&builder, net, i);
        if (node->out >= 0) { /* its gradient has been used */
            qdri_builder_give(&builder, net->edges[node->out].d);
            net->edges[node->out].d = QDRI_NO_REF;
        }
        if (!ends_segment(net, i, i - 1, 1)) continue;
        qdri_builder_release(&builder);
        qdri_builder_hold(&builder);
    }
    qdri_builder_release(&builder);
    if (deferred) return qdri_builder_end(&builder);
    /* Gradients of biases, norms and positions: summed all together. */
    const size_t bytes = qdr_dtype_bytes(net->grad_dtype);
    for (int axis = QDR_X; axis <= QDR_Y; axis++) {
        const int64_t begin_elem = net->small_begin[1 + axis], n = net->small_begin[3 + axis] - begin_elem;
        const qdri_ref part = {net->small_gradients.buffer, (size_t)begin_elem * bytes, (size_t)n * bytes};
        if (n > 0) qdri_small_gradient_task(&builder, (qdr_axis)axis, part, n, net->grad_dtype);
    }
    sum_copies(&builder, net, net->small_gradients, net->n_small);
    return qdri_builder_end(&builder);
}

/* ---- whole lists ---- */

qdr_status qdri_net_forward(qdri_net *net, int returns, qdri_schedule *schedule)
{
    QDR_TRY(qdri_net_forward_tasks(net, returns, schedule));
    return qdri_net_finish(net, schedule);
}

qdr_status qdri_net_backward(qdri_net *net, qdri_gradient_mode mode, int deferred, qdri_schedule *schedule)
{
    QDR_TRY(qdri_net_backward_tasks(net, mode, deferred, schedule));
    return qdri_net_finish(net, schedule);
}

/* ---- layers alone ---- */

qdr_status qdri_net_layer_forward(qdri_net *net, int node, int accumulate_y, qdri_schedule *schedule)
{
    const qdri_layer *layer = &net->nodes[node].layer;
    qdri_builder builder;
    qdri_layer_refs refs = layer_refs(net, &net->nodes[node]);
    refs.x = net->caller[QDRI_CALLER_X];
    refs.y = net->caller[QDRI_CALLER_Y];
    qdri_net_begin_list(&builder, net, schedule);
    plan_weight(&builder, net, layer);
    const qdri_layer_shape shape = shape_of(&net->nodes[node]);
    qdri_linear_forward_product(&builder, &shape, &refs, 0, qdri_next_weight(&builder), accumulate_y);
    qdri_linear_forward_bias(&builder, &shape, &refs, 0, accumulate_y);
    QDR_TRY(qdri_builder_end(&builder));
    return qdri_net_finish(net, schedule);
}

qdr_status qdri_net_layer_backward(qdri_net *net, int node, int flags, qdri_gradient_mode mode, qdri_schedule *schedule)
{
    const qdri_layer *layer = &net->nodes[node].layer;
    qdri_builder builder;
    qdri_layer_refs refs = layer_refs(net, &net->nodes[node]);
    qdri_backward_mode how = layer_mode(net, layer, mode, (flags & QDR_DEFER_SYNC) != 0);
    how.accumulate_dx = (flags & QDR_DX_ACCUMULATE) != 0;
    refs.x = net->caller[QDRI_CALLER_X];
    refs.dy = net->caller[QDRI_CALLER_DY];
    if (!(flags & QDR_NO_DX)) refs.dx = net->caller[QDRI_CALLER_DX];
    qdri_net_begin_list(&builder, net, schedule);
    if (!(flags & QDR_NO_DX)) plan_weight(&builder, net, layer);
    const qdri_layer_shape shape = shape_of(&net->nodes[node]);
    qdri_linear_backward_tasks(&builder, &shape, &refs, &how);
    const qdri_parameter *bias = shape.bias && !how.keep_for_later ? &net->parameters[layer->bias] : NULL;
    if (bias) sum_copies(&builder, net, bias->gradient, bias->n_elems);
    QDR_TRY(qdri_builder_end(&builder));
    return qdri_net_finish(net, schedule);
}
