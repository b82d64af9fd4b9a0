/* SPDX-License-Identifier: Apache-2.0 */
/** @file optim.h  AdamW on this rank's shards, gradient norm and clipping. */
#ifndef QUADRILLE_OPTIM_H
#define QUADRILLE_OPTIM_H

#include "stack.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qdr_adamw qdr_adamw;
/** AdamW (Loshchilov, Hutter 2019): m = β1·m + (1-β1)·g, v = β2·v + (1-β2)·g², p -=
 * lr·(m̂/(sqrt(v̂)+ε) + weight_decay·p). */
typedef struct qdr_adamw_opts {
    uint32_t version; /**< QDR_OPTS_INIT */
    double beta1, beta2; /**< 0: 0.9 and 0.95 */
    double epsilon; /**< 0: 1e-8 */
    double weight_decay; /**< for matrices only; 0: none */
    double clip_norm; /**< gradients are scaled by min(1, clip_norm / norm); 0: no clipping */
} qdr_adamw_opts;

/** Bytes that qdr_adamw_create() will take: moments, and for BF16 the fp32 master shards. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_size(const qdr_stack *stack, size_t *bytes);
/** Makes an optimizer for all parameters of a bound stack; BF16 masters start from the parameters
 * as they are at the first step. Collective, agrees. opts may be NULL.
 *  @retval QDR_ERR_MEMORY  too little for the optimizer's state; the sentence has the numbers */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_create(qdr_stack *stack, const qdr_adamw_opts *opts,
                                                  qdr_adamw **optimizer);
QDR_API void qdr_adamw_destroy(qdr_adamw **optimizer);
/** One step with the stack's complete gradients. Collective over x, y, z, stream-ordered on the
 * context's stream.
 *  @retval QDR_ERR_STATE  a gradient lacks sums, as the last backward had QDR_DEFER_SYNC; on all
 * ranks, and nothing has changed: run the step's last backward without it, then step */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_step(qdr_adamw *optimizer, double lr);
/** The gradient norm that the last step saw. Local, blocking. @retval QDR_ERR_STATE no step yet */
QDR_API QDR_NODISCARD qdr_status qdr_adamw_norm(qdr_adamw *optimizer, double *norm);
/** sqrt of Σg² over all parameters, every element counted once. Collective over x, y, z; blocking.
 *  @retval QDR_ERR_STATE  a gradient lacks deferred sums, as for qdr_adamw_step() */
QDR_API QDR_NODISCARD qdr_status qdr_grad_norm(qdr_stack *stack, double *norm);

#ifdef __cplusplus
}
#endif
#endif
