/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of the `local` backend, shared by the ranks of one process, and their barriers. */
#ifndef QDRI_COMM_LOCAL_LOCAL_H
#define QDRI_COMM_LOCAL_LOCAL_H

#include "comm/internal.h"

/* Barriers: the ranks of one process wait for each other on their host threads, asleep. Used to create communicators,
 * to agree, and for small messages. */

/* What a barrier is for: the same for all members. */
typedef enum qdri_purpose { QDRI_TO_AGREE = 0, QDRI_TO_BROADCAST, QDRI_TO_SPLIT, QDRI_TO_RUN } qdri_purpose;

/* What one rank contributes to a barrier. */
typedef struct qdri_seat {
    qdri_purpose purpose;
    qdri_verdict verdict;
    int colour, key;
    int runs_work; /* copied from the table of its device */
    const char *where; /* what the rank is doing, for messages; NULL: it agrees or broadcasts */
    unsigned generation; /* number of the barrier, from 1; set by qdri_barrier_join() */
    int binds; /* the same on all members; if set, no member leaves the next barrier before member 0 has joined it, even
                * if the barrier is given up meanwhile */
    const void *data;
    size_t bytes;
    int root;
} qdri_seat;

typedef struct qdri_barrier {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int size, n_here, given_up, is_bound;
    int64_t limit_ns; /* for members without a communicator; 0: no limit */
    int n_reading; /* members that are still copying the data of a broadcast's root, and wait for nobody meanwhile */
    char why[QDRI_ERROR_BYTES]; /* "": no error */
    char leaver[QDRI_MEMBER_BYTES]; /* the rank that left, if that was why; otherwise "" */
    unsigned generation;
    qdri_seat *seats[2]; /* indexed by the parity of the generation: no rank can be two barriers ahead of another */
} qdri_barrier;

QDR_NODISCARD qdr_status qdri_barrier_init(qdri_barrier *barrier, int size);
void qdri_barrier_free(qdri_barrier *barrier);
/* Joins the barrier and waits for all other members. comm: the communicator of the members, which supplies names and
 * the time limit; NULL: none. *seats: the contributions of all members, valid until this rank has joined the barrier
 * after the next.
 * @retval QDR_ERR_PEER      a member gave up
 * @retval QDR_ERR_TIMEOUT   a member is missing; the barrier is given up
 * @retval QDR_ERR_ARGUMENT  on all members: they came for different purposes */
QDR_NODISCARD qdr_status qdri_barrier_join(qdri_barrier *barrier, int rank, const qdri_comm *comm,
                                           const qdri_seat *mine, const qdri_seat **seats);
/* *verdict: in: this rank's; out: that of all ranks. */
QDR_NODISCARD qdr_status qdri_barrier_exchange(qdri_barrier *barrier, int rank, const qdri_comm *comm,
                                               qdri_verdict *verdict);
/* Returns the status and the message of the lowest rank that passes an error. */
QDR_NODISCARD qdr_status qdri_barrier_agree(qdri_barrier *barrier, int rank, const qdri_comm *comm, qdr_status mine);
/* After it returns, with or without success, no member reads the root's data any more.
 * @retval QDR_ERR_ARGUMENT  on all members: they passed different roots or sizes */
QDR_NODISCARD qdr_status qdri_barrier_broadcast(qdri_barrier *barrier, const qdri_comm *comm, int root, void *data,
                                                size_t bytes);
/* Fails if the barrier was given up because of an error. Any thread. */
QDR_NODISCARD qdr_status qdri_barrier_look(qdri_barrier *barrier);
/* Makes all present and future waits here fail. why: "" if there was no error. */
void qdri_barrier_give_up(qdri_barrier *barrier, const char *why);
/* The same, without an error: the rank that is named `leaver` comes to no other barrier. */
void qdri_barrier_leave(qdri_barrier *barrier, const char *leaver);

typedef struct local_comm local_comm;

/* What a member shows to the others. */
typedef struct local_slot {
    _Alignas(64) qdri_coll coll;
    local_comm *comm;
    _Atomic uint64_t n_begun; /* the last collective that it has arrived at */
    _Atomic uint64_t left_after; /* 1 + its last collective, once it will launch no other; 0: it may */
    qdri_waker *waker; /* protected by `busy`; NULL outside of a collective */
    atomic_int busy;
} local_slot;

#define GIVEN_UP (UINT64_C(1) << 63) /* a flag of n_entered */

typedef struct local_group {
    int size;
    atomic_int n_members; /* that have not left */
    atomic_int some_left; /* a member has left: those that wait look at left_after */
    qdri_barrier barrier;
    /* Collectives are numbered from 1; members are never two apart. */
    _Alignas(64) _Atomic uint64_t n_entered; /* members times collectives, with a flag for having been given up */
    _Atomic uint64_t opened, finished; /* number of the last one */
    atomic_int n_taken, n_done; /* pieces of the open collective */
    int n_slices; /* slices per member's part, in the open collective */
    qdri_reason why; /* why the group was given up */
    atomic_int failing; /* set by the member that writes, or has written, the next two: */
    qdr_status status;
    char sentence[QDRI_ERROR_BYTES];
    local_slot *slots;
    void *slots_memory;
} local_group;

struct local_comm {
    qdri_comm base;
    local_group *group;
    uint64_t n_launched; /* number of collectives; accessed by the host thread only */
    uint64_t n_begun; /* of them, those that the stream has begun */
    const void **sources; /* room for one pointer per member */
    qdr_event *ready, *done; /* on devices that run no host work; NULL until used */
};

void qdri_local_wake(local_group *group, int but_rank); /* but_rank: not woken; -1: all are */

/* A piece of a collective reads about this many bytes from each member; tests make it small. Read while all members are
 * in a collective. */
extern int64_t qdri_local_piece_bytes;

int qdri_local_has_come(const qdri_coll_run *run, int member);
/* The function of the table: enqueues a collective. */
QDR_NODISCARD qdr_status qdri_local_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);
/* The same for devices that run no host work: waits until all members have arrived. */
QDR_NODISCARD qdr_status qdri_local_device_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);

/* Fails unless members 0 and j make the same call. */
QDR_NODISCARD qdr_status qdri_local_compare(const qdri_comm *comm, const qdri_coll *first, const qdri_coll *other,
                                            int j);
/* Fails: what one member of an all-to-all sends is not what the other expects. */
qdr_status qdri_local_fail_parts(int from, int64_t n_out, int to, int64_t n_in);
/* Fails unless what `rank` sends and receives in a send-recv is what its peers expect; to, from: their calls; NULL: no
 * such peer. */
QDR_NODISCARD qdr_status qdri_local_check_peers(int rank, const qdri_coll *mine, const qdri_coll *to,
                                                const qdri_coll *from);

#endif
