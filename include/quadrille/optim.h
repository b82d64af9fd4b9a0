/* SPDX-License-Identifier: Apache-2.0 */
/** @file optim.h  AdamW on this rank's shards, gradient norm and clipping. */
#ifndef QUADRILLE_OPTIM_H
#define QUADRILLE_OPTIM_H

#include "stack.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qdr_adamw qdr_adamw;
/** AdamW (Loshchilov, Hutter 2019): m = β1·m + (1-β1)·g, v = β2·v + (1-β2)·g², p -= lr·(m̂/(sqrt(v̂)+ε) +
 * weight_decay·p).
 *
 *  In F16 gradients of activations below 2^-24 (6e-8) vanish, and below 2^-14 they lose bits. So a caller multiplies
 * the loss_scale of qdr_stack_backward() by a power of two, such as 1024, and says so in grad_scale: bits of gradients
 * are then kept, and what the step does is the same. */
typedef struct qdr_adamw_opts {
    uint32_t version; /**< QDR_OPTS_INIT */
    double beta1, beta2; /**< 0: 0.9 and 0.95 */
    double epsilon; /**< 0: 1e-8 */
    double weight_decay; /**< for matrices only; 0: none */
    double clip_norm; /**< gradients are scaled by min(1, clip_norm / norm); 0: no clipping */
    double grad_scale; /**< what loss_scale of qdr_stack_backward() was multiplied by: gradients and their norm are
                          divided by it; 0: 1 */
} qdr_adamw_opts;

/** Bytes that qdr_adamw_create() will take: moments, and for BF16 and F16 the fp32 master shards. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_size(const qdr_stack *stack, size_t *bytes);
/** Makes an optimizer for all parameters of a bound stack; masters start from the parameters as they are at the first
 * step that is not skipped. Collective, agrees. opts may be NULL.
 *  @retval QDR_ERR_ARGUMENT  an option is out of range, or not the same on all ranks
 *  @retval QDR_ERR_MEMORY  too little for the optimizer's state; the sentence has the numbers */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_create(qdr_stack *stack, const qdr_adamw_opts *opts, qdr_adamw **optimizer);
/** Waits for the context's stream, frees the optimizer, sets *optimizer to NULL. Takes NULL. Before or after its stack;
 * collective if it is the last that needs one (see qdr_context_destroy()). */
QDR_API void qdr_adamw_destroy(qdr_adamw **optimizer);
/** One step with the stack's complete gradients, at the rate `lr`, which stays set. Collective over x, y, z,
 * stream-ordered on the context's stream. A recorded one (graph.h) has the same rate in each run.
 *  F16: where the gradient of an activation overflowed, the norm is Inf or NaN. Such a step is skipped, by all ranks,
 * without waiting on the host: parameters, moments and the t of β^t stay as they are. If qdr_adamw_skipped() counts
 * many, halve the loss's scale and grad_scale. The other types take every step, so that NaN and Inf show.
 *  @retval QDR_ERR_STATE  a gradient lacks sums, as the last backward had QDR_DEFER_SYNC; on all ranks, and nothing has
 *                         changed: run the step's last backward without it, then step
 *  @retval QDR_ERR_ARGUMENT  lr is negative or not finite; with QDR_CHECK=1 also where ranks pass another one, of all
 *                            ranks of the grid, which then wait for each other */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_step(qdr_adamw *optimizer, double lr);
/** Sets the rate of the steps behind it, in the order of the context's stream; the same on all ranks. Local,
 * stream-ordered.
 *  @retval QDR_ERR_ARGUMENT  lr is negative or not finite; the rate stays as it was */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_set_rate(qdr_adamw *optimizer, double lr);
/** qdr_adamw_step() at the rate that was set last: recorded in a graph, at that of each run.
 *  @retval QDR_ERR_STATE  as for qdr_adamw_step(); or no rate was set yet. What a record sets does not count, as it may
 *                         never run: set one before qdr_graph_begin() */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_step_as_set(qdr_adamw *optimizer);
/** The gradient norm that the last step saw, over grad_scale. Local, blocking.
 *  @retval QDR_ERR_STATE  no step yet */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_norm(qdr_adamw *optimizer, double *norm);
/** How many of all steps so far were skipped; 0 unless the stack's type is F16. Local, blocking. */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_skipped(qdr_adamw *optimizer, int64_t *n_steps);
/** sqrt of Σg² over all parameters, every element counted once, gradients as they are (with the loss's scale in them).
 * Collective over x, y, z; blocking.
 *  @retval QDR_ERR_STATE  a gradient lacks deferred sums, as for qdr_adamw_step() */
QDR_API QDR_NODISCARD qdr_status qdr_grad_norm(qdr_stack *stack, double *norm);

#ifdef __cplusplus
}
#endif
#endif
