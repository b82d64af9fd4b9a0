/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all kinds of nodes, and what is done with any of them. */
#include "schedule/ops/op.h"

static const qdri_op *const ops[QDRI_N_NODE_KINDS] = {
#define ROW(kind, file) &qdri_##file##_op,
    QDRI_NODE_KINDS(ROW)
#undef ROW
};

qdr_status qdri_net_add(qdri_net *net, const qdri_node_desc *desc, qdr_edge *edge)
{
    const qdri_net before = *net;
    const qdr_status status = ops[desc->kind]->add(net, desc, edge);
    if (status == QDR_OK) return QDR_OK;
    net->n_edges = before.n_edges;
    net->n_nodes = before.n_nodes;
    net->n_parameters = before.n_parameters;
    return status;
}

const char *qdri_node_kind_name(const qdri_node_desc *desc)
{
    return desc->kind == QDRI_NODE_LINEAR && desc->u.linear.tied_to ? "tied head" : ops[desc->kind]->name;
}

void qdri_node_describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    const int n_in = desc->kind == QDRI_NODE_CALLER ? desc->u.caller.n_in : ops[desc->kind]->n_in;
    if (ops[desc->kind]->describe) ops[desc->kind]->describe(facts, who, net, desc);
    qdri_facts_add_int(facts, who, "n_in", n_in);
    for (int i = 0; i < n_in; i++)
        qdri_facts_add_int(facts, who, i ? "a further input edge" : "input edge", desc->in[i]);
}

int qdri_op_backward_needs(qdri_node_kind kind) { return ops[kind]->backward_needs; }

int qdri_op_repeats(qdri_node_kind kind) { return ops[kind]->repeat != NULL; }

/* ---- tasks ---- */

static qdri_op_part part_of(qdri_builder *builder, const qdri_net *net, int number, int part)
{
    const qdri_node *node = &net->nodes[number];
    const qdri_edge *edge = &net->edges[node->in[0]];
    qdri_op_part p = {.builder = builder, .net = net, .node = node, .number = number, .part = part};
    p.end = edge->owned.n_rows;
    if (!node->needs_all_rows) qdri_part_rows(builder, part, p.end, &p.begin, &p.end);
    p.n_rows = p.end - p.begin;
    p.elems = (double)p.n_rows * (double)edge->owned.n_cols;
    p.bytes = p.elems * (double)qdr_dtype_bytes(edge->dtype);
    return p;
}

void qdri_op_forward_tasks(qdri_builder *builder, const qdri_net *net, int number, int part)
{
    const qdri_op_part p = part_of(builder, net, number, part);
    ops[p.node->kind]->forward(&p);
}

void qdri_op_repeat_tasks(qdri_builder *builder, const qdri_net *net, int number, int part)
{
    const qdri_op_part p = part_of(builder, net, number, part);
    const qdri_op *op = ops[p.node->kind];
    (op->repeat ? op->repeat : op->forward)(&p);
}

void qdri_op_backward_tasks(qdri_builder *builder, const qdri_net *net, int number, int part, const qdri_ref *d_in,
                            int accumulates)
{
    qdri_op_part p = part_of(builder, net, number, part);
    const qdri_edge *out = p.node->out >= 0 ? &net->edges[p.node->out] : NULL;
    p.dy = out ? qdri_edge_rows(out, out->d, p.begin, p.end) : QDRI_NO_REF;
    p.d_in = d_in;
    p.accumulates = accumulates;
    ops[p.node->kind]->backward(&p);
}
