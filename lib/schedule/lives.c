/* SPDX-License-Identifier: Apache-2.0 */
/* How long values last: from forward to backward; while a forward list runs; or while one runs and, made again, from
 * where a backward list first needs them to the last node that reads them. */
#include "schedule/ops/op.h"

/* Whether the backward of a node reads input i. Rows that are gathered once stand for theirs. */
static int reads_again(const qdri_node *node, int i)
{
    if (!qdri_node_is_layer(node)) return qdri_op_backward_needs(node->kind) >> i & 1;
    if (!node->layer.shape.in_scattered || node->layer.shape.drop_gathered) return 1;
    return node->layer.gathered_passes && node->again_at < 0;
}

static int reads_output(const qdri_node *node)
{
    return !qdri_node_is_layer(node) && qdri_op_backward_needs(node->kind) & QDRI_NEEDS_OUTPUT;
}

static void begin_lives(qdri_net *net)
{
    const int runs_whole = qdri_net_runs_whole(net);
    for (int i = 0; i < net->n_edges; i++) {
        qdri_edge *edge = &net->edges[i];
        edge->passes = edge->is_needed = 0;
        edge->last_use = edge->maker = edge->read_from = edge->read_to = edge->last_again = -1;
    }
    for (int i = 0; i < net->n_nodes; i++) {
        qdri_node *node = &net->nodes[i];
        node->again_at = -1;
        node->saved_passes = node->layer.gathered_passes = 0;
        for (int j = 0; j < node->n_in; j++) net->edges[node->in[j]].last_use = i;
        if (node->out < 0) continue;
        qdri_edge *out = &net->edges[node->out];
        out->maker = i;
        out->passes = runs_whole && out->n_uses > 0 && !out->keeps_value;
    }
}

static void note_reading(int number, qdri_edge *edge)
{
    if (edge->read_to < 0) edge->read_to = number;
    edge->read_from = number;
}

static void note_readings(qdri_net *net)
{
    for (int i = 0; i < net->n_nodes; i++) {
        const qdri_node *node = &net->nodes[i];
        if (node->out >= 0 && reads_output(node)) note_reading(i, &net->edges[node->out]);
        for (int j = 0; j < node->n_in; j++)
            if (reads_again(node, j)) note_reading(i, &net->edges[node->in[j]]);
    }
}

/* ---- operations ---- */

/* Whether what a node makes is made again when a backward reads it, from what lasts. */
static int is_repeated(const qdri_net *net, const qdri_node *node)
{
    if (net->opts.recompute != QDR_RECOMPUTE_OPERATIONS || !qdri_op_repeats(node->kind)) return 0;
    for (int i = 0; i < node->n_in; i++)
        if (net->edges[node->in[i]].passes) return 0;
    return 1;
}

static void choose_operations(qdri_net *net)
{
    note_readings(net);
    for (int i = 0; i < net->n_nodes; i++) {
        qdri_node *node = &net->nodes[i];
        qdri_edge *out = node->out < 0 ? NULL : &net->edges[node->out];
        if (!out || !out->passes || out->read_from < 0) continue;
        if (is_repeated(net, node))
            node->again_at = out->read_from;
        else
            out->passes = 0;
    }
}

/* ---- segments ---- */

static int may_repeat(const qdri_node *node)
{
    return node->kind == QDRI_NODE_CALLER ? node->may_repeat : node->kind != QDRI_NODE_CROSS_ENTROPY;
}

/* Something reads the edge while the backward of a segment runs, whose nodes are those from `first` on: it is made
 * again there, or it lasts. */
static void need(qdri_edge *edge, int first)
{
    if (edge->maker >= first)
        edge->is_needed = 1;
    else
        edge->passes = 0;
}

/* From what the backward of nodes first to last reads, back to what lasts. Later segments have been chosen. */
static void choose_segment(qdri_net *net, int first, int last)
{
    const int from = net->nodes[first].segment ? first : net->n_nodes; /* without a segment, nothing is made again */
    for (int i = first; i <= last; i++) {
        const qdri_node *node = &net->nodes[i];
        if (node->out >= 0 && reads_output(node)) need(&net->edges[node->out], from);
        for (int j = 0; j < node->n_in; j++)
            if (reads_again(node, j)) need(&net->edges[node->in[j]], from);
    }
    for (int i = last; i >= first; i--) {
        qdri_node *node = &net->nodes[i];
        qdri_edge *out = node->out < 0 ? NULL : &net->edges[node->out];
        if (!out || !out->is_needed || !out->passes) continue;
        if (!may_repeat(node)) {
            out->passes = 0;
            continue;
        }
        node->again_at = last;
        node->saved_passes = node->saved_bytes > 0 && !qdri_op_repeats(node->kind); /* else from what was saved */
        for (int j = 0; j < node->n_in; j++) {
            qdri_edge *in = &net->edges[node->in[j]];
            need(in, from);
            if (in->last_again < 0) in->last_again = i;
        }
    }
}

/* Rows that layers of segments gather last no longer than other values: the product that is made again gathers them for
 * dW, too, and where it is not made again they are gathered alone. */
static void choose_gathered(qdri_net *net)
{
    for (int i = 0; i < net->n_nodes; i++) {
        qdri_node *node = &net->nodes[i];
        const qdri_layer_shape *shape = &node->layer.shape;
        if (!qdri_node_is_layer(node) || !node->segment) continue;
        node->layer.gathered_passes = shape->in_scattered && !shape->drop_gathered;
    }
}

static qdr_status choose_segments(qdri_net *net)
{
    int n_again = 0;
    for (int last = net->n_nodes - 1, first; last >= 0; last = first - 1) {
        for (first = last; first > 0 && net->nodes[first - 1].segment == net->nodes[last].segment;) first--;
        choose_segment(net, first, last);
    }
    for (int i = 0; i < net->n_nodes; i++) n_again += net->nodes[i].again_at >= 0;
    note_readings(net);
    if (n_again > 0 || net->n_nodes == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "stack: QDR_RECOMPUTE_FULL, but none of its %d operations can be repeated; begin segments with "
                    "qdr_stack_begin_segment(), or use QDR_RECOMPUTE_NONE",
                    net->n_nodes);
}

/* Nothing is read again; logits stay for the caller, who may sample from them. */
static void keep_logits(qdri_net *net)
{
    for (int i = 0; i < net->n_nodes; i++)
        if (net->nodes[i].kind == QDRI_NODE_CROSS_ENTROPY) net->edges[net->nodes[i].in[0]].passes = 0;
}

static int repeats_segments(const qdri_net *net)
{
    const qdr_recompute recompute = net->opts.recompute;
    return (recompute == QDR_RECOMPUTE_FULL || recompute == QDR_RECOMPUTE_LAYERS) && qdri_net_runs_whole(net);
}

qdr_status qdri_net_choose_lives(qdri_net *net)
{
    begin_lives(net);
    if (net->shares_parameters)
        keep_logits(net);
    else if (repeats_segments(net)) {
        choose_gathered(net);
        return choose_segments(net);
    } else
        choose_operations(net);
    return QDR_OK;
}
