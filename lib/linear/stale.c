/* SPDX-License-Identifier: Apache-2.0 */
/* Stale parameters: with levels, each rank updates a part of its shard, and the next pass that needs the rest begins by
 * gathering it. All ranks must agree on what is stale, without asking each other, so this follows from their calls
 * alone. A parameter that is taken for stale without need costs a gather of what is there already. */
#include "linear/describe.h"

/* A record runs later, and nobody knows what will have run before: in each of them everything begins as stale, and what
 * it does counts outside only when it is launched. Then everything is stale, as ranks that failed to record an update
 * would not know of it. */
enum { QDRI_STALE_NOW = 1, QDRI_STALE_IN_RECORD = 2 };

static const qdr_context *context_of(const qdr_stack *stack) { return qdr_grid_context(stack->grid); }

static void set_all(qdr_stack *owner, int stale)
{
    for (int i = 0; i < owner->net.n_parameters; i++)
        if (owner->net.parameters[i].returns) qdri_parameter_of(owner, i)->stale |= stale;
}

/* Takes account of records that were begun or launched meanwhile. @return which kind of stale counts now */
static int look(qdr_stack *owner)
{
    const qdr_context *ctx = context_of(owner);
    const int64_t record = qdri_context_n_records(ctx), n_runs = qdri_context_n_record_runs(ctx);
    if (owner->n_record_runs != n_runs) set_all(owner, QDRI_STALE_NOW);
    owner->n_record_runs = n_runs;
    if (!qdri_context_is_recording(ctx)) return QDRI_STALE_NOW;
    if (owner->record != record) set_all(owner, QDRI_STALE_IN_RECORD);
    owner->record = record;
    return QDRI_STALE_IN_RECORD;
}

int qdri_parameter_is_stale(const qdr_stack *stack, int index)
{
    const qdr_stack *owner = qdri_stack_owner(stack);
    const qdr_context *ctx = context_of(stack);
    const int stale = qdri_parameter_of(owner, index)->stale;
    if (!owner->net.parameters[index].returns) return 0;
    if (qdri_context_is_recording(ctx))
        return owner->record != qdri_context_n_records(ctx) || (stale & QDRI_STALE_IN_RECORD);
    return owner->n_record_runs != qdri_context_n_record_runs(ctx) || (stale & QDRI_STALE_NOW);
}

/* Whether a parameter is the W of a node; -1: of any. */
static int is_of(const qdr_stack *stack, int index, int node)
{
    return node < 0 || stack->net.nodes[node].layer.weight == index;
}

int qdri_stack_is_stale(const qdr_stack *stack, int node)
{
    for (int i = 0; i < stack->net.n_parameters; i++)
        if (is_of(stack, i, node) && qdri_parameter_is_stale(stack, i)) return 1;
    return 0;
}

void qdri_stack_set_updated(qdr_stack *stack) { set_all(stack, look(stack)); }

void qdri_stack_set_returned(qdr_stack *stack, int node)
{
    qdr_stack *owner = stack->owner ? stack->owner : stack;
    const int kind = look(owner);
    for (int i = 0; i < owner->net.n_parameters; i++)
        if (is_of(stack, i, node)) qdri_parameter_of(owner, i)->stale &= ~kind;
}

void qdri_parameter_set_whole(qdr_stack *stack, int index) { qdri_parameter_of(stack, index)->stale &= ~look(stack); }
