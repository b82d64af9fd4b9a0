/* SPDX-License-Identifier: Apache-2.0 */
/* Memory shared by the ranks of a node. Each rank has a share of one block, with wake events for its threads, and
 * areas; a communicator whose members are all on the same node uses one area of each. */
#ifndef QDRI_COMM_MPI_NODE_H
#define QDRI_COMM_MPI_NODE_H

#include "comm/internal.h"
#include "comm/mpi/heap.h"

enum { NODE_SLOT_BYTES = 2 << 20, NODE_AREAS = 16 };

/* What a member publishes about the collective that it starts. */
typedef struct node_call {
    int kind, dtype, op, peer;
    int64_t total;
    heap_place source, target; /* memory that others read and write, if they access it directly */
    int is_mapped; /* in the next round: whether the member could map the memory of all others */
} node_call;

/* A member's area for one communicator. In each round of a collective, every member writes to its own slot, enters the
 * round, waits until all have entered, and reads the others' slots. There are two slots, used alternately: a member
 * that enters a round has finished reading the previous one, so a slot that is written again is no longer being
 * read. */
typedef struct node_area {
    _Alignas(64) _Atomic uint64_t n_entered; /* members times rounds; only member 0's is used */
    _Alignas(64) atomic_int waiting; /* the member's thread may be asleep on its wake event number waiting - 1 */
    _Atomic uint64_t n_own; /* rounds that this member has entered */
    int n_members; /* 0: the area is free */
    atomic_int n_left; /* members that will no longer access it */
    node_call calls[2]; /* by the parity of the round */
    _Alignas(64) unsigned char slots[2][NODE_SLOT_BYTES];
} node_area;

typedef struct node_share {
    qdri_wake_event wake_events[QDRI_DEV_WAKE_EVENTS];
    heap_share heap;
    node_area areas[NODE_AREAS];
} node_share;

/* Part of a communicator: the root has `memory`, `shares` and `heap`, each communicator the other fields. */
typedef struct mpi_node {
    void *memory; /* NULL: none */
    size_t bytes;
    node_share **shares; /* by rank; NULL on other nodes */
    mpi_heap *heap; /* NULL: none */
    node_area **areas; /* by rank, if in use */
    int in_use;
    uint64_t n_rounds; /* rounds that this member has entered */
    void **targets; /* room for one pointer per member, as is `chunks` */
    const void **chunks;
} mpi_node;

typedef struct mpi_comm mpi_comm;

/* Collective over a root. A rank that is alone on its node, or cannot get the memory, has none: its collectives use
 * messages, as those of groups that span nodes do. */
QDR_NODISCARD qdr_status qdri_mpi_node_create(mpi_comm *root);
/* Requires that no rank uses the memory any more. */
void qdri_mpi_node_destroy(mpi_comm *root);
/* Collective: gives the communicator, or its level inside the node, areas if possible. mine: an error if this rank has
 * failed and takes part only so that no other rank waits for it. */
QDR_NODISCARD qdr_status qdri_mpi_node_join(mpi_comm *comm, qdr_status mine);
/* Not collective: members that are still reading this one's area continue. */
void qdri_mpi_node_leave(mpi_comm *comm);

/* 1 if this collective uses node memory. The same on all members. */
int qdri_mpi_node_takes(const mpi_comm *comm, const qdri_coll *coll);
/* The step function of such a collective. */
qdr_status qdri_mpi_node_step(qdri_run *run);

/* node_direct.c: transfers without intermediate copies. */
int qdri_mpi_direct_wants(const qdri_run *run); /* the same on all members */
/* Sets the places of the call to the memory of this member that others need. */
void qdri_mpi_direct_offer(const qdri_run *run, node_call *call);
int qdri_mpi_direct_is_offered(const qdri_run *run, const node_call *call, int member);
/* Maps the memory of `member`; 0: not possible. */
int qdri_mpi_direct_map(const qdri_run *run, int member, const node_call *call);
/* Performs this member's part of the work, after all members have mapped all memory. */
void qdri_mpi_direct_move(const qdri_run *run);

#endif
