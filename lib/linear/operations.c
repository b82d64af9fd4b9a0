/* SPDX-License-Identifier: Apache-2.0 */
/* Adding operations to a stack: the library's own and the caller's. */
#include "linear/describe.h"

/* The checks shared by all operations; *out = -1 until it is known. */
static qdr_status begin(qdr_stack *stack, const char *who, qdr_edge *out, const char **kept)
{
    if (!out) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the edge pointer is NULL", who);
    *out = -1;
    QDR_TRY(qdri_stack_open(stack, who));
    return qdri_attach_begin(stack, who, 0, kept);
}

qdr_status qdr_stack_add_layer_norm(qdr_stack *stack, const char *name, double epsilon, qdr_edge in, qdr_edge *out)
{
    const char *kept = NULL;
    QDR_TRY(begin(stack, name ? name : "layer norm", out, &kept));
    QDR_TRY(qdri_attach_end(stack, qdri_net_add_layer_norm(&stack->net, kept, epsilon, in, out), out));
    qdri_describe_norm(stack, kept, epsilon, in);
    return QDR_OK;
}

qdr_status qdr_stack_add_attention(qdr_stack *stack, const char *name, int64_t head_size, int64_t context, qdr_edge in,
                                   qdr_edge *out)
{
    const char *kept = NULL;
    QDR_TRY(begin(stack, name ? name : "attention", out, &kept));
    QDR_TRY(qdri_attach_end(stack, qdri_net_add_attention(&stack->net, kept, head_size, context, in, out), out));
    qdri_describe_attention(stack, kept, head_size, context, in);
    return QDR_OK;
}

qdr_status qdr_stack_add_gelu(qdr_stack *stack, const char *name, qdr_edge in, qdr_edge *out)
{
    const char *kept = NULL;
    QDR_TRY(begin(stack, name ? name : "gelu", out, &kept));
    QDR_TRY(qdri_attach_end(stack, qdri_net_add_gelu(&stack->net, kept, in, out), out));
    qdri_describe_operation(stack, "gelu", kept, 1, &in);
    return QDR_OK;
}

qdr_status qdr_stack_add_residual(qdr_stack *stack, const char *name, qdr_edge a, qdr_edge b, qdr_edge *out)
{
    const char *kept = NULL;
    QDR_TRY(begin(stack, name ? name : "residual", out, &kept));
    QDR_TRY(qdri_attach_end(stack, qdri_net_add_residual(&stack->net, kept, a, b, out), out));
    qdri_describe_operation(stack, "residual", kept, 2, (const qdr_edge[]){a, b});
    return QDR_OK;
}

qdr_status qdr_stack_add_cross_entropy(qdr_stack *stack, const char *name, qdr_edge logits, qdr_edge *targets)
{
    const char *kept = NULL;
    QDR_TRY(begin(stack, name ? name : "cross-entropy", targets, &kept));
    QDR_TRY(qdri_attach_end(stack, qdri_net_add_cross_entropy(&stack->net, kept, logits, targets), targets));
    qdri_describe_operation(stack, "cross-entropy", kept, 1, &logits);
    return QDR_OK;
}

qdr_status qdr_stack_add_op(qdr_stack *stack, const qdr_op_desc *desc, qdr_edge *out)
{
    if (!desc) return QDR_FAIL(QDR_ERR_ARGUMENT, "operation: the description is NULL");
    const char *who = desc->name ? desc->name : "operation";
    qdr_op_desc named = *desc;
    if (!desc->forward || !desc->backward)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: forward and backward must both be given", who);
    QDR_TRY(begin(stack, who, out, &named.name));
    QDR_TRY(qdri_attach_end(stack, qdri_net_add_op(&stack->net, &named, out), out));
    qdri_describe_op(stack, &named);
    qdri_attached *attached = &stack->attached[stack->net.n_nodes - 1];
    attached->forward = desc->forward;
    attached->backward = desc->backward;
    attached->user = desc->user;
    return QDR_OK;
}
