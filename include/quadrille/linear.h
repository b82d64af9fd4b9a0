/* SPDX-License-Identifier: Apache-2.0 */
/** @file linear.h  One layer at a time, on the caller's activations: the replacement for a matmul.
 *
 * Layers are made by qdr_stack_add_linear() (a stack of one layer is fine) and share their stack's rows, type and
 * memory. */
#ifndef QUADRILLE_LINEAR_H
#define QUADRILLE_LINEAR_H

#include "stack.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    QDR_Y_ACCUMULATE = 16, /**< y += instead of y = */
    QDR_DX_ACCUMULATE = 32, /**< dx += instead of dx = */
    QDR_NO_DX = 64 /**< dx is not computed (and may be NULL) */
};

/** Y = X·Wᵀ + b. x: this rank's part of the input edge, y: of the output edge (qdr_linear_in_matrix(),
 * qdr_linear_out_matrix()), dense, type of the stack. Collective over the grid; stream-ordered on `stream` (NULL: the
 * context's). x may not change until the call has run. Layers of a stack share memory, such as gathered weights: if the
 * caller uses several streams for one stack, it must order that work with events. y may overlap neither x nor the
 * stack's parameters, gradients and workspace, or with the same of stacks that share its parameters
 * (qdr_stack_share_parameters()), nor x the workspace; both may be values of edges (qdr_stack_edge_value()). flags: 0
 * or QDR_Y_ACCUMULATE.
 *  @retval QDR_ERR_ARGUMENT  NULL where this rank has elements; an address that is not a multiple of an element's
 *                            bytes; memory that overlaps; on a GPU memory of the host or of another GPU; other flags.
 *                            Nothing was queued on this rank. With QDR_CHECK=1 also if ranks run different layers or
 *                            pass different flags */
QDR_API QDR_NODISCARD qdr_status qdr_linear_forward(qdr_linear *layer, const void *x, void *y, int flags,
                                                    qdr_stream *stream);
/** dX = dY·W, dW = dYᵀ·X, db = Σ rows of dY. x is the forward's. flags: QDR_ACCUMULATE and QDR_DEFER_SYNC for dW and
 * db, as for qdr_stack_backward(); QDR_DX_ACCUMULATE, QDR_NO_DX. Collective, stream-ordered. The gradients dW and db
 * are those of the stack's parameters (qdr_stack_parameter()). dx may overlap neither x nor dy, and none of the three
 * the stack's gradients or workspace.
 *  @retval QDR_ERR_ARGUMENT  as for qdr_linear_forward() */
QDR_API QDR_NODISCARD qdr_status qdr_linear_backward(qdr_linear *layer, const void *dy, const void *x, void *dx,
                                                     int flags, qdr_stream *stream);

QDR_API QDR_NODISCARD qdr_status qdr_linear_in_matrix(const qdr_linear *layer, qdr_matrix *matrix);
QDR_API QDR_NODISCARD qdr_status qdr_linear_out_matrix(const qdr_linear *layer, qdr_matrix *matrix);
/** Why W is stored as it is. */
typedef enum qdr_storage_reason {
    QDR_STORAGE_FIXED = 0, /**< no choice was requested, or the products are too small to be timed */
    QDR_STORAGE_ASKED, /**< requested by qdr_linear_desc.storage */
    QDR_STORAGE_STORED, /**< read from the file of QDR_TUNE */
    QDR_STORAGE_MEASURED /**< by qdr_stack_build(), for the file of QDR_TUNE */
} qdr_storage_reason;

/** How a layer's W is stored, and the resulting modes of its products; the same on all ranks. */
typedef struct qdr_linear_storage {
    size_t size; /**< QDR_INIT(qdr_linear_storage) */
    qdr_storage storage; /**< AUTO: not known before qdr_stack_build() */
    qdr_storage_reason reason;
    const char *modes[3]; /**< of Y, dX and dW: "NN", "NT" or "TN", T for a transposed operand */
    int64_t m, n, k; /**< rows, out-features and in-features of the largest rank */
    double secs[2][3]; /**< of Y, dX and dW with W as [out, in] (0) and [in, out] (1), of the slowest rank; 0: not
                          measured */
} qdr_linear_storage;
/** Local. */
QDR_API QDR_NODISCARD qdr_status qdr_linear_get_storage(const qdr_linear *layer, qdr_linear_storage *storage);

/** Index of W (or E) among the stack's parameters; if the layer has a bias, b is the next one. */
QDR_API int qdr_linear_weight_index(const qdr_linear *layer);
/** Draws W per global index (normal, mean 0) from `seed`; b = 0. Collective, blocking, agrees; no full matrix is held.
 * After an error: as qdr_stack_init().
 *  @retval QDR_ERR_ARGUMENT  ranks pass different layers, seeds or deviations */
QDR_API QDR_NODISCARD qdr_status qdr_linear_init(qdr_linear *layer, uint64_t seed, double stddev);

#ifdef __cplusplus
}
#endif
#endif
