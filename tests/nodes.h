/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a stack in one line each. */
#ifndef QDR_TESTS_NODES_H
#define QDR_TESTS_NODES_H

#include "quadrille/stack.h"

static inline qdr_status test_add_norm(qdr_stack *stack, const char *name, double epsilon, qdr_edge in, qdr_edge *out)
{
    const qdr_norm_desc desc = {QDR_INIT(qdr_norm_desc), .name = name, .epsilon = epsilon};
    return qdr_stack_add_norm(stack, &desc, in, out);
}

static inline qdr_status test_add_attention(qdr_stack *stack, const char *name, int64_t head_size, int64_t context,
                                            qdr_edge in, qdr_edge *out)
{
    const qdr_attention_desc desc = {QDR_INIT(qdr_attention_desc), .name = name, .head_size = head_size,
                                     .context = context};
    return qdr_stack_add_attention(stack, &desc, in, out);
}

static inline qdr_status test_add_tied_head(qdr_stack *stack, const char *name, qdr_linear *table,
                                            qdr_layout out_layout, qdr_edge in, qdr_edge *out)
{
    const qdr_tied_head_desc desc = {QDR_INIT(qdr_tied_head_desc), .name = name, .table = table,
                                     .out_layout = out_layout};
    return qdr_stack_add_tied_head(stack, &desc, in, out);
}

#endif
