/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the decorator `compressed`. */
#ifndef QDRI_COMM_DECORATORS_COMPRESSED_H
#define QDRI_COMM_DECORATORS_COMPRESSED_H

#include "comm/decorators/compressed_plan.h"
#include "comm/internal.h"

typedef struct coded_check coded_check;

typedef struct compressed_comm {
    qdri_comm base;
    qdri_coded_group group;
    qdri_comm *inside, *between; /* members of this node, counterparts; NULL and `inner` if all are counterparts */
    qdr_stream *codecs;
    qdr_event *begun, *ended, *over; /* of a pipeline; of a collective */
    qdr_event *written[QDRI_CODED_SLOTS]; /* by slot: messages are there to be sent */
    qdr_event *exchanged[QDRI_CODED_SLOTS], *gathered[QDRI_CODED_SLOTS]; /* all have come */
    coded_check *check; /* QDR_CODEC_CHECK; NULL: nothing is checked */
    qdri_code_plan *plans; /* of collectives so far: they recur */
    int n_plans;
    int64_t chunk_bytes; /* of plans, as the device needs */
    uint64_t seed; /* of stochastic rounding: of the last message; this and n_launched */
    uint64_t n_launched;
    int64_t codecs_begun_ns; /* accessed on the stream of the codecs */
    _Atomic int64_t codec_nanosecs[QDR_N_COLL_KINDS];
    _Atomic int64_t bytes_saved[QDR_N_COLL_KINDS];
} compressed_comm;

/* One collective between counterparts. */
typedef struct coded_transfer {
    compressed_comm *comm;
    const qdri_code_plan *plan;
    const qdri_coll *coll;
    qdr_stream *stream;
    const void *x; /* sums: all parts, as this member has them; a gather: its own part */
    void *y; /* a gather: where all parts go; a reduce-scatter: where its own part goes */
    char *staging;
} coded_transfer;

/* Enqueues it. On return the stream waits for all of it. */
QDR_NODISCARD qdr_status qdri_coded_transfer(const coded_transfer *t);
/* Staging after the slots: for sums, and then for what members of a node have summed. */
char *qdri_coded_scratch(const coded_transfer *t);

/* compressed_check.c: QDR_CODEC_CHECK. What enqueues does nothing without it, and uses the stream of the codecs. */
QDR_NODISCARD qdr_status qdri_coded_check_create(int size, coded_check **check);
void qdri_coded_check_free(coded_check *check);
const qdri_coded_errors *qdri_coded_check_errors(const coded_check *check);
/* Bytes after the staging, for a chunk. */
size_t qdri_coded_check_bytes(const qdri_code_plan *plan);
/* Before a message is encoded: keeps its elements; and after that: compares. bytes of LOSSLESS: message->n_bytes.
 * first: the number of its first element among those of t->x. */
QDR_NODISCARD qdr_status qdri_coded_keep(const coded_transfer *t, const qdri_message *message, const void *x,
                                         const float *feedback);
QDR_NODISCARD qdr_status qdri_coded_hold(const coded_transfer *t, const qdri_message *message, const void *wire,
                                         const float *feedback, int64_t first);
/* The same, before and after versions are added. */
QDR_NODISCARD qdr_status qdri_coded_keep_sum(const coded_transfer *t, const qdri_message *message,
                                             const qdri_message_sum *sum);
QDR_NODISCARD qdr_status qdri_coded_hold_sum(const coded_transfer *t, const qdri_message *message,
                                             const qdri_message_sum *sum, int64_t first);
/* Once all members have the result, on the caller's stream: whether it is the same. Collective. */
QDR_NODISCARD qdr_status qdri_coded_compare(const coded_transfer *t);

#endif
