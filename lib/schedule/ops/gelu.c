/* SPDX-License-Identifier: Apache-2.0 */
/* GELU, in the tanh form. */
#include "schedule/ops/op.h"

static qdr_status add(qdri_net *net, const qdri_node_desc *desc, qdr_edge *out)
{
    qdri_node *node = NULL;
    QDR_TRY(qdri_op_check_inputs(net, desc->name, 1, desc->in));
    const qdr_matrix matrix = net->edges[desc->in[0]].matrix;
    QDR_TRY(qdri_node_add_with_edge(net, desc->name, QDRI_NODE_GELU, &matrix, net->opts.dtype, out, &node));
    node->in_place = 1;
    qdri_node_connect(net, node, 1, desc->in, *out);
    return QDR_OK;
}

static qdri_kernel kernel_of(const qdri_op_part *p, qdri_kernel_kind kind)
{
    return (qdri_kernel){.kind = kind, .u.binary = {.n = p->n_rows * qdri_op_columns(p)}};
}

static void forward(const qdri_op_part *p)
{
    const qdri_kernel kernel = kernel_of(p, QDRI_K_GELU_FORWARD);
    qdri_op_add_kernel(p, &kernel, (qdri_task_work){2 * p->bytes, 12 * p->elems, 1, QDRI_COST_PLAIN},
                       &(qdri_refs){1, {qdri_op_input(p, 0)}}, &(qdri_refs){1, {qdri_op_output(p)}}, 0);
}

static void backward(const qdri_op_part *p)
{
    const qdri_kernel kernel = kernel_of(p, QDRI_K_GELU_BACKWARD);
    qdri_op_add_kernel(p, &kernel, (qdri_task_work){3 * p->bytes, 20 * p->elems, 1, QDRI_COST_PLAIN},
                       &(qdri_refs){2, {p->dy, qdri_op_input(p, 0)}}, &(qdri_refs){1, {qdri_op_input_gradient(p, 0)}},
                       p->accumulates & 1);
}

const qdri_op qdri_gelu_op = {"gelu", 1, add, NULL, forward, backward, QDRI_NEEDS_INPUT};
