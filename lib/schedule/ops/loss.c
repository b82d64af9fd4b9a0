/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy of logits whose vocabulary may be split over an axis. Saved: maximum and log Σexp of each row. Work:
 * the maxima, then two sums of each row. */
#include <math.h>
#include <string.h>

#include "core/block.h"
#include "core/size.h"
#include "schedule/ops/op.h"

enum { ALIGN = 64 };

/* Where the sums begin. */
static size_t sums_offset(int64_t n_rows, qdr_dtype dtype)
{
    return qdri_align_bytes((size_t)n_rows * qdr_dtype_bytes(qdri_sum_type(dtype)), ALIGN);
}

static qdr_status check_number(const char *name, const char *what, double number)
{
    if (number >= 0 && !isinf(number)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the %s is %g; use a finite number > 0, 0 means none", name, what, number);
}

static qdr_status add(qdri_net *net, const qdri_node_desc *desc, qdr_edge *targets)
{
    const char *name = desc->name;
    const qdr_edge logits = desc->in[0];
    const double factor = desc->u.loss.factor, cap = desc->u.loss.cap;
    qdri_node *node = NULL;
    QDR_TRY(qdri_op_check_inputs(net, name, 1, &logits));
    QDR_TRY(qdri_op_check_factor(name, factor));
    QDR_TRY(check_number(name, "cap of logits", cap));
    QDR_TRY(check_number(name, "factor of the z-loss", desc->u.loss.z_loss));
    if (qdri_blocks_count(net->edges[logits].matrix.cols) != 1 || net->edges[logits].n_uses)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: '%s' must be one block of logits that nothing else reads", name,
                        net->edges[logits].name);
    const qdr_owned *owned = &net->edges[logits].owned;
    const int64_t n_rows = owned->n_rows;
    const qdri_kernel kernel = {.factor = factor,
                                .u.ce = {.n_cols = owned->n_cols,
                                         .cap = cap,
                                         .z_loss = desc->u.loss.z_loss,
                                         .begin = owned->cols[0].begin,
                                         .vocab = net->edges[logits].matrix.cols[0].width}};
    size_t saved_bytes;
    QDR_TRY(qdri_block_bytes(n_rows, 2, qdri_sum_type(net->opts.dtype), &saved_bytes));
    qdr_matrix matrix = net->edges[logits].matrix;
    memset(matrix.cols, 0, sizeof matrix.cols);
    matrix.cols[0] = (qdr_block){1, 1};
    matrix.split_cols = 0;
    QDR_TRY(qdri_node_add_with_edge(net, name, QDRI_NODE_CROSS_ENTROPY, &matrix, QDR_I32, targets, &node));
    node->axis = matrix.col_axis;
    node->kernel = kernel;
    node->saved_bytes = saved_bytes;
    node->work_bytes = sums_offset(n_rows, net->opts.dtype) + saved_bytes;
    node->overwrites_only = 1;
    qdri_node_connect(net, node, 2, (const qdr_edge[]){logits, *targets}, -1);
    return QDR_OK;
}

static void describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    (void)net;
    qdri_facts_add_real(facts, who, "factor", desc->u.loss.factor == 0 ? 1 : desc->u.loss.factor);
    qdri_facts_add_real(facts, who, "cap", desc->u.loss.cap);
    qdri_facts_add_real(facts, who, "z_loss", desc->u.loss.z_loss);
}

static qdri_kernel kernel_of(const qdri_op_part *p, qdri_kernel_kind kind)
{
    qdri_kernel kernel = p->node->kernel;
    kernel.kind = kind;
    kernel.u.ce.n_rows = p->n_rows;
    return kernel;
}

/* Of one tanh for each logit. */
static double cap_flops(const qdri_op_part *p) { return p->node->kernel.u.ce.cap > 0 ? 8 * p->elems : 0; }

static void forward(const qdri_op_part *p)
{
    const qdr_axis axis = p->node->axis;
    const int64_t n_all = p->net->edges[p->node->in[0]].owned.n_rows;
    const qdri_ref logits = qdri_op_input(p, 0), targets = qdri_op_input(p, 1), maxima = qdri_op_numbers(p, 0, 1);
    const qdri_ref sums = qdri_op_numbers(p, sums_offset(n_all, p->net->opts.dtype), 2);
    const double capping = cap_flops(p);
    const size_t loss_bytes = 2 * sizeof(double);
    const qdri_ref loss = qdri_slice(p->net->loss, (size_t)p->part * loss_bytes, loss_bytes);
    qdri_kernel kernel = kernel_of(p, QDRI_K_CE_MAX);
    qdri_op_add_kernel(p, &kernel, (qdri_task_work){p->bytes, 2 * p->elems + capping, 1, QDRI_COST_LOGITS},
                       &(qdri_refs){1, {logits}}, &(qdri_refs){1, {maxima}}, 0);
    qdri_op_reduce(p, axis, QDR_MAX, 1, maxima);
    kernel = kernel_of(p, QDRI_K_CE_SUMS);
    qdri_op_add_kernel(p, &kernel, (qdri_task_work){p->bytes, 3 * p->elems + capping, 0, QDRI_COST_LOGITS},
                       &(qdri_refs){3, {logits, targets, maxima}}, &(qdri_refs){1, {sums}}, 0);
    qdri_op_reduce(p, axis, QDR_SUM, 2, sums);
    kernel = kernel_of(p, QDRI_K_CE_LOSS);
    qdri_op_add_kernel(p, &kernel, QDRI_NO_WORK, &(qdri_refs){3, {targets, maxima, sums}},
                       &(qdri_refs){2, {loss, qdri_op_saved(p)}}, 0);
}

static void backward(const qdri_op_part *p)
{
    const qdri_kernel kernel = kernel_of(p, QDRI_K_CE_BACKWARD);
    qdri_op_add_kernel(p, &kernel, (qdri_task_work){2 * p->bytes, 4 * p->elems + 2 * cap_flops(p), 1, QDRI_COST_LOGITS},
                       &(qdri_refs){3, {qdri_op_input(p, 0), qdri_op_input(p, 1), qdri_op_saved(p)}},
                       &(qdri_refs){1, {qdri_op_input_gradient(p, 0)}}, 0);
}

const qdri_op qdri_loss_op = {"cross-entropy",
                              1,
                              add,
                              describe,
                              forward,
                              backward,
                              QDRI_NEEDS_INPUT | QDRI_NEEDS_INPUT << 1 | QDRI_NEEDS_SAVED,
                              NULL};
