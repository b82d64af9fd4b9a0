/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the operations between products, computed from their descriptions: `saved` is kept from forward to
 * backward, `work` is used during one call. Pure functions of checked descriptions. */
#ifndef QDRI_SCHEDULE_OP_BYTES_H
#define QDRI_SCHEDULE_OP_BYTES_H

#include "core/dtype.h"
#include "core/status.h"
#include "quadrille/ops.h"

/* n_parts: number of ranks over which the features are split. @retval QDR_ERR_SHAPE (all of these functions): too many
 * bytes */
QDR_NODISCARD qdr_status qdri_norm_bytes(const qdr_layer_norm *norm, int64_t n_parts, size_t *saved_bytes,
                                         size_t *work_bytes);
QDR_NODISCARD qdr_status qdri_attention_bytes(const qdr_attention *attention, size_t *saved_bytes, size_t *work_bytes);
QDR_NODISCARD qdr_status qdri_cross_entropy_bytes(const qdr_cross_entropy *ce, size_t *saved_bytes, size_t *work_bytes);
/* Offset of the sums [n_rows, 2] in a cross-entropy's work; before them are the maxima [n_rows]. */
size_t qdri_cross_entropy_sums(const qdr_cross_entropy *ce);

#define QDRI_ATTENTION_BLOCK 64 /* rows of queries that are processed together */
/* Workspace of an attention kernel, in either direction, on any device. */
size_t qdri_attention_work_bytes(const qdr_attention *attention);

#endif
