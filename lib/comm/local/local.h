/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of the `local` backend, shared by the ranks of one process, and their barriers. */
#ifndef QDRI_COMM_LOCAL_LOCAL_H
#define QDRI_COMM_LOCAL_LOCAL_H

#include "comm/internal.h"
#include "comm/local/barrier.h"

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

void qdri_local_set_waker(local_slot *slot, qdri_waker *waker);
void qdri_local_wake(local_group *group, int but_rank); /* but_rank: not woken; -1: all are */

/* A piece of a collective reads about this many bytes from each member; tests make it small. Read while all members are
 * in a collective. */
extern int64_t qdri_local_piece_bytes;

int qdri_local_has_come(const qdri_run *run, int member);
/* The function of the table: enqueues a collective. */
QDR_NODISCARD qdr_status qdri_local_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);
/* The same for devices that run no host work: waits until all members have arrived. */
QDR_NODISCARD qdr_status qdri_local_device_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);

/* Fails unless members 0 and j make the same call. */
QDR_NODISCARD qdr_status qdri_local_compare(const qdri_coll *first, const qdri_coll *other, int size, int j);
/* Fails: what one member of an all-to-all sends is not what the other expects. */
qdr_status qdri_local_fail_parts(int from, int64_t n_out, int to, int64_t n_in);
/* Fails unless what `rank` sends and receives in a send-recv is what its peers expect; to, from: their calls; NULL: no
 * such peer. */
QDR_NODISCARD qdr_status qdri_local_check_peers(int rank, const qdri_coll *mine, const qdri_coll *to,
                                                const qdri_coll *from);

#endif
