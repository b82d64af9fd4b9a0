/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the `mpi` backend in groups without levels: pairwise messages that a stream's thread starts and tests,
 * without ever waiting inside MPI. Sums are computed here, in rank order, because MPI guarantees neither an order nor
 * equal bits on all members. */
#include <string.h>

#include "comm/mpi/internal.h"
#include "dev/clock.h"

static qdr_status start_send(qdri_coll_run *run, int peer, const void *data, int64_t n_elems)
{
    const size_t bytes = (size_t)n_elems * qdr_dtype_bytes(run->coll.dtype);
    qdri_counter *counter = qdri_counter_of(run->comm, &run->coll);
    if (bytes == 0) return QDR_OK;
    QDR_TRY(qdri_mpi_start_message((mpi_comm *)run->comm, 1, peer, (void *)(uintptr_t)data, bytes));
    atomic_fetch_add(&counter->bytes_sent, (int64_t)bytes);
    if (qdri_mpi_is_off_node((mpi_comm *)run->comm, peer)) atomic_fetch_add(&counter->bytes_off_node, (int64_t)bytes);
    return QDR_OK;
}

static qdr_status start_receive(qdri_coll_run *run, int peer, void *data, int64_t n_elems)
{
    const size_t bytes = (size_t)n_elems * qdr_dtype_bytes(run->coll.dtype);
    return bytes == 0 ? QDR_OK : qdri_mpi_start_message((mpi_comm *)run->comm, 0, peer, data, bytes);
}

/* The i-th member after this one. Each member begins with its own neighbour, so that no member is the first of all. */
static int member_at(const qdri_comm *comm, int i) { return (comm->rank + i) % comm->size; }

/* Between two members an all-reduce is an exchange of the whole vector: as many bytes as in two phases, in a single
 * one. */
static int exchanges_whole(const qdri_comm *comm, const qdri_coll *coll)
{
    return coll->kind == QDR_ALL_REDUCE && comm->size == 2;
}

/* The part that member j sums. */
static void summed_part(const qdri_comm *comm, const qdri_coll *coll, int j, int64_t *begin, int64_t *n)
{
    *begin = 0;
    *n = coll->count;
    if (!exchanges_whole(comm, coll)) qdri_coll_part(coll, comm->size, j, begin, n);
}

/* Receives the other members' versions of this member's part into the staging memory, in rank order. */
static qdr_status start_sums(qdri_coll_run *run)
{
    const qdri_comm *comm = run->comm;
    const qdri_coll *coll = &run->coll;
    const void *source = qdri_coll_source(coll);
    int64_t begin, n, n_mine;
    summed_part(comm, coll, comm->rank, &begin, &n_mine);
    for (int i = 1; i < comm->size; i++) {
        const int j = member_at(comm, i), index = j < comm->rank ? j : j - 1;
        QDR_TRY(start_receive(run, j, qdri_at_mutable(run->staging, index * n_mine, coll->dtype), n_mine));
    }
    for (int i = 1; i < comm->size; i++) {
        const int j = member_at(comm, i);
        summed_part(comm, coll, j, &begin, &n);
        QDR_TRY(start_send(run, j, qdri_at(source, begin, coll->dtype), n));
    }
    return QDR_OK;
}

static void finish_sums(qdri_coll_run *run)
{
    mpi_comm *comm = (mpi_comm *)run->comm;
    const qdri_coll *coll = &run->coll;
    const void *source = qdri_coll_source(coll);
    int64_t begin, n;
    summed_part(run->comm, coll, run->comm->rank, &begin, &n);
    for (int j = 0; j < run->comm->size; j++) {
        const int index = j < run->comm->rank ? j : j - 1;
        comm->sources[j] = j == run->comm->rank ? qdri_at(source, begin, coll->dtype)
                                                : qdri_at(run->staging, index * n, coll->dtype);
    }
    void *dst = coll->kind == QDR_ALL_REDUCE ? qdri_at_mutable(coll->recv, begin, coll->dtype) : coll->recv;
    qdri_reduce(coll->dtype, coll->op, dst, comm->sources, run->comm->size, n);
}

/* The root of a broadcast already has all of it. */
static int lacks_parts(const qdri_coll *coll, int j) { return coll->kind != QDR_BROADCAST || j != coll->peer; }

/* This member's part is in send, or in its place in recv. */
static qdr_status start_gather(qdri_coll_run *run)
{
    const qdri_comm *comm = run->comm;
    const qdri_coll *coll = &run->coll;
    int64_t begin, n;
    for (int i = 1; i < comm->size && lacks_parts(coll, comm->rank); i++) {
        qdri_coll_gathered(coll, comm->size, member_at(comm, i), &begin, &n);
        QDR_TRY(start_receive(run, member_at(comm, i), qdri_at_mutable(coll->recv, begin, coll->dtype), n));
    }
    qdri_coll_gathered(coll, comm->size, comm->rank, &begin, &n);
    void *place = qdri_at_mutable(coll->recv, begin, coll->dtype);
    const void *own = coll->kind == QDR_ALL_GATHER && coll->send ? coll->send : place;
    for (int i = 1; i < comm->size; i++)
        if (lacks_parts(coll, member_at(comm, i))) QDR_TRY(start_send(run, member_at(comm, i), own, n));
    qdri_coll_copy(coll->dtype, place, own, n);
    return QDR_OK;
}

/* A long broadcast is sent in parts, which all members then gather, each sending its own part: otherwise the root would
 * send the vector over its link once per member. The total number of bytes is the same. */
static int broadcasts_parts(const qdri_coll_run *run)
{
    const qdri_coll *coll = &run->coll;
    return coll->kind == QDR_BROADCAST && run->comm->size > 2 &&
           coll->count * (int64_t)qdr_dtype_bytes(coll->dtype) >= run->comm->size * (int64_t)qdri_mpi_piece_bytes;
}

/* What each member receives from the root in the first of the two steps. */
static qdr_status start_broadcast(qdri_coll_run *run)
{
    const qdri_comm *comm = run->comm;
    const qdri_coll *coll = &run->coll;
    const int is_root = comm->rank == coll->peer;
    for (int i = is_root; i < (is_root ? comm->size : 1); i++) {
        int64_t begin = 0, n = coll->count;
        if (broadcasts_parts(run)) qdri_coll_part(coll, comm->size, member_at(comm, i), &begin, &n);
        void *at = qdri_at_mutable(coll->recv, begin, coll->dtype);
        QDR_TRY(is_root ? start_send(run, member_at(comm, i), at, n) : start_receive(run, coll->peer, at, n));
    }
    return QDR_OK;
}

static qdr_status start_all_to_all(qdri_coll_run *run)
{
    const qdri_comm *comm = run->comm;
    const qdri_coll *coll = &run->coll;
    int64_t begin, n, own_begin;
    for (int i = 1; i < comm->size; i++) {
        qdri_coll_incoming(coll, member_at(comm, i), &begin, &n);
        QDR_TRY(start_receive(run, member_at(comm, i), qdri_at_mutable(coll->recv, begin, coll->dtype), n));
    }
    for (int i = 1; i < comm->size; i++) {
        qdri_coll_outgoing(coll, member_at(comm, i), &begin, &n);
        QDR_TRY(start_send(run, member_at(comm, i), qdri_at(coll->send, begin, coll->dtype), n));
    }
    qdri_coll_outgoing(coll, comm->rank, &begin, &n);
    qdri_coll_incoming(coll, comm->rank, &own_begin, &n);
    qdri_coll_copy(coll->dtype, qdri_at_mutable(coll->recv, own_begin, coll->dtype),
                   qdri_at(coll->send, begin, coll->dtype), n);
    return QDR_OK;
}

static qdr_status start_send_recv(qdri_coll_run *run)
{
    const qdri_coll *coll = &run->coll;
    const int self = run->comm->rank;
    if (coll->peer == self) qdri_coll_copy(coll->dtype, coll->recv, coll->send, coll->count);
    if (coll->peer2 >= 0 && coll->peer2 != self) QDR_TRY(start_receive(run, coll->peer2, coll->recv, coll->recv_count));
    if (coll->peer >= 0 && coll->peer != self) QDR_TRY(start_send(run, coll->peer, coll->send, coll->count));
    return QDR_OK;
}

/* ---- a collective, step by step ---- */

enum { BEGIN, FIRST, LAST, DRAIN };
enum { POLLS_PER_LOOK = 32, LOOKS_AFTER_LEAVING = 8 }; /* a last message may arrive after the note */

static qdr_status await(qdri_coll_run *run)
{
    mpi_comm *comm = (mpi_comm *)run->comm;
    int all_done = 0;
    QDR_TRY(qdri_mpi_test(comm, &all_done));
    if (all_done) return QDR_OK;
    int given_up = atomic_load(&comm->given_up);
    if (!given_up && ++run->n_looks % POLLS_PER_LOOK == 0) {
        given_up = qdri_mpi_given_up(comm);
        int has_left = 0; /* somebody for whom this rank waits */
        for (int i = 0; i < comm->n_messages; i++)
            has_left |= qdri_mpi_is_open(comm, i) && qdri_mpi_has_left(comm, comm->messages[i].peer);
        run->n_left_looks += has_left;
    }
    if (given_up || run->n_left_looks == LOOKS_AFTER_LEAVING)
        return qdri_mpi_fail_peer(run->comm, qdr_coll_kind_name(run->coll.kind));
    qdri_mpi_look_again(comm, qdri_now_ns() - run->begin_nanosecs);
    return QDR_PENDING;
}

static qdr_status advance(qdri_coll_run *run)
{
    if (run->phase == BEGIN) {
        switch (run->coll.kind) {
        case QDR_ALL_GATHER: QDR_TRY(start_gather(run)); break;
        case QDR_BROADCAST: QDR_TRY(start_broadcast(run)); break;
        case QDR_ALL_TO_ALL: QDR_TRY(start_all_to_all(run)); break;
        case QDR_SEND_RECV: QDR_TRY(start_send_recv(run)); break;
        default: QDR_TRY(start_sums(run));
        }
        run->phase = FIRST;
    }
    QDR_TRY(await(run));
    if (run->phase == LAST) return QDR_OK;
    if (qdri_coll_reduces(&run->coll)) finish_sums(run);
    const int sums_parts = run->coll.kind == QDR_ALL_REDUCE && !exchanges_whole(run->comm, &run->coll);
    if (!sums_parts && !broadcasts_parts(run)) return QDR_OK; /* otherwise each member has one part of the result */
    run->phase = LAST;
    run->is_later_stage = 1;
    QDR_TRY(start_gather(run));
    return await(run);
}

static qdr_status step(qdri_coll_run *run)
{
    mpi_comm *comm = (mpi_comm *)run->comm;
    if (run->phase != DRAIN) {
        run->status = advance(run);
        if (run->status >= 0) return run->status;
        /* Gives up: notifies the others and cancels receives. Memory that others may still be reading is kept for a
         * while. */
        strncpy(comm->sentence, qdr_last_error(), sizeof comm->sentence - 1);
        run->phase = DRAIN;
        run->drain_secs = qdri_mpi_now_secs();
        qdri_comm_abort(run->comm);
        qdri_mpi_take_back(comm);
    }
    int all_done = 0;
    const qdr_status tested = qdri_mpi_test(comm, &all_done);
    if (tested == QDR_OK && !all_done && qdri_mpi_now_secs() - run->drain_secs < QDRI_MPI_DRAIN_SECS) {
        qdri_poll_again();
        return QDR_PENDING;
    }
    qdri_mpi_forget(comm);
    qdri_set_last_error(comm->sentence);
    return run->status;
}

size_t qdri_mpi_flat_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    int64_t begin, n;
    if (qdri_mpi_node_takes((const mpi_comm *)comm, coll) || !qdri_coll_reduces(coll)) return 0;
    summed_part(comm, coll, comm->rank, &begin, &n);
    return (size_t)n * (size_t)(comm->size - 1) * qdr_dtype_bytes(coll->dtype);
}

qdri_mpi_step qdri_mpi_flat_step_of(const qdri_comm *comm, const qdri_coll *coll)
{
    return qdri_mpi_node_takes((const mpi_comm *)comm, coll) ? qdri_mpi_node_step : step;
}

/* By the rounds that members of a node have entered, or by the messages that are not complete. */
int qdri_mpi_flat_has_come(const qdri_coll_run *run, int member)
{
    const mpi_comm *comm = (const mpi_comm *)run->comm;
    if (run->step == qdri_mpi_node_step) return atomic_load(&comm->node.areas[member]->n_own) > run->round;
    for (int i = 0; i < comm->n_messages; i++)
        if (comm->messages[i].peer == member && qdri_mpi_is_open(comm, i)) return 0;
    return 1;
}
