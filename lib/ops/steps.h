/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the operations, as kernels on given memory. Both the functions of quadrille/ops.h and the tasks of a
 * stack consist of these; what happens between the steps, a sum or a gather over the ranks that share a row, is the
 * caller's business. Descriptions must have been checked. */
#ifndef QDRI_OPS_STEPS_H
#define QDRI_OPS_STEPS_H

#include "dev/kernels.h"
#include "quadrille/ops.h"
#include "schedule/key_heads.h"

/* Layer norm: moments of all n_parts ranks [n_parts, n_rows, 3] are gathered before the merge, sums [n_rows, 2] are
 * summed over the ranks before they are used. */
qdri_kernel qdri_norm_moments(const qdr_layer_norm *norm, const void *x, void *own_moments);
qdri_kernel qdri_norm_merge(const qdr_layer_norm *norm, int n_parts, const void *moments, void *stats);
qdri_kernel qdri_norm_apply(const qdr_layer_norm *norm, const void *x, const void *stats, const void *gamma,
                            const void *beta, void *y);
/* The inputs of both steps of the backward. */
typedef struct qdri_norm_inputs {
    const void *dy, *x, *stats, *gamma;
} qdri_norm_inputs;
qdri_kernel qdri_norm_sums(const qdr_layer_norm *norm, const qdri_norm_inputs *in, void *sums, void *dgamma,
                           void *dbeta, int accumulate);
qdri_kernel qdri_norm_backward(const qdr_layer_norm *norm, const qdri_norm_inputs *in, const void *sums, void *dx,
                               int accumulate);

qdri_kernel qdri_attention_forward(const qdr_attention *attention, const void *qkv, void *y, void *saved, void *work);
qdri_kernel qdri_attention_backward(const qdr_attention *attention, const void *dy, const void *qkv, const void *y,
                                    const void *saved, void *dqkv, void *work);

/* Element by element. */
qdri_kernel qdri_gelu_forward(int64_t n_elems, qdr_dtype dtype, const void *x, void *y);
qdri_kernel qdri_gelu_backward(int64_t n_elems, qdr_dtype dtype, const void *dy, const void *x, void *dx,
                               int accumulate);
qdri_kernel qdri_sum_of_two(int64_t n_elems, qdr_dtype dtype, const void *a, const void *b, void *y);

/* Cross-entropy: maxima [n_rows] and sums [n_rows, 2] are reduced over the ranks before the next step. */
qdri_kernel qdri_loss_max(const qdr_cross_entropy *ce, const void *logits, void *maxima);
qdri_kernel qdri_loss_sums(const qdr_cross_entropy *ce, const void *logits, const int32_t *targets, const void *maxima,
                           void *sums);
qdri_kernel qdri_loss(const qdr_cross_entropy *ce, const int32_t *targets, const void *maxima, const void *sums,
                      double *result, void *saved);
qdri_kernel qdri_loss_backward(const qdr_cross_entropy *ce, const void *logits, const int32_t *targets,
                               const void *saved, double scale, void *dlogits);

/* key_heads.c: the copies around an attention that gathers key heads, each of one or more kernels. A head's keys are
 * followed by its values, each [n_rows, head_size]. */
/* qkv -> this rank's heads, at their place among all; unpack: the sums for this rank's heads -> dk and dv in dqkv. */
QDR_NODISCARD qdr_status qdri_keys_copy_own(const qdr_attention *local, const qdri_key_heads *keys, void *qkv,
                                            void *own, int unpack, qdr_stream *stream);
/* qkv and the heads of all ranks -> q, k, v as the attention of this rank needs them. */
QDR_NODISCARD qdr_status qdri_keys_assemble(const qdr_attention *local, const qdri_key_heads *keys, const void *qkv,
                                            const void *heads, void *assembled, qdr_stream *stream);
/* The gradient of what was assembled -> dq in dqkv, and the heads of all ranks: zeros for those that this one did not
 * use. work: one head. */
QDR_NODISCARD qdr_status qdri_keys_spread(const qdr_attention *local, const qdri_key_heads *keys,
                                          const void *d_assembled, void *heads, void *dqkv, void *work,
                                          qdr_stream *stream);

#endif
