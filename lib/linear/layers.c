/* SPDX-License-Identifier: Apache-2.0 */
/* Adding linear layers, embeddings and tied heads to a stack. */
#include "linear/describe.h"

/* Returns the net's result, and the handle of the layer that was added. */
static qdr_status end(qdr_stack *stack, qdr_status status, qdr_edge *out, qdr_linear **layer)
{
    QDR_TRY(qdri_attach_end(stack, status, out));
    if (layer) *layer = stack->attached[stack->net.n_nodes - 1].layer;
    return QDR_OK;
}

qdr_status qdr_stack_add_linear(qdr_stack *stack, const qdr_linear_desc *desc, qdr_edge in, qdr_edge *out,
                                qdr_linear **layer)
{
    qdr_linear *added = NULL;
    if (layer) *layer = NULL;
    if (!desc || !out)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "linear: a description and an edge pointer are needed, not NULL");
    *out = -1;
    qdr_linear_desc named = *desc;
    QDR_TRY(qdri_stack_open(stack, "linear"));
    QDR_TRY(qdri_attach_begin(stack, desc->name ? desc->name : "linear", 1, &named.name));
    QDR_TRY(end(stack, qdri_net_add_linear(&stack->net, &named, in, out), out, &added));
    qdri_describe_linear(stack, &named, in);
    added->storage_reason = desc->storage ? QDR_STORAGE_ASKED : QDR_STORAGE_FIXED;
    if (layer) *layer = added;
    return QDR_OK;
}

qdr_status qdr_stack_add_embedding(qdr_stack *stack, const qdr_embedding_desc *desc, qdr_edge tokens, qdr_edge *out,
                                   qdr_linear **table)
{
    if (table) *table = NULL;
    if (!desc || !out)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "embedding: a description and an edge pointer are needed, not NULL");
    *out = -1;
    qdr_embedding_desc named = *desc;
    QDR_TRY(qdri_stack_open(stack, "embedding"));
    QDR_TRY(qdri_attach_begin(stack, desc->name ? desc->name : "embedding", 1, &named.name));
    QDR_TRY(end(stack, qdri_net_add_embedding(&stack->net, &named, tokens, out), out, table));
    qdri_describe_embedding(stack, &named, tokens);
    return QDR_OK;
}

qdr_status qdr_stack_add_tied_head(qdr_stack *stack, const char *name, qdr_linear *table, qdr_layout out_layout,
                                   qdr_edge in, qdr_edge *out)
{
    const char *who = name ? name : "head", *kept = NULL;
    if (!out) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the edge pointer is NULL", who);
    *out = -1;
    QDR_TRY(qdri_stack_open(stack, who));
    QDR_TRY(qdri_attach_begin(stack, who, 1, &kept));
    const int node = table && table->stack == stack ? table->node : -1;
    QDR_TRY(end(stack, qdri_net_add_tied_head(&stack->net, kept, node, out_layout, in, out), out, NULL));
    qdri_describe_tied_head(stack, kept, node, out_layout, in);
    return QDR_OK;
}

static qdr_status get_matrix(const qdr_linear *layer, int of_output, qdr_matrix *matrix)
{
    if (!layer || !matrix) return QDR_FAIL(QDR_ERR_ARGUMENT, "linear: the layer or the result pointer is NULL");
    const qdri_net *net = &layer->stack->net;
    const qdri_node *node = &net->nodes[layer->node];
    *matrix = net->edges[of_output ? node->out : node->in[0]].matrix;
    return QDR_OK;
}

qdr_status qdr_linear_in_matrix(const qdr_linear *layer, qdr_matrix *matrix) { return get_matrix(layer, 0, matrix); }

qdr_status qdr_linear_out_matrix(const qdr_linear *layer, qdr_matrix *matrix) { return get_matrix(layer, 1, matrix); }

int qdr_linear_weight_index(const qdr_linear *layer) { return layer ? qdri_linear_layer(layer)->weight : -1; }
