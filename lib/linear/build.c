/* SPDX-License-Identifier: Apache-2.0 */
/* Building a stack: the net's plan, events, staging, sizes; binding memory. */
#include <stdlib.h>

#include "core/log.h"
#include "core/size.h"
#include "core/sized.h"
#include "linear/describe.h"
#include "schedule/net_price.h"

/* The machine of rank 0 decides, since other ranks may have other files. A program need not be installed with any: if
 * none is named, and there is none or it lacks the type, nothing is divided. */
static qdr_status choose_here(qdr_stack *stack)
{
    const qdr_context *ctx = qdr_grid_context(stack->grid);
    const qdr_recompute recompute = stack->net.opts.recompute;
    qdr_machine machine;
    qdr_status status = qdri_context_machine(ctx, &machine);
    if (status == QDR_OK) {
        stack->net.opts.recompute = QDR_RECOMPUTE_NONE; /* the same panels and parts, and bits, with all */
        status = qdri_net_place(&stack->net);
        if (status == QDR_OK) status = qdri_net_choose_panels(&stack->net, qdri_grid_order(stack->grid), &machine);
        qdri_net_unplace(&stack->net);
        stack->net.opts.recompute = recompute;
    }
    if (status == QDR_OK || status == QDR_ERR_MEMORY || qdri_context_names_machine(ctx)) return status;
    qdri_log(QDRI_LOG_WARNING, "stack: neither panels nor parts of the batch are chosen: %s", qdr_last_error());
    return QDR_OK;
}

/* Panels of products and parts of the batch that the options leave open. Collective, agrees. */
static qdr_status choose_panels(qdr_stack *stack)
{
    qdr_context *ctx = qdr_grid_context(stack->grid);
    const qdr_stack_opts *opts = &stack->net.opts;
    int chosen[2] = {opts->panels ? opts->panels : 1, opts->batch_parts ? opts->batch_parts : 1};
    if (stack->owner) { /* the same sums, in the same order */
        const qdr_stack_opts *owners = &stack->owner->net.opts;
        chosen[0] = opts->panels ? opts->panels : owners->panels;
        chosen[1] = opts->batch_parts ? opts->batch_parts : owners->batch_parts;
    } else if ((!opts->panels || !opts->batch_parts) && qdri_net_sums(&stack->net)) {
        QDR_TRY(qdr_agree(ctx, qdr_context_rank(ctx) == 0 ? choose_here(stack) : QDR_OK));
        chosen[0] = opts->panels ? opts->panels : 1;
        chosen[1] = opts->batch_parts ? opts->batch_parts : 1;
        QDR_TRY(qdr_broadcast(ctx, 0, chosen, sizeof chosen));
    }
    qdri_net_set_panels(&stack->net, chosen[0], chosen[1]);
    return QDR_OK;
}

/* ---- building ---- */

/* One for each task, for any of which another stream may wait. */
qdr_status qdri_stack_reserve_events(qdr_stack *stack, int n_tasks)
{
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(stack->grid));
    for (; stack->n_events < n_tasks; stack->n_events++) {
        QDR_TRY(qdri_list_grow((void **)&stack->events, stack->n_events, &stack->event_capacity, sizeof *stack->events,
                               "the events of a stack"));
        QDR_TRY(qdri_event_create(dev, &stack->events[stack->n_events]));
    }
    return QDR_OK;
}

static qdr_status build(qdr_stack *stack)
{
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(stack->grid));
    for (int i = 0; i < stack->net.n_nodes; i++)
        if (qdri_node_is_layer(&stack->net.nodes[i]) && stack->net.nodes[i].layer.shape.rounds)
            QDR_TRY(qdri_dev_check_rounding(dev));
    QDR_TRY(qdri_net_build(&stack->net, &stack->lists));
    QDR_TRY(qdri_stack_reserve_events(stack, stack->net.most_tasks));
    return qdri_stack_reserve_staging(stack);
}

qdr_status qdr_stack_build(qdr_stack *stack)
{
    QDR_TRY(qdri_stack_open(stack, "build"));
    /* This comes first, because the following steps make collective calls that depend on the description. */
    QDR_TRY(
        qdri_context_agree_same(qdr_grid_context(stack->grid), QDR_OK, &stack->described, "stack", QDRI_SAME_STACK));
    QDR_TRY(qdri_stack_share(stack));
    QDR_TRY(qdri_stack_choose_storage(stack));
    QDR_TRY(qdri_stack_settle_codecs(stack));
    QDR_TRY(choose_panels(stack));
    QDR_TRY(qdr_agree(qdr_grid_context(stack->grid), build(stack)));
    stack->built = 1;
    qdri_facts_free(&stack->described);
    return stack->net.opts.caller_memory ? QDR_OK
                                         : qdr_stack_bind(stack, &(qdr_stack_memory){QDR_INIT(qdr_stack_memory)});
}

qdr_status qdr_stack_get_sizes(const qdr_stack *stack, qdr_stack_sizes *sizes)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "sizes: the stack is NULL");
    QDR_TRY(QDRI_CLEAR(qdr_stack_sizes, sizes));
    if (!stack->built) return QDR_FAIL(QDR_ERR_STATE, "sizes: the stack is not built; call qdr_stack_build first");
    const size_t *bytes = stack->net.buffers.region_bytes;
#define BYTES(constant, name) .name = bytes[QDRI_##constant],
    qdr_stack_sizes own = {QDRI_STACK_REGIONS(BYTES)};
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        own.communication += qdri_need_bytes(&stack->staging[channel]);
    own.device = qdri_dev_fixed_bytes(qdri_context_dev(qdr_grid_context(stack->grid)), stack->net.opts.dtype) +
                 stack->product_bytes + stack->kernel_bytes;
    QDRI_GIVE(qdr_stack_sizes, sizes, &own);
    return QDR_OK;
}

/* owned_by_all: no rank provides its own memory for the region. */
static qdr_status bind_region(qdr_stack *stack, qdri_region region, void *callers, int owned_by_all)
{
    if ((uintptr_t)callers % QDRI_BUFFER_ALIGN)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "bind: memory at %p is not aligned to %d bytes", callers, QDRI_BUFFER_ALIGN);
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(stack->grid));
    const size_t bytes = stack->net.buffers.region_bytes[region];
    stack->memory[region] = callers;
    if (callers) return bytes ? qdri_dev_check_argument(dev, callers, 1, "bind", qdri_region_names[region]) : QDR_OK;
    QDR_TRY((owned_by_all ? qdri_mem_alloc_shared : qdri_mem_alloc_for)(dev, qdri_region_names[region], bytes,
                                                                        &stack->owned[region]));
    stack->memory[region] = stack->owned[region];
    return QDR_OK;
}

static qdr_status bind_all(qdr_stack *stack, void *const callers[QDRI_CALLER], const int owned_by_all[QDRI_CALLER])
{
    if (!stack->built || stack->bound)
        return QDR_FAIL(QDR_ERR_STATE, "bind: %s",
                        stack->bound ? "the stack has its memory already" : "call qdr_stack_build first");
    if (stack->owner && (callers[QDRI_PARAMETERS] || callers[QDRI_GRADIENTS]))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "bind: the stack shares the parameters of another one; leave memory for "
                                          "parameters and gradients NULL");
    if (stack->owner) stack->memory[QDRI_PARAMETERS] = stack->owner->memory[QDRI_PARAMETERS];
    QDR_TRY(qdri_stack_check_bind(stack, callers));
    for (int region = stack->owner ? QDRI_ACTIVATIONS : QDRI_PARAMETERS; region < (int)QDRI_CALLER; region++)
        QDR_TRY(bind_region(stack, (qdri_region)region, callers[region], owned_by_all[region]));
    return QDR_OK;
}

static qdr_status write_rotation(const qdr_stack *stack, const qdri_rotation *rotation)
{
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    void *host = NULL;
    if (rotation->table.buffer < 0) return QDR_OK; /* the stack does not run as a whole */
    QDR_TRY(qdri_calloc(rotation->table.bytes, 1, "rotary positions on the host", &host));
    qdri_rotation_fill(rotation, stack->net.grad_dtype, host);
    qdr_status status = qdri_copy(stream, qdri_stack_pointer(stack, rotation->table), host, rotation->table.bytes);
    if (status == QDR_OK) status = qdri_stream_synchronize(stream);
    free(host);
    return status;
}

/* The stream's memory is allocated after all ranks have theirs, and before anything runs. Parameters and gradients,
 * including their padding, are initially zero. */
static qdr_status prepare(qdr_stack *stack)
{
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    QDR_TRY(qdri_reserve_product(stream, stack->product_bytes));
    qdri_reserve_kernel(stream, stack->kernel_bytes);
    for (int region = 0; region < (int)QDRI_ACTIVATIONS; region++)
        QDR_TRY(qdri_fill_zero(stream, stack->memory[region], stack->net.buffers.region_bytes[region]));
    for (int i = 0; i < stack->net.n_rotations; i++) QDR_TRY(write_rotation(stack, &stack->net.rotations[i]));
    return qdri_stream_synchronize(stream);
}

qdr_status qdr_stack_bind(qdr_stack *stack, const qdr_stack_memory *memory)
{
    qdr_stack_memory own;
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "bind: the stack is NULL");
    qdr_context *ctx = qdr_grid_context(stack->grid);
    QDR_TRY(qdr_agree(ctx, QDRI_TAKE(qdr_stack_memory, memory, &own)));
    const int is_open = stack->built && !stack->bound;
#define MEMORY(constant, name) [QDRI_##constant] = own.name,
    void *const callers[QDRI_CALLER] = {QDRI_STACK_REGIONS(MEMORY)};
    int owned_by_all[QDRI_CALLER];
    for (int region = 0; region < (int)QDRI_CALLER; region++)
        owned_by_all[region] = !qdri_comm_any(qdri_context_world(ctx), callers[region] != NULL);
    qdr_status status = qdr_agree(ctx, bind_all(stack, callers, owned_by_all));
    if (status == QDR_OK) status = qdr_agree(ctx, prepare(stack));
    if (is_open && status != QDR_OK) {
        /* Nothing is bound if one rank ran out of memory, or if memory could not be initialised. */
        const qdr_status drained = qdri_stack_drain(stack);
        (void)drained;
        for (int region = 0; region < (int)QDRI_CALLER; region++) {
            qdri_mem_free(qdri_context_dev(ctx), &stack->owned[region]);
            stack->memory[region] = NULL;
        }
    }
    if (status == QDR_OK) qdri_stack_enlist(stack);
    stack->bound |= status == QDR_OK;
    return status;
}
