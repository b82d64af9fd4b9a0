/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's own operation, a function for each direction, which takes all rows at once. */
#include <string.h>

#include "core/block.h"
#include "schedule/ops/op.h"

static qdr_status add(qdri_net *net, const qdri_node_desc *described, qdr_edge *out)
{
    const qdr_op_desc *desc = &described->u.caller;
    const qdr_edge *in = described->in;
    const char *who = described->name;
    qdri_node *node = NULL;
    if (desc->n_in < 1 || desc->n_in > QDR_MAX_OP_INPUTS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %d inputs; an operation reads 1 to %d edges", who, desc->n_in,
                        QDR_MAX_OP_INPUTS);
    QDR_TRY(qdri_check_switch(who, "may_repeat", desc->may_repeat));
    for (int i = 0; i < desc->n_in; i++) {
        QDR_TRY(qdri_edge_check(net, in[i], who));
        if (!qdri_same_layout(&net->edges[in[0]].matrix, &net->edges[in[i]].matrix))
            return QDR_FAIL(QDR_ERR_SHAPE, "%s: inputs '%s' and '%s' differ in axis or layout", who,
                            net->edges[in[0]].name, net->edges[in[i]].name);
    }
    QDR_TRY(qdri_op_check_inputs(net, who, desc->n_in, in));
    qdr_matrix matrix = net->edges[in[0]].matrix;
    if (qdri_blocks_count(desc->out)) {
        QDR_TRY(qdri_blocks_check(desc->out, who));
        memcpy(matrix.cols, desc->out, sizeof matrix.cols);
    }
    QDR_TRY(qdri_node_add_with_edge(net, who, QDRI_NODE_CALLER, &matrix, net->opts.dtype, out, &node));
    node->needs_all_rows = 1;
    node->may_repeat = desc->may_repeat;
    node->saved_bytes = desc->saved_bytes;
    node->flops[0] = desc->forward_flops;
    node->flops[1] = desc->backward_flops;
    node->bytes[0] = desc->forward_bytes;
    node->bytes[1] = desc->backward_bytes;
    qdri_node_connect(net, node, desc->n_in, in, *out);
    return QDR_OK;
}

/* Its cost and saved_bytes depend on this rank's rows, and functions have different addresses in each process. */
static void describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    (void)net;
    qdri_facts_add_blocks(facts, who, "out", desc->u.caller.out, QDR_MAX_BLOCKS);
    qdri_facts_add_int(facts, who, "may_repeat", desc->u.caller.may_repeat);
}

static qdri_task task_of(const qdri_op_part *p, qdri_task_kind kind, double bytes, double flops)
{
    qdri_task task = {.kind = kind, .n = qdri_op_columns(p), .work = {.n_kernels = 1, .cost = QDRI_COST_CALLER}};
    if (p->n_rows) task.work.bytes = bytes;
    if (p->n_rows) task.work.flops = flops;
    return task;
}

static void forward(const qdri_op_part *p)
{
    qdri_task task = task_of(p, QDRI_TASK_CALLER_FORWARD, p->node->bytes[0], p->node->flops[0]);
    qdri_refs inputs = {.n = p->node->n_in};
    for (int i = 0; i < inputs.n; i++) inputs.of[i] = qdri_op_input(p, i);
    qdri_op_add(p, &task, &inputs, &(qdri_refs){2, {qdri_op_output(p), qdri_op_saved(p)}});
}

static void backward(const qdri_op_part *p)
{
    const int n_in = p->node->n_in;
    qdri_task task = task_of(p, QDRI_TASK_CALLER_BACKWARD, p->node->bytes[1], p->node->flops[1]);
    qdri_refs reads = {3 + n_in, {p->dy}}, writes = {.n = n_in};
    for (int i = 0; i < n_in; i++) {
        reads.of[1 + i] = qdri_op_input(p, i);
        writes.of[i] = qdri_op_input_gradient(p, i);
    }
    reads.of[1 + n_in] = qdri_op_output(p);
    reads.of[2 + n_in] = qdri_op_saved(p);
    task.accumulate = p->accumulates & ((1 << n_in) - 1);
    qdri_op_add(p, &task, &reads, &writes);
}

const qdri_op qdri_caller_op = {"operation", 0, add, describe, forward, backward, 2 * QDRI_NEEDS_SAVED - 1, NULL};
