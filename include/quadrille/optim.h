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
 * In F16, gradients of activations below 2^-24 (6e-8) vanish, and below 2^-14 they lose bits. To keep these bits,
 * multiply the loss_scale of qdr_stack_backward() by a power of two, such as 1024, and pass the same number as
 * grad_scale: the step is otherwise the same. */
typedef struct qdr_adamw_opts {
    size_t size; /**< QDR_INIT(qdr_adamw_opts) */
    double beta1, beta2; /**< 0: 0.9 and 0.95 */
    double epsilon; /**< 0: 1e-8 */
    double weight_decay; /**< for W and E; 0: none */
    double clip_norm; /**< gradients are scaled by min(1, clip_norm / norm); 0: no clipping */
    double grad_scale; /**< what loss_scale of qdr_stack_backward() was multiplied by: gradients and their norm are
                          divided by it; 0: 1 */
    int decay_positions; /**< 1: weight decay for learned positions, too, as where all parameters of two dimensions have
                            it */
} qdr_adamw_opts;

/** Bytes that qdr_adamw_create() will allocate: moments, and for BF16 and F16 the fp32 master shards. Local.
 *  @retval QDR_ERR_STATE  the stack is not built */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_size(const qdr_stack *stack, size_t *bytes);
/** Makes an optimizer for all parameters of a bound stack. Collective, agrees. opts may be NULL.
 * BF16 and F16: the optimizer keeps a master copy of each parameter in fp32. Where a parameter no longer equals its
 * rounded master (before the first step, or initialised or loaded since the last one), the next step starts from the
 * parameter. Moments stay as they are.
 *  @retval QDR_ERR_ARGUMENT  an option is out of range, or not the same on all ranks
 *  @retval QDR_ERR_MEMORY  too little for the optimizer's state; the sentence has the numbers */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_create(qdr_stack *stack, const qdr_adamw_opts *opts, qdr_adamw **optimizer);
/** Waits for the context's stream, frees the optimizer and sets *optimizer to NULL. NULL is allowed. May be called
 * before or after its stack is destroyed; collective if it is the last object that keeps a destroyed one alive (see
 * qdr_context_destroy()). */
QDR_API void qdr_adamw_destroy(qdr_adamw **optimizer);
/** One step with the stack's complete gradients, at the rate `lr`, which stays set. Collective, stream-ordered on the
 * context's stream. A recorded one (graph.h) has the same rate in each run.
 * F16: where the gradient of an activation overflowed, the norm is Inf or NaN. All ranks skip such a step, without
 * waiting on the host: parameters, moments and the t of β^t stay as they are. If qdr_adamw_skipped() counts many, halve
 * the loss scale and grad_scale. With the other types every step is taken, so that NaN and Inf show.
 *  @retval QDR_ERR_STATE  a gradient lacks sums because the last backward had QDR_DEFER_SYNC; on all ranks, and nothing
 *                         changed: run the step's last backward without the flag, then step
 * Rates must be the same on all ranks. Their bits travel with the sum of the norm and are compared, though not by this
 * call, which does not wait. If they differ, the step changes no parameter and no moment on any rank and poisons the
 * context with QDR_ERR_ARGUMENT; the next call that waits, such as qdr_adamw_norm(), returns the sentence (or
 * QDR_ERR_PEER with the error of a rank that was faster).
 *  @retval QDR_ERR_ARGUMENT  lr is negative or not finite; with QDR_CHECK=1 also if the ranks of the grid, which then
 *                            wait for each other, pass different rates: nothing changed */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_step(qdr_adamw *optimizer, double lr);
/** Sets the rate of the steps that follow, in the order of the context's stream; it must be the same on all ranks.
 * Local, stream-ordered; the next step compares it.
 *  @retval QDR_ERR_ARGUMENT  lr is negative or not finite; the rate stays as it was */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_set_rate(qdr_adamw *optimizer, double lr);
/** qdr_adamw_step() at the rate that was set last; when recorded in a graph, at the rate set before each run.
 *  @retval QDR_ERR_STATE  as for qdr_adamw_step(); or no rate has been set. A rate set while recording does not count,
 *                         since the graph may never run: set one before qdr_graph_begin() */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_step_as_set(qdr_adamw *optimizer);
/** qdr_stack_backward() and qdr_adamw_step_as_set() in one list: a parameter is updated as soon as its gradient is
 * complete, while the sums of others are still under way. With clip_norm, and in F16, all updates wait for the norm.
 * The results are those of the two calls, to the last bit. flags: as for qdr_stack_backward(), without QDR_DEFER_SYNC.
 * Collective, stream-ordered on the context's stream. Errors are those of both calls.
 *  @retval QDR_ERR_ARGUMENT  also: flags contain QDR_DEFER_SYNC */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_backward(qdr_adamw *optimizer, int flags, double loss_scale);
/** The gradient norm of the last step, divided by grad_scale. Local, blocking.
 *  @retval QDR_ERR_STATE  no step yet */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_norm(qdr_adamw *optimizer, double *norm);
/** How many of all steps so far were skipped; 0 unless the stack's type is F16. Local, blocking. */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_skipped(qdr_adamw *optimizer, int64_t *n_steps);
/** sqrt of Σg² over all parameters, every element counted once, for the gradients as stored (they include the loss
 * scale). Collective over x, y, z; blocking.
 *  @retval QDR_ERR_STATE     a gradient lacks deferred sums, as for qdr_adamw_step()
 *  @retval QDR_ERR_ARGUMENT  ranks passed different arguments to the last backward, such as QDR_DEFER_SYNC on one */
QDR_API QDR_NODISCARD qdr_status qdr_grad_norm(qdr_stack *stack, double *norm);

#ifdef __cplusplus
}
#endif
#endif
