/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on a rank whose queries may need key heads of other ranks: which ones, and the memory needed for them. Pure
 * functions. */
#ifndef QDRI_SCHEDULE_KEY_HEADS_H
#define QDRI_SCHEDULE_KEY_HEADS_H

#include "core/status.h"
#include "quadrille/matrix.h"
#include "quadrille/ops.h"

/* Which key heads the attention on this rank needs, and where they are. */
typedef struct qdri_key_heads {
    int gathered; /* from all ranks of the axis; 0: each rank has the ones that its queries need */
    qdr_axis axis;
    int64_t first_query, first_own, n_own; /* index of this rank's first query head, and of its first key head */
    int64_t n_all, group; /* total number of key heads, and the number of query heads per key head */
} qdri_key_heads;

/* Sizes in bytes of the parts of the saved state and of the workspace. */
typedef struct qdri_key_heads_bytes {
    size_t kernel_saved, assembled; /* saved: kernel_saved, followed by the assembled queries, keys and values */
    size_t kernel_work, heads, own, one; /* work: kernel_work, followed by all heads, dqkv, this rank's heads, one
                                          * head */
} qdri_key_heads_bytes;

/* Fills in the heads of `local`, whose sizes must be set, and `keys`. cols: queries, keys and values; own: this rank's
 * part of each, one of n_parts along `axis`. */
void qdri_key_heads_plan(const qdr_block cols[QDR_MAX_BLOCKS], const qdr_owned *own, qdr_axis axis, int n_parts,
                         qdr_attention *local, qdri_key_heads *keys);
/* The parts, if heads are gathered. */
QDR_NODISCARD qdr_status qdri_key_heads_parts(const qdr_attention *local, const qdri_key_heads *keys,
                                              qdri_key_heads_bytes *bytes);
/* The totals, whether or not heads are gathered. */
QDR_NODISCARD qdr_status qdri_key_heads_sizes(const qdr_attention *local, const qdri_key_heads *keys,
                                              size_t *saved_bytes, size_t *work_bytes);

#endif
