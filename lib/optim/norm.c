/* SPDX-License-Identifier: Apache-2.0 */
/* The global gradient norm. */
#include <math.h>

#include "linear/describe.h"
#include "optim/optim.h"

qdr_status qdri_optim_check(const qdr_stack *stack, const char *who)
{
    qdr_parameter parameter;
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the stack is NULL", who);
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        QDR_TRY(qdr_stack_parameter(stack, i, &parameter));
        if (parameter.shared)
            return QDR_FAIL(QDR_ERR_STATE,
                            "%s: %s belongs to another stack, with which this one shares it; use that stack", who,
                            parameter.name);
        if (parameter.n_elems && (!parameter.data || !parameter.gradient))
            return QDR_FAIL(
                QDR_ERR_STATE,
                "%s: %s has no memory yet; call qdr_stack_build(), and qdr_stack_bind() if the caller owns the memory",
                who, parameter.name);
    }
    return QDR_OK;
}

/* Which sums were deferred is the same on all ranks, and so is the error. */
qdr_status qdri_gradients_check(const qdr_stack *stack, const char *who)
{
    qdr_parameter parameter;
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        QDR_TRY(qdr_stack_parameter(stack, i, &parameter));
        if (parameter.deferred)
            return QDR_FAIL(QDR_ERR_STATE,
                            "%s: the gradient of %s lacks sums that QDR_DEFER_SYNC left out; call "
                            "the last backward of a step without it",
                            who, parameter.name);
    }
    return QDR_OK;
}

static qdr_status add_squares(const qdr_stack *stack, double *sum, qdr_stream *stream)
{
    qdri_kernel kernel = {.kind = QDRI_K_SUM_SQUARES, .dtype = qdri_state_type(stack)};
    kernel.u.reduce.result = sum;
    kernel.u.reduce.accumulate = 1;
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        qdr_parameter parameter;
        QDR_TRY(qdr_stack_parameter(stack, i, &parameter));
        if (!parameter.counted) continue;
        kernel.u.reduce.n = parameter.n_elems;
        kernel.u.reduce.a = parameter.gradient;
        QDR_TRY(qdri_kernel_run(stream, &kernel));
    }
    return QDR_OK;
}

qdr_status qdri_sum_squares(const qdr_stack *stack, double *sum, qdr_stream *stream)
{
    static const qdr_channel channels[] = {QDR_CHANNEL_X_STAT, QDR_CHANNEL_Y_STAT, QDR_CHANNEL_Z_STAT};
    const qdri_coll coll = {
        .kind = QDR_ALL_REDUCE, .dtype = QDR_F64, .op = QDR_SUM, .recv = sum, .count = 1, .label = "gradient norm"};
    QDR_TRY(qdri_fill_zero(stream, sum, sizeof *sum));
    QDR_TRY(add_squares(stack, sum, stream));
    for (int i = 0; i < 3; i++) {
        qdri_comm *comm = qdri_grid_comm(qdr_stack_grid(stack), channels[i]);
        if (qdri_comm_size(comm) > 1) QDR_TRY(qdri_comm_launch(comm, &coll, stream));
    }
    return QDR_OK;
}

qdr_status qdri_read_norm(const qdr_stack *stack, const double *sum, double *norm)
{
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(qdr_stack_grid(stack)));
    double squared = 0;
    QDR_TRY(qdri_copy(stream, &squared, sum, sizeof squared));
    QDR_TRY(qdri_stream_synchronize(stream));
    *norm = sqrt(squared);
    return QDR_OK;
}

static qdr_status check_norm(const qdr_stack *stack)
{
    QDR_TRY(qdri_optim_check(stack, "gradient norm"));
    return qdri_context_check_runs(qdr_grid_context(qdr_stack_grid(stack)), "gradient norm");
}

qdr_status qdr_grad_norm(qdr_stack *stack, double *norm)
{
    if (!norm) return QDR_FAIL(QDR_ERR_ARGUMENT, "gradient norm: norm is NULL");
    *norm = 0;
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "gradient norm: the stack is NULL");
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(stack));
    qdri_facts facts = {0};
    void *sum = NULL;
    qdri_describe_backward(&facts, stack);
    qdr_status status = check_norm(stack);
    if (status == QDR_OK) status = qdri_mem_alloc(qdri_context_dev(ctx), sizeof(double), &sum);
    status = qdri_context_agree_same(ctx, status, &facts, "gradient norm", QDRI_SAME_CALL);
    qdri_facts_free(&facts);
    if (status == QDR_OK) status = qdri_gradients_check(stack, "gradient norm");
    if (status == QDR_OK) status = qdri_sum_squares(stack, sum, qdr_context_stream(ctx));
    if (status == QDR_OK) status = qdri_read_norm(stack, sum, norm);
    qdri_mem_free(qdri_context_dev(ctx), &sum);
    return status;
}
