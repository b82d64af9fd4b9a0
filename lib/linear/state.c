/* SPDX-License-Identifier: Apache-2.0 */
/* What a stack has, and which calls its state allows. */
#include "core/group.h"
#include "linear/internal.h"

qdr_status qdri_stack_open(const qdr_stack *stack, const char *who)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the stack is NULL", who);
    if (stack->built)
        return QDR_FAIL(QDR_ERR_STATE, "%s: the stack is already built; add layers before qdr_stack_build", who);
    return QDR_OK;
}

qdr_status qdri_stack_ready(const qdr_stack *stack, const char *who)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the stack is NULL", who);
    if (!stack->built) return QDR_FAIL(QDR_ERR_STATE, "%s: the stack is not built; call qdr_stack_build first", who);
    if (!stack->bound) return QDR_FAIL(QDR_ERR_STATE, "%s: the stack has no memory; call qdr_stack_bind first", who);
    return QDR_OK;
}

qdr_status qdri_stack_owns(const qdr_stack *stack, const char *who)
{
    if (!stack->owner) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE,
                    "%s: the stack shares the parameters of another one (qdr_stack_share_parameters) and runs forward "
                    "only; call this with the stack that owns them",
                    who);
}

/* Waits for all streams, whatever any of them returns. */
qdr_status qdri_stack_drain(const qdr_stack *stack)
{
    qdr_context *ctx = qdr_grid_context(stack->grid);
    qdr_status status = qdri_stream_synchronize(qdr_context_stream(ctx));
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
        if (qdri_is_statistics((qdr_channel)channel)) continue;
        const qdr_status next = qdri_stream_synchronize(qdri_grid_stream(stack->grid, (qdr_channel)channel));
        qdri_comm_drain(qdri_grid_comm(stack->grid, (qdr_channel)channel));
        if (status == QDR_OK) status = next;
    }
    if (status < QDR_OK) QDR_TRY(qdri_dev_raise(qdri_context_dev(ctx)));
    return status;
}

void *qdri_stack_pointer(const qdr_stack *stack, qdri_ref ref)
{
    if (ref.buffer < 0) return NULL;
    const qdri_buffer *buffer = &stack->net.buffers.items[ref.buffer];
    char *base = stack->memory[buffer->region];
    size_t offset = buffer->offset;
    for (int i = 0; buffer->region == QDRI_CALLER && i < QDRI_N_CALLER; i++) {
        if (stack->net.caller[i].buffer != ref.buffer) continue;
        base = stack->caller_memory[i];
        offset = 0;
    }
    return base ? base + offset + ref.offset : NULL;
}

qdri_attached_parameter *qdri_parameter_of(const qdr_stack *stack, int index)
{
    const qdri_parameter *p = &stack->net.parameters[index];
    return &stack->attached[p->node].parameters[p->slot];
}
