/* SPDX-License-Identifier: Apache-2.0 */
/* What operations of a stack do when their task is reached: calls of quadrille/ops.h on the memory
 * of their edges. */
#ifndef QDRI_LINEAR_OPERATIONS_H
#define QDRI_LINEAR_OPERATIONS_H

#include "linear/internal.h"

/* Tasks of operations: forward writes the output; backward reads its gradient (reads[0]) and writes
 * those of the inputs (writes[i], none where not wanted); bit i of `accumulate` adds to input i's.
 */
qdr_status qdri_run_norm_forward(const qdri_op_run *run);
qdr_status qdri_run_norm_backward(const qdri_op_run *run);
qdr_status qdri_run_attention_forward(const qdri_op_run *run);
qdr_status qdri_run_attention_backward(const qdri_op_run *run);
qdr_status qdri_run_grouped_forward(const qdri_op_run *run); /* attention with gathered key heads */
qdr_status qdri_run_grouped_backward(const qdri_op_run *run);
qdr_status qdri_run_gelu_forward(const qdri_op_run *run);
qdr_status qdri_run_gelu_backward(const qdri_op_run *run);
qdr_status qdri_run_residual_forward(const qdri_op_run *run);
qdr_status qdri_run_cross_entropy_forward(const qdri_op_run *run);
qdr_status qdri_run_cross_entropy_backward(const qdri_op_run *run);
qdr_status qdri_run_user_forward(const qdri_op_run *run);
qdr_status qdri_run_user_backward(const qdri_op_run *run);

/* grouped.c */
/* Fills in the heads of `local`, whose sizes are known, and `keys`, from the edge of queries, keys
 * and values. */
void qdri_key_heads_plan(const qdr_stack *stack, const qdri_edge *edge, qdr_attention *local,
                         qdri_key_heads *keys);
QDR_NODISCARD qdr_status qdri_key_heads_sizes(const qdr_attention *local,
                                              const qdri_key_heads *keys, size_t *saved_bytes,
                                              size_t *work_bytes);
/* The collective that gathers all heads (QDR_ALL_GATHER) or sums their gradients
 * (QDR_REDUCE_SCATTER), without its memory; and its communicator. */
qdri_coll qdri_key_heads_coll(const qdr_attention *local, const qdri_key_heads *keys,
                              qdr_coll_kind kind);
qdri_comm *qdri_key_heads_comm(const qdr_grid *grid, const qdri_key_heads *keys);

#endif
