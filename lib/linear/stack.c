/* SPDX-License-Identifier: Apache-2.0 */
/* Creating and destroying a stack; sharing parameters. */
#include <stdlib.h>

#include "core/size.h"
#include "core/sized.h"
#include "linear/describe.h"

/* Its work has ended: every object that needs it has waited for that. */
static void stack_end(qdri_life *life)
{
    qdr_stack *old = (qdr_stack *)life;
    qdri_life *grid = qdri_grid_life(old->grid), *owner = old->owner ? &old->owner->life : NULL;
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(old->grid));
    const qdr_status status = qdri_stack_drain(old); /* after it was destroyed, others may have run it */
    (void)status;
    qdri_measures_free(&old->measures);
    for (int i = 0; i < QDRI_N_REGIONS; i++) qdri_mem_free(dev, &old->owned[i]);
    for (int i = 0; i < old->n_events; i++) qdri_event_destroy(&old->events[i]);
    for (int i = 0; i < QDRI_N_STREAMS; i++) qdri_event_destroy(&old->done[i]);
    qdri_event_destroy(&old->start);
    free(old->events);
    qdri_attached_free(old);
    qdri_facts_free(&old->described);
    qdri_net_lists_free(&old->lists);
    qdri_net_free(&old->net);
    free(old);
    qdri_life_drop(owner);
    qdri_life_drop(grid);
}

static qdr_status create(qdr_grid *grid, const qdr_stack_opts *given, qdri_facts *facts, qdr_stack **result)
{
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(grid));
    qdr_stack_opts opts;
    QDR_TRY(QDRI_TAKE(qdr_stack_opts, given, &opts));
    QDR_TRY(QDRI_NEW(1, "a stack", result));
    qdr_stack *stack = *result;
    qdri_life_begin(&stack->life, stack_end);
    qdri_life_keep(qdri_grid_life(grid));
    stack->grid = grid;
    QDR_TRY(qdri_net_begin(&stack->net, qdri_grid_position(grid), &opts));
    QDR_TRY(qdri_stack_take_codecs(stack, opts.codecs, &stack->codecs));
    if (opts.codecs) opts.codecs = &stack->codecs;
    qdri_describe_opts(facts, grid, &opts);
    QDR_TRY(qdri_event_create(dev, &stack->start));
    for (int i = 0; i < QDRI_N_STREAMS; i++) QDR_TRY(qdri_event_create(dev, &stack->done[i]));
    return qdri_report_begin(stack);
}

qdr_status qdr_stack_create(qdr_grid *grid, const qdr_stack_opts *opts, qdr_stack **stack)
{
    QDR_TRY(QDRI_CLEAR_POINTER("stack", stack));
    if (!grid) return QDR_FAIL(QDR_ERR_ARGUMENT, "stack: the grid is NULL");
    qdri_facts facts = {0};
    const qdr_status made = create(grid, opts, &facts, stack);
    const qdr_status status = qdri_context_agree_same(qdr_grid_context(grid), made, &facts, "stack", QDRI_SAME_STACK);
    qdri_facts_free(&facts);
    if (status != QDR_OK) qdr_stack_destroy(stack);
    return status;
}

void qdr_stack_destroy(qdr_stack **stack)
{
    if (!stack || !*stack) return;
    qdr_stack *old = *stack;
    *stack = NULL;
    qdri_context_end_record(qdr_grid_context(old->grid));
    qdri_stack_strike_out(old);
    if (qdri_stack_drain(old) == QDR_OK) {
        qdri_report_end(old);
        qdri_codec_report_end(old);
    }
    qdri_life_drop(&old->life);
}

qdri_life *qdri_stack_life(qdr_stack *stack) { return &stack->life; }

qdr_grid *qdr_stack_grid(const qdr_stack *stack) { return stack ? stack->grid : NULL; }

qdr_dtype qdr_stack_dtype(const qdr_stack *stack) { return stack ? stack->net.opts.dtype : QDR_F32; }

/* ---- stacks that use the parameters of another stack ---- */

qdr_status qdr_stack_share_parameters(qdr_stack *stack, qdr_stack *owner)
{
    static const char who[] = "share parameters";
    QDR_TRY(qdri_stack_open(stack, who));
    QDR_TRY(qdri_stack_ready(owner, "share parameters: the stack that owns them"));
    if (stack->owner) return QDR_FAIL(QDR_ERR_STATE, "%s: the stack shares some already", who);
    if (owner->owner)
        return QDR_FAIL(QDR_ERR_STATE, "%s: the other stack uses those of a third one; pass the stack that owns them",
                        who);
    if (stack->grid != owner->grid)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the stacks have different grids; make both on the same one", who);
    stack->owner = owner;
    qdri_life_keep(&owner->life);
    return QDR_OK;
}

/* All ranks must share, or none: otherwise they would run different schedules. */
qdr_status qdri_stack_share(qdr_stack *stack)
{
    qdr_context *ctx = qdr_grid_context(stack->grid);
    if (!qdri_comm_any(qdri_context_world(ctx), stack->owner != NULL)) return QDR_OK;
    if (!stack->owner)
        return qdr_agree(ctx, QDR_FAIL(QDR_ERR_ARGUMENT,
                                       "share parameters: rank %d did not call "
                                       "qdr_stack_share_parameters(), others did; call it on all",
                                       qdr_context_rank(ctx)));
    return qdr_agree(ctx, qdri_net_share(&stack->net, &stack->owner->net));
}
