/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of parameters. */
#include "core/block.h"
#include "core/sized.h"
#include "linear/internal.h"

int qdr_stack_n_parameters(const qdr_stack *stack) { return stack ? stack->net.n_parameters : 0; }

qdr_status qdri_parameter_check(const qdr_stack *stack, int index)
{
    if (index >= 0 && index < stack->net.n_parameters) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "parameter: there is no number %d; the stack has %d", index,
                    stack->net.n_parameters);
}

qdr_status qdr_stack_parameter(const qdr_stack *stack, int index, qdr_parameter *parameter)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "parameter: the stack is NULL");
    QDR_TRY(QDRI_CLEAR(qdr_parameter, parameter));
    QDR_TRY(qdri_parameter_check(stack, index));
    const qdri_parameter *p = &stack->net.parameters[index];
    const qdr_parameter own = {.name = qdri_parameter_of(stack, index)->name,
                               .data = qdri_stack_pointer(stack, p->data),
                               .gradient = qdri_stack_pointer(stack, p->gradient),
                               .n_elems = p->n_elems,
                               .n_global = p->n_global,
                               .decay = p->decay,
                               .counted = p->counted,
                               .deferred = qdri_parameter_of(stack, index)->deferred,
                               .storage = p->storage,
                               .shared = stack->owner != NULL,
                               .n_rows = qdri_blocks_width(p->rows),
                               .n_cols = qdri_blocks_width(p->cols),
                               .gradient_begin = p->gradient_begin,
                               .n_gradient = qdri_parameter_elems(p, p->gradient_begin, p->gradient_elems),
                               .state_begin = p->state_begin,
                               .n_state = qdri_parameter_updates(p),
                               .n_copies = p->n_copies,
                               .copy = p->copy,
                               .stale = qdri_parameter_is_stale(stack, index),
                               .feedback = qdri_stack_pointer(stack, p->all_feedback),
                               .n_feedback = (int64_t)(p->all_feedback.bytes / sizeof(float))};
    QDRI_GIVE(qdr_parameter, parameter, &own);
    return QDR_OK;
}

qdr_status qdr_stack_parameter_runs(const qdr_stack *stack, int index, qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS],
                                    int *n_runs)
{
    if (!stack || !runs || !n_runs)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "parameter runs: the stack or the result pointer is NULL");
    *n_runs = 0;
    QDR_TRY(qdri_parameter_check(stack, index));
    if (!stack->built)
        return QDR_FAIL(QDR_ERR_STATE, "parameter runs: the stack is not built; call qdr_stack_build first");
    *n_runs = qdri_parameter_runs(&stack->net.parameters[index], runs);
    return QDR_OK;
}
