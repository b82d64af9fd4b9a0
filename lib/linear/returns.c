/* SPDX-License-Identifier: Apache-2.0 */
/* Returning what is stale. */
#include "linear/internal.h"

qdr_status qdri_layer_return(qdr_stack *stack, int node, qdr_stream *stream)
{
    const qdri_schedule *list = NULL;
    if (!qdri_stack_is_stale(stack, node)) return QDR_OK;
    QDR_TRY(qdri_give_up(stack, qdri_net_list_layer_returns(&stack->net, &stack->lists, node, &list)));
    QDR_TRY(qdri_execute(stack, list, stream));
    qdri_stack_set_returned(stack, node);
    return QDR_OK;
}

qdr_status qdr_stack_mark_updated(qdr_stack *stack)
{
    static const char who[] = "updated";
    QDR_TRY(qdri_stack_ready(stack, who));
    QDR_TRY(qdri_stack_owns(stack, who));
    qdri_stack_set_updated(stack);
    return QDR_OK;
}

qdr_status qdr_stack_refresh(qdr_stack *stack)
{
    QDR_TRY(qdri_stack_ready(stack, "return"));
    if (!qdri_stack_is_stale(stack, -1)) return QDR_OK;
    QDR_TRY(qdri_execute(stack, &stack->lists.returns, qdr_context_stream(qdr_grid_context(stack->grid))));
    qdri_stack_set_returned(stack, -1);
    return QDR_OK;
}
