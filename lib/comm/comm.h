/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: collectives over a group of ranks, enqueued on streams, behind one table. comm.c
 * checks and counts; backends
 * (`local`, `mpi`) translate. A collective is data (qdri_coll). Members call the same collectives
 * in the same order, each communicator from one stream at a time. Reductions exchange pairwise and
 * add in rank order, in fp32 (f64 for F64, I32 as integers), rounding once; all-reduce is that and
 * an all-gather, so that all members hold identical bits. */
#ifndef QDRI_COMM_COMM_H
#define QDRI_COMM_COMM_H

#include "dev/dev.h"
#include "quadrille/grid.h"

typedef struct qdri_comm qdri_comm;

/* One collective as seen by one member. Parts lie one behind the other in rank order, without gaps.
 *  ALL_GATHER      send: counts[rank] elements (or recv's own part, "in place": send = NULL); recv:
 * Σ counts REDUCE_SCATTER  send: Σ counts elements; recv: counts[rank]; recv may be send's own part
 *  ALL_REDUCE      send: count elements (NULL: in place); recv: count
 *  BROADCAST       recv: count elements, from `peer`
 *  ALL_TO_ALL      send: Σ counts; recv: Σ recv_counts; counts[j] goes to rank j, recv_counts[j]
 * comes from it SEND_RECV       send: count elements to `peer` (-1: none); recv: recv_count
 * elements from `peer2` (-1: none) counts and recv_counts have one entry per member, may hold
 * zeros, and live until the collective has run. counts = NULL means `count` for each member; or,
 * for ALL_GATHER and REDUCE_SCATTER with split_unit > 0, that `count` is the sum of all parts and
 * member j's part is qdri_split(count, split_unit, size, j): uneven rows need no array (unit = rows
 * that stay together · columns). */
typedef struct qdri_coll {
    qdr_coll_kind kind;
    qdr_dtype dtype;
    qdr_reduce op;
    const void *send;
    void *recv;
    int64_t count, recv_count;
    int64_t split_unit; /* 0: parts are equal, or as counts say */
    const int64_t *counts, *recv_counts;
    int peer, peer2;
} qdri_coll;

typedef struct qdri_comm_table {
    const char *name;
    /* Enqueues; arguments have been checked, the group has at least two members. */
    qdr_status (*launch)(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream);
    /* Bytes of staging that `coll` needs on this rank. */
    size_t (*scratch_bytes)(const qdri_comm *comm, const qdri_coll *coll);
    /* Collective: ranks of equal colour form a group, ordered by key; colour < 0: none (*part =
     * NULL). */
    qdr_status (*split)(qdri_comm *comm, int colour, int key, qdri_comm **part);
    void (*abort)(qdri_comm *comm); /* lets the other members fail instead of waiting; optional */
    void (*destroy)(qdri_comm *comm);
} qdri_comm_table;

/* Makes the world communicator of one rank of a local world (lib/comm/local.c) */
QDR_NODISCARD qdr_status qdri_comm_create_local(qdr_local_world *world, int rank, qdri_dev *dev,
                                                qdri_comm **comm);
QDR_NODISCARD qdr_status qdri_comm_create_self(qdri_dev *dev,
                                               qdri_comm **comm); /* a group of one */
void qdri_comm_destroy(qdri_comm **comm); /* takes NULL; collective; the streams are idle */
QDR_NODISCARD qdr_status qdri_comm_split(qdri_comm *comm, int colour, int key, qdri_comm **part);
int qdri_comm_rank(const qdri_comm *comm);
int qdri_comm_size(const qdri_comm *comm);
/* Ranks of the group on this rank's node. */
int qdri_comm_node_size(const qdri_comm *comm);

/* Enqueues a collective. Groups of one copy where needed and count nothing. */
QDR_NODISCARD qdr_status qdri_comm_launch(qdri_comm *comm, const qdri_coll *coll,
                                          qdr_stream *stream);
/* Staging: collectives that need more than what was reserved allocate it for as long as they run.
 */
size_t qdri_comm_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll);
/* Makes the reserve at least `bytes`; the communicator is idle. Device memory, counted. */
QDR_NODISCARD qdr_status qdri_comm_reserve(qdri_comm *comm, size_t bytes);

qdr_traffic qdri_comm_traffic(const qdri_comm *comm, qdr_coll_kind kind);
void qdri_comm_reset_traffic(qdri_comm *comm);

/* Called at each launch of a group of two or more, on the host thread, before it is enqueued: for
 * tests and checks. */
typedef void (*qdri_comm_observer)(const qdri_comm *comm, const qdri_coll *coll, void *user);
void qdri_comm_set_observer(qdri_comm *comm, qdri_comm_observer observer, void *user);

#endif
