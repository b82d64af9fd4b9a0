/* SPDX-License-Identifier: Apache-2.0 */
/* What a stack needs altogether: the sum of all that its sizes state. */
#ifndef QDR_TESTS_SIZES_H
#define QDR_TESTS_SIZES_H

#include "quadrille/stack.h"

static inline size_t sum_of_sizes(const qdr_stack_sizes *sizes)
{
    const size_t *each = &sizes->size;
    size_t sum = 0;
    for (size_t i = 1; i < sizeof *sizes / sizeof *each; i++) sum += each[i];
    return sum;
}

#endif
