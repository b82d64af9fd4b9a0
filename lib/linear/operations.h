/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a stack's operations: calls of quadrille/ops.h on the memory of their edges. */
#ifndef QDRI_LINEAR_OPERATIONS_H
#define QDRI_LINEAR_OPERATIONS_H

#include "linear/internal.h"

/* One call of an operation: the task states the rows (m rows, starting at row k), the location of gradients, and which
 * inputs accumulate. */
typedef struct qdri_op_run {
    qdr_stack *stack;
    const qdri_node *node;
    const qdri_task *task;
    qdr_stream *stream;
} qdri_op_run;

/* Forward writes the output; backward reads its gradient (reads[0]) and writes those of the inputs (writes[i], none if
 * not wanted). */
qdr_status qdri_run_op(const qdri_op_run *run);

/* gqa.c: attention with gathered key heads */
qdr_status qdri_run_gqa_forward(const qdri_op_run *run);
qdr_status qdri_run_gqa_backward(const qdri_op_run *run);
/* The collective that gathers all heads (QDR_ALL_GATHER) or sums their gradients (QDR_REDUCE_SCATTER), without its
 * memory; and its communicator. */
qdri_coll qdri_key_heads_coll(const qdr_attention *local, const qdri_key_heads *keys, qdr_coll_kind kind);
qdri_comm *qdri_key_heads_comm(const qdr_grid *grid, const qdri_key_heads *keys);

#endif
