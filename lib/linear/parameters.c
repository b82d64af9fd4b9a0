/* SPDX-License-Identifier: Apache-2.0 */
/* The query of a parameter. */
#include "linear/internal.h"

int *qdri_parameter_deferred(const qdr_stack *stack, int index)
{
    const qdri_parameter *p = &stack->net.parameters[index];
    return &stack->attached[p->node].parameters[p->slot].deferred;
}

const char *qdri_parameter_name(const qdr_stack *stack, int index)
{
    const qdri_parameter *p = &stack->net.parameters[index];
    return stack->attached[p->node].parameters[p->slot].name;
}

int qdr_stack_n_parameters(const qdr_stack *stack) { return stack ? stack->net.n_parameters : 0; }

qdr_status qdr_stack_parameter(const qdr_stack *stack, int index, qdr_parameter *parameter)
{
    if (!stack || !parameter)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "parameter: the stack or the place for the result is NULL");
    *parameter = (qdr_parameter){0};
    if (index < 0 || index >= stack->net.n_parameters)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "parameter: there is no number %d; the stack has %d", index,
                        stack->net.n_parameters);
    const qdri_parameter *p = &stack->net.parameters[index];
    *parameter = (qdr_parameter){.name = qdri_parameter_name(stack, index),
                                 .data = qdri_stack_pointer(stack, p->data),
                                 .gradient = qdri_stack_pointer(stack, p->gradient),
                                 .n_elems = p->n_elems,
                                 .n_global = p->n_global,
                                 .decay = p->decay,
                                 .counted = p->counted,
                                 .deferred = *qdri_parameter_deferred(stack, index),
                                 .storage = p->storage};
    return QDR_OK;
}
