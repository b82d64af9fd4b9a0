/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the optimizer and the query of the gradient norm. */
#ifndef QDRI_OPTIM_OPTIM_H
#define QDRI_OPTIM_OPTIM_H

#include "core/dtype.h"
#include "grid/internal.h"
#include "quadrille/optim.h"

/* The type of gradients, moments and masters of a stack. */
static inline qdr_dtype qdri_state_type(const qdr_stack *stack) { return qdri_sum_type(qdr_stack_dtype(stack)); }

/* Fails unless the stack is built and bound. */
QDR_NODISCARD qdr_status qdri_optim_check(const qdr_stack *stack, const char *who);
/* Fails if gradients lack a deferred sum. */
QDR_NODISCARD qdr_status qdri_gradients_check(const qdr_stack *stack, const char *who);
/* *sum (f64, device memory) = Σg² over the whole model: this rank's counted elements in the order of the parameters,
 * then summed over x, y and z. Stream-ordered. */
QDR_NODISCARD qdr_status qdri_sum_squares(const qdr_stack *stack, double *sum, qdr_stream *stream);
/* The square root of such a sum, on the host. Blocking. */
QDR_NODISCARD qdr_status qdri_read_norm(const qdr_stack *stack, const double *sum, double *norm);

#endif
