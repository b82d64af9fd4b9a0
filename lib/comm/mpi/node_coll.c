/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the ranks of a node through their areas, in rounds. A waiting member sleeps on a wake event that the
 * last member to enter signals; apart from the first few polls nothing polls. Sums are computed in rank order by the
 * owner of the part, or, between two members, by both. */
#include "comm/mpi/internal.h"
#include "core/size.h"

enum {
    LOOKS = 32, /* polls before the thread sleeps */
    LOOKS_AFTER_LEAVING = 8, /* a last member may enter after the note that another one has left */
    LOOK_WITHIN_NS = 20000000 /* interval for reading notes of failures, which signal no wake event */
};

int qdri_mpi_node_takes(const mpi_comm *comm, const qdri_coll *coll)
{
    return comm->node.in_use && !coll->lengths && coll->kind != QDR_ALL_TO_ALL && coll->kind != QDR_SEND_RECV;
}

/* ---- the data of one round ---- */

/* Between two members a small all-reduce takes one round: both write, and sum, the whole vector. */
static int sums_whole(const qdri_coll_run *run)
{
    return run->coll.kind == QDR_ALL_REDUCE && run->comm->size == 2 &&
           run->coll.count * (int64_t)qdr_dtype_bytes(run->coll.dtype) < run->comm->root->machine.two_round_bytes;
}

/* Elements that one member writes for each other member (reduce-scatter, all-reduce) or for all, in one round. */
static int64_t round_elems(const qdri_coll_run *run)
{
    const int64_t n_slot = qdri_mpi_slot_bytes / (int64_t)qdr_dtype_bytes(run->coll.dtype);
    return qdri_coll_reduces(&run->coll) && !sums_whole(run) ? n_slot / run->comm->size : n_slot;
}

/* The part of n elements beginning at `begin` that belongs to piece number `piece`. */
static int64_t cut(const qdri_coll_run *run, int64_t piece, int64_t *begin, int64_t n)
{
    const int64_t n_round = round_elems(run), at = piece * n_round;
    *begin += at;
    if (n - at < n_round) return n > at ? n - at : 0;
    return n_round;
}

static int64_t piece_of_part(const qdri_coll_run *run, int j, int64_t piece, int64_t *begin)
{
    int64_t n;
    qdri_coll_part(&run->coll, run->comm->size, j, begin, &n);
    return cut(run, piece, begin, n);
}

static node_area *area_of(const qdri_coll_run *run, int j) { return ((const mpi_comm *)run->comm)->node.areas[j]; }

/* Member j's slot in the round that this member entered last, or is about to enter. */
static unsigned char *slot_of(const qdri_coll_run *run, int j) { return area_of(run, j)->slots[run->round % 2]; }

static void write_for_each(const qdri_coll_run *run, int64_t piece)
{
    const qdr_dtype dtype = run->coll.dtype;
    void *slot = slot_of(run, run->comm->rank);
    for (int j = 0; j < run->comm->size; j++) {
        int64_t begin;
        if (j == run->comm->rank) continue;
        const int64_t n = piece_of_part(run, j, piece, &begin);
        qdri_coll_copy(dtype, qdri_at_mutable(slot, j * round_elems(run), dtype),
                       qdri_at(qdri_coll_source(&run->coll), begin, dtype), n);
        qdri_count_sent(run->comm, &run->coll, n);
    }
}

static void sum_own(const qdri_coll_run *run, int64_t piece)
{
    mpi_comm *comm = (mpi_comm *)run->comm;
    const qdri_coll *coll = &run->coll;
    const int rank = run->comm->rank;
    int64_t begin, part_begin, n_part;
    qdri_coll_part(coll, run->comm->size, rank, &part_begin, &n_part);
    const int64_t n = piece_of_part(run, rank, piece, &begin);
    for (int j = 0; j < run->comm->size; j++)
        comm->sources[j] = j == rank ? qdri_at(qdri_coll_source(coll), begin, coll->dtype)
                                     : qdri_at(slot_of(run, j), rank * round_elems(run), coll->dtype);
    const int for_all = coll->kind == QDR_ALL_REDUCE;
    void *to = qdri_at_mutable(coll->recv, for_all ? begin : begin - part_begin, coll->dtype);
    void *next_slot = area_of(run, rank)->slots[(run->round + 1) % 2]; /* that of the next round */
    qdri_reduce_twice(coll->dtype, coll->op, to, for_all ? next_slot : to, comm->sources, run->comm->size, n);
}

/* The sum is already in the slot. */
static void write_sum(const qdri_coll_run *run, int64_t piece)
{
    int64_t begin;
    qdri_count_sent(run->comm, &run->coll, piece_of_part(run, run->comm->rank, piece, &begin) * (run->comm->size - 1));
}

static void write_whole(const qdri_coll_run *run, int64_t piece)
{
    int64_t begin = 0;
    const int64_t n = cut(run, piece, &begin, run->coll.count);
    qdri_coll_copy(run->coll.dtype, slot_of(run, run->comm->rank),
                   qdri_at(qdri_coll_source(&run->coll), begin, run->coll.dtype), n);
    qdri_count_sent(run->comm, &run->coll, n);
}

static void sum_whole(const qdri_coll_run *run, int64_t piece)
{
    const qdri_coll *coll = &run->coll;
    const void *sources[2];
    int64_t begin = 0;
    const int64_t n = cut(run, piece, &begin, coll->count);
    for (int j = 0; j < 2; j++)
        sources[j] = j == run->comm->rank ? qdri_at(qdri_coll_source(coll), begin, coll->dtype) : slot_of(run, j);
    qdri_reduce(coll->dtype, coll->op, qdri_at_mutable(coll->recv, begin, coll->dtype), sources, 2, n);
}

/* This member's part is in send, or in its place in recv. */
static void write_own(const qdri_coll_run *run, int64_t piece)
{
    const qdri_coll *coll = &run->coll;
    const int rank = run->comm->rank, sends = coll->send != NULL;
    int64_t begin, part_begin, n_part;
    qdri_coll_part(coll, run->comm->size, rank, &part_begin, &n_part);
    const int64_t n = piece_of_part(run, rank, piece, &begin);
    void *place = qdri_at_mutable(coll->recv, begin, coll->dtype);
    const void *own = sends ? qdri_at(coll->send, begin - part_begin, coll->dtype) : place;
    qdri_coll_copy(coll->dtype, slot_of(run, rank), own, n);
    qdri_coll_copy(coll->dtype, place, own, n);
    qdri_count_sent(run->comm, &run->coll, n * (run->comm->size - 1));
}

static void read_others(const qdri_coll_run *run, int64_t piece)
{
    for (int i = 1; i < run->comm->size; i++) {
        const int j = (run->comm->rank + i) % run->comm->size;
        int64_t begin;
        const int64_t n = piece_of_part(run, j, piece, &begin);
        qdri_coll_copy(run->coll.dtype, qdri_at_mutable(run->coll.recv, begin, run->coll.dtype), slot_of(run, j), n);
    }
}

static void write_root(const qdri_coll_run *run, int64_t piece)
{
    int64_t begin = 0;
    const int64_t n = cut(run, piece, &begin, run->coll.count);
    if (run->comm->rank != run->coll.peer) return;
    qdri_coll_copy(run->coll.dtype, slot_of(run, run->comm->rank), qdri_at(run->coll.recv, begin, run->coll.dtype), n);
    qdri_count_sent(run->comm, &run->coll, n * (run->comm->size - 1));
}

static void read_root(const qdri_coll_run *run, int64_t piece)
{
    int64_t begin = 0;
    const int64_t n = cut(run, piece, &begin, run->coll.count);
    if (run->comm->rank == run->coll.peer) return;
    qdri_coll_copy(run->coll.dtype, qdri_at_mutable(run->coll.recv, begin, run->coll.dtype),
                   slot_of(run, run->coll.peer), n);
}

/* ---- rounds ---- */

/* An all-reduce between more than two members takes two rounds per piece: sums, then copies of them. */
static int rounds_per_piece(const qdri_coll_run *run)
{
    return run->coll.kind == QDR_ALL_REDUCE && !sums_whole(run) ? 2 : 1;
}

/* The same on all members; at least one round, in which members compare their calls. */
static int64_t count_rounds(const qdri_coll_run *run)
{
    int64_t begin, n, most = 0;
    if (run->coll.kind == QDR_BROADCAST || sums_whole(run)) {
        most = run->coll.count;
    } else {
        for (int j = 0; j < run->comm->size; j++) {
            qdri_coll_part(&run->coll, run->comm->size, j, &begin, &n);
            if (n > most) most = n;
        }
    }
    const int64_t n_pieces = qdri_ceil_div(most, round_elems(run));
    return (n_pieces > 0 ? n_pieces : 1) * rounds_per_piece(run);
}

typedef struct moves {
    void (*write)(const qdri_coll_run *run, int64_t piece);
    void (*read)(const qdri_coll_run *run, int64_t piece);
} moves;

/* What the current round does with its piece. */
static moves moves_of(const qdri_coll_run *run)
{
    const int copies_sums = run->n_done % rounds_per_piece(run) == 1;
    if (run->coll.kind == QDR_BROADCAST) return (moves){write_root, read_root};
    if (sums_whole(run)) return (moves){write_whole, sum_whole};
    if (run->coll.kind == QDR_ALL_GATHER) return (moves){write_own, read_others};
    if (copies_sums) return (moves){write_sum, read_others};
    return (moves){write_for_each, sum_own};
}

static int64_t piece_of_round(const qdri_coll_run *run) { return run->n_done / rounds_per_piece(run); }

/* ---- entering and waiting ---- */

static int all_entered(const qdri_coll_run *run)
{
    const uint64_t n_all = (run->round + 1) * (uint64_t)run->comm->size;
    return atomic_load(&area_of(run, 0)->n_entered) >= n_all;
}

/* Before entering, a member has written its call and the data of the round. The last to enter wakes the others: the
 * count is changed before `waiting` is read, and a thread that is about to sleep sets `waiting` before it reads the
 * count: at least one of the two sees the other's change. */
static void enter(qdri_coll_run *run)
{
    const mpi_comm *comm = (const mpi_comm *)run->comm, *root = (const mpi_comm *)run->comm->root;
    const uint64_t n_all = (run->round + 1) * (uint64_t)run->comm->size;
    run->n_looks = 0;
    qdri_progressed();
    atomic_store(&area_of(run, run->comm->rank)->n_own, run->round + 1);
    if (atomic_fetch_add(&area_of(run, 0)->n_entered, 1) + 1 != n_all) return;
    for (int j = 0; j < run->comm->size; j++) {
        const int waiting = j == run->comm->rank ? 0 : atomic_load(&area_of(run, j)->waiting);
        if (waiting > 0) qdri_wake_event_signal(&root->node.shares[comm->world_ranks[j]]->wake_events[waiting - 1]);
    }
}

static node_call *call_of(const qdri_coll_run *run, int j) { return &area_of(run, j)->calls[run->round % 2]; }

/* Begins the next round: this member's call, not yet visible to others. */
static node_call *next_call(qdri_coll_run *run)
{
    run->round = ((mpi_comm *)run->comm)->node.n_rounds++;
    node_call *call = call_of(run, run->comm->rank);
    *call = (node_call){.compared = qdri_coll_compared(&run->coll, run->comm->size)};
    return call;
}

static qdr_status check_equal(const qdri_coll_run *run)
{
    const qdri_compared *first = &call_of(run, 0)->compared;
    for (int j = 1; j < run->comm->size; j++)
        QDR_TRY(qdri_coll_compare(run->comm, first, j, &call_of(run, j)->compared));
    return QDR_OK;
}

/* Looks for a moment, once a round: a system call, even one that yields, takes longer than the members of a small
 * collective differ. */
static int enter_soon(const qdri_coll_run *run)
{
    const mpi_comm *root = (const mpi_comm *)run->comm->root;
    if (all_entered(run)) return 1;
    if (run->n_looks > 0 || root->node.spin_ns == 0) return 0;
    for (const int64_t until_ns = qdri_now_ns() + root->node.spin_ns; qdri_now_ns() < until_ns;)
        if (all_entered(run)) return 1;
    return 0;
}

static qdr_status await(qdri_coll_run *run)
{
    if (enter_soon(run)) return QDR_OK;
    if (++run->n_looks < LOOKS) {
        qdri_poll_again();
        return QDR_PENDING;
    }
    atomic_store(&area_of(run, run->comm->rank)->waiting, qdri_waker_wake_event(qdri_current_waker()) + 1);
    if (all_entered(run)) return QDR_OK;
    mpi_comm *comm = (mpi_comm *)run->comm;
    int is_over = qdri_mpi_given_up(comm), has_left = 0;
    for (int j = 0; !is_over && !has_left && j < run->comm->size; j++) has_left = qdri_mpi_has_left(comm, j);
    if (has_left) is_over = ++run->n_left_looks == LOOKS_AFTER_LEAVING;
    if (is_over) {
        const qdr_status status = qdri_mpi_fail_peer(run->comm, qdr_coll_kind_name(run->coll.kind));
        return all_entered(run) ? QDR_OK : status; /* members that entered before failing still count */
    }
    qdri_look_within(LOOK_WITHIN_NS);
    return QDR_PENDING;
}

/* ---- a collective, step by step ---- */

/* Large collectives exchange the places of their buffers (EXCHANGING), try to map those of the others (MAPPING, unless
 * all know that they are mapped), and transfer directly if all members could (MOVING), else through slots. Small ones
 * use slots from the beginning. */
enum { BEGIN, EXCHANGING, MAPPING, MOVING, SLOTS };

static void begin_slots(qdri_coll_run *run)
{
    (void)next_call(run);
    moves_of(run).write(run, piece_of_round(run));
    enter(run);
    run->phase = SLOTS;
}

static void begin_moving(qdri_coll_run *run)
{
    (void)next_call(run);
    qdri_mpi_direct_move(run);
    enter(run);
    run->phase = MOVING;
}

/* All have entered the round: starts the next step; QDR_OK: complete. */
static qdr_status proceed(qdri_coll_run *run)
{
    const int size = run->comm->size;
    int all = 1, is_mapped = 1, is_known = 1;
    node_call *call;
    switch (run->phase) {
    case EXCHANGING:
        QDR_TRY(check_equal(run));
        for (int j = 0; j < size; j++) all &= qdri_mpi_direct_is_offered(run, call_of(run, j), j);
        if (!all) break;
        for (int j = 0; j < size && is_mapped; j++) is_mapped = qdri_mpi_direct_map(run, j, call_of(run, j));
        for (int j = 0; j < size; j++) is_known &= qdri_mpi_direct_is_known(run, call_of(run, j), j);
        if (is_known) {
            begin_moving(run);
            return QDR_PENDING;
        }
        call = next_call(run);
        call->is_mapped = is_mapped;
        qdri_mpi_direct_offer(run, call); /* again: a fast member's third call replaces its first */
        enter(run);
        run->phase = MAPPING;
        return QDR_PENDING;
    case MAPPING:
        for (int j = 0; j < size; j++) all &= call_of(run, j)->is_mapped;
        if (!all) break;
        for (int j = 0; j < size; j++) qdri_mpi_direct_know(run, call_of(run, j), j);
        begin_moving(run);
        return QDR_PENDING;
    case SLOTS:
        if (run->n_done == 0) QDR_TRY(check_equal(run));
        moves_of(run).read(run, piece_of_round(run));
        if (++run->n_done == count_rounds(run)) return QDR_OK;
        break;
    default: return QDR_OK;
    }
    begin_slots(run);
    return QDR_PENDING;
}

static qdr_status advance(qdri_coll_run *run)
{
    if (run->phase == BEGIN) {
        if (qdri_mpi_direct_wants(run)) {
            qdri_mpi_direct_offer(run, next_call(run));
            enter(run);
            run->phase = EXCHANGING;
        } else {
            begin_slots(run);
        }
    }
    for (;;) {
        QDR_TRY(await(run));
        const qdr_status status = proceed(run);
        if (status != QDR_PENDING) return status;
    }
}

qdr_status qdri_mpi_node_step(qdri_coll_run *run)
{
    const qdr_status status = advance(run);
    if (status != QDR_PENDING) atomic_store(&area_of(run, run->comm->rank)->waiting, 0);
    if (status < QDR_OK) qdri_comm_abort(run->comm);
    return status;
}
