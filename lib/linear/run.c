/* SPDX-License-Identifier: Apache-2.0 */
/* Running stacks and single layers; losses; schedules as text and numbers. */
#include <math.h>

#include "core/group.h"
#include "core/sized.h"
#include "linear/describe.h"

/* How a backward pass adds its gradients to existing ones, which may or may not lack sums. */
static qdri_gradient_mode mode_of(int flags, int deferred)
{
    if (!(flags & QDR_ACCUMULATE)) return QDRI_GRADIENT_OVERWRITE;
    return deferred ? QDRI_GRADIENT_ADD_TO_PARTIAL : QDRI_GRADIENT_ADD_TO_COMPLETE;
}

static qdr_status check_whole(const qdr_stack *stack, const char *who)
{
    QDR_TRY(qdri_stack_ready(stack, who));
    if (stack->net.opts.caller_activations)
        return QDR_FAIL(QDR_ERR_STATE,
                        "%s: the stack was made with caller_activations and has no memory for them; run its layers "
                        "with qdr_linear_forward() and qdr_linear_backward()",
                        who);
    if (stack->lists.forward.n_tasks == 0)
        return QDR_FAIL(
            QDR_ERR_STATE,
            "%s: the stack cannot run as a whole because an activation other than the last is not read by any node",
            who);
    return QDR_OK;
}

/* With QDR_CHECK=1, ranks compare their calls before anything is enqueued, and all fail if one of them cannot
 * proceed. */
static qdr_status compare_call(const qdr_stack *stack, qdr_status mine, const char *call, const char *layer, int flags,
                               double loss_scale)
{
    const qdr_context *ctx = qdr_grid_context(stack->grid);
    if (!qdri_context_is_checked(ctx)) return mine;
    qdri_facts facts = {0};
    qdri_facts_add(&facts, "the call", "", call);
    qdri_facts_add(&facts, call, "layer", layer);
    qdri_facts_add_int(&facts, call, "flags", flags);
    qdri_facts_add_real(&facts, call, "loss_scale", loss_scale);
    qdri_facts_add(&facts, call, "parameters (qdr_stack_mark_updated())",
                   qdri_stack_is_stale(stack, -1) ? "stale" : "not stale");
    const qdr_status status = qdri_context_compare_call(ctx, mine, &facts, "run", QDRI_SAME_CALL);
    qdri_facts_free(&facts);
    return status;
}

qdr_status qdr_stack_forward(qdr_stack *stack)
{
    qdr_status status = check_whole(stack, "forward");
    if (!stack) return status;
    QDR_TRY(compare_call(stack, status, "qdr_stack_forward", "all", 0, 0));
    const qdri_schedule *list = qdri_stack_is_stale(stack, -1) ? &stack->lists.first_forward : &stack->lists.forward;
    QDR_TRY(qdri_execute(stack, list, qdr_context_stream(qdr_grid_context(stack->grid))));
    qdri_stack_set_returned(stack, -1);
    stack->has_values = 1;
    return QDR_OK;
}

/* Fails unless the edges have values from a forward pass. */
static qdr_status check_values(const qdr_stack *stack, const char *who)
{
    if (stack->has_values) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE, "%s: no forward of the stack was run yet; call qdr_stack_forward first", who);
}

static qdr_status check_backward(const qdr_stack *stack, int flags, double loss_scale)
{
    QDR_TRY(check_whole(stack, "backward"));
    QDR_TRY(qdri_stack_owns(stack, "backward"));
    if (flags & ~(QDR_ACCUMULATE | QDR_DEFER_SYNC))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "backward: flags %d; only QDR_ACCUMULATE and QDR_DEFER_SYNC are known here",
                        flags);
    if (!isfinite(loss_scale))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "backward: the loss's scale is %g; use 1 over the valid tokens of the step",
                        loss_scale);
    QDR_TRY(check_values(stack, "backward"));
    /* One schedule adds to all gradients of a stack, so they must all be in the same state. */
    for (int i = 1; i < stack->net.n_parameters && flags & QDR_ACCUMULATE; i++) {
        const qdri_attached_parameter *p = qdri_parameter_of(stack, i - 1), *q = qdri_parameter_of(stack, i);
        if (p->deferred != q->deferred)
            return QDR_FAIL(QDR_ERR_STATE,
                            "backward: the gradient of %s lacks sums that QDR_DEFER_SYNC left out, but that of %s does "
                            "not, so QDR_ACCUMULATE cannot add to both; run the layers' last backward without "
                            "QDR_DEFER_SYNC first, or leave out QDR_ACCUMULATE",
                            p->deferred ? p->name : q->name, p->deferred ? q->name : p->name);
    }
    return QDR_OK;
}

qdr_status qdri_stack_begin_backward(qdr_stack *stack, int flags, double loss_scale, const qdri_schedule **list)
{
    const qdr_status status = check_backward(stack, flags, loss_scale);
    if (!stack) return status;
    QDR_TRY(compare_call(stack, status, "qdr_stack_backward", "all", flags,
                         qdri_net_find_loss(&stack->net) ? loss_scale : 0));
    const int deferred = (flags & QDR_DEFER_SYNC) != 0;
    const qdri_gradient_mode mode = mode_of(flags, stack->net.n_parameters && qdri_parameter_of(stack, 0)->deferred);
    for (int i = 0; i < stack->net.n_parameters; i++) {
        qdri_parameter_of(stack, i)->deferred = deferred;
        qdri_parameter_of(stack, i)->flags = flags;
    }
    stack->loss_scale = loss_scale;
    stack->backward_flags = flags;
    stack->layers_ran = 0;
    *list = &stack->lists.backward[2 * (int)mode + deferred];
    return QDR_OK;
}

qdr_status qdr_stack_backward(qdr_stack *stack, int flags, double loss_scale)
{
    const qdri_schedule *list = NULL;
    QDR_TRY(qdri_stack_begin_backward(stack, flags, loss_scale, &list));
    return qdri_execute(stack, list, qdr_context_stream(qdr_grid_context(stack->grid)));
}

qdr_status qdr_stack_loss(qdr_stack *stack, double *loss_sum, int64_t *n_valid)
{
    if (!loss_sum || !n_valid) return QDR_FAIL(QDR_ERR_ARGUMENT, "loss: the result pointer is NULL");
    *loss_sum = 0;
    *n_valid = 0;
    QDR_TRY(check_whole(stack, "loss"));
    QDR_TRY(qdri_context_check_runs(qdr_grid_context(stack->grid), "loss"));
    if (!qdri_net_find_loss(&stack->net))
        return QDR_FAIL(QDR_ERR_STATE,
                        "loss: the stack has no cross-entropy; add one with qdr_stack_add_cross_entropy");
    QDR_TRY(check_values(stack, "loss"));
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    const qdri_ref sums = qdri_net_loss_sums(&stack->net);
    double result[2 * QDRI_MAX_BATCH_PARTS] = {0};
    QDR_TRY(qdri_execute_step(stack, &stack->lists.loss, NULL));
    QDR_TRY(qdri_copy(stream, result, qdri_stack_pointer(stack, sums), sums.bytes));
    QDR_TRY(qdri_stream_synchronize(stream));
    for (int i = 0; i < 2 * qdri_net_batch_parts(&stack->net); i += 2) {
        *loss_sum += result[i];
        *n_valid += (int64_t)result[i + 1];
    }
    return QDR_OK;
}

static qdr_status check_layer(const qdr_linear *layer, const char *who)
{
    if (!layer) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the layer is NULL", who);
    QDR_TRY(qdri_stack_ready(layer->stack, who));
    if (layer->stack->net.nodes[layer->node].kind != QDRI_NODE_LINEAR)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: '%s' is an embedding; run it with its stack", who,
                        qdri_linear_name(layer));
    return QDR_OK;
}

/* An activation in the caller's memory. */
typedef struct operand {
    const void *memory;
    int edge;
    const char *what;
    int writes;
} operand;

/* Checks the caller's arrays, and that they overlap neither each other nor what else the layer reads and writes. NULL
 * is valid for an activation of which this rank owns nothing. */
static qdr_status check_operands(const qdr_linear *layer, int backward, int n, const operand *operands)
{
    const int returns = qdri_has_levels(&layer->stack->net.position); /* writes parts of W */
    const qdri_use uses[QDRI_CALLER] = {[QDRI_PARAMETERS] = returns ? QDRI_WRITTEN : QDRI_READ,
                                        [QDRI_GRADIENTS] = backward ? QDRI_WRITTEN : QDRI_READ,
                                        [QDRI_FEEDBACK] = backward ? QDRI_WRITTEN : QDRI_READ,
                                        [QDRI_WORKSPACE] = QDRI_WRITTEN};
    const qdr_stack *stack = layer->stack;
    const char *who = qdri_linear_name(layer);
    qdri_range ranges[3] = {{.what = NULL}}; /* for compilers that do not see that n > 0 */
    for (int i = 0; i < n; i++) {
        const operand *o = &operands[i];
        const qdri_edge *e = &stack->net.edges[o->edge];
        ranges[i] = (qdri_range){
            .what = o->what, .begin = o->memory, .bytes = o->memory ? qdri_edge_bytes(e) : 0, .writes = o->writes};
        if (qdri_edge_elems(e) == 0) continue;
        if (!o->memory)
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "%s: %s is NULL, but this rank has %" PRId64 "x%" PRId64 " elements of it", who, o->what,
                            e->owned.n_rows, e->owned.n_cols);
        QDR_TRY(qdri_dev_check_argument(qdri_context_dev(qdr_grid_context(stack->grid)), o->memory,
                                        qdr_dtype_bytes(stack->net.opts.dtype), who, o->what));
    }
    QDR_TRY(qdri_ranges_check(who, ranges, n));
    for (int i = 0; i < n; i++) QDR_TRY(qdri_stack_check_apart(stack, who, &ranges[i], uses));
    return QDR_OK;
}

static qdr_status check_forward(const qdr_linear *layer, const void *x, const void *y, int flags)
{
    QDR_TRY(check_layer(layer, "linear forward"));
    const qdri_node *node = &layer->stack->net.nodes[layer->node];
    if (flags & ~QDR_Y_ACCUMULATE)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: flags %d; forward knows QDR_Y_ACCUMULATE only", qdri_linear_name(layer),
                        flags);
    const operand operands[] = {{x, node->in[0], "x", 0}, {y, node->out, "y", 1}};
    return check_operands(layer, 0, 2, operands);
}

qdr_status qdr_linear_forward(qdr_linear *layer, const void *x, void *y, int flags, qdr_stream *stream)
{
    const qdr_status status = check_forward(layer, x, y, flags);
    if (!layer) return status;
    qdr_stack *stack = layer->stack;
    QDR_TRY(compare_call(stack, status, "qdr_linear_forward", qdri_linear_name(layer), flags, 0));
    stack->caller_memory[QDRI_CALLER_X] = (void *)(uintptr_t)x;
    stack->caller_memory[QDRI_CALLER_Y] = y;
    const qdri_schedule *list = NULL;
    QDR_TRY(qdri_give_up(stack, qdri_net_list_layer_forward(&stack->net, &stack->lists, layer->node,
                                                            (flags & QDR_Y_ACCUMULATE) != 0, &list)));
    QDR_TRY(qdri_layer_return(stack, layer->node, qdri_stream_or_default(stack->grid, stream)));
    return qdri_execute(stack, list, qdri_stream_or_default(stack->grid, stream));
}

static qdr_status check_linear_backward(const qdr_linear *layer, const void *dy, const void *x, const void *dx,
                                        int flags)
{
    QDR_TRY(check_layer(layer, "linear backward"));
    QDR_TRY(qdri_stack_owns(layer->stack, "linear backward"));
    const qdri_node *node = &layer->stack->net.nodes[layer->node];
    if (flags & ~(QDR_ACCUMULATE | QDR_DEFER_SYNC | QDR_DX_ACCUMULATE | QDR_NO_DX))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: flags %d contain a bit that backward does not know",
                        qdri_linear_name(layer), flags);
    const operand operands[] = {{x, node->in[0], "x", 0}, {dy, node->out, "dy", 0}, {dx, node->in[0], "dx", 1}};
    return check_operands(layer, 1, flags & QDR_NO_DX ? 2 : 3, operands);
}

qdr_status qdr_linear_backward(qdr_linear *layer, const void *dy, const void *x, void *dx, int flags,
                               qdr_stream *stream)
{
    const qdr_status status = check_linear_backward(layer, dy, x, dx, flags);
    if (!layer) return status;
    qdr_stack *stack = layer->stack;
    QDR_TRY(compare_call(stack, status, "qdr_linear_backward", qdri_linear_name(layer), flags, 0));
    stack->caller_memory[QDRI_CALLER_X] = (void *)(uintptr_t)x;
    stack->caller_memory[QDRI_CALLER_DY] = (void *)(uintptr_t)dy;
    stack->caller_memory[QDRI_CALLER_DX] = dx;
    const qdri_gradient_mode mode = mode_of(flags,
                                            qdri_parameter_of(stack, qdri_linear_layer(layer)->weight)->deferred);
    const qdri_schedule *list = NULL;
    QDR_TRY(
        qdri_give_up(stack, qdri_net_list_layer_backward(&stack->net, &stack->lists, layer->node, flags, mode, &list)));
    const qdri_layer *l = qdri_linear_layer(layer);
    const int deferred = (flags & QDR_DEFER_SYNC) != 0;
    qdri_attached_parameter *w = qdri_parameter_of(stack, l->weight);
    w->deferred = deferred || l->shares_first; /* a tied W: its last use sums over d */
    w->flags = flags;
    if (l->bias >= 0) qdri_parameter_of(stack, l->bias)->deferred = deferred;
    if (l->bias >= 0) qdri_parameter_of(stack, l->bias)->flags = flags;
    stack->layers_ran = 1;
    if (!(flags & QDR_NO_DX))
        QDR_TRY(qdri_layer_return(stack, layer->node, qdri_stream_or_default(stack->grid, stream)));
    return qdri_execute(stack, list, qdri_stream_or_default(stack->grid, stream));
}

static const qdri_schedule *find_list(const qdr_stack *stack, qdr_list list)
{
    if (!stack) return NULL;
    switch (list) {
    case QDR_LIST_FORWARD: return &stack->lists.forward;
    case QDR_LIST_BACKWARD: return &stack->lists.backward[0];
    case QDR_LIST_LOSS: return stack->lists.loss.n_tasks ? &stack->lists.loss : NULL;
    case QDR_LIST_FIRST_FORWARD:
        return stack->lists.first_forward.n_tasks ? &stack->lists.first_forward : &stack->lists.forward;
    default: return NULL;
    }
}

static qdr_status fail_list(const char *who, qdr_list list)
{
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s: a stack, one of its lists (QDR_LIST_FORWARD, _BACKWARD, _FIRST_FORWARD, or _LOSS where there "
                    "is one, not %d) and a "
                    "pointer to the result are needed",
                    who, (int)list);
}

qdr_status qdr_stack_print(const qdr_stack *stack, qdr_list list, FILE *file)
{
    const qdri_schedule *schedule = find_list(stack, list);
    if (!schedule || !file) return fail_list("print", list);
    qdri_schedule_print(schedule, file);
    return QDR_OK;
}

qdr_status qdr_stack_planned(const qdr_stack *stack, qdr_list list, qdr_channel channel, qdr_coll_kind kind,
                             qdr_planned *planned)
{
    const qdri_schedule *schedule = find_list(stack, list);
    qdr_planned own = {.n_calls = 0};
    QDR_TRY(QDRI_CLEAR(qdr_planned, planned));
    if (!schedule) return fail_list("planned", list);
    for (int i = 0; i < schedule->n_tasks; i++) {
        const qdri_task *task = &schedule->tasks[i];
        if (task->kind != QDRI_TASK_COLLECTIVE || task->channel != channel || task->coll != kind) continue;
        own.n_calls++;
        own.bytes_sent += task->bytes_sent;
    }
    QDRI_GIVE(qdr_planned, planned, &own);
    return QDR_OK;
}

double qdr_stack_flops(const qdr_stack *stack, qdr_list list)
{
    const qdri_schedule *schedule = find_list(stack, list);
    double flops = 0;
    for (int i = 0; schedule && i < schedule->n_tasks; i++) flops += schedule->tasks[i].flops;
    return flops;
}
