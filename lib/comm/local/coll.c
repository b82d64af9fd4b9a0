/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the `local` backend: the reference for all others.
 *
 * Each member publishes its arguments and enters, a barrier that can fail. The last one to enter compares the
 * arguments, divides the collective into pieces and opens it. Pieces read directly from the members' buffers and write
 * to disjoint places in them; any member that has time takes the next one, so that no member waits for a thread without
 * a core. The member that completes the last piece finishes the collective for all. Once opened, a collective cannot
 * fail halfway: members stay until it is finished. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "comm/local/local.h"
#include "core/block.h"

enum {
    MAX_SLICES = 16, /* per member's part */
    ALONE_BYTES = 32768, /* below this size, waking others costs more than their help gains */
    LOOKS = 32 /* polls of a member before it sleeps */
};

int64_t qdri_local_piece_bytes = 65536; /* small enough for neighbouring pieces to stay in the cache */

/* A piece: slice `slice` of the work for member `rank`. */
typedef struct local_piece {
    int rank, slice, n_slices;
} local_piece;

/* Counts for the sender, in the place where the bytes go from one rank to another. */
static void count_sent(const local_slot *from, const local_slot *to, int64_t n_elems)
{
    if (from != to) qdri_count_sent(&from->comm->base, &from->coll, n_elems);
}

static void take(const local_slot *from, const local_slot *to, void *dst, const void *src, int64_t n_elems)
{
    if (n_elems == 0 || dst == src) return;
    memcpy(dst, src, (size_t)n_elems * qdr_dtype_bytes(from->coll.dtype));
    count_sent(from, to, n_elems);
}

/* Where the piece's slice of n elements begins, and its length. */
static void cut(const local_piece *piece, int64_t n, int64_t *begin, int64_t *n_slice)
{
    int64_t end;
    qdri_split(n, 1, piece->n_slices, piece->slice, begin, &end);
    *n_slice = end - *begin;
}

/* Sums one slice of a member's part of all vectors into its recv; for an all-reduce every member gets a copy. No other
 * piece accesses that slice, so recv may be send. */
static void take_sum(const local_group *group, const void **sources, const local_piece *piece)
{
    const local_slot *mine = &group->slots[piece->rank];
    const qdri_coll *coll = &mine->coll;
    int64_t begin, n, at;
    qdri_coll_part(coll, group->size, piece->rank, &begin, &n);
    cut(piece, n, &at, &n);
    for (int j = 0; j < group->size; j++) {
        const qdri_coll *other = &group->slots[j].coll;
        sources[j] = qdri_at(qdri_coll_source(other), begin + at, coll->dtype);
        count_sent(&group->slots[j], mine, n);
    }
    const int to_all = coll->kind == QDR_ALL_REDUCE;
    void *dst = qdri_at_mutable(coll->recv, to_all ? begin + at : at, coll->dtype);
    qdri_reduce(coll->dtype, coll->op, dst, sources, group->size, n);
    for (int i = 1; to_all && i < group->size; i++) {
        const local_slot *other = &group->slots[(piece->rank + i) % group->size];
        take(mine, other, qdri_at_mutable(other->coll.recv, begin + at, coll->dtype), dst, n);
    }
}

/* Copies one slice of each member's part to one member. A part is in its owner's send, or in its recv. */
static void take_parts(const local_group *group, const local_piece *piece)
{
    const local_slot *mine = &group->slots[piece->rank];
    const qdri_coll *coll = &mine->coll;
    for (int i = 0; i < group->size; i++) {
        const int j = (piece->rank + i) % group->size;
        const local_slot *from = &group->slots[j];
        int64_t begin, n, at;
        qdri_coll_gathered(coll, group->size, j, &begin, &n);
        cut(piece, n, &at, &n);
        const void *src = from->coll.send ? qdri_at(from->coll.send, at, coll->dtype)
                                          : qdri_at(from->coll.recv, begin + at, coll->dtype);
        take(from, mine, qdri_at_mutable(coll->recv, begin + at, coll->dtype), src, n);
    }
}

qdr_status qdri_local_fail_parts(int from, int64_t n_out, int to, int64_t n_in)
{
    return QDR_FAIL(QDR_ERR_SHAPE, "all-to-all: rank %d sends %" PRId64 " elements, rank %d expects %" PRId64, from,
                    n_out, to, n_in);
}

qdr_status qdri_local_check_peers(int rank, const qdri_coll *mine, const qdri_coll *to, const qdri_coll *from)
{
    if (to && to->peer2 != rank)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "send-recv: rank %d sends to rank %d, which receives from %d", rank,
                        mine->peer, to->peer2);
    if (from && (from->peer != rank || from->count != mine->recv_count))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "send-recv: rank %d sends %" PRId64 " elements to rank %d, rank %d expects %" PRId64,
                        mine->peer2, from->count, from->peer, rank, mine->recv_count);
    return QDR_OK;
}

static qdr_status take_from_all(const local_group *group, int r)
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
            status = qdri_local_fail_parts(j, n_out, r, n_in);
            continue;
        }
        take(from, mine, qdri_at_mutable(coll->recv, in_begin, coll->dtype),
             qdri_at(from->coll.send, out_begin, coll->dtype), n_in);
    }
    return status;
}

static qdr_status take_piece(const local_group *group, const void **sources, const local_piece *piece)
{
    const local_slot *mine = &group->slots[piece->rank];
    const qdri_coll *coll = &mine->coll;
    const local_slot *to, *from;
    int64_t at, n;
    switch (coll->kind) {
    case QDR_ALL_GATHER: take_parts(group, piece); break;
    case QDR_REDUCE_SCATTER:
    case QDR_ALL_REDUCE: take_sum(group, sources, piece); break;
    case QDR_BROADCAST:
        cut(piece, coll->count, &at, &n);
        from = &group->slots[coll->peer];
        take(from, mine, qdri_at_mutable(coll->recv, at, coll->dtype), qdri_at(from->coll.recv, at, coll->dtype), n);
        break;
    case QDR_ALL_TO_ALL: return take_from_all(group, piece->rank);
    default:
        to = coll->peer < 0 ? NULL : &group->slots[coll->peer];
        from = coll->peer2 < 0 ? NULL : &group->slots[coll->peer2];
        QDR_TRY(qdri_local_check_peers(piece->rank, coll, to ? &to->coll : NULL, from ? &from->coll : NULL));
        if (from) take(from, mine, coll->recv, from->coll.send, coll->recv_count);
    }
    return QDR_OK;
}

/* ---- wakers: locked only while they are used, because their thread may end afterwards ---- */

static void slot_lock(local_slot *slot)
{
    while (atomic_exchange_explicit(&slot->busy, 1, memory_order_acquire)) sched_yield();
}

static void slot_unlock(local_slot *slot) { atomic_store_explicit(&slot->busy, 0, memory_order_release); }

static void set_waker(local_slot *slot, qdri_waker *waker)
{
    slot_lock(slot);
    slot->waker = waker;
    slot_unlock(slot);
}

void qdri_local_wake(local_group *group, int but_rank)
{
    for (int j = 0; j < group->size; j++) {
        if (j == but_rank) continue;
        local_slot *slot = &group->slots[j];
        slot_lock(slot);
        if (slot->waker) qdri_wake(slot->waker);
        slot_unlock(slot);
    }
}

/* ---- the phases of a collective for one member ---- */

/* Enters collective `number`; returns 1 to the last member. A group that was given up cannot be entered. */
static int enter(local_group *group, uint64_t number)
{
    uint64_t seen = atomic_load_explicit(&group->n_entered, memory_order_relaxed);
    do {
        if (seen & GIVEN_UP) return 0;
    } while (!atomic_compare_exchange_weak_explicit(&group->n_entered, &seen, seen + 1, memory_order_acq_rel,
                                                    memory_order_relaxed));
    return seen + 1 == number * (uint64_t)group->size;
}

/* A member that left before it launched collective `number`; -1: none. */
static int find_leaver(const local_group *group, uint64_t number)
{
    if (!atomic_load(&group->some_left)) return -1;
    for (int j = 0; j < group->size; j++) {
        const uint64_t left_after = atomic_load(&group->slots[j].left_after);
        if (left_after > 0 && left_after <= number) return j;
    }
    return -1;
}

qdr_status qdri_local_compare(const qdri_comm *comm, const qdri_coll *a, const qdri_coll *b, int j)
{
    const qdri_compared first = qdri_coll_compared(a, comm->size), other = qdri_coll_compared(b, comm->size);
    return qdri_coll_compare(comm, &first, j, &other);
}

/* leaver: the member that has left; -1: unknown. An error of some member tells more than that. */
static qdr_status fail_left(const qdri_coll_run *run, int leaver)
{
    const char *why = qdri_reason_get(&((local_comm *)run->comm)->group->why);
    char name[QDRI_MEMBER_BYTES], left[QDRI_MEMBER_BYTES + 16];
    if (!*why && leaver >= 0) {
        qdri_comm_name_member(run->comm, leaver, name, sizeof name);
        snprintf(left, sizeof left, "%s has left", name);
        why = left;
    }
    return qdri_comm_fail_peer(run->comm, qdr_coll_kind_name(run->coll.kind), why);
}

enum { BEGIN, WAITING };

/* The first failure of a collective applies to all members. */
static void fail_all(local_group *group, qdr_status status)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&group->failing, &none, 1)) return;
    strncpy(group->sentence, qdr_last_error(), sizeof group->sentence - 1);
    group->status = status;
}

static void finish_for_all(local_group *group, int rank, uint64_t number)
{
    atomic_store_explicit(&group->finished, number, memory_order_release);
    qdri_local_wake(group, rank);
}

/* Takes pieces until none are left. */
static void help(local_comm *comm)
{
    local_group *group = comm->group;
    const int n_pieces = group->size * group->n_slices;
    int taken;
    while ((taken = atomic_fetch_add(&group->n_taken, 1)) < n_pieces) {
        const local_piece piece = {taken % group->size, taken / group->size, group->n_slices};
        const qdr_status status = take_piece(group, comm->sources, &piece);
        if (status != QDR_OK) fail_all(group, status);
        if (atomic_fetch_add(&group->n_done, 1) == n_pieces - 1) finish_for_all(group, comm->base.rank, comm->n_begun);
    }
}

static void begin(qdri_coll_run *run)
{
    local_comm *comm = (local_comm *)run->comm;
    local_group *group = comm->group;
    local_slot *mine = &group->slots[run->comm->rank];
    mine->coll = run->coll;
    set_waker(mine, qdri_current_waker());
    run->phase = WAITING;
    comm->n_begun++;
    atomic_store(&mine->n_begun, comm->n_begun);
    if (!enter(group, comm->n_begun)) return;
    qdr_status status = QDR_OK;
    for (int j = 1; j < group->size && status == QDR_OK; j++)
        status = qdri_local_compare(run->comm, &group->slots[0].coll, &group->slots[j].coll, j);
    if (status != QDR_OK) {
        fail_all(group, status);
        finish_for_all(group, run->comm->rank, comm->n_begun);
        return;
    }
    /* None accesses the pieces before the collective is open. */
    const int64_t total = qdri_coll_total(&run->coll, group->size);
    const int64_t bytes = total * (int64_t)qdr_dtype_bytes(run->coll.dtype);
    const int wake = total < 0 || bytes * group->size > ALONE_BYTES;
    int64_t n_slices = total < 0 ? 1 : bytes / group->size / qdri_local_piece_bytes + 1;
    if (n_slices > MAX_SLICES) n_slices = MAX_SLICES;
    group->n_slices = (int)n_slices;
    atomic_store_explicit(&group->n_taken, 0, memory_order_relaxed);
    atomic_store_explicit(&group->n_done, 0, memory_order_relaxed);
    /* From here on, members may finish and change their slots. */
    atomic_store_explicit(&group->opened, comm->n_begun, memory_order_release);
    if (wake) qdri_local_wake(group, run->comm->rank);
}

/* Accesses other members' slots only while it works on a piece: otherwise they may be on their way to the next
 * collective. */
static qdr_status advance(qdri_coll_run *run)
{
    local_comm *comm = (local_comm *)run->comm;
    local_group *group = comm->group;
    if (run->phase == BEGIN) begin(run);
    if (atomic_load_explicit(&group->opened, memory_order_acquire) == comm->n_begun) help(comm);
    if (atomic_load_explicit(&group->finished, memory_order_acquire) == comm->n_begun) {
        if (!atomic_load(&group->failing)) return QDR_OK;
        qdri_set_last_error(group->sentence);
        return group->status;
    }
    const int leaver = find_leaver(group, comm->n_begun);
    /* If the group was given up before all members had entered, the count does not change any more, so all members see
     * the same. */
    const uint64_t seen = atomic_load_explicit(&group->n_entered, memory_order_acquire);
    const int is_never = (seen & GIVEN_UP) && (seen & ~GIVEN_UP) < comm->n_begun * (uint64_t)group->size;
    if (leaver >= 0 || is_never) return fail_left(run, leaver);
    if (++run->n_looks < LOOKS) qdri_poll_again();
    return QDR_PENDING;
}

static qdr_status step(qdri_coll_run *run)
{
    local_comm *comm = (local_comm *)run->comm;
    const qdr_status status = advance(run);
    if (status != QDR_PENDING) set_waker(&comm->group->slots[run->comm->rank], NULL);
    return status;
}

int qdri_local_has_come(const qdri_coll_run *run, int member)
{
    const local_comm *comm = (const local_comm *)run->comm;
    return atomic_load(&comm->group->slots[member].n_begun) >= comm->n_begun;
}

qdr_status qdri_local_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream)
{
    QDR_TRY(qdri_comm_enqueue(comm, coll, stream, step, 0));
    ((local_comm *)comm)->n_launched++;
    return QDR_OK;
}
