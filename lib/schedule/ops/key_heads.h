/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on a rank whose queries need key heads of other ranks: grouped queries on an axis with more ranks than key
 * heads. Keys and values are gathered over the axis, and the gradients of each head summed over the ranks that used it.
 * Here is which heads a rank needs, the memory for them, and the copies between the matrices of the attention and heads
 * in one piece. */
#ifndef QDRI_SCHEDULE_OPS_KEY_HEADS_H
#define QDRI_SCHEDULE_OPS_KEY_HEADS_H

#include "schedule/ops/op.h"

/* Of this rank: its key heads, and the heads of `kernel`, whose rows and head size are set. cols: queries, keys and
 * values, split over `axis`. */
void qdri_key_heads_plan(const qdri_edge *qkv, int n_parts, qdri_kernel *kernel, qdri_key_heads *keys);
/* Bytes that are saved, and used, whether or not heads are gathered. */
QDR_NODISCARD qdr_status qdri_key_heads_sizes(const qdri_kernel *kernel, const qdri_key_heads *keys,
                                              size_t *saved_bytes, size_t *work_bytes);

/* The memory of an attention that gathers key heads; it has one part. */
typedef struct qdri_gathered_heads {
    qdri_ref saved, assembled; /* saved: by the kernel; queries, keys and values as it needs them */
    qdri_ref heads, d_assembled, own, one; /* work: all heads; the gradient of what was assembled; this rank's heads;
                                            * one head */
} qdri_gathered_heads;
qdri_gathered_heads qdri_gathered_heads_of(const qdri_op_part *p);

/* Gathers all key heads, and assembles queries, keys and values. */
void qdri_key_heads_gather(const qdri_op_part *p, const qdri_gathered_heads *g);
/* From the gradient of what was assembled to that of the input. */
void qdri_key_heads_return(const qdri_op_part *p, const qdri_gathered_heads *g);

#endif
