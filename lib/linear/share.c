/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks that use the parameters of another stack. */
#include "linear/internal.h"

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

qdr_status qdri_stack_owns(const qdr_stack *stack, const char *who)
{
    if (!stack->owner) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE,
                    "%s: the stack shares the parameters of another one (qdr_stack_share_parameters) and runs forward "
                    "only; call this with the stack that owns them",
                    who);
}
