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
    qdri_waker *waker; /* under `busy`; NULL outside of a collective */
    atomic_int busy;
} local_slot;

typedef struct local_group {
    int size;
    atomic_int n_members; /* who have not left */
    atomic_int disagrees; /* the members have called different collectives */
    qdri_meeting meeting;
    _Atomic uint64_t n_entered; /* members × collectives, and GIVEN_UP */
    _Alignas(64) _Atomic uint64_t n_passed;
    local_slot *slots;
    void *slots_memory;
} local_group;

struct local_comm {
    qdri_comm base;
    local_group *group;
    uint64_t n_entered,
        n_passed; /* of the group, once this member's current barriers are complete */
    const void **sources; /* room for one pointer per member */
};

/* @return 1: this member completed the barrier; 0: others are missing; -1: the group was given up
 * before */
int qdri_local_enter(local_group *group, uint64_t target);
/* @return 1: all have entered; 0: not yet; -1: and never will */
int qdri_local_entered(local_group *group, uint64_t target);
/* Counts n arrivals at a barrier that cannot fail, and wakes the others if it is complete. */
void qdri_local_pass(local_group *group, int rank, uint64_t target, uint64_t n);
int qdri_local_passed(local_group *group, uint64_t target);
void qdri_local_set_waker(local_slot *slot, qdri_waker *waker);
void qdri_local_wake(local_group *group, int but_rank); /* -1: all */

/* The table's member: enqueues a collective. */
QDR_NODISCARD qdr_status qdri_local_launch(qdri_comm *comm, const qdri_coll *coll,
                                           qdr_stream *stream);

#endif
