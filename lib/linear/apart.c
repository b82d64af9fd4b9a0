/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of stacks, and whether that of a caller overlaps it. */
#include "linear/internal.h"

#define NAME(constant, name) #name,
#define OWN_NAME(constant, name) "the stack's " #name,
#define OTHER_NAME(constant, name) "another stack's " #name,
const char *const qdri_region_names[QDRI_CALLER] = {QDRI_STACK_REGIONS(NAME)};
static const char *const names[][QDRI_CALLER] = {{QDRI_STACK_REGIONS(OWN_NAME)}, {QDRI_STACK_REGIONS(OTHER_NAME)}};

void qdri_stack_enlist(qdr_stack *stack)
{
    qdr_stack **first = qdri_context_stacks(qdr_grid_context(stack->grid));
    stack->next = *first;
    *first = stack;
}

void qdri_stack_strike_out(const qdr_stack *stack)
{
    qdr_stack **link = qdri_context_stacks(qdr_grid_context(stack->grid));
    while (*link && *link != stack) link = &(*link)->next;
    if (*link) *link = stack->next;
}

static qdr_stack *first_stack(const qdr_stack *stack) { return *qdri_context_stacks(qdr_grid_context(stack->grid)); }

/* Parameters that it shares are those of its owner, even after that was destroyed. */
static qdri_range region_of(const qdr_stack *stack, int region, int is_other)
{
    const qdr_stack *of = region == (int)QDRI_PARAMETERS ? qdri_stack_owner(stack) : stack;
    return (qdri_range){.what = names[is_other][region],
                        .begin = of->memory[region],
                        .bytes = of->memory[region] ? of->net.buffers.region_bytes[region] : 0};
}

static qdr_status compare(const qdr_stack *stack, int is_other, const char *who, const qdri_range *callers,
                          const qdri_use uses[QDRI_CALLER])
{
    for (int region = 0; region < (int)QDRI_CALLER; region++) {
        if (uses[region] == QDRI_IGNORED) continue;
        qdri_range own = region_of(stack, region, is_other);
        own.writes = !is_other && uses[region] == QDRI_WRITTEN;
        QDR_TRY(QDRI_RANGES_CHECK(who, *callers, own));
    }
    return QDR_OK;
}

qdr_status qdri_stack_check_apart(const qdr_stack *stack, const char *who, const qdri_range *callers,
                                  const qdri_use uses[QDRI_CALLER])
{
    QDR_TRY(compare(stack, 0, who, callers, uses));
    for (const qdr_stack *other = first_stack(stack); other; other = other->next)
        if (other != stack && qdri_stack_owner(other) == qdri_stack_owner(stack))
            QDR_TRY(compare(other, 1, who, callers, uses));
    return QDR_OK;
}

qdr_status qdri_stack_check_bind(const qdr_stack *stack, void *const callers[QDRI_CALLER])
{
    qdri_range mine[QDRI_CALLER];
    for (int region = 0; region < (int)QDRI_CALLER; region++)
        mine[region] = (qdri_range){.what = qdri_region_names[region],
                                    .begin = callers[region],
                                    .bytes = callers[region] ? stack->net.buffers.region_bytes[region] : 0,
                                    .writes = 1};
    if (stack->owner) mine[QDRI_PARAMETERS] = region_of(stack, (int)QDRI_PARAMETERS, 0);
    QDR_TRY(qdri_ranges_check("bind", mine, (int)QDRI_CALLER));
    /* Those that last, which binding clears; the rest holds nothing between passes. */
    for (const qdr_stack *other = first_stack(stack); other; other = other->next)
        for (int region = 0; region < (int)QDRI_CALLER; region++) {
            const int last = region < (int)QDRI_ACTIVATIONS ? (int)QDRI_CALLER : (int)QDRI_ACTIVATIONS;
            for (int i = 0; callers[region] && i < last; i++)
                QDR_TRY(QDRI_RANGES_CHECK("bind", mine[region], region_of(other, i, 1)));
        }
    return QDR_OK;
}
