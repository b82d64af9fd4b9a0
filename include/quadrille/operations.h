/* SPDX-License-Identifier: Apache-2.0 */
/** @file operations.h  What a stack (stack.h) computes between its layers: norms, attention, activations, residuals,
 * the loss, and operations of the caller's.
 *
 * Each function adds a node, and the edge that it makes, at the end of a stack that is being described, as stack.h says
 * of all qdr_stack_add_*. Names are copied. After an error the stack is as it was. */
#ifndef QUADRILLE_OPERATIONS_H
#define QUADRILLE_OPERATIONS_H

#include "matrix.h"
#include "network.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Names an activation between nodes of one stack. */
typedef int qdr_edge;

typedef struct qdr_norm_desc {
    size_t size; /**< QDR_INIT(qdr_norm_desc) */
    const char *name;
    double epsilon; /**< 0: 1e-5 */
    qdr_norm_kind kind;
    int no_beta; /**< 1: a layer norm without beta */
    int one_plus; /**< 1: 1 + gamma is the factor, and gamma starts as 0 */
    int n_blocks; /**< > 0: each of the first n blocks of `in` is normed by itself, and the rest passed on (norms of
                     queries and keys in an edge of q, k, v); 0: all features are normed together */
} qdr_norm_desc;
/** Norm over the features of `in`, by kind:
 *
 *    QDR_NORM_LAYER  out = (in - mean) / sqrt(variance + epsilon) · gamma + beta
 *    QDR_NORM_RMS    out = in / sqrt(mean of in² + epsilon) · gamma
 *
 * Parameters: gamma, which starts as 1, and beta, which starts as 0; each has the features that are normed.
 *  @retval QDR_ERR_ARGUMENT  epsilon is negative or NaN; another kind; no_beta or one_plus is neither 0 nor 1
 *  @retval QDR_ERR_SHAPE     n_blocks is negative, or more than `in` has; the stack is unchanged */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_norm(qdr_stack *stack, const qdr_norm_desc *desc, qdr_edge in,
                                                    qdr_edge *out);

typedef struct qdr_attention_desc {
    size_t size; /**< QDR_INIT(qdr_attention_desc) */
    const char *name;
    int64_t head_size; /**< columns of a head */
    int64_t context; /**< rows of a sequence; divides row_unit */
    double scale; /**< of scores; 0: 1/sqrt(head_size) */
    double cap; /**< scores become cap·tanh(score/cap); 0: they do not */
    int64_t window; /**< a row sees itself and the window - 1 rows before it; 0: all rows before it */
    int64_t rotary_columns; /**< of each head of q and k, from its first, that are turned; even; 0: none */
    int interleaved; /**< 1: pairs are columns 2i and 2i + 1; 0: columns i and i + rotary_columns/2 */
    const double *frequencies; /**< rotary_columns/2 of them, copied: in row p of a sequence pair i is turned by
                                  p·frequencies[i] (network.h has them for a network) */
    double magnitude; /**< of cosines and sines; 0: 1 */
    int head_norm; /**< 1: an RMS norm of each head of q and of k, before it is turned: x / sqrt(mean of squares +
                      epsilon) · gamma, with parameters q_gamma and k_gamma of head_size, which begin as 1 */
    int one_plus; /**< 1: heads are multiplied by 1 + gamma, which begins as 0 */
    double epsilon; /**< of these norms; 0: 1e-5 */
    int sinks; /**< 1: a further score, without a value: a parameter of each query head */
    const qdr_edge *first_keys; /**< NULL: none; else an edge of qdr_stack_add_tokens(): for each row the first row of
                                   its sequence that it may see, counted from 0. Documents that follow one another in a
                                   sequence do not see each other if each row has the first of its document */
} qdr_attention_desc;
/** Causal attention: each row is the mean of the values that it sees, weighted by the softmax of its scores
 * scale·(query · key). It sees the rows of its sequence up to itself, but for those before its window or its first key.
 * A first key after its row, or before that of the row before it, is an asynchronous error (qdr_context_status()):
 * QDR_ERR_ARGUMENT with the row on this rank. Models price attention as if there were no first keys.
 *
 * `in` has blocks q, k, v, all of whole heads: k and v equally wide, in units of head_size; q as wide, or r times as
 * wide (grouped queries: query heads 0 … r-1 read key head 0, and so on). With q in units of head_size·r each rank has
 * the key heads that its queries need; if the axis has more ranks than there are key heads, the remaining ranks idle.
 * With q in units of head_size all ranks get query heads; if these need key heads of other ranks, all keys and values
 * are gathered over the axis, and their gradients summed over it. The next layer reads the output in q's unit.
 *  @retval QDR_ERR_SHAPE  other blocks or units, query heads that are not a multiple of the key heads, or scattered
 *                         rows in units that are not whole contexts; the stack is unchanged
 *  @retval QDR_ERR_ARGUMENT  a number that is negative, infinite or NaN; rotary columns that are odd or more than
 *                            head_size; frequencies that are NULL, infinite or NaN
 *  @retval QDR_ERR_DTYPE  first_keys is not an edge of tokens */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_attention(qdr_stack *stack, const qdr_attention_desc *desc, qdr_edge in,
                                                         qdr_edge *out);
/** Functions of one element. */
typedef enum qdr_activation_function {
    QDR_GELU_TANH = 0, /**< 0.5·x·(1 + tanh(sqrt(2/pi)·(x + 0.044715·x³))) */
    QDR_GELU_ERF = 1, /**< 0.5·x·(1 + erf(x/sqrt(2))) */
    QDR_SILU = 2, /**< x/(1 + exp(-x)) */
    QDR_RELU = 3, /**< max(x, 0), with slope 0 at 0 */
    QDR_RELU_SQUARED = 4 /**< max(x, 0)² */
} qdr_activation_function;
typedef struct qdr_activation_desc {
    size_t size; /**< QDR_INIT(qdr_activation_desc) */
    const char *name;
    qdr_activation_function function;
    int gated; /**< 1: `in` has two blocks, the gate first, and out = function(gate) · second block */
} qdr_activation_desc;
/** out = function(in), element by element, with the columns of `in`, or gated those of one of its blocks. Computed in
 * fp32 (F64 in f64) and rounded once, the product with a gate included. After an error the stack is unchanged.
 *  @retval QDR_ERR_ARGUMENT  there is no such function; gated is neither 0 nor 1
 *  @retval QDR_ERR_SHAPE     gated, but `in` does not have two blocks of equal width and unit */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_activation(qdr_stack *stack, const qdr_activation_desc *desc,
                                                          qdr_edge in, qdr_edge *out);
/** The activation QDR_GELU_TANH, not gated. */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_gelu(qdr_stack *stack, const char *name, qdr_edge in, qdr_edge *out);
/** out = a + b, edges of the same columns, axis and layout. */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_residual(qdr_stack *stack, const char *name, qdr_edge a, qdr_edge b,
                                                        qdr_edge *out);
typedef struct qdr_residual_desc {
    size_t size; /**< QDR_INIT(qdr_residual_desc) */
    const char *name;
    double factor; /**< 0: 1 */
} qdr_residual_desc;
/** out = a + factor · b, rounded once.
 *  @retval QDR_ERR_ARGUMENT  the factor is not finite */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_residual_with(qdr_stack *stack, const qdr_residual_desc *desc,
                                                             qdr_edge a, qdr_edge b, qdr_edge *out);
/** Cross-entropy over the columns of `logits`, at the end of a stack. targets: I32, one for each row that `logits` has
 * on this rank (qdr_stack_edge_owned()), filled by the caller; < 0: not counted; a target that is not a column of the
 * logits is an asynchronous error, as for tokens. */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_cross_entropy(qdr_stack *stack, const char *name, qdr_edge logits,
                                                             qdr_edge *targets);
typedef struct qdr_cross_entropy_desc {
    size_t size; /**< QDR_INIT(qdr_cross_entropy_desc) */
    const char *name;
    double factor; /**< of the logits; 0: 1 */
    double cap; /**< > 0: their largest size, after the factor; 0: none */
    double z_loss; /**< each row that is counted adds z_loss · (log Σ exp)² of its logits to the loss, such as 1e-4; 0:
                      nothing */
} qdr_cross_entropy_desc;
/** Cross-entropy of factor · logits, or with a cap of cap · tanh(factor · logits / cap), computed in fp32 (F64 in f64).
 *  @retval QDR_ERR_ARGUMENT  the factor is not finite; cap or z_loss is negative, NaN or infinite */
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_cross_entropy_with(qdr_stack *stack, const qdr_cross_entropy_desc *desc,
                                                                  qdr_edge logits, qdr_edge *targets);

/** One call of a caller's operation. All blocks are local, dense and row-major, of the stack's type, in device memory.
 * The struct and its lists (in, in_cols, d_in, accumulate) are valid only until the callback returns; the blocks are
 * valid until the enqueued work has run. A rank may have no rows. examples/own_operation.c is a complete example. */
typedef struct qdr_op_call {
    qdr_context *ctx;
    qdr_stream *stream; /**< enqueue all work here, and only here: on a CPU by qdr_stream_call(); on a GPU
                           qdr_stream_cuda() (cuda.h) is the CUDA stream to launch kernels on */
    int n_in;
    const void *const *in; /**< values of the input edges */
    const int64_t *in_cols; /**< local columns of each */
    int64_t n_rows; /**< local rows, of inputs and output alike */
    void *out; /**< forward: to be written; backward: what forward wrote */
    int64_t out_cols;
    void *saved; /**< saved_bytes, kept from forward to backward */
    const void *d_out; /**< backward: gradient of out */
    void *const *d_in; /**< backward: gradients to compute, NULL where not wanted */
    const int *accumulate; /**< backward: add to d_in[i] instead of overwriting */
} qdr_op_call;
typedef qdr_status (*qdr_op_fn)(const qdr_op_call *call, void *user);
#define QDR_MAX_OP_INPUTS 4
/** A caller's own operation between layers. Inputs and output have the same rows and layout. */
typedef struct qdr_op_desc {
    size_t size; /**< QDR_INIT(qdr_op_desc) */
    const char *name;
    int n_in;
    qdr_edge in[QDR_MAX_OP_INPUTS];
    qdr_block out[QDR_MAX_BLOCKS]; /**< columns of the output; all zero: as in[0] */
    size_t saved_bytes;
    double forward_flops, backward_flops; /**< what it costs on this rank, for schedules and models */
    double forward_bytes, backward_bytes; /**< of memory read and written */
    /** Called on the host, in execution order. Any status but QDR_OK fails the pass and poisons the context, on other
     * ranks with QDR_ERR_PEER from their next collective on: in this pass if it has one for them, else in a later call,
     * such as qdr_barrier(). Until then they may get QDR_OK from the pass, qdr_stream_synchronize() and
     * qdr_context_status(). The sentence names the operation, the rank and the status, and ends with the function's
     * own, if a call of the library left one. A status > 0, such as QDR_PENDING, becomes QDR_ERR_ARGUMENT. */
    qdr_op_fn forward, backward;
    void *user;
    int may_repeat; /**< 1: forward may run a second time, before a backward (QDR_RECOMPUTE_FULL): from the same inputs
                       it writes the same output and saved bytes */
} qdr_op_desc;
QDR_API QDR_NODISCARD qdr_status qdr_stack_add_op(qdr_stack *stack, const qdr_op_desc *desc, qdr_edge *out);

#ifdef __cplusplus
}
#endif

#endif
