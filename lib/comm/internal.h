/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of lib/comm share: the communicator's common part, a collective while it runs, parts, sums. */
#ifndef QDRI_COMM_INTERNAL_H
#define QDRI_COMM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"

/* Written by stream threads of several ranks (the receiver of a local copy counts for the sender). */
typedef struct qdri_counter {
    _Atomic int64_t n_calls, bytes_sent, bytes_off_node, nanosecs;
} qdri_counter;

enum { QDRI_CALL_BYTES = 104, QDRI_MEMBER_BYTES = 64 };

/* Why something was given up: the first sentence stays. Any thread; zeroed at first. */
typedef struct qdri_reason {
    atomic_int state;
    char sentence[QDRI_ERROR_BYTES];
} qdri_reason;
void qdri_reason_set(qdri_reason *why, const char *sentence); /* "": no reason */
const char *qdri_reason_get(qdri_reason *why); /* "" if there is none */

typedef struct qdri_staging qdri_staging;

/* First member of each backend's communicator. */
struct qdri_comm {
    const qdri_comm_table *table;
    qdri_dev *dev;
    int rank, size, node_size;
    const int *nodes; /* of a world: by rank, the lowest rank on the same node; NULL: one node */
    void *scratch; /* the reserve: the largest of those in `stagings` */
    size_t scratch_bytes;
    qdri_staging *stagings; /* the host thread's list */
    qdri_counter counters[QDR_N_COLL_KINDS + 1]; /* the last one: of calls that do not count */
    qdri_comm_observer observer;
    void *observer_user;
    qdri_comm *inner; /* of a decorator: the one that does the work */
    const char *name; /* NULL: none; like `describe` */
    qdri_comm_describe describe;
    const void *describe_user;
    /* Of the thread that runs the stream: */
    char last_call[QDRI_CALL_BYTES]; /* "": none */
    char verdict[QDRI_ERROR_BYTES];
    /* The family: a communicator that was not made by split, and all that were, for qdri_comm_abort(). */
    qdri_comm *root, *next;
    pthread_mutex_t family_mutex; /* of the root, like: */
    _Atomic int64_t timeout_ns; /* 0: none */
    qdri_reason why; /* the family was given up, where the backend tells */
};

/* A collective that runs on a stream: the private arguments of its work. */
struct qdri_run {
    qdri_comm *comm;
    qdr_status (*step)(qdri_run *run); /* called until it does not return QDR_PENDING */
    qdri_coll coll;
    int64_t begin_nanosecs; /* 0: has not begun */
    int phase; /* the rest is the backend's; zero at first */
    uint64_t round; /* in node memory: the last that was begun, since the communicator was made */
    int64_t n_done; /* rounds of this collective */
    int n_looks, n_left_looks; /* without success; at a peer that has left */
    double drain_secs; /* when this rank gave up */
    int timed_out;
    int is_later_stage; /* those whom it waits for may themselves wait, in an earlier one */
    qdr_status status;
    void *staging;
    qdri_staging *owned; /* where it is this collective's alone */
};
/* Enqueues `step`, timed and counted, with that many bytes of staging. */
QDR_NODISCARD qdr_status qdri_comm_enqueue(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream,
                                           qdr_status (*step)(qdri_run *run), size_t staging_bytes);
#define QDRI_STAGING "communication staging" /* what that memory is for */
/* staging.c: memory for a collective; *staging: NULL where it is the reserve. */
QDR_NODISCARD qdr_status qdri_staging_take(qdri_comm *comm, size_t bytes, void **memory, qdri_staging **staging);
/* A new, larger reserve. */
QDR_NODISCARD qdr_status qdri_staging_reserve(qdri_comm *comm, size_t bytes);
void qdri_staging_done(qdri_comm *comm, qdri_staging *staging); /* takes NULL; on the stream, too */
void qdri_stagings_free(qdri_comm *comm); /* the streams are idle */
/* Fills the common part of a new communicator; parent: NULL, or the one it was split from. */
void qdri_comm_init(qdri_comm *comm, const qdri_comm_table *table, qdri_dev *dev, int rank, int size,
                    qdri_comm *parent);

/* Where the collective counts. */
qdri_counter *qdri_counter_of(qdri_comm *comm, const qdri_coll *coll);
/* This member has sent that many elements of it. */
void qdri_count_sent(qdri_comm *comm, const qdri_coll *coll, int64_t n_elems);

/* comm.c: what a member brings; the next one's is added; the agreement of a member that is alone or delegates. */
qdri_verdict qdri_verdict_of(qdr_status mine, uint64_t digest);
void qdri_verdict_add(qdri_verdict *all, const qdri_verdict *next);
QDR_NODISCARD qdr_status qdri_comm_exchange(qdri_comm *comm, qdri_verdict *verdict);

/* describe.c */
void qdri_comm_name_member(const qdri_comm *comm, int member, char *text, size_t capacity);
const char *qdri_comm_name(const qdri_comm *comm); /* never NULL */
/* "all-reduce of 48 f32 for fc1" */
void qdri_coll_describe(const qdri_coll *coll, int size, char text[QDRI_CALL_BYTES]);
/* The members for which is_missing() is not 0, "a, b and 3 more". @return how many */
int qdri_comm_name_missing(const qdri_comm *comm, int (*is_missing)(const void *user, int member), const void *user,
                           char *text, size_t capacity);

/* Fails; why: "" if no rank gave a reason. */
qdr_status qdri_comm_fail_peer(const qdri_comm *comm, const char *where, const char *why);

/* Who may wait for others that wait says so later: they know better who is missing. */
#define QDRI_LATER_NS INT64_C(1000000000)

/* watch.c: what surrounds the steps of a collective that waits too long. */
void qdri_watch_pending(qdri_run *run); /* its step has returned QDR_PENDING */
qdr_status qdri_watch_end(qdri_run *run, qdr_status status);
/* The limit of waits on the host thread; 0: none. */
int64_t qdri_comm_timeout_ns(const qdri_comm *comm);
/* Fails: this rank has waited for `missing`, or may at the end (`where`). */
qdr_status qdri_comm_fail_timeout(const qdri_comm *comm, const char *where, const char *missing);

int qdri_coll_reduces(const qdri_coll *coll); /* it is a REDUCE_SCATTER or an ALL_REDUCE */
/* What a member brings to a collective that may be in place: send, else recv. */
const void *qdri_coll_source(const qdri_coll *coll);
/* Elements before entry j of counts; NULL: each is `count`. */
int64_t qdri_coll_offset(const int64_t *counts, int64_t count, int j);
/* Part j of an ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE or BROADCAST among `size` members. */
void qdri_coll_part(const qdri_coll *coll, int size, int j, int64_t *begin, int64_t *n);
/* What of an ALL_TO_ALL's send goes to member j; what of its recv comes from it. */
void qdri_coll_outgoing(const qdri_coll *coll, int j, int64_t *begin, int64_t *n);
void qdri_coll_incoming(const qdri_coll *coll, int j, int64_t *begin, int64_t *n);
/* Elements of a collective's whole, the same on all members; -1 for kinds that have none. */
int64_t qdri_coll_total(const qdri_coll *coll, int size);
/* Fails, naming both: rank 0 calls the first, rank j the second. */
qdr_status qdri_coll_differs(qdr_coll_kind kind, int64_t total, qdr_dtype dtype, int j, qdr_coll_kind other_kind,
                             int64_t other_total, qdr_dtype other_dtype);
/* p + n elements; NULL stays NULL. */
const void *qdri_at(const void *p, int64_t n, qdr_dtype dtype);
void *qdri_at_mutable(void *p, int64_t n, qdr_dtype dtype);

/* dst[i] = sources[0][i] op sources[1][i] op … in that order: F64 and I32 as they are (sums of I32 wrap), F32, BF16 and
 * F16 in fp32, rounded once. NaN wins MAX and MIN. dst may be one of the sources. */
void qdri_reduce(qdr_dtype dtype, qdr_reduce op, void *dst, const void *const *sources, int n_sources, int64_t n);
/* The same to two places; both may be sources. */
void qdri_reduce_twice(qdr_dtype dtype, qdr_reduce op, void *dst, void *copy, const void *const *sources, int n_sources,
                       int64_t n);

#endif
