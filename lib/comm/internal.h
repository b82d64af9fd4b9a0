/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of lib/comm: the common part of communicators, the state of a running collective, parts,
 * reductions. */
#ifndef QDRI_COMM_INTERNAL_H
#define QDRI_COMM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"
#include "dev/clock.h"

/* Updated by stream threads of several ranks (the receiver of a local copy counts for the sender). */
typedef struct qdri_counter {
    _Atomic int64_t n_calls, bytes_sent, bytes_off_node, nanosecs;
} qdri_counter;

enum { QDRI_CALL_BYTES = 104, QDRI_MEMBER_BYTES = 64 };

/* The reason for giving up; the first one set is kept. Any thread; must be zeroed initially. */
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
    const int *nodes; /* in a world: by rank, the lowest rank on the same node; NULL: one node */
    void *scratch; /* the reserve: the largest entry of `stagings` */
    size_t scratch_bytes;
    qdri_staging *stagings; /* list owned by the host thread */
    qdri_counter counters[QDR_N_COLL_KINDS + 1]; /* the last one: for calls that are not counted */
    qdri_comm_observer observer;
    void *observer_user;
    qdri_comm *inner; /* in a decorator: the communicator that does the work */
    const char *name; /* NULL: none; the same for `describe` */
    qdri_comm_describe describe;
    const void *describe_user;
    /* Accessed by the thread that runs the stream: */
    char last_call[QDRI_CALL_BYTES]; /* "": none */
    char verdict[QDRI_ERROR_BYTES];
    /* The family: a communicator that was not made by split, and all that were split from it, for qdri_comm_abort(). */
    qdri_comm *root, *next;
    pthread_mutex_t family_mutex; /* root only, like the next fields */
    _Atomic int64_t timeout_ns; /* 0: none */
    qdri_reason lateness; /* set once this rank has given up because others did not come */
    qdri_comm_machine machine; /* all known, but for direct_all_reduce_bytes */
    int n_parts; /* that may be in use at the same time; 0: not known */
    qdri_reason why; /* why the family was given up, if the backend knows */
};

/* A collective running on a stream: the private arguments of its work. */
struct qdri_coll_run {
    qdri_comm *comm;
    qdr_status (*step)(qdri_coll_run *run); /* called until it returns something other than QDR_PENDING */
    qdri_coll coll;
    int64_t begin_nanosecs; /* 0: has not begun */
    qdri_patience patience;
    int phase; /* this and the following belong to the backend; initially zero */
    uint64_t round; /* in node memory: the last round begun, counted from the creation of the communicator */
    int64_t n_done; /* rounds of this collective */
    int n_looks, n_left_looks; /* polls without success; of them, those at a peer that has left */
    double drain_secs; /* when this rank gave up */
    int timed_out;
    int is_later_stage; /* the members that it waits for may themselves be waiting in an earlier stage */
    qdr_status status;
    void *staging;
    qdri_staging *owned; /* if it belongs to this collective alone */
};
/* Enqueues `step`, timed and counted, with that many bytes of staging. */
QDR_NODISCARD qdr_status qdri_comm_enqueue(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream,
                                           qdr_status (*step)(qdri_coll_run *run), size_t staging_bytes);
#define QDRI_STAGING "communication staging" /* purpose of that memory, for messages */
/* staging.c: allocates memory for a collective; *staging: NULL if it is the reserve. */
QDR_NODISCARD qdr_status qdri_staging_take(qdri_comm *comm, size_t bytes, void **memory, qdri_staging **staging);
/* Allocates a new, larger reserve. */
QDR_NODISCARD qdr_status qdri_staging_reserve(qdri_comm *comm, size_t bytes);
void qdri_staging_done(qdri_comm *comm, qdri_staging *staging); /* accepts NULL; may be called on the stream */
void qdri_stagings_free(qdri_comm *comm); /* requires idle streams */
/* Initialises the common part of a new communicator; parent: the one it was split from, or NULL. */
void qdri_comm_init(qdri_comm *comm, const qdri_comm_table *table, qdri_dev *dev, int rank, int size,
                    qdri_comm *parent);
/* The same for a decorator of *comm, equal to it in everything but its table and device, which *comm becomes, unless
 * made is NULL. Collective: status is this rank's so far. made->dev: NULL for that of *comm. */
QDR_NODISCARD qdr_status qdri_comm_decorate(qdr_status status, qdri_comm *made, const qdri_comm_table *table,
                                            qdri_comm *parent, qdri_comm **comm);

/* The counters for this collective. */
qdri_counter *qdri_counter_of(qdri_comm *comm, const qdri_coll *coll);
/* Counts a collective that has ended. */
void qdri_count_call(qdri_comm *comm, const qdri_coll *coll);
/* Counts elements that this member has sent for the collective. */
void qdri_count_sent(qdri_comm *comm, const qdri_coll *coll, int64_t n_elems);

/* comm.c: the contribution of one member; combining it with the next one's, of member `next_rank`; the agreement of a
 * member that is alone or delegates. */
qdri_verdict qdri_verdict_of(qdr_status mine, uint64_t digest);
void qdri_verdict_add(qdri_verdict *all, const qdri_verdict *next, int next_rank);
QDR_NODISCARD qdr_status qdri_comm_exchange(qdri_comm *comm, qdri_verdict *verdict);

/* describe.c */
void qdri_comm_name_member(const qdri_comm *comm, int member, char *text, size_t capacity);
const char *qdri_comm_name(const qdri_comm *comm); /* never NULL */
/* "all-reduce of 48 f32 for fc1" */
void qdri_coll_describe(const qdri_coll *coll, int size, char text[QDRI_CALL_BYTES]);
/* Lists the members for which is_missing() is not 0: "a, b and 3 more". @return how many */
int qdri_comm_name_missing(const qdri_comm *comm, int (*is_missing)(const void *user, int member), const void *user,
                           char *text, size_t capacity);

/* Fails; why: "" if no rank gave a reason. */
qdr_status qdri_comm_fail_peer(const qdri_comm *comm, const char *where, const char *why);

/* A rank that may be waiting for others that wait themselves reports its timeout later: those others know better who is
 * missing. */
#define QDRI_LATER_NS INT64_C(1000000000)

/* The time limit for waits on the host thread; 0: none. */
int64_t qdri_comm_timeout_ns(const qdri_comm *comm);
/* Fails: this rank has waited for `missing`, the names of n_missing ranks, in `where`. */
qdr_status qdri_comm_fail_timeout(const qdri_comm *comm, const char *where, const char *missing, int n_missing);

int qdri_coll_reduces(const qdri_coll *coll); /* 1: it is a REDUCE_SCATTER or an ALL_REDUCE */
/* The input of a member in a collective that may be in place: send, or recv if send is NULL. */
const void *qdri_coll_source(const qdri_coll *coll);
/* Sum of the entries of counts before entry j; NULL: each is `count`. */
int64_t qdri_coll_offset(const int64_t *counts, int64_t count, int j);
/* Part j of an ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE or BROADCAST among `size` members. */
void qdri_coll_part(const qdri_coll *coll, int size, int j, int64_t *begin, int64_t *n);
/* The next three are called when the collective runs: they read lengths. Part j of an ALL_GATHER, or of a collective
 * that ends as one. */
void qdri_coll_gathered(const qdri_coll *coll, int size, int j, int64_t *begin, int64_t *n);
/* The part of an ALL_TO_ALL's send that goes to member j, and the part of its recv that comes from it. */
void qdri_coll_outgoing(const qdri_coll *coll, int j, int64_t *begin, int64_t *n);
void qdri_coll_incoming(const qdri_coll *coll, int j, int64_t *begin, int64_t *n);
/* The elements that member `rank` sends and receives; *begin: where its own part begins in the longer buffer of an
 * ALL_GATHER or REDUCE_SCATTER, otherwise 0. The root of a BROADCAST receives nothing. */
void qdri_coll_extent(const qdri_coll *coll, int size, int rank, int64_t *begin, int64_t *n_send, int64_t *n_recv);
/* Total number of elements of a collective, the same on all members; -1 for kinds that have no such total. */
int64_t qdri_coll_total(const qdri_coll *coll, int size);
/* What members compare of a collective: itself, and the caller's of which it is a stage. */
typedef struct qdri_compared {
    qdri_call own, called; /* the same, if it is no stage */
    int op, peer;
} qdri_compared;
qdri_compared qdri_coll_compared(const qdri_coll *coll, int size);
/* describe.c: fails with both calls in the message if those of ranks 0 and j differ; comm: whose, or NULL. */
qdr_status qdri_coll_compare(const qdri_comm *comm, const qdri_compared *a, int j, const qdri_compared *b);
/* What such ranks may have done differently before, to end the message; "": unknown. */
const char *qdri_coll_why_differs(const qdri_comm *comm, qdr_coll_kind kind, qdr_coll_kind other_kind);
/* p + n elements; NULL stays NULL. */
const void *qdri_at(const void *p, int64_t n, qdr_dtype dtype);
void *qdri_at_mutable(void *p, int64_t n, qdr_dtype dtype);
/* Copies elements, unless they are there already. */
void qdri_coll_copy(qdr_dtype dtype, void *dst, const void *src, int64_t n_elems);

/* dst[i] = sources[0][i] op sources[1][i] op … in that order: F64 and I32 in their own type (sums of I32 wrap), F32,
 * BF16 and F16 in fp32, rounded once. MAX and MIN return NaN if any source is NaN. dst may be one of the sources. */
void qdri_reduce(qdr_dtype dtype, qdr_reduce op, void *dst, const void *const *sources, int n_sources, int64_t n);
/* The same, stored to two places; both may be sources. */
void qdri_reduce_twice(qdr_dtype dtype, qdr_reduce op, void *dst, void *copy, const void *const *sources, int n_sources,
                       int64_t n);

#endif
