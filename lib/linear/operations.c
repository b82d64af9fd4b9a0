/* SPDX-License-Identifier: Apache-2.0 */
/* Adding nodes to a stack: layers, the library's own operations and the caller's. */
#include <limits.h>

#include "core/sized.h"
#include "linear/describe.h"

static int is_layer(const qdri_node_desc *desc)
{
    return desc->kind == QDRI_NODE_LINEAR || desc->kind == QDRI_NODE_EMBEDDING;
}

qdr_status qdri_stack_add_node(qdr_stack *stack, qdri_node_desc *desc, qdr_edge *edge)
{
    const char *kind = qdri_node_kind_name(desc), *who = desc->name ? desc->name : kind;
    if (!edge) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the edge pointer is NULL", who);
    *edge = -1;
    QDR_TRY(qdri_stack_open(stack, who));
    QDR_TRY(qdri_attach_begin(stack, who, is_layer(desc), &desc->name));
    QDR_TRY(qdri_attach_end(stack, qdri_net_add(&stack->net, desc, edge), edge));
    qdri_describe_node(stack, desc);
    return QDR_OK;
}

/* The layer that was added last. */
static qdr_linear *last_layer(qdr_stack *stack) { return stack->attached[stack->net.n_nodes - 1].layer; }

qdr_status qdr_stack_add_linear(qdr_stack *stack, const qdr_linear_desc *desc, qdr_edge in, qdr_edge *out,
                                qdr_linear **layer)
{
    qdri_node_desc node = {.kind = QDRI_NODE_LINEAR, .in = {in}};
    qdr_linear_desc *own = &node.u.linear.desc;
    if (layer) *layer = NULL;
    QDR_TRY(QDRI_TAKE(qdr_linear_desc, desc, own));
    node.name = own->name;
    QDR_TRY(qdri_stack_add_node(stack, &node, out));
    if (own->storage) last_layer(stack)->storage_reason = QDR_STORAGE_ASKED;
    if (layer) *layer = last_layer(stack);
    return QDR_OK;
}

qdr_status qdr_stack_add_embedding(qdr_stack *stack, const qdr_embedding_desc *desc, qdr_edge tokens, qdr_edge *out,
                                   qdr_linear **table)
{
    qdri_node_desc node = {.kind = QDRI_NODE_EMBEDDING, .in = {tokens}};
    if (table) *table = NULL;
    QDR_TRY(QDRI_TAKE(qdr_embedding_desc, desc, &node.u.embedding));
    node.name = node.u.embedding.name;
    QDR_TRY(qdri_stack_add_node(stack, &node, out));
    if (table) *table = last_layer(stack);
    return QDR_OK;
}

qdr_status qdr_stack_add_tied_head(qdr_stack *stack, const qdr_tied_head_desc *desc, qdr_edge in, qdr_edge *out)
{
    qdri_node_desc node = {.kind = QDRI_NODE_LINEAR, .in = {in}};
    qdr_tied_head_desc own;
    QDR_TRY(QDRI_TAKE(qdr_tied_head_desc, desc, &own));
    node.name = own.name;
    node.u.linear.desc.out_layout = own.out_layout;
    node.u.linear.tied_to = own.table && own.table->stack == stack ? 1 + own.table->node : INT_MAX; /* no node */
    return qdri_stack_add_node(stack, &node, out);
}

qdr_status qdr_stack_add_norm(qdr_stack *stack, const qdr_norm_desc *desc, qdr_edge in, qdr_edge *out)
{
    qdri_node_desc node = {.kind = QDRI_NODE_NORM, .in = {in}};
    QDR_TRY(QDRI_TAKE(qdr_norm_desc, desc, &node.u.norm));
    node.name = node.u.norm.name;
    return qdri_stack_add_node(stack, &node, out);
}

qdr_status qdr_stack_add_attention(qdr_stack *stack, const qdr_attention_desc *desc, qdr_edge in, qdr_edge *out)
{
    qdri_node_desc node = {.kind = QDRI_NODE_ATTENTION, .in = {in}};
    QDR_TRY(QDRI_TAKE(qdr_attention_desc, desc, &node.u.attention));
    node.name = node.u.attention.name;
    return qdri_stack_add_node(stack, &node, out);
}

qdr_status qdr_stack_add_activation(qdr_stack *stack, const qdr_activation_desc *desc, qdr_edge in, qdr_edge *out)
{
    qdri_node_desc node = {.kind = QDRI_NODE_ACTIVATION, .in = {in}};
    QDR_TRY(QDRI_TAKE(qdr_activation_desc, desc, &node.u.activation));
    node.name = node.u.activation.name;
    return qdri_stack_add_node(stack, &node, out);
}

qdr_status qdr_stack_add_gelu(qdr_stack *stack, const char *name, qdr_edge in, qdr_edge *out)
{
    const qdr_activation_desc gelu = {QDR_INIT(qdr_activation_desc), .name = name, .function = QDR_GELU_TANH};
    return qdr_stack_add_activation(stack, &gelu, in, out);
}

qdr_status qdr_stack_add_residual_with(qdr_stack *stack, const qdr_residual_desc *desc, qdr_edge a, qdr_edge b,
                                       qdr_edge *out)
{
    qdri_node_desc node = {.kind = QDRI_NODE_RESIDUAL, .in = {a, b}};
    QDR_TRY(QDRI_TAKE(qdr_residual_desc, desc, &node.u.residual));
    node.name = node.u.residual.name;
    return qdri_stack_add_node(stack, &node, out);
}

qdr_status qdr_stack_add_residual(qdr_stack *stack, const char *name, qdr_edge a, qdr_edge b, qdr_edge *out)
{
    const qdr_residual_desc residual = {QDR_INIT(qdr_residual_desc), .name = name};
    return qdr_stack_add_residual_with(stack, &residual, a, b, out);
}

qdr_status qdr_stack_add_cross_entropy_with(qdr_stack *stack, const qdr_cross_entropy_desc *desc, qdr_edge logits,
                                            qdr_edge *targets)
{
    qdri_node_desc node = {.kind = QDRI_NODE_CROSS_ENTROPY, .in = {logits}};
    QDR_TRY(QDRI_TAKE(qdr_cross_entropy_desc, desc, &node.u.loss));
    node.name = node.u.loss.name;
    return qdri_stack_add_node(stack, &node, targets);
}

qdr_status qdr_stack_add_cross_entropy(qdr_stack *stack, const char *name, qdr_edge logits, qdr_edge *targets)
{
    const qdr_cross_entropy_desc loss = {QDR_INIT(qdr_cross_entropy_desc), .name = name};
    return qdr_stack_add_cross_entropy_with(stack, &loss, logits, targets);
}

qdr_status qdr_stack_add_op(qdr_stack *stack, const qdr_op_desc *desc, qdr_edge *out)
{
    qdri_node_desc node = {.kind = QDRI_NODE_CALLER};
    qdr_op_desc *own = &node.u.caller;
    QDR_TRY(QDRI_TAKE(qdr_op_desc, desc, own));
    node.name = own->name;
    if (!own->forward || !own->backward)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: forward and backward must both be given",
                        own->name ? own->name : "operation");
    for (int i = 0; i < QDR_MAX_OP_INPUTS; i++) node.in[i] = own->in[i];
    QDR_TRY(qdri_stack_add_node(stack, &node, out));
    qdri_attached *attached = &stack->attached[stack->net.n_nodes - 1];
    attached->forward = own->forward;
    attached->backward = own->backward;
    attached->user = own->user;
    return QDR_OK;
}
