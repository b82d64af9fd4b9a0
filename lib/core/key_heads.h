/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a rank whose queries may need key heads of other ranks: which they are, and the memory that it takes to
 * have them. Pure functions. */
#ifndef QDRI_CORE_KEY_HEADS_H
#define QDRI_CORE_KEY_HEADS_H

#include "core/status.h"
#include "quadrille/matrix.h"
#include "quadrille/ops.h"

/* Which key heads attention needs on this rank, and where they are. */
typedef struct qdri_key_heads {
    int gathered; /* from all ranks of the axis; 0: each rank has those that its queries need */
    qdr_axis axis;
    int64_t first_query, first_own, n_own; /* this rank's query heads begin here, and its key heads */
    int64_t n_all, group; /* key heads in all, and the query heads that each serves */
} qdri_key_heads;

/* Bytes of parts of saved state and of work. */
typedef struct qdri_key_heads_bytes {
    size_t kernel_saved, assembled; /* saved: then the assembled queries, keys and values */
    size_t kernel_work, heads, own, one; /* work: then all heads, dqkv, this rank's heads, one */
} qdri_key_heads_bytes;

/* Fills in the heads of `local`, whose sizes are known, and `keys`. cols: queries, keys and values; own: this rank's
 * part of each, one of n_parts of `axis`. */
void qdri_key_heads_plan(const qdr_block cols[QDR_MAX_BLOCKS], const qdr_owned *own, qdr_axis axis, int n_parts,
                         qdr_attention *local, qdri_key_heads *keys);
/* The parts where heads are gathered. */
QDR_NODISCARD qdr_status qdri_key_heads_parts(const qdr_attention *local, const qdri_key_heads *keys,
                                              qdri_key_heads_bytes *bytes);
/* In all, gathered or not. */
QDR_NODISCARD qdr_status qdri_key_heads_sizes(const qdr_attention *local, const qdri_key_heads *keys,
                                              size_t *saved_bytes, size_t *work_bytes);

#endif
