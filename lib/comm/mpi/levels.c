/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of groups that span nodes, performed level by level: inside each node first (or last), and between nodes
 * by each member with its counterparts on the other nodes, so that a node sends as much as one rank would, not that
 * amount for each of its ranks. A collective here is a sequence of collectives of smaller groups, its stages. Sums: the
 * members of a node in rank order, then the nodes in order; rounded at each level. */
#include "comm/mpi/internal.h"
#include "core/size.h"
#include "dev/clock.h"

static mpi_levels *levels_of(const qdri_coll_run *run) { return &((mpi_comm *)run->comm)->levels; }

int qdri_mpi_levels_take(const mpi_comm *comm, const qdri_coll *coll)
{
    return comm->levels.per_node > 0 && !coll->lengths && coll->kind != QDR_ALL_TO_ALL && coll->kind != QDR_SEND_RECV;
}

/* The part of the member with this index on this node. */
static void part_at(const qdri_comm *comm, const qdri_coll *coll, int node, int index, int64_t *begin, int64_t *n)
{
    const int per_node = ((const mpi_comm *)comm)->levels.per_node;
    qdri_coll_part(coll, comm->size, node * per_node + index, begin, n);
}

/* counts for the members of the outer group; *before: elements of earlier nodes */
static const int64_t *outer_counts(const qdri_coll_run *run)
{
    mpi_levels *levels = levels_of(run);
    int64_t begin;
    for (int node = 0; node < levels->n_nodes; node++)
        part_at(run->comm, &run->coll, node, run->comm->rank % levels->per_node, &begin, &levels->counts[node]);
    return levels->counts;
}

static const int64_t *inner_counts(const qdri_coll_run *run, int node, int64_t *begin)
{
    mpi_levels *levels = levels_of(run);
    int64_t *counts = levels->counts + levels->n_nodes, next;
    part_at(run->comm, &run->coll, node, 0, begin, &counts[0]);
    for (int index = 1; index < levels->per_node; index++)
        part_at(run->comm, &run->coll, node, index, &next, &counts[index]);
    return counts;
}

/* ---- stages: the next collective, and its group; 0: no more stages ---- */

/* Each member sums a slice inside its node, sums it with its counterparts, and the members of the node gather the
 * slices. */
static int next_all_reduce(const qdri_coll_run *run, qdri_coll *next, int *is_inner)
{
    const mpi_levels *levels = levels_of(run);
    const qdri_coll *coll = &run->coll;
    qdri_coll slices = *coll;
    int64_t begin, n;
    slices.split_unit = 1;
    qdri_coll_part(&slices, levels->per_node, run->comm->rank % levels->per_node, &begin, &n);
    void *slice = qdri_at_mutable(coll->recv, begin, coll->dtype);
    *next = slices;
    *is_inner = levels->stage != 1;
    if (levels->stage == 0) {
        next->kind = QDR_REDUCE_SCATTER;
        next->send = qdri_coll_source(coll);
        next->recv = slice;
    } else if (levels->stage == 1) {
        next->split_unit = 0;
        next->send = NULL;
        next->recv = slice;
        next->count = n;
    } else {
        next->kind = QDR_ALL_GATHER;
        next->send = NULL;
    }
    return levels->stage < 3;
}

/* For each node, this node's members sum that node's elements; then each member gets its own from its counterparts. */
static int next_reduce_scatter(const qdri_coll_run *run, qdri_coll *next, int *is_inner)
{
    const mpi_levels *levels = levels_of(run);
    const qdri_coll *coll = &run->coll;
    const int node = levels->stage;
    *next = (qdri_coll){.kind = QDR_REDUCE_SCATTER, .dtype = coll->dtype, .op = coll->op};
    *is_inner = node < levels->n_nodes;
    if (*is_inner) {
        int64_t begin;
        next->counts = inner_counts(run, node, &begin);
        next->send = qdri_at(coll->send, begin, coll->dtype);
        next->recv = qdri_at_mutable(run->staging, qdri_coll_offset(outer_counts(run), 0, node), coll->dtype);
    } else {
        next->counts = outer_counts(run);
        next->send = run->staging;
        next->recv = coll->recv;
    }
    return node <= levels->n_nodes;
}

/* Counterparts gather; then, for each node, this node's members gather what came from there. */
static int next_all_gather(const qdri_coll_run *run, qdri_coll *next, int *is_inner)
{
    const mpi_levels *levels = levels_of(run);
    const qdri_coll *coll = &run->coll;
    const int node = levels->stage - 1, index = run->comm->rank % levels->per_node;
    int64_t begin, n;
    *next = (qdri_coll){.kind = QDR_ALL_GATHER, .dtype = coll->dtype};
    *is_inner = node >= 0;
    if (!*is_inner) {
        qdri_coll_part(coll, run->comm->size, run->comm->rank, &begin, &n);
        next->counts = outer_counts(run);
        next->send = coll->send ? coll->send : qdri_at(coll->recv, begin, coll->dtype);
        next->recv = run->staging;
    } else if (node < levels->n_nodes) {
        const int64_t at = qdri_coll_offset(outer_counts(run), 0, node);
        part_at(run->comm, coll, node, index, &begin, &n);
        qdri_coll_copy(coll->dtype, qdri_at_mutable(coll->recv, begin, coll->dtype),
                       qdri_at(run->staging, at, coll->dtype), n);
        next->counts = inner_counts(run, node, &begin);
        next->recv = qdri_at_mutable(coll->recv, begin, coll->dtype);
    }
    return node < levels->n_nodes;
}

/* From the root to its counterparts; then from each of these within its node. */
static int next_broadcast(const qdri_coll_run *run, qdri_coll *next, int *is_inner)
{
    mpi_levels *levels = levels_of(run);
    const int peer = run->coll.peer, per_node = levels->per_node;
    if (levels->stage == 0 && run->comm->rank % per_node != peer % per_node) levels->stage++;
    *next = run->coll;
    *is_inner = levels->stage == 1;
    next->peer = *is_inner ? peer % per_node : peer / per_node;
    return levels->stage < 2;
}

/* Staging used by the levels themselves; that of the stages follows it. */
static size_t own_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    const mpi_levels *levels = &((const mpi_comm *)comm)->levels;
    int64_t begin, n, sum = 0; /* elements of this member and its counterparts */
    if (coll->kind != QDR_ALL_GATHER && coll->kind != QDR_REDUCE_SCATTER) return 0;
    for (int node = 0; node < levels->n_nodes; node++) {
        part_at(comm, coll, node, comm->rank % levels->per_node, &begin, &n);
        sum += n;
    }
    return qdri_align_bytes((size_t)sum * qdr_dtype_bytes(coll->dtype), 64);
}

/* For a stage that reduces: `n` elements are this member's, or the total. */
static size_t stage_bytes(const qdri_comm *group, qdr_coll_kind kind, qdr_dtype dtype, int64_t n)
{
    const qdri_coll stage = {.kind = kind, .dtype = dtype, .count = n};
    return qdri_mpi_flat_scratch_bytes(group, &stage);
}

size_t qdri_mpi_levels_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    const mpi_levels *levels = &((const mpi_comm *)comm)->levels;
    int64_t slice = 0, largest = 0, mine, begin;
    if (coll->kind == QDR_ALL_REDUCE) {
        slice = largest = qdri_ceil_div(coll->count, levels->per_node);
    } else if (coll->kind == QDR_REDUCE_SCATTER) {
        for (int node = 0; node < levels->n_nodes; node++) {
            part_at(comm, coll, node, comm->rank % levels->per_node, &begin, &mine);
            if (mine > largest) largest = mine;
        }
        qdri_coll_part(coll, comm->size, comm->rank, &begin, &slice);
    }
    const size_t inner = stage_bytes(&levels->inner->base, QDR_REDUCE_SCATTER, coll->dtype, largest);
    const size_t outer = stage_bytes(&levels->outer->base, coll->kind, coll->dtype, slice);
    return own_bytes(comm, coll) + (inner > outer ? inner : outer);
}

static int64_t sent(const qdri_comm *comm, qdr_coll_kind kind) { return atomic_load(&comm->counters[kind].bytes_sent); }

static int begin_stage(qdri_coll_run *run)
{
    mpi_levels *levels = levels_of(run);
    qdri_coll next;
    int is_inner, is_next;
    switch (run->coll.kind) {
    case QDR_ALL_REDUCE: is_next = next_all_reduce(run, &next, &is_inner); break;
    case QDR_REDUCE_SCATTER: is_next = next_reduce_scatter(run, &next, &is_inner); break;
    case QDR_ALL_GATHER: is_next = next_all_gather(run, &next, &is_inner); break;
    default: is_next = next_broadcast(run, &next, &is_inner);
    }
    if (!is_next) return 0;
    qdri_comm *group = is_inner ? &levels->inner->base : &levels->outer->base;
    levels->run = (qdri_coll_run){.comm = group,
                                  .coll = next,
                                  .step = qdri_mpi_flat_step_of(group, &next),
                                  .begin_nanosecs = qdri_now_ns(),
                                  .staging = (char *)run->staging + own_bytes(run->comm, &run->coll)};
    levels->sent_before = sent(group, next.kind);
    run->is_later_stage = levels->stage > 0;
    return 1;
}

qdr_status qdri_mpi_levels_step(qdri_coll_run *run)
{
    mpi_levels *levels = levels_of(run);
    qdri_counter *counter = qdri_counter_of(run->comm, &run->coll);
    if (run->phase == 0) {
        run->phase = 1;
        levels->stage = 0;
        if (!begin_stage(run)) return QDR_OK;
    }
    for (;;) {
        const qdr_status status = levels->run.step(&levels->run);
        if (status == QDR_ERR_PEER) /* the caller does not know about stages */
            return qdri_mpi_fail_peer(run->comm, qdr_coll_kind_name(run->coll.kind));
        QDR_TRY(status);
        /* Adds what the stage has sent to the counters of this collective. */
        const qdri_comm *group = levels->run.comm;
        const int64_t n = sent(group, levels->run.coll.kind) - levels->sent_before;
        atomic_fetch_add(&counter->bytes_sent, n);
        if (group == &levels->outer->base) atomic_fetch_add(&counter->bytes_off_node, n);
        levels->stage++;
        if (!begin_stage(run)) return QDR_OK;
    }
}
