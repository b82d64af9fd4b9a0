/* SPDX-License-Identifier: Apache-2.0 */
/* What operations share. */
#include "schedule/ops/op.h"

#include <math.h>

/* ---- adding to a net ---- */

qdr_status qdri_op_check_inputs(const qdri_net *net, const char *who, int n_in, const qdr_edge *in)
{
    for (int i = 0; i < n_in; i++) {
        QDR_TRY(qdri_edge_check(net, in[i], who));
        if (net->edges[in[i]].dtype == QDR_I32)
            return QDR_FAIL(QDR_ERR_DTYPE, "%s: the input '%s' holds tokens, not features", who,
                            net->edges[in[i]].name);
    }
    return QDR_OK;
}

qdr_status qdri_op_check_tokens(const qdri_net *net, const char *who, qdr_edge edge, const char *what)
{
    QDR_TRY(qdri_edge_check(net, edge, who));
    if (net->edges[edge].dtype == QDR_I32 && !net->edges[edge].matrix.scatter_rows) return QDR_OK;
    return QDR_FAIL(QDR_ERR_DTYPE,
                    "%s: the input '%s' must hold the %s of the whole cell; make it with qdr_stack_add_tokens", who,
                    net->edges[edge].name, what);
}

qdr_status qdri_op_check_factor(const char *who, double factor)
{
    if (isfinite(factor)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the factor is %g; use a finite number, 0 means 1", who, factor);
}

int qdri_same_layout(const qdr_matrix *a, const qdr_matrix *b)
{
    return a->split_cols == b->split_cols && a->col_axis == b->col_axis && a->scatter_rows == b->scatter_rows &&
           a->scatter_unit == b->scatter_unit;
}

/* ---- operands ---- */

static const qdri_edge *edge_of(const qdri_op_part *p, int i) { return &p->net->edges[p->node->in[i]]; }

int64_t qdri_op_columns(const qdri_op_part *p) { return edge_of(p, 0)->owned.n_cols; }

size_t qdri_op_number_bytes(const qdri_op_part *p) { return qdr_dtype_bytes(qdri_sum_type(p->net->opts.dtype)); }

qdri_ref qdri_op_input(const qdri_op_part *p, int i)
{
    return qdri_edge_rows(edge_of(p, i), edge_of(p, i)->value, p->begin, p->end);
}

qdri_ref qdri_op_output(const qdri_op_part *p)
{
    const qdri_edge *edge = &p->net->edges[p->node->out];
    return qdri_edge_rows(edge, edge->value, p->begin, p->end);
}

qdri_ref qdri_op_input_gradient(const qdri_op_part *p, int i)
{
    return qdri_edge_rows(edge_of(p, i), p->d_in[i], p->begin, p->end);
}

qdri_ref qdri_op_saved(const qdri_op_part *p)
{
    const int64_t n_all = edge_of(p, 0)->owned.n_rows;
    if (p->n_rows == n_all) return p->node->saved;
    const size_t row_bytes = p->node->saved_bytes / (size_t)n_all;
    return qdri_slice(p->node->saved, (size_t)p->begin * row_bytes, (size_t)p->n_rows * row_bytes);
}

qdri_ref qdri_op_parameter(const qdri_op_part *p, int i)
{
    return i < p->node->n_parameters ? p->net->parameters[p->node->parameter + i].data : QDRI_NO_REF;
}

qdri_ref qdri_op_gradient(const qdri_op_part *p, int i)
{
    return i < p->node->n_parameters ? p->net->parameters[p->node->parameter + i].gradient : QDRI_NO_REF;
}

int qdri_op_adds(const qdri_op_part *p, int i) { return p->accumulates >> (QDR_MAX_OP_INPUTS + i) & 1; }

qdri_ref qdri_op_numbers(const qdri_op_part *p, size_t offset, int64_t n_per_row)
{
    const size_t row_bytes = (size_t)n_per_row * qdri_op_number_bytes(p);
    return qdri_slice(p->net->op_work, offset + (size_t)p->begin * row_bytes, (size_t)p->n_rows * row_bytes);
}

/* ---- adding tasks ---- */

void qdri_op_add(const qdri_op_part *p, qdri_task *task, const qdri_refs *reads, const qdri_refs *writes)
{
    task->node = p->number;
    task->name = p->node->name;
    task->m = p->n_rows;
    task->dtype = task->out_dtype = p->net->opts.dtype;
    task->n_reads = reads->n;
    task->n_writes = writes->n;
    for (int i = 0; i < reads->n; i++) task->reads[i] = reads->of[i];
    for (int i = 0; i < writes->n; i++) task->writes[i] = writes->of[i];
    if (!(task->flops > 0)) task->flops = task->work.flops;
    qdri_schedule_add(p->builder, task);
}

void qdri_op_add_kernel(const qdri_op_part *p, const qdri_kernel *kernel, qdri_task_work work, const qdri_refs *reads,
                        const qdri_refs *writes, int accumulate)
{
    qdri_task task = {
        .kind = QDRI_TASK_KERNEL, .kernel = *kernel, .accumulate = accumulate, .n = qdri_op_columns(p), .work = work};
    qdri_op_add(p, &task, reads, writes);
}

void qdri_op_add_collective(const qdri_op_part *p, qdr_axis axis, int64_t n_per_row, qdri_task *task)
{
    task->node = p->number;
    task->name = p->node->name;
    task->channel = qdri_statistics_channel(axis);
    task->m = p->n_rows;
    task->n = n_per_row;
    task->count = task->m * task->n;
    task->out_dtype = task->dtype;
    qdri_add_collective(p->builder, task);
}

void qdri_op_reduce(const qdri_op_part *p, qdr_axis axis, qdr_reduce how, int64_t n_per_row, qdri_ref data)
{
    qdri_op_add_collective(p, axis, n_per_row,
                           &(qdri_task){.coll = QDR_ALL_REDUCE,
                                        .reduce = how,
                                        .n_writes = 1,
                                        .writes = {data},
                                        .dtype = qdri_sum_type(p->net->opts.dtype)});
}
