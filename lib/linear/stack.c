/* SPDX-License-Identifier: Apache-2.0 */
/* A stack's life: create, destroy, what may be called when. */
#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/size.h"
#include "linear/internal.h"

qdr_status qdri_stack_open(const qdr_stack *stack, const char *who)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the stack is NULL", who);
    if (stack->built)
        return QDR_FAIL(QDR_ERR_STATE,
                        "%s: the stack is already built; add layers before qdr_stack_build", who);
    return QDR_OK;
}

qdr_status qdri_stack_ready(const qdr_stack *stack, const char *who)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the stack is NULL", who);
    if (!stack->built)
        return QDR_FAIL(QDR_ERR_STATE, "%s: the stack is not built; call qdr_stack_build first",
                        who);
    if (!stack->bound)
        return QDR_FAIL(QDR_ERR_STATE, "%s: the stack has no memory; call qdr_stack_bind first",
                        who);
    return QDR_OK;
}

qdr_status qdri_node_add(qdr_stack *stack, const char *name, qdri_node_kind kind, qdri_node **node)
{
    QDR_TRY(qdri_list_grow((void **)&stack->nodes, stack->n_nodes, &stack->node_capacity,
                           sizeof **node, "a node of the stack"));
    qdri_node *added = &stack->nodes[stack->n_nodes];
    *added = (qdri_node){.kind = kind, .out = -1, .parameter = -1, .saved = QDRI_NO_REF};
    QDR_TRY(qdri_strdup(name ? name : "", &added->name));
    stack->n_nodes++;
    *node = added;
    return QDR_OK;
}

void qdri_node_drop(qdr_stack *stack)
{
    qdri_node *node = &stack->nodes[--stack->n_nodes];
    free(node->name);
    free(node->layer);
}

static qdr_status check_opts(const qdr_stack_opts *opts)
{
    if (opts->version != QDR_OPTS_INIT)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "stack: options of version %u, but this library knows %u; begin them with "
                        "QDR_OPTS_INIT",
                        opts->version, QDR_OPTS_INIT);
    if (opts->dtype != QDR_F32 && opts->dtype != QDR_F64 && opts->dtype != QDR_BF16)
        return QDR_FAIL(QDR_ERR_DTYPE, "stack: element type %d; layers compute in f32, f64 or bf16",
                        (int)opts->dtype);
    if (opts->n_rows < 0 || opts->row_unit < 0)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "stack: n_rows %" PRId64 " and row_unit %" PRId64
                        " may not be negative; use 0 or more rows, and a unit of 1 or more (0: 1)",
                        opts->n_rows, opts->row_unit);
    if (opts->row_unit > 0 && opts->n_rows % opts->row_unit)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "stack: row_unit %" PRId64 " does not divide n_rows %" PRId64
                        "; use a multiple such as %" PRId64,
                        opts->row_unit, opts->n_rows, qdri_round_up(opts->n_rows, opts->row_unit));
    if (opts->overlap < 0 || opts->overlap > (QDR_OVERLAP_ALL | QDR_OVERLAP_NONE))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: overlap %d is no sum of QDR_OVERLAP_ flags",
                        opts->overlap);
    if (opts->prefetch < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "stack: prefetch %d may not be negative; 0 means as many as prefetch_bytes "
                        "have room for",
                        opts->prefetch);
    if (opts->panels < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "stack: panels %d may not be negative; 0 lets cost decide, 1 means none",
                        opts->panels);
    if (opts->batch_parts < 0 || opts->batch_parts > QDRI_MAX_BATCH_PARTS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: batch_parts %d; use 1 (or 0) to %d",
                        opts->batch_parts, QDRI_MAX_BATCH_PARTS);
    return QDR_OK;
}

int64_t qdri_cell_rows(const qdri_place *place, int64_t n_rows, int64_t unit)
{
    int64_t begin, end;
    qdri_split(n_rows, unit, place->size[QDR_D], place->coordinate[QDR_D], &begin, &end);
    qdri_split(end - begin, unit, place->size[QDR_Z], place->coordinate[QDR_Z], &begin, &end);
    return end - begin;
}

static qdr_status make_events(qdr_stack *stack)
{
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(stack->grid));
    QDR_TRY(qdri_event_create(dev, &stack->start));
    for (int i = 0; i < QDRI_N_STREAMS; i++) QDR_TRY(qdri_event_create(dev, &stack->done[i]));
    return QDR_OK;
}

static void set_defaults(qdr_stack *stack, qdr_grid *grid, const qdr_stack_opts *opts)
{
    stack->grid = grid;
    stack->opts = *opts;
    if (stack->opts.row_unit == 0) stack->opts.row_unit = 1;
    if (stack->opts.overlap == 0) stack->opts.overlap = QDR_OVERLAP_ALL;
    stack->grad_dtype = opts->dtype == QDR_F64 ? QDR_F64 : QDR_F32;
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        stack->place.size[axis] = qdr_grid_size(grid, (qdr_axis)axis);
        stack->place.coordinate[axis] = qdr_grid_coordinate(grid, (qdr_axis)axis);
    }
    stack->cell_rows = qdri_cell_rows(&stack->place, stack->opts.n_rows, stack->opts.row_unit);
    for (int i = 0; i < 4; i++)
        stack->caller[i] = qdri_buffers_add(&stack->buffers, QDRI_CALLER, 0);
    stack->op_work = stack->small_gradients = stack->loss = QDRI_NO_REF;
}

static qdr_status create(qdr_grid *grid, const qdr_stack_opts *opts, qdr_stack **stack)
{
    if (!opts)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: the options are NULL; n_rows at least is needed");
    QDR_TRY(check_opts(opts));
    QDR_TRY(QDRI_NEW(1, "a stack", stack));
    set_defaults(*stack, grid, opts);
    QDR_TRY((*stack)->buffers.status);
    return make_events(*stack);
}

qdr_status qdr_stack_create(qdr_grid *grid, const qdr_stack_opts *opts, qdr_stack **stack)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: the place for the result is NULL");
    *stack = NULL;
    if (!grid) return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: the grid is NULL");
    const qdr_status status = qdr_agree(qdr_grid_context(grid), create(grid, opts, stack));
    if (status != QDR_OK) qdr_stack_destroy(stack);
    return status;
}

static void free_lists(qdr_stack *stack)
{
    for (int i = 0; i < stack->n_edges; i++) free(stack->edges[i].name);
    while (stack->n_nodes > 0) qdri_node_drop(stack);
    qdri_parameters_free(stack);
    free(stack->edges);
    free(stack->nodes);
    qdri_buffers_free(&stack->buffers);
    qdri_schedule_free(&stack->forward);
    qdri_schedule_free(&stack->single);
    for (int i = 0; i < QDRI_N_BACKWARDS; i++) qdri_schedule_free(&stack->backward[i]);
}

/* Waits until nothing of this stack runs any more. A poisoned context has nothing left to wait for.
 */
static void drain(qdr_stack *stack)
{
    qdr_status status = qdri_stream_synchronize(qdr_context_stream(qdr_grid_context(stack->grid)));
    for (int channel = 0; status == QDR_OK && channel < (int)QDR_CHANNEL_X_STAT; channel++)
        status = qdri_stream_synchronize(qdri_grid_stream(stack->grid, (qdr_channel)channel));
}

void qdr_stack_destroy(qdr_stack **stack)
{
    if (!stack || !*stack) return;
    qdr_stack *old = *stack;
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(old->grid));
    drain(old);
    for (int i = 0; i < QDRI_N_REGIONS; i++) qdri_mem_free(dev, &old->owned[i]);
    for (int i = 0; i < old->n_events; i++) qdri_event_destroy(&old->events[i]);
    for (int i = 0; i < QDRI_N_STREAMS; i++) qdri_event_destroy(&old->done[i]);
    qdri_event_destroy(&old->start);
    free(old->events);
    free_lists(old);
    free(old);
    *stack = NULL;
}

qdr_grid *qdr_stack_grid(const qdr_stack *stack) { return stack ? stack->grid : NULL; }

qdr_dtype qdr_stack_dtype(const qdr_stack *stack) { return stack ? stack->opts.dtype : QDR_F32; }
