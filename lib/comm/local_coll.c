/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the `local` backend: the reference for all others.
 *
 * Each member publishes its arguments and enters, a barrier that can fail. When all have entered,
 * each reads what it needs straight from the others' buffers and passes, a barrier that cannot
 * fail, since members that have entered run to the end. All-reduce passes twice. Of short messages
 * the last to enter does everyone's part and passes for all. */
#include <string.h>

#include "comm/local.h"

enum { ALONE_BYTES = 16384 }; /* below this, waking the others costs more than their work */

/* Counts for the sender, here where the bytes go from one rank to another. */
static void count_sent(const local_slot *from, const local_slot *to, int64_t n_elems)
{
    if (from == to || n_elems == 0) return;
    const int64_t bytes = n_elems * (int64_t)qdr_dtype_bytes(from->coll.dtype);
    atomic_fetch_add_explicit(&from->comm->base.counters[from->coll.kind].bytes_sent, bytes,
                              memory_order_relaxed);
}

static void take(const local_slot *from, const local_slot *to, void *dst, const void *src,
                 int64_t n_elems)
{
    if (n_elems == 0 || dst == src) return;
    memcpy(dst, src, (size_t)n_elems * qdr_dtype_bytes(from->coll.dtype));
    count_sent(from, to, n_elems);
}

/* Member r sums its part of everyone's vector. */
static void take_sum(const local_group *group, const void **sources, int r, void *dst)
{
    const local_slot *mine = &group->slots[r];
    const qdri_coll *coll = &mine->coll;
    int64_t begin, n;
    qdri_coll_part(coll, group->size, r, &begin, &n);
    for (int j = 0; j < group->size; j++) {
        const qdri_coll *other = &group->slots[j].coll;
        sources[j] = qdri_at(other->send ? other->send : other->recv, begin, coll->dtype);
        count_sent(&group->slots[j], mine, n);
    }
    qdri_reduce(coll->dtype, coll->op, dst, sources, group->size, n);
}

/* Member r copies the parts that lie in place in the others' recv, or are their send. */
static void take_parts(local_group *group, int r)
{
    const local_slot *mine = &group->slots[r];
    const qdri_coll *coll = &mine->coll;
    for (int i = 0; i < group->size; i++) {
        const local_slot *from = &group->slots[(r + i) % group->size];
        int64_t begin, n;
        qdri_coll_part(coll, group->size, (r + i) % group->size, &begin, &n);
        const void *src = from->coll.send;
        if (coll->kind == QDR_ALL_REDUCE || !src)
            src = qdri_at(from->coll.recv, begin, coll->dtype);
        take(from, mine, qdri_at_mutable(coll->recv, begin, coll->dtype), src, n);
    }
}

static qdr_status take_from_all(local_group *group, int r)
{
    const local_slot *mine = &group->slots[r];
    const qdri_coll *coll = &mine->coll;
    qdr_status status = QDR_OK;
    for (int i = 0; i < group->size; i++) {
        const int j = (r + i) % group->size;
        const local_slot *from = &group->slots[j];
        int64_t out_begin, n_out, in_begin, n_in;
        qdri_coll_outgoing(&from->coll, r, &out_begin, &n_out);
        qdri_coll_incoming(coll, j, &in_begin, &n_in);
        if (n_in != n_out) {
            status = QDR_FAIL(QDR_ERR_SHAPE,
                              "all-to-all: rank %d sends %" PRId64
                              " elements, rank %d expects %" PRId64,
                              j, n_out, r, n_in);
            continue;
        }
        take(from, mine, qdri_at_mutable(coll->recv, in_begin, coll->dtype),
             qdri_at(from->coll.send, out_begin, coll->dtype), n_in);
    }
    return status;
}

static qdr_status take_from_one(local_group *group, int r)
{
    const local_slot *mine = &group->slots[r];
    const qdri_coll *coll = &mine->coll;
    if (coll->peer >= 0 && group->slots[coll->peer].coll.peer2 != r)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "send-recv: rank %d sends to rank %d, which receives from %d", r,
                        coll->peer, group->slots[coll->peer].coll.peer2);
    if (coll->peer2 < 0) return QDR_OK;
    const local_slot *from = &group->slots[coll->peer2];
    if (from->coll.peer != r || from->coll.count != coll->recv_count)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "send-recv: rank %d sends %" PRId64
                        " elements to rank %d, rank %d expects %" PRId64,
                        coll->peer2, from->coll.count, from->coll.peer, r, coll->recv_count);
    take(from, mine, coll->recv, from->coll.send, coll->recv_count);
    return QDR_OK;
}

static qdr_status take_first(local_group *group, const void **sources, int r)
{
    const qdri_coll *coll = &group->slots[r].coll;
    int64_t begin, n;
    switch (coll->kind) {
    case QDR_ALL_GATHER: take_parts(group, r); break;
    case QDR_REDUCE_SCATTER: take_sum(group, sources, r, coll->recv); break;
    case QDR_ALL_REDUCE:
        qdri_coll_part(coll, group->size, r, &begin, &n);
        take_sum(group, sources, r, qdri_at_mutable(coll->recv, begin, coll->dtype));
        break;
    case QDR_BROADCAST:
        take(&group->slots[coll->peer], &group->slots[r], coll->recv,
             group->slots[coll->peer].coll.recv, coll->count);
        break;
    case QDR_ALL_TO_ALL: return take_from_all(group, r);
    default: return take_from_one(group, r);
    }
    return QDR_OK;
}

/* All members compare the same slots, so all of them fail. */
static qdr_status check_equal(const local_group *group)
{
    const qdri_coll *a = &group->slots[0].coll;
    for (int j = 1; j < group->size; j++) {
        const qdri_coll *b = &group->slots[j].coll;
        const int64_t n_a = qdri_coll_total(a, group->size), n_b = qdri_coll_total(b, group->size);
        if (a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && n_a == n_b &&
            (a->kind != QDR_BROADCAST || a->peer == b->peer))
            continue;
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "comm: rank 0 calls %s of %" PRId64 " %s, rank %d calls %s of %" PRId64
                        " %s; all ranks must call the same",
                        qdr_coll_kind_name(a->kind), n_a, qdr_dtype_name(a->dtype), j,
                        qdr_coll_kind_name(b->kind), n_b, qdr_dtype_name(b->dtype));
    }
    return QDR_OK;
}

static int one_works_for_all(const qdri_coll *coll, int size)
{
    const int64_t total = qdri_coll_total(coll, size);
    return total >= 0 && total * size * (int64_t)qdr_dtype_bytes(coll->dtype) <= ALONE_BYTES;
}

static void work_for_all(local_group *group, const void **sources)
{
    for (int r = 0; r < group->size; r++) {
        const qdr_status status = take_first(group, sources, r);
        (void)status; /* kinds that can fail have no total and are not done for others */
    }
    for (int r = 0; r < group->size && group->slots[r].coll.kind == QDR_ALL_REDUCE; r++)
        take_parts(group, r);
}

static qdr_status fail_left(const qdri_run *run)
{
    return QDR_FAIL(QDR_ERR_PEER,
                    "comm: another rank left or failed while rank %d of %d waited in %s",
                    run->comm->rank, run->comm->size, qdr_coll_kind_name(run->coll.kind));
}

enum { BEGIN, SERVED, ENTERING, FIRST, LAST };

/* Everyone has entered: this run lasts until everyone has passed. */
static void work(qdri_run *run)
{
    local_comm *comm = (local_comm *)run->comm;
    run->status = take_first(comm->group, comm->sources, run->comm->rank);
    run->phase = run->coll.kind == QDR_ALL_REDUCE ? FIRST : LAST;
    qdri_local_pass(comm->group, run->comm->rank, comm->n_passed, 1);
}

static qdr_status serve(qdri_run *run)
{
    local_comm *comm = (local_comm *)run->comm;
    work_for_all(comm->group, comm->sources);
    qdri_local_pass(comm->group, run->comm->rank, comm->n_passed, (uint64_t)comm->group->size);
    return QDR_OK;
}

static qdr_status begin(qdri_run *run)
{
    local_comm *comm = (local_comm *)run->comm;
    local_group *group = comm->group;
    local_slot *mine = &group->slots[run->comm->rank];
    mine->coll = run->coll;
    qdri_local_set_waker(mine, qdri_current_waker());
    comm->n_entered += (uint64_t)group->size;
    comm->n_passed += (uint64_t)group->size;
    run->phase = one_works_for_all(&run->coll, group->size) ? SERVED : ENTERING;
    const int is_last = qdri_local_enter(group, comm->n_entered);
    if (is_last <= 0) return is_last < 0 ? fail_left(run) : QDR_PENDING;
    const qdr_status status = check_equal(group);
    if (status != QDR_OK) atomic_store(&group->disagrees, 1);
    if (status == QDR_OK && run->phase == SERVED) return serve(run);
    qdri_local_wake(group, run->comm->rank);
    if (status == QDR_OK) work(run);
    return status == QDR_OK ? QDR_PENDING : status;
}

/* Does not look at the slots while all is well: the others may be on their way to the next
 * collective. */
static qdr_status await_service(const qdri_run *run)
{
    const local_comm *comm = (const local_comm *)run->comm;
    if (atomic_load(&comm->group->disagrees)) {
        QDR_TRY(check_equal(comm->group));
        return fail_left(run);
    }
    if (qdri_local_passed(comm->group, comm->n_passed)) return QDR_OK;
    return qdri_local_entered(comm->group, comm->n_entered) < 0 ? fail_left(run) : QDR_PENDING;
}

static qdr_status await_all(qdri_run *run)
{
    local_comm *comm = (local_comm *)run->comm;
    const int here = qdri_local_entered(comm->group, comm->n_entered);
    if (here <= 0) return here < 0 ? fail_left(run) : QDR_PENDING;
    const qdr_status status = check_equal(comm->group);
    if (status == QDR_OK) work(run);
    return status == QDR_OK ? QDR_PENDING : status;
}

static qdr_status advance(qdri_run *run)
{
    local_comm *comm = (local_comm *)run->comm;
    local_group *group = comm->group;
    qdr_status status = QDR_PENDING;
    if (run->phase == BEGIN)
        status = begin(run);
    else if (run->phase == SERVED)
        status = await_service(run);
    else if (run->phase == ENTERING)
        status = await_all(run);
    if (status != QDR_PENDING) return status;
    if (run->phase == FIRST && qdri_local_passed(group, comm->n_passed)) {
        comm->n_passed += (uint64_t)group->size;
        run->phase = LAST;
        take_parts(group, run->comm->rank);
        qdri_local_pass(group, run->comm->rank, comm->n_passed, 1);
    }
    if (run->phase == LAST && qdri_local_passed(group, comm->n_passed)) return run->status;
    return QDR_PENDING;
}

static qdr_status step(qdri_run *run)
{
    local_comm *comm = (local_comm *)run->comm;
    const qdr_status status = advance(run);
    if (status != QDR_PENDING) qdri_local_set_waker(&comm->group->slots[run->comm->rank], NULL);
    return status;
}

qdr_status qdri_local_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream)
{
    return qdri_comm_enqueue(comm, coll, stream, step, NULL, 0);
}
