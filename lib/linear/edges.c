/* SPDX-License-Identifier: Apache-2.0 */
/* Edges: inputs of a stack, and queries about activations. */
#include "core/size.h"
#include "core/sized.h"
#include "linear/describe.h"

/* A copy of an input's name, which the stack keeps even if the net refuses the input. */
static qdr_status keep_name(qdr_stack *stack, const char *name, const char **kept)
{
    char *copy = NULL;
    QDR_TRY(qdri_list_grow((void **)&stack->input_names, stack->n_input_names, &stack->input_name_capacity,
                           sizeof *stack->input_names, "the names of a stack"));
    QDR_TRY(qdri_strdup(name ? name : "", &copy));
    stack->input_names[stack->n_input_names++] = copy;
    *kept = copy;
    return QDR_OK;
}

qdr_status qdr_stack_add_input(qdr_stack *stack, const char *name, const qdr_edge_desc *desc, int with_gradient,
                               qdr_edge *edge)
{
    const char *kept = NULL;
    qdr_edge_desc own;
    QDR_TRY(qdri_stack_open(stack, "stack input"));
    if (!edge) return QDR_FAIL(QDR_ERR_ARGUMENT, "stack input: the edge pointer is NULL");
    *edge = -1;
    QDR_TRY(QDRI_TAKE(qdr_edge_desc, desc, &own));
    QDR_TRY(keep_name(stack, name, &kept));
    QDR_TRY(qdri_net_add_input(&stack->net, kept, &own, with_gradient, edge));
    qdri_describe_input(stack, kept, &own, with_gradient);
    return QDR_OK;
}

qdr_status qdr_stack_add_tokens(qdr_stack *stack, const char *name, qdr_edge *edge)
{
    const char *kept = NULL;
    QDR_TRY(qdri_stack_open(stack, "stack tokens"));
    if (!edge) return QDR_FAIL(QDR_ERR_ARGUMENT, "stack tokens: the edge pointer is NULL");
    *edge = -1;
    QDR_TRY(keep_name(stack, name, &kept));
    QDR_TRY(qdri_net_add_tokens(&stack->net, kept, edge));
    qdri_describe_tokens(stack, kept);
    return QDR_OK;
}

qdr_status qdr_stack_edge_matrix(const qdr_stack *stack, qdr_edge edge, qdr_matrix *matrix)
{
    if (!stack || !matrix) return QDR_FAIL(QDR_ERR_ARGUMENT, "edge: the stack or the result pointer is NULL");
    QDR_TRY(qdri_edge_check(&stack->net, edge, "edge"));
    QDR_TRY(QDRI_CLEAR(qdr_matrix, matrix));
    QDRI_GIVE(qdr_matrix, matrix, &stack->net.edges[edge].matrix);
    return QDR_OK;
}

qdr_status qdr_stack_edge_owned(const qdr_stack *stack, qdr_edge edge, qdr_owned *owned)
{
    if (!stack || !owned) return QDR_FAIL(QDR_ERR_ARGUMENT, "edge: the stack or the result pointer is NULL");
    QDR_TRY(qdri_edge_check(&stack->net, edge, "edge"));
    QDR_TRY(QDRI_CLEAR(qdr_owned, owned));
    QDRI_GIVE(qdr_owned, owned, &stack->net.edges[edge].owned);
    return QDR_OK;
}

static qdr_status check_has_memory(const qdr_stack *stack, qdr_edge edge)
{
    QDR_TRY(qdri_stack_ready(stack, "edge"));
    QDR_TRY(qdri_edge_check(&stack->net, edge, "edge"));
    if (!stack->net.opts.caller_activations) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE,
                    "edge '%s': the stack was made with caller_activations and has no memory for it; allocate your own "
                    "of the size that qdr_stack_edge_owned() gives",
                    stack->net.edges[edge].name);
}

qdr_status qdr_stack_keep_value(qdr_stack *stack, qdr_edge edge)
{
    QDR_TRY(qdri_stack_open(stack, "keep value"));
    QDR_TRY(qdri_edge_check(&stack->net, edge, "keep value"));
    stack->net.edges[edge].keeps_value = 1;
    return QDR_OK;
}

qdr_status qdr_stack_edge_value(const qdr_stack *stack, qdr_edge edge, void **value)
{
    if (!value) return QDR_FAIL(QDR_ERR_ARGUMENT, "edge: the value pointer is NULL");
    *value = NULL;
    QDR_TRY(check_has_memory(stack, edge));
    if (stack->net.edges[edge].passes)
        return QDR_FAIL(QDR_ERR_STATE,
                        "edge '%s': its value only lasts until the operations that read it have run; ask for it with "
                        "qdr_stack_keep_value() before the stack is built",
                        stack->net.edges[edge].name);
    *value = qdri_stack_pointer(stack, stack->net.edges[edge].value);
    return QDR_OK;
}

qdr_status qdr_stack_edge_gradient(const qdr_stack *stack, qdr_edge edge, void **gradient)
{
    if (!gradient) return QDR_FAIL(QDR_ERR_ARGUMENT, "edge: the gradient pointer is NULL");
    *gradient = NULL;
    QDR_TRY(check_has_memory(stack, edge));
    QDR_TRY(qdri_stack_owns(stack, "edge gradient"));
    if (!stack->net.edges[edge].keeps_gradient)
        return QDR_FAIL(QDR_ERR_STATE,
                        "edge '%s': its gradient is not kept; ask for an input made with_gradient or for the last edge",
                        stack->net.edges[edge].name);
    *gradient = qdri_stack_pointer(stack, stack->net.edges[edge].gradient);
    return QDR_OK;
}
