/* SPDX-License-Identifier: Apache-2.0 */
/* A sum of two edges, each of which gets the gradient of the sum, the second one times its factor. */
#include "core/block.h"
#include "schedule/ops/op.h"

static qdr_status add(qdri_net *net, const qdri_node_desc *desc, qdr_edge *out)
{
    const char *name = desc->name;
    const qdr_edge *in = desc->in;
    qdri_node *node = NULL;
    QDR_TRY(qdri_op_check_inputs(net, name, 2, in));
    QDR_TRY(qdri_op_check_factor(name, desc->u.residual.factor));
    const qdri_edge *first = &net->edges[in[0]], *second = &net->edges[in[1]];
    if (!qdri_blocks_equal(first->matrix.cols, second->matrix.cols) ||
        !qdri_same_layout(&first->matrix, &second->matrix))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: edges '%s' (%" PRId64 " features) and '%s' (%" PRId64
                        ") differ in blocks, axis or layout; both must be alike",
                        name, first->name, qdri_blocks_width(first->matrix.cols), second->name,
                        qdri_blocks_width(second->matrix.cols));
    const qdr_matrix matrix = first->matrix;
    QDR_TRY(qdri_node_add_with_edge(net, name, QDRI_NODE_RESIDUAL, &matrix, net->opts.dtype, out, &node));
    node->passes_gradient = 1;
    node->kernel.factor = desc->u.residual.factor;
    qdri_node_connect(net, node, 2, in, *out);
    return QDR_OK;
}

static void describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    (void)net;
    qdri_facts_add_real(facts, who, "factor", desc->u.residual.factor == 0 ? 1 : desc->u.residual.factor);
}

static void forward(const qdri_op_part *p)
{
    qdri_task task = {.node = p->number, .name = p->node->name, .dtype = p->net->opts.dtype};
    task.out_dtype = task.dtype;
    qdri_set_sum(&task, p->n_rows, qdri_op_columns(p), qdri_op_input(p, 0), qdri_op_input(p, 1), qdri_op_output(p));
    task.kernel.factor = p->node->kernel.factor;
    task.flops = task.work.flops;
    qdri_schedule_add(p->builder, &task);
}

const qdri_op qdri_residual_op = {"residual", 2, add, describe, forward, NULL, 0, NULL};
