/* SPDX-License-Identifier: Apache-2.0 */
/* Activation functions, alone or as a gate: of two blocks of columns, function(first) · second. */
#include "core/block.h"
#include "schedule/ops/op.h"

/* For each element of the output, forward and backward. */
static const double flops[QDRI_N_ACTIVATIONS][2] = {
    [QDR_GELU_TANH] = {12, 20}, [QDR_GELU_ERF] = {24, 34},   [QDR_SILU] = {8, 14},
    [QDR_RELU] = {1, 2},        [QDR_RELU_SQUARED] = {2, 3},
};
static const double gate_flops[2] = {1, 4};

static qdr_status check_gate(const qdri_edge *edge, const char *who)
{
    const qdr_block *blocks = edge->matrix.cols;
    const qdr_block gate[QDR_MAX_BLOCKS] = {blocks[0]}, other[QDR_MAX_BLOCKS] = {blocks[1]};
    const int n_blocks = qdri_blocks_count(blocks);
    if (n_blocks == 2 && qdri_blocks_equal(gate, other)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_SHAPE,
                    "%s: '%s' has %d blocks, %" PRId64 " columns in units of %" PRId64 " and %" PRId64
                    " in units of %" PRId64 "; a gate and what it multiplies are two blocks of one width and unit",
                    who, edge->name, n_blocks, gate->width, gate->unit, other->width, other->unit);
}

static qdr_status add(qdri_net *net, const qdri_node_desc *desc, qdr_edge *out)
{
    const char *who = desc->name;
    const int function = (int)desc->u.activation.function, gated = desc->u.activation.gated;
    qdri_node *node = NULL;
    QDR_TRY(qdri_op_check_inputs(net, who, 1, desc->in));
    if (function < 0 || function >= QDRI_N_ACTIVATIONS)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: there is no activation function %d; use QDR_GELU_TANH (0) to QDR_RELU_SQUARED (%d)", who,
                        function, (int)QDR_RELU_SQUARED);
    QDR_TRY(qdri_check_switch(who, "gated", gated));
    if (gated) QDR_TRY(check_gate(&net->edges[desc->in[0]], who));
    qdr_matrix matrix = net->edges[desc->in[0]].matrix;
    if (gated) matrix.cols[1] = (qdr_block){0, 0};
    QDR_TRY(qdri_node_add_with_edge(net, who, QDRI_NODE_ACTIVATION, &matrix, net->opts.dtype, out, &node));
    node->in_place = !gated;
    node->kernel.u.activation.n_cols = net->edges[*out].owned.n_cols;
    node->kernel.u.activation.function = desc->u.activation.function;
    node->kernel.u.activation.gated = gated;
    qdri_node_connect(net, node, 1, desc->in, *out);
    return QDR_OK;
}

static void describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    (void)net;
    qdri_facts_add_int(facts, who, "function", (int64_t)desc->u.activation.function);
    qdri_facts_add_int(facts, who, "gated", desc->u.activation.gated);
}

static qdri_kernel kernel_of(const qdri_op_part *p, qdri_kernel_kind kind)
{
    qdri_kernel kernel = p->node->kernel;
    kernel.kind = kind;
    kernel.u.activation.n_rows = p->n_rows;
    return kernel;
}

/* n_out: how often the kernel moves as many elements as the output has, besides n_in times those of the input. */
static qdri_task_work work_of(const qdri_op_part *p, int backward, int n_in, int n_out)
{
    const int gated = p->node->kernel.u.activation.gated;
    const double each = flops[p->node->kernel.u.activation.function][backward] + (gated ? gate_flops[backward] : 0);
    const double share = gated ? 0.5 : 1; /* of the input's elements, that the output has */
    return (qdri_task_work){(n_in + n_out * share) * p->bytes, each * share * p->elems, 1, QDRI_COST_PLAIN};
}

static void forward(const qdri_op_part *p)
{
    const qdri_kernel kernel = kernel_of(p, QDRI_K_ACTIVATION_FORWARD);
    qdri_op_add_kernel(p, &kernel, work_of(p, 0, 1, 1), &(qdri_refs){1, {qdri_op_input(p, 0)}},
                       &(qdri_refs){1, {qdri_op_output(p)}}, 0);
}

static void backward(const qdri_op_part *p)
{
    const qdri_kernel kernel = kernel_of(p, QDRI_K_ACTIVATION_BACKWARD);
    qdri_op_add_kernel(p, &kernel, work_of(p, 1, 2, 1), &(qdri_refs){2, {p->dy, qdri_op_input(p, 0)}},
                       &(qdri_refs){1, {qdri_op_input_gradient(p, 0)}}, p->accumulates & 1);
}

const qdri_op qdri_activation_op = {"activation", 1, add, describe, forward, backward, QDRI_NEEDS_INPUT, forward};
