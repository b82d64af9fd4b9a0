/* SPDX-License-Identifier: Apache-2.0 */
/* The `local` backend's groups, shared by the ranks of one process, and their barriers. */
#ifndef QDRI_COMM_LOCAL_H
#define QDRI_COMM_LOCAL_H

#include "comm/internal.h"
#include "comm/meeting.h"

typedef struct local_comm local_comm;

/* What a member shows to the others. */
typedef struct local_slot {
    _Alignas(64) qdri_coll coll;
    local_comm *comm;
    _Atomic uint64_t n_begun; /* the collective that it has come to last */
    qdri_waker *waker; /* under `busy`; NULL outside of a collective */
    atomic_int busy;
} local_slot;

typedef struct local_group {
    int size;
    atomic_int n_members; /* who have not left */
    qdri_meeting meeting;
    /* Collectives are numbered from 1; the members are never two apart. */
    _Alignas(64) _Atomic uint64_t n_entered; /* members times collectives, and a mark of giving up */
    _Atomic uint64_t opened, finished; /* the number of the last one */
    atomic_int n_taken, n_done; /* pieces of the one that is open */
    int n_slices; /* of each member's part, in it */
    qdri_reason why; /* it was given up */
    atomic_int failing; /* somebody writes, or has written, these: */
    qdr_status status;
    char sentence[QDRI_ERROR_BYTES];
    local_slot *slots;
    void *slots_memory;
} local_group;

struct local_comm {
    qdri_comm base;
    local_group *group;
    uint64_t n_begun; /* collectives */
    const void **sources; /* room for one pointer per member */
    qdr_event *ready, *done; /* on devices that run no work of the host; NULL until used */
};

/* Enters collective `number`; returns 1 to the last. Nobody enters a group that was given up. */
int qdri_local_enter(local_group *group, uint64_t number);
/* 1: the group was given up before all had entered. */
int qdri_local_never(local_group *group, uint64_t number);
void qdri_local_set_waker(local_slot *slot, qdri_waker *waker);
void qdri_local_wake(local_group *group, int but_rank); /* -1: all */

/* A piece of a collective reads about as many bytes from each member; tests make it small. Read while all members are
 * in a collective. */
extern int64_t qdri_local_piece_bytes;

int qdri_local_has_come(const qdri_run *run, int member);
/* The table's member: enqueues a collective. */
QDR_NODISCARD qdr_status qdri_local_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);
/* The same on devices that run no work of the host: waits until all members have come. */
QDR_NODISCARD qdr_status qdri_local_device_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);

/* Fails unless member 0 calls the same as member j. */
QDR_NODISCARD qdr_status qdri_local_compare(const qdri_coll *first, const qdri_coll *other, int size, int j);
/* Fail: what one sends is not what the other expects. */
qdr_status qdri_local_fail_parts(int from, int64_t n_out, int to, int64_t n_in);
qdr_status qdri_local_fail_target(int from, int to, int expected);
qdr_status qdri_local_fail_source(int from, const qdri_coll *source, int to, int64_t n_expected);

#endif
