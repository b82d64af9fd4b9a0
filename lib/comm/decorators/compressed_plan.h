/* SPDX-License-Identifier: Apache-2.0 */
/* Which messages a coded collective consists of. Pure functions of sizes.
 *
 * The members between which messages are coded each own one part of the elements. Parts travel in chunks, so that one
 * is encoded while another is on the wire: chunk c of a part is its elements from c · chunk_elems on. The messages of
 * all chunks of a part together have as many bytes as one message of the part, rounded up to QDRI_CODED_ALIGN. */
#ifndef QDRI_COMM_DECORATORS_COMPRESSED_PLAN_H
#define QDRI_COMM_DECORATORS_COMPRESSED_PLAN_H

#include "codec/run.h"
#include "comm/comm.h"
#include "core/coded.h"

/* Of staging: chunks in flight, and how what they have is aligned. */
enum { QDRI_CODED_SLOTS = 2, QDRI_CODED_STAGING_ALIGN = 64 };

/* Of tests, instead of what a plan is asked for; 0: none. */
extern int64_t qdri_code_chunk_bytes;

/* What decides a plan. Compared as bytes. */
typedef struct qdri_code_key {
    qdr_codec codec;
    int64_t count, split_unit, row_elems, chunk_bytes;
    uint64_t parts; /* a digest of counts; 0: there are none */
    int32_t kind, dtype;
} qdri_code_key;

typedef struct qdri_code_plan qdri_code_plan;
struct qdri_code_plan {
    qdri_code_plan *next;
    qdri_code_key key;
    qdri_call called;
    int n_parts, own; /* one for each node; own: this member's */
    int is_exchange; /* two members send each other everything: both parts are all elements */
    int64_t *begin, *n; /* of parts: elements */
    int64_t n_elems; /* of all parts */
    int64_t slice_begin; /* of an all-reduce: where this member's elements begin, between counterparts */
    int64_t chunk_elems;
    int n_chunks;
    /* Bytes by chunk and part: `sends` to the part's owner, `receives` from it, `gathers` of its message in a gather.
     * They live as long as the plan. */
    int64_t *sends, *receives, *gathers;
    int64_t *members; /* elements of each member's part, by node; of gathers and reduce-scatters */
    size_t send_bytes, receive_bytes, gather_bytes; /* the most of a chunk, all parts together */
    size_t scratch_bytes; /* for the sum of a chunk */
    size_t lengths_bytes; /* of the lengths of the messages of a chunk, which LOSSLESS has: sent, received, gathered */
    size_t slice_bytes; /* of a reduce-scatter: what members of a node have summed, if per_node > 1 */
    int64_t bytes_saved; /* fewer that this member sends than without a codec; of LOSSLESS, without its messages */
};

/* Whether its elements travel as messages of a codec. */
int qdri_coll_is_coded(const qdri_coll *coll);
qdri_code_key qdri_code_key_of(const qdri_coll *coll, int size, int64_t chunk_bytes);
QDR_NODISCARD qdr_status qdri_code_plan_create(const qdri_coded_group *group, const qdri_coll *coll,
                                               int64_t chunk_bytes, qdri_code_plan **plan);
void qdri_code_plan_free(qdri_code_plan *plan);
/* Elements of part j that chunk c has. */
int64_t qdri_code_chunk(const qdri_code_plan *plan, int c, int j);
/* Staging of two chunks and of what else the collective needs. */
size_t qdri_code_slot_bytes(const qdri_code_plan *plan);
size_t qdri_code_staging_bytes(const qdri_code_plan *plan);

#endif
