/* SPDX-License-Identifier: Apache-2.0 */
/* What the lists of a stack need in addition to its regions: staging of collectives, memory of products and kernels. */
#include "linear/internal.h"

/* An address aligned like the operand's; arrays of the caller's are assumed to be aligned. */
static void *stand_in(const qdr_stack *stack, qdri_ref ref)
{
    const qdri_buffer *buffer = &stack->net.buffers.items[ref.buffer];
    const size_t offset = buffer->region == QDRI_CALLER ? 0 : buffer->offset;
    return (void *)(uintptr_t)(QDRI_BUFFER_ALIGN + offset + ref.offset);
}

static void measure_collective(qdr_stack *stack, qdr_channel channel, qdri_coll coll)
{
    qdri_comm_need(qdri_grid_comm(stack->grid, channel), &coll, &stack->staging[channel]);
}

static void measure_attention(qdr_stack *stack, const qdri_task *task)
{
    const size_t bytes = qdri_kernel_bytes(qdr_context_stream(qdr_grid_context(stack->grid)), &task->kernel);
    if (bytes > stack->kernel_bytes) stack->kernel_bytes = bytes;
}

/* The maximum staging that the collectives of a schedule need, and the memory of its largest product and attention. */
static void measure_list(qdr_stack *stack, const qdri_schedule *schedule)
{
    for (int i = 0; i < schedule->n_tasks; i++) {
        const qdri_task *task = &schedule->tasks[i];
        if (task->kind == QDRI_TASK_PRODUCT) {
            qdri_gemm gemm = qdri_task_gemm(task);
            gemm.a = stand_in(stack, task->reads[0]);
            gemm.b = stand_in(stack, task->reads[1]);
            gemm.c = stand_in(stack, task->writes[0]);
            const size_t bytes = qdri_product_bytes(qdr_context_stream(qdr_grid_context(stack->grid)), &gemm);
            if (bytes > stack->product_bytes) stack->product_bytes = bytes;
        }
        if (qdri_task_runs(task, QDRI_K_ATTENTION_FORWARD)) measure_attention(stack, task);
        if (task->kind != QDRI_TASK_COLLECTIVE) continue;
        measure_collective(stack, task->channel, qdri_task_coll(task));
    }
}

/* A layer that runs alone. Its lists are not kept: most stacks run as a whole. */
static qdr_status measure_layer(qdr_stack *stack, int node, qdri_schedule *schedule)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        QDR_TRY(qdri_net_layer_forward(&stack->net, node, accumulate, schedule));
        measure_list(stack, schedule);
    }
    if (stack->net.shares_parameters) return QDR_OK;
    QDR_TRY(qdri_net_layer_backward(&stack->net, node, 0, QDRI_GRADIENT_OVERWRITE, schedule));
    measure_list(stack, schedule);
    return QDR_OK;
}

static qdr_status measure_layers(qdr_stack *stack)
{
    qdri_schedule schedule = {.tasks = NULL};
    qdr_status status = QDR_OK;
    for (int i = 0; i < stack->net.n_nodes && status == QDR_OK; i++)
        if (stack->net.nodes[i].kind == QDRI_NODE_LINEAR) status = measure_layer(stack, i, &schedule);
    qdri_schedule_free(&schedule);
    return status;
}

qdr_status qdri_stack_reserve_staging(qdr_stack *stack)
{
    QDR_TRY(measure_layers(stack));
    measure_list(stack, &stack->lists.forward);
    measure_list(stack, &stack->lists.returns);
    measure_list(stack, &stack->lists.backward[0]);
    measure_list(stack, &stack->lists.loss);
    /* An optimizer may follow. */
    for (int channel = QDR_CHANNEL_X_STAT; channel <= (int)QDR_CHANNEL_D_STAT; channel++)
        measure_collective(stack, (qdr_channel)channel,
                           (qdri_coll){.kind = QDR_ALL_REDUCE, .dtype = QDR_F64, .count = QDRI_STEP_SUMS});
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        QDR_TRY(qdri_comm_reserve(qdri_grid_comm(stack->grid, (qdr_channel)channel), &stack->staging[channel]));
    return QDR_OK;
}
