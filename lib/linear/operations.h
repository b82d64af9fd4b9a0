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
qdr_status qdri_run_gelu_forward(const qdri_op_run *run);
qdr_status qdri_run_gelu_backward(const qdri_op_run *run);
qdr_status qdri_run_residual_forward(const qdri_op_run *run);
qdr_status qdri_run_cross_entropy_forward(const qdri_op_run *run);
qdr_status qdri_run_cross_entropy_backward(const qdri_op_run *run);
qdr_status qdri_run_user_forward(const qdri_op_run *run);
qdr_status qdri_run_user_backward(const qdri_op_run *run);

#endif
