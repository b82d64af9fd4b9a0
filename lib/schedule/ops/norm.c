/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm over features that may be split over an axis: moments of each rank's columns, merged in rank order
 * (Chan, Golub, LeVeque 1983). Saved: mean and 1/sigma of each row. Work: the moments of all ranks, or two sums. */
#include "core/block.h"
#include "core/size.h"
#include "schedule/ops/op.h"

static qdr_status add(qdri_net *net, const qdri_node_desc *desc, qdr_edge *out)
{
    const char *who = desc->name;
    const double epsilon = desc->u.norm.desc.epsilon;
    const int has_beta = !desc->u.norm.is_rms;
    const qdr_edge in = desc->in[0];
    qdri_node *node = NULL;
    QDR_TRY(qdri_op_check_inputs(net, who, 1, &in));
    if (!(epsilon >= 0))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: epsilon %g; use a number ≥ 0, 0 means 1e-5", who, epsilon);
    const qdr_matrix matrix = net->edges[in].matrix;
    const int64_t n_rows = net->edges[in].owned.n_rows;
    const qdr_dtype sum_type = qdri_sum_type(net->opts.dtype);
    QDR_TRY(qdri_node_add_with_edge(net, who, QDRI_NODE_NORM, &matrix, net->opts.dtype, out, &node));
    node->axis = matrix.col_axis;
    node->kernel.u.norm.n_cols = net->edges[in].owned.n_cols;
    node->kernel.u.norm.n_features = qdri_blocks_width(matrix.cols);
    node->kernel.u.norm.n_parts = net->position.size[matrix.col_axis];
    node->kernel.u.norm.epsilon = epsilon > 0 ? epsilon : 1e-5;
    QDR_TRY(qdri_block_bytes(n_rows, 3 * (int64_t)node->kernel.u.norm.n_parts, sum_type, &node->work_bytes));
    QDR_TRY(qdri_block_bytes(n_rows, 2, sum_type, &node->saved_bytes));
    qdri_parameter_desc parameter = {.what = "gamma",
                                     .cols = net->edges[in].matrix.cols,
                                     .col_split = 1 + (int)matrix.col_axis,
                                     .extra_sums = matrix.scatter_rows ? 1 << matrix.scatter_axis : 0};
    int beta = 0;
    QDR_TRY(qdri_parameter_add(net, &parameter, &node->parameter));
    parameter.what = "beta";
    if (has_beta) QDR_TRY(qdri_parameter_add(net, &parameter, &beta));
    node->n_parameters = 1 + has_beta;
    qdri_node_connect(net, node, 1, &in, *out);
    return QDR_OK;
}

static void describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    (void)net;
    qdri_facts_add_real(facts, who, "epsilon", desc->u.norm.desc.epsilon > 0 ? desc->u.norm.desc.epsilon : 1e-5);
}

/* ---- tasks ---- */

static qdri_kernel kernel_of(const qdri_op_part *p, qdri_kernel_kind kind)
{
    qdri_kernel kernel = p->node->kernel;
    kernel.kind = kind;
    kernel.u.norm.n_rows = p->n_rows;
    return kernel;
}

static void forward(const qdri_op_part *p)
{
    const qdr_axis axis = p->node->axis;
    const int g = p->net->position.size[axis], rank = p->net->position.coordinate[axis];
    const size_t own_bytes = (size_t)p->n_rows * 3 * qdri_op_number_bytes(p);
    const qdri_ref moments = qdri_op_numbers(p, 0, 3 * (int64_t)g);
    const qdri_ref own = qdri_slice(moments, (size_t)rank * own_bytes, own_bytes);
    qdri_kernel kernel = kernel_of(p, QDRI_K_NORM_MOMENTS);
    qdri_op_add_kernel(p, &kernel, (qdri_task_work){p->bytes, 3 * p->elems, 1, QDRI_COST_FUSED},
                       &(qdri_refs){1, {qdri_op_input(p, 0)}}, &(qdri_refs){1, {own}}, 0);
    qdri_op_add_collective(
        p, axis, 3,
        &(qdri_task){
            .coll = QDR_ALL_GATHER, .n_writes = 1, .writes = {moments}, .dtype = qdri_sum_type(p->net->opts.dtype)});
    kernel = kernel_of(p, QDRI_K_NORM_MERGE);
    qdri_op_add_kernel(p, &kernel, QDRI_NO_WORK, &(qdri_refs){1, {moments}}, &(qdri_refs){1, {qdri_op_saved(p)}}, 0);
    kernel = kernel_of(p, QDRI_K_NORM_APPLY);
    qdri_op_add_kernel(
        p, &kernel, (qdri_task_work){2 * p->bytes, 5 * p->elems, 1, QDRI_COST_AFTER_FUSED},
        &(qdri_refs){4, {qdri_op_input(p, 0), qdri_op_saved(p), qdri_op_parameter(p, 0), qdri_op_parameter(p, 1)}},
        &(qdri_refs){1, {qdri_op_output(p)}}, 0);
}

static void backward(const qdri_op_part *p)
{
    const qdri_ref sums = qdri_op_numbers(p, 0, 2);
    const qdri_refs inputs = {5, {p->dy, qdri_op_input(p, 0), qdri_op_saved(p), qdri_op_parameter(p, 0), sums}};
    qdri_kernel kernel = kernel_of(p, QDRI_K_NORM_SUMS);
    qdri_op_add_kernel(p, &kernel, (qdri_task_work){2 * p->bytes, 6 * p->elems, 2, QDRI_COST_PLAIN},
                       &(qdri_refs){4, {inputs.of[0], inputs.of[1], inputs.of[2], inputs.of[3]}},
                       &(qdri_refs){3, {sums, qdri_op_gradient(p, 0), qdri_op_gradient(p, 1)}}, qdri_op_adds(p, 0));
    qdri_op_reduce(p, p->node->axis, QDR_SUM, 2, sums);
    kernel = kernel_of(p, QDRI_K_NORM_BACKWARD);
    qdri_op_add_kernel(p, &kernel, (qdri_task_work){3 * p->bytes, 8 * p->elems, 0, QDRI_COST_PLAIN}, &inputs,
                       &(qdri_refs){1, {qdri_op_input_gradient(p, 0)}}, p->accumulates & 1);
}

const qdri_op qdri_norm_op = {"layer norm", 1, add, describe, forward, backward, QDRI_NEEDS_INPUT | QDRI_NEEDS_SAVED};
