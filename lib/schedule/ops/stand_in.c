/* SPDX-License-Identifier: Apache-2.0 */
/* An operation that the library lacks: it costs what its description says, and copies as many of its input's bytes as
 * its output has. */
#include <string.h>

#include "core/block.h"
#include "schedule/ops/op.h"

static qdr_status add(qdri_net *net, const qdri_node_desc *desc, qdr_edge *out)
{
    const qdri_stand_in *of = &desc->u.stand_in;
    qdri_node *node = NULL;
    QDR_TRY(qdri_op_check_inputs(net, desc->name, 1, desc->in));
    qdr_matrix matrix = net->edges[desc->in[0]].matrix;
    if (qdri_blocks_count(of->out)) memcpy(matrix.cols, of->out, sizeof matrix.cols);
    QDR_TRY(qdri_node_add_with_edge(net, desc->name, QDRI_NODE_STAND_IN, &matrix, net->opts.dtype, out, &node));
    node->stand_in = *of;
    node->overwrites_only = 1;
    qdri_node_connect(net, node, 1, desc->in, *out);
    return QDR_OK;
}

static void describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    (void)net;
    qdri_facts_add_blocks(facts, who, "out", desc->u.stand_in.out, QDR_MAX_BLOCKS);
}

static void copy(const qdri_op_part *p, int backward, qdri_ref from, qdri_ref to)
{
    const qdri_edge *out = &p->net->edges[p->node->out];
    const double n_elems = (double)p->n_rows * (double)out->owned.n_cols;
    const qdri_stand_in *of = &p->node->stand_in;
    const qdri_kernel kernel = {.kind = QDRI_K_COPY, .u.block = {.row_bytes = to.bytes}};
    const qdri_task_work work = {of->bytes[backward] * n_elems * (double)qdr_dtype_bytes(out->dtype),
                                 of->flops[backward] * n_elems, 1, QDRI_COST_CALLER};
    qdri_op_add_kernel(p, &kernel, work, &(qdri_refs){1, {from}}, &(qdri_refs){1, {to}}, 0);
}

static void forward(const qdri_op_part *p)
{
    const qdri_ref from = qdri_op_input(p, 0), to = qdri_op_output(p);
    copy(p, 0, qdri_slice(from, 0, to.bytes), to);
}

/* The gradient of the input's first columns, as many as the output has; those of the others are zero. */
static void backward(const qdri_op_part *p)
{
    const qdri_ref to = qdri_op_input_gradient(p, 0);
    const size_t bytes = p->dy.bytes;
    copy(p, 1, p->dy, qdri_slice(to, 0, bytes));
    if (to.bytes == bytes) return;
    const qdri_kernel zero = {.kind = QDRI_K_ZERO, .u.block = {.row_bytes = to.bytes - bytes}};
    qdri_op_add_kernel(p, &zero, QDRI_NO_WORK, &(qdri_refs){0},
                       &(qdri_refs){1, {qdri_slice(to, bytes, to.bytes - bytes)}}, 0);
}

const qdri_op qdri_stand_in_op = {"stand-in", 1, add, describe, forward, backward, QDRI_NEEDS_INPUT};
