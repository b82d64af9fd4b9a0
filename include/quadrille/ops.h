/* SPDX-License-Identifier: Apache-2.0 */
/** @file ops.h  The operations between products: layer norm, causal attention, GELU, residual, embedding,
 * cross-entropy.
 *
 * All functions take local blocks in device memory, are stream-ordered (NULL: the context's stream) and never own the
 * caller's memory. Those that sum over an axis are collective over the group of that axis. T is the layer's type
 * (QDR_F32, QDR_F64, QDR_BF16, QDR_F16); A is the type of sums and gradients of parameters: f64 for F64, else f32. If
 * an argument is wrong, nothing is queued. QDR_ERR_ARGUMENT includes an address that is not a multiple of an element's
 * bytes; output memory that overlaps other memory of the call, except where a function allows it; and on a GPU memory
 * of the host or of another GPU. Every `accumulate` is 0 (overwrite, the output is not read) or 1 (add). Not
 * thread-safe per grid. */
#ifndef QUADRILLE_OPS_H
#define QUADRILLE_OPS_H

#include "grid.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Layer norm over features that are split over one axis: y = (x - mean) / sqrt(var + epsilon) · gamma + beta.
 * Statistics are merged as (n, mean, M2) in rank order (Chan, Golub, LeVeque 1983). */
typedef struct qdr_layer_norm {
    uint32_t version; /**< QDR_OPTS_INIT */
    int64_t n_rows; /**< local rows */
    int64_t n_cols; /**< local features; may be 0 */
    int64_t n_features; /**< global features, over all ranks of the axis */
    qdr_axis axis; /**< the axis that splits the features */
    double epsilon; /**< 0: 1e-5 */
    qdr_dtype dtype;
} qdr_layer_norm;
/** Bytes of `stats` (kept from forward to backward: mean and 1/sigma per row, of type A) and of `work` (for either
 * call). Local. */
QDR_API QDR_NODISCARD qdr_status qdr_layer_norm_sizes(const qdr_grid *grid, const qdr_layer_norm *norm,
                                                      size_t *stats_bytes, size_t *work_bytes);
/** x, y: [n_rows, n_cols] T; gamma, beta: [n_cols] T. */
QDR_API QDR_NODISCARD qdr_status qdr_layer_norm_forward(qdr_grid *grid, const qdr_layer_norm *norm, const void *x,
                                                        const void *gamma, const void *beta, void *y, void *stats,
                                                        void *work, qdr_stream *stream);
/** dx [n_rows, n_cols] T. dgamma, dbeta [n_cols] A: of this rank's rows only, not summed over any axis; both NULL: not
 * computed. */
QDR_API QDR_NODISCARD qdr_status qdr_layer_norm_backward(qdr_grid *grid, const qdr_layer_norm *norm, const void *x,
                                                         const void *gamma, const void *dy, const void *stats, void *dx,
                                                         int accumulate_dx, void *dgamma, void *dbeta,
                                                         int accumulate_params, void *work, qdr_stream *stream);

/** Causal attention of whole sequences, local heads only; no communication. */
typedef struct qdr_attention {
    uint32_t version; /**< QDR_OPTS_INIT */
    int64_t n_rows; /**< local rows, a multiple of context */
    int64_t context; /**< rows of one sequence */
    int64_t n_heads; /**< local query heads; may be 0 */
    int64_t n_kv_heads; /**< local key and value heads; divides n_heads */
    int64_t head_size;
    qdr_dtype dtype;
} qdr_attention;
/** Bytes of `saved` (log-sum-exp, [sequences, n_heads, context] A) and `work`. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_attention_sizes(const qdr_attention *attention, size_t *saved_bytes,
                                                     size_t *work_bytes);
/** qkv: [n_rows, (n_heads + 2·n_kv_heads)·head_size] T: queries, keys, values; y: [n_rows, n_heads·head_size] T. */
QDR_API QDR_NODISCARD qdr_status qdr_attention_forward(qdr_context *ctx, const qdr_attention *attention,
                                                       const void *qkv, void *y, void *saved, void *work,
                                                       qdr_stream *stream);
/** dqkv is overwritten. y and saved are the forward's. */
QDR_API QDR_NODISCARD qdr_status qdr_attention_backward(qdr_context *ctx, const qdr_attention *attention,
                                                        const void *qkv, const void *y, const void *saved,
                                                        const void *dy, void *dqkv, void *work, qdr_stream *stream);

/** y = gelu(x), the tanh form: 0.5·x·(1 + tanh(sqrt(2/pi)·(x + 0.044715·x³))). n_elems elements of T. y
 * may be x. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_gelu_forward(qdr_context *ctx, int64_t n_elems, qdr_dtype dtype, const void *x,
                                                  void *y, qdr_stream *stream);
/** dx = dy · gelu'(x), or added to dx. dx may be x or dy. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_gelu_backward(qdr_context *ctx, int64_t n_elems, qdr_dtype dtype, const void *x,
                                                   const void *dy, void *dx, int accumulate, qdr_stream *stream);
/** y = a + b; y may be a or b. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_add(qdr_context *ctx, int64_t n_elems, qdr_dtype dtype, const void *a,
                                         const void *b, void *y, qdr_stream *stream);

/** Token embedding, vocabulary split over y, features over x. */
typedef struct qdr_embedding {
    uint32_t version; /**< QDR_OPTS_INIT */
    int64_t n_rows; /**< local tokens: all rows of the (z, d) cell */
    int64_t n_cols; /**< local features */
    int64_t vocab_begin; /**< first global row of E that this rank owns */
    int64_t vocab_end; /**< one past the last */
    qdr_layout layout; /**< REPLICATED: y [n_rows, n_cols] on all of y; SCATTERED: rows split over y, in units of 1 */
    qdr_dtype dtype;
    int64_t vocab; /**< V, over all ranks; 0: not known, and a token ≥ V silently gives zeros */
} qdr_embedding;
/** Bytes of `work`. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_embedding_sizes(const qdr_grid *grid, const qdr_embedding *embedding,
                                                     size_t *work_bytes);
/** y = E[token], summed over y (each token's row is on one rank). tokens: [n_rows] I32; a token < 0 gives zeros, one ≥
 * vocab is an asynchronous error (qdr_context_status()), QDR_ERR_ARGUMENT. E: [vocab_end - vocab_begin, n_cols] T,
 * whole over z. */
QDR_API QDR_NODISCARD qdr_status qdr_embedding_forward(qdr_grid *grid, const qdr_embedding *embedding,
                                                       const int32_t *tokens, const void *e, void *y, void *work,
                                                       qdr_stream *stream);
/** dE (type A, this cell's rows only, not summed over z or d) += rows of dy; dy as y above (gathered over y if
 * scattered). */
QDR_API QDR_NODISCARD qdr_status qdr_embedding_backward(qdr_grid *grid, const qdr_embedding *embedding,
                                                        const int32_t *tokens, const void *dy, void *de, int accumulate,
                                                        void *work, qdr_stream *stream);

/** Cross-entropy of logits whose vocabulary is split over one axis. */
typedef struct qdr_cross_entropy {
    uint32_t version; /**< QDR_OPTS_INIT */
    int64_t n_rows; /**< local rows */
    int64_t n_cols; /**< local part of the vocabulary; may be 0 */
    int64_t vocab_begin; /**< first global column this rank owns */
    qdr_axis axis; /**< the axis that splits the vocabulary */
    qdr_dtype dtype;
    int64_t vocab; /**< V, over all ranks; 0: not known, and a target ≥ V silently gives a wrong loss */
} qdr_cross_entropy;
/** Bytes of `saved` (max and log Σexp per row, A) and `work`. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_cross_entropy_sizes(const qdr_grid *grid, const qdr_cross_entropy *ce,
                                                         size_t *saved_bytes, size_t *work_bytes);
/** result[0] = Σ over local rows of -log softmax(logits)[target] (f64, equal on all ranks of the axis), result[1] =
 * number of rows with a target ≥ 0; rows with a target < 0 are ignored, a target ≥ vocab is an asynchronous error
 * (qdr_context_status()), QDR_ERR_ARGUMENT. targets: [n_rows] I32. logits: [n_rows, n_cols] T. */
QDR_API QDR_NODISCARD qdr_status qdr_cross_entropy_forward(qdr_grid *grid, const qdr_cross_entropy *ce,
                                                           const void *logits, const int32_t *targets, double result[2],
                                                           void *saved, void *work, qdr_stream *stream);
/** dlogits = scale · (softmax(logits) - onehot(target)); local, no communication. dlogits may be logits. scale is
 * normally 1 / (valid tokens of the whole optimizer step), the only place where the loss is scaled; in F16 use a power
 * of two times that, since numbers below 2^-24 (6e-8) vanish (see qdr_adamw_opts.grad_scale). */
QDR_API QDR_NODISCARD qdr_status qdr_cross_entropy_backward(qdr_grid *grid, const qdr_cross_entropy *ce,
                                                            const void *logits, const int32_t *targets,
                                                            const void *saved, double scale, void *dlogits,
                                                            qdr_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
