/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the ranks of one node share. Each rank has a share of one block: bells for its threads, and areas; a
 * communicator whose members are all on one node has an area of each. */
#ifndef QDRI_COMM_MPI_NODE_H
#define QDRI_COMM_MPI_NODE_H

#include "comm/internal.h"
#include "comm/mpi_heap.h"

enum { NODE_SLOT_BYTES = 2 << 20, NODE_AREAS = 16 };

/* What a member publishes about the collective that it starts. */
typedef struct node_call {
    int kind, dtype, op, peer;
    int64_t total;
    heap_place source, target; /* what others read, and write, if they shall */
    int is_mapped; /* in the round after: whether the member has found all others' places */
} node_call;

/* A member's area of one communicator. A round of a collective: everybody writes to its own slot, enters, waits until
 * all have entered, and reads the others' slots. There are two slots, used in turn: who enters a round has read all of
 * the round before, so a slot that is written again is no longer read. */
typedef struct node_area {
    _Alignas(64) _Atomic uint64_t n_entered; /* members times rounds; only member 0's is used */
    _Alignas(64) atomic_int waiting; /* the member's thread may sleep on its bell number waiting - 1 */
    _Atomic uint64_t n_own; /* rounds that the member has entered */
    int n_members; /* 0: the area is free */
    atomic_int n_left; /* members that will not touch it again */
    node_call calls[2]; /* by the parity of the round */
    _Alignas(64) unsigned char slots[2][NODE_SLOT_BYTES];
} node_area;

typedef struct node_share {
    qdri_bell bells[QDRI_DEV_BELLS];
    heap_share heap;
    node_area areas[NODE_AREAS];
} node_share;

/* Of a communicator: `memory`, `shares` and `heap` of the root, the rest of each. */
typedef struct mpi_node {
    void *memory; /* NULL: none */
    size_t bytes;
    node_share **shares; /* by rank; NULL on other nodes */
    mpi_heap *heap; /* NULL: none */
    node_area **areas; /* by rank, if in use */
    int in_use;
    uint64_t n_rounds; /* that this member has entered */
    void **targets; /* room for one pointer per member, as for */
    const void **chunks;
} mpi_node;

typedef struct mpi_comm mpi_comm;

/* Collective over a root. Ranks without company, or without room for the memory, have none: then messages do, as they
 * do for groups that span nodes. */
QDR_NODISCARD qdr_status qdri_mpi_node_create(mpi_comm *root);
/* Nobody uses it any more. */
void qdri_mpi_node_destroy(mpi_comm *root);
/* Collective: gives the communicator, or its level inside the node, areas if it can have them. mine: whether this rank
 * has failed, and takes part only so that nobody waits for it. */
QDR_NODISCARD qdr_status qdri_mpi_node_join(mpi_comm *comm, qdr_status mine);
/* Not collective: members that still read this one's area go on. */
void qdri_mpi_node_leave(mpi_comm *comm);

/* 1 if this collective goes through node memory. The same on all members. */
int qdri_mpi_node_takes(const mpi_comm *comm, const qdri_coll *coll);
/* The work of such a collective. */
qdr_status qdri_mpi_node_step(qdri_run *run);

/* mpi_node_direct.c: without copies between. */
int qdri_mpi_direct_wants(const qdri_run *run); /* the same on all members */
/* Fills the call's places with what of this member's memory others need. */
void qdri_mpi_direct_offer(const qdri_run *run, node_call *call);
int qdri_mpi_direct_is_offered(const qdri_run *run, const node_call *call, int member);
/* Finds member's memory; 0: it cannot be mapped. */
int qdri_mpi_direct_map(const qdri_run *run, int member, const node_call *call);
/* All members have found all memory: this one's share of the work. */
void qdri_mpi_direct_move(const qdri_run *run);

#endif
