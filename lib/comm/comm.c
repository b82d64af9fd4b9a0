/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: what all backends have in common. Checks, groups of one, counters, families. */
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

#include "comm/internal.h"
#include "core/ranges.h"
#include "core/size.h"
#include "dev/clock.h"

/* Of a server of two cores with a link of 1 Gbit/s. */
static const qdri_comm_machine default_machine = {
    .direct_bytes = 512 << 10, .two_round_bytes = 128 << 10, .node_bytes_per_sec = 125e6};

void qdri_comm_init(qdri_comm *comm, const qdri_comm_table *table, qdri_dev *dev, int rank, int size, qdri_comm *parent)
{
    comm->table = table;
    comm->dev = dev;
    comm->rank = rank;
    comm->size = size;
    comm->node_size = size;
    comm->root = parent ? parent->root : comm;
    if (!parent) {
        pthread_mutex_init(&comm->family_mutex, NULL);
        comm->machine = default_machine;
        return;
    }
    pthread_mutex_lock(&comm->root->family_mutex);
    comm->next = comm->root->next;
    comm->root->next = comm;
    pthread_mutex_unlock(&comm->root->family_mutex);
}

void qdri_comm_abort(qdri_comm *comm)
{
    if (comm->inner) { /* the inner communicators are a family, too */
        qdri_comm_abort(comm->inner);
        return;
    }
    pthread_mutex_lock(&comm->root->family_mutex);
    for (qdri_comm *member = comm->root; member; member = member->next)
        if (member->table->abort) member->table->abort(member);
    pthread_mutex_unlock(&comm->root->family_mutex);
}

int qdri_comm_leave(qdri_comm *comm)
{
    if (comm->inner) return qdri_comm_leave(comm->inner);
    if (!comm->root->table->leave) return 0;
    pthread_mutex_lock(&comm->root->family_mutex);
    for (qdri_comm *member = comm->root; member; member = member->next)
        if (member->table->leave) member->table->leave(member);
    pthread_mutex_unlock(&comm->root->family_mutex);
    return 1;
}

qdr_status qdri_comm_decorate(qdr_status status, qdri_comm *made, const qdri_comm_table *table, qdri_comm *parent,
                              qdri_comm **comm)
{
    qdri_comm *inner = *comm;
    QDR_TRY(qdri_comm_agree(parent ? parent->inner : inner, status));
    if (!made) return QDR_OK;
    qdri_comm_init(made, table, made->dev ? made->dev : inner->dev, inner->rank, inner->size, parent);
    made->node_size = inner->node_size;
    made->nodes = inner->nodes;
    made->inner = inner;
    *comm = made;
    return QDR_OK;
}

static void destroy_self(qdri_comm *comm) { free(comm); }
static const qdri_comm_table self_table = {.name = "self", .destroy = destroy_self};

static qdr_status create_self(qdri_dev *dev, qdri_comm *parent, qdri_comm **comm)
{
    qdri_comm *made = NULL;
    *comm = NULL;
    QDR_TRY(QDRI_NEW(1, "a communicator of one rank", &made));
    qdri_comm_init(made, &self_table, dev, 0, 1, parent);
    *comm = made;
    return QDR_OK;
}

qdr_status qdri_comm_create_self(qdri_dev *dev, qdri_comm **comm) { return create_self(dev, NULL, comm); }

void qdri_comm_destroy(qdri_comm **comm)
{
    if (!comm || !*comm) return;
    if ((*comm)->table->destroy_parts) (*comm)->table->destroy_parts(*comm);
    if ((*comm)->root == *comm) {
        pthread_mutex_destroy(&(*comm)->family_mutex);
    } else {
        qdri_comm *before = (*comm)->root;
        pthread_mutex_lock(&(*comm)->root->family_mutex);
        while (before->next != *comm) before = before->next;
        before->next = (*comm)->next;
        pthread_mutex_unlock(&(*comm)->root->family_mutex);
    }
    qdri_stagings_free(*comm);
    (*comm)->table->destroy(*comm);
    *comm = NULL;
}

qdr_status qdri_comm_split(qdri_comm *comm, int colour, int key, qdri_comm **part)
{
    *part = NULL;
    if (comm->size == 1) return colour < 0 ? QDR_OK : create_self(comm->dev, comm, part);
    if (!comm->inner) return comm->table->split(comm, colour, key, part);
    qdri_comm *made = NULL;
    QDR_TRY(qdri_comm_split(comm->inner, colour, key, &made));
    const qdr_status status = comm->table->wrap(comm, &made);
    if (status != QDR_OK) qdri_comm_destroy(&made);
    *part = made;
    return status;
}

int qdri_comm_rank(const qdri_comm *comm) { return comm->rank; }
int qdri_comm_size(const qdri_comm *comm) { return comm->size; }
int qdri_comm_node_size(const qdri_comm *comm) { return comm->node_size; }
int qdri_comm_node_of(const qdri_comm *comm, int rank) { return comm->nodes ? comm->nodes[rank] : 0; }

const char *qdri_comm_unrecorded(const qdri_comm *comm)
{
    for (const qdri_comm *each = comm; each && comm->size > 1; each = each->inner)
        if (each->table->unrecorded) return each->table->unrecorded;
    return NULL;
}

int qdri_comm_node_rank(const qdri_comm *comm)
{
    int n = 0;
    for (int j = 0; j < comm->rank; j++) n += qdri_comm_node_of(comm, j) == qdri_comm_node_of(comm, comm->rank);
    return n;
}

/* ---- agreeing ---- */

qdri_verdict qdri_verdict_of(qdr_status mine, uint64_t digest)
{
    qdri_verdict verdict = {.status = mine < 0 ? (int)mine : QDR_OK, .digest = digest};
    if (mine < 0) strncpy(verdict.sentence, qdr_last_error(), sizeof verdict.sentence - 1);
    return verdict;
}

void qdri_verdict_add(qdri_verdict *all, const qdri_verdict *next, int next_rank)
{
    all->differs |= next->differs || all->digest != next->digest;
    if (all->odd == 0 && !all->digest != !next->digest) all->odd = next_rank;
    if (all->status != QDR_OK || next->status == QDR_OK) return;
    all->status = next->status;
    memcpy(all->sentence, next->sentence, sizeof all->sentence);
}

qdr_status qdri_comm_exchange(qdri_comm *comm, qdri_verdict *verdict)
{
    if (comm->size == 1) return QDR_OK;
    return comm->inner ? qdri_comm_exchange(comm->inner, verdict) : comm->table->agree(comm, verdict);
}

qdr_status qdri_comm_agree_on(qdri_comm *comm, qdr_status mine, uint64_t digest, int *differs)
{
    *differs = 0;
    if (comm->size == 1) return mine;
    qdri_verdict verdict = qdri_verdict_of(mine, digest);
    QDR_TRY(qdri_comm_exchange(comm, &verdict));
    *differs = verdict.differs;
    if (verdict.status != QDR_OK) {
        if (comm->size == comm->root->size)
            qdri_set_shared_error(verdict.sentence);
        else
            qdri_set_last_error(verdict.sentence);
        return (qdr_status)verdict.status;
    }
    if (verdict.odd == 0) return QDR_OK;
    char first[QDRI_MEMBER_BYTES], other[QDRI_MEMBER_BYTES];
    qdri_comm_name_member(comm, 0, first, sizeof first);
    qdri_comm_name_member(comm, verdict.odd, other, sizeof other);
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "comm: %s: %s and %s are in different calls; all %d ranks must call the same functions in the same "
                    "order",
                    qdri_comm_name(comm), first, other, comm->size);
}

qdr_status qdri_comm_agree(qdri_comm *comm, qdr_status mine)
{
    int differs;
    return qdri_comm_agree_on(comm, mine, 0, &differs);
}

void qdri_comm_set_timeout(qdri_comm *comm, double secs)
{
    for (qdri_comm *each = comm; each; each = each->inner) each->root->timeout_ns = (int64_t)(secs * 1e9);
}

/* Adopts what is known: a number above 0. */
#define QDR_ADOPT(known, wanted, field) ((wanted)->field > 0 ? (void)((known)->field = (wanted)->field) : (void)0)

void qdri_comm_set_machine(qdri_comm *comm, const qdri_comm_machine *machine)
{
    for (qdri_comm *each = comm; each; each = each->inner) {
        qdri_comm_machine *known = &each->root->machine;
        QDR_ADOPT(known, machine, direct_bytes);
        QDR_ADOPT(known, machine, direct_all_reduce_bytes);
        QDR_ADOPT(known, machine, two_round_bytes);
        QDR_ADOPT(known, machine, node_bytes_per_sec);
    }
}

void qdri_comm_expect_parts(qdri_comm *comm, int n_parts)
{
    for (qdri_comm *each = comm; each; each = each->inner) each->root->n_parts = n_parts;
}

int64_t qdri_comm_timeout_ns(const qdri_comm *comm) { return comm->root->timeout_ns; }

int qdri_comm_any(qdri_comm *comm, int yes) { return qdri_comm_agree(comm, yes ? QDR_ERR_STATE : QDR_OK) != QDR_OK; }

qdr_status qdri_comm_broadcast(qdri_comm *comm, int root, void *data, size_t bytes)
{
    if (comm->size == 1) return QDR_OK;
    if (comm->inner) return qdri_comm_broadcast(comm->inner, root, data, bytes);
    return comm->table->broadcast(comm, root, data, bytes);
}

qdr_status qdri_comm_compare_clocks(qdri_comm *comm, int leaving, qdri_clock_offset *offset)
{
    *offset = (qdri_clock_offset){.at_ns = qdri_now_ns()};
    if (comm->node_size == comm->size) return QDR_OK;
    if (comm->inner) return qdri_comm_compare_clocks(comm->inner, leaving, offset);
    if (!comm->table->compare_clocks)
        return QDR_FAIL(QDR_ERR_STATE, "comm: %s cannot compare the clocks of %d ranks on several nodes",
                        comm->table->name, comm->size);
    return comm->table->compare_clocks(comm, leaving, offset);
}

/* ---- collectives ---- */

/* Sums of counts that pass this check fit into int64_t, also in bytes. */
static qdr_status check_counts(const char *name, const int64_t *counts, int size)
{
    const int64_t most = INT64_MAX / 16 / size;
    for (int j = 0; counts && j < size; j++) {
        if (counts[j] < 0 || counts[j] > most)
            return QDR_FAIL(QDR_ERR_SHAPE, "%s: the count for rank %d is %" PRId64 "; it must be 0 … %" PRId64, name, j,
                            counts[j], most);
    }
    return QDR_OK;
}

static qdr_status check_peer(const char *name, int peer, int lowest, int size)
{
    if (peer >= lowest && peer < size) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: peer %d is not in %d … %d", name, peer, lowest, size - 1);
}

/* Buffers may overlap only exactly: this rank's own part in a gather or a reduction, or the whole buffer in an
 * all-reduce. For some kinds the source may be omitted: it is then the destination. */
static qdr_status check_buffers(const char *name, const qdri_comm *comm, const qdri_coll *coll)
{
    const qdr_coll_kind kind = coll->kind;
    const size_t each = qdr_dtype_bytes(coll->dtype);
    int64_t begin, n_send, n_recv;
    qdri_coll_extent(coll, comm->size, comm->rank, &begin, &n_send, &n_recv);
    if (kind == QDR_BROADCAST) {
        n_send = 0;
        n_recv = coll->count;
    }
    if (!coll->send && (kind == QDR_ALL_GATHER || kind == QDR_ALL_REDUCE)) n_send = 0;
    if ((n_send > 0 && !coll->send) || (n_recv > 0 && !coll->recv))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: a buffer is NULL (send %" PRId64 ", receive %" PRId64 " elements)", name,
                        n_send, n_recv);
    if (n_send > 0) QDR_TRY(qdri_dev_check_memory(comm->dev, coll->send, each, name));
    if (n_recv > 0) QDR_TRY(qdri_dev_check_memory(comm->dev, coll->recv, each, name));
    const void *sent = kind == QDR_REDUCE_SCATTER ? qdri_at(coll->send, begin, coll->dtype) : coll->send;
    const void *received = kind == QDR_ALL_GATHER ? qdri_at(coll->recv, begin, coll->dtype) : coll->recv;
    if (kind == QDR_BROADCAST || (sent == received && kind != QDR_ALL_TO_ALL && kind != QDR_SEND_RECV)) return QDR_OK;
    return QDRI_RANGES_CHECK(name, {.what = "send", .begin = coll->send, .bytes = (size_t)n_send * each},
                             {.what = "recv", .begin = coll->recv, .bytes = (size_t)n_recv * each, .writes = 1});
}

static qdr_status check(const qdri_comm *comm, const qdri_coll *coll)
{
    if (coll->kind < 0 || coll->kind >= QDR_N_COLL_KINDS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "comm: unknown collective %d", (int)coll->kind);
    const char *name = qdr_coll_kind_name(coll->kind);
    if (qdr_dtype_bytes(coll->dtype) == 0)
        return QDR_FAIL(QDR_ERR_DTYPE, "%s: unknown element type %d", name, (int)coll->dtype);
    if (qdri_coll_reduces(coll) && coll->dtype == QDR_U8)
        return QDR_FAIL(QDR_ERR_DTYPE, "%s: u8 cannot be reduced; use f32, f64, bf16, f16 or i32", name);
    if (qdri_coll_reduces(coll) && coll->op != QDR_SUM && coll->op != QDR_MAX && coll->op != QDR_MIN)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: unknown reduction %d", name, (int)coll->op);
    const int64_t most = INT64_MAX / 16 / comm->size;
    if (coll->count < 0 || coll->count > most || coll->recv_count < 0 || coll->recv_count > most ||
        coll->split_unit < 0)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: counts %" PRId64 ", %" PRId64 " and split unit %" PRId64 " must be 0 … %" PRId64, name,
                        coll->count, coll->recv_count, coll->split_unit, most);
    if (coll->split_unit > 0 && coll->count % coll->split_unit)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: unit %" PRId64 " does not divide %" PRId64 " elements", name,
                        coll->split_unit, coll->count);
    QDR_TRY(check_counts(name, coll->counts, comm->size));
    QDR_TRY(check_counts(name, coll->recv_counts, comm->size));
    if (coll->kind == QDR_BROADCAST) QDR_TRY(check_peer(name, coll->peer, 0, comm->size));
    if (coll->kind == QDR_SEND_RECV) {
        QDR_TRY(check_peer(name, coll->peer, -1, comm->size));
        QDR_TRY(check_peer(name, coll->peer2, -1, comm->size));
    }
    QDR_TRY(check_buffers(name, comm, coll));
    return comm->table->check && comm->size > 1 ? comm->table->check(comm, coll) : QDR_OK;
}

static qdr_status launch_alone(const qdri_coll *coll, qdr_stream *stream)
{
    int64_t begin, n, n_recv;
    qdri_coll_extent(coll, 1, 0, &begin, &n, &n_recv);
    if (coll->kind == QDR_SEND_RECV) {
        if (coll->peer != coll->peer2 || (coll->peer == 0 && n != coll->recv_count))
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "send-recv: in a group of one, a rank can only send to itself what it receives");
        if (coll->peer < 0) return QDR_OK;
    }
    if (coll->kind == QDR_BROADCAST || !coll->send || coll->send == coll->recv || n == 0) return QDR_OK;
    return qdri_copy(stream, coll->recv, coll->send, (size_t)n * qdr_dtype_bytes(coll->dtype));
}

qdr_status qdri_comm_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream)
{
    QDR_TRY(qdri_dev_raise(comm->dev));
    QDR_TRY(check(comm, coll));
    QDR_TRY(qdri_record_check(stream)); /* recorded work would not make other ranks wait */
    if (comm->size == 1) return launch_alone(coll, stream);
    if (comm->observer) comm->observer(comm, coll, comm->observer_user);
    qdri_coll in_place = *coll; /* a member that sends from its own place in recv sends nothing else */
    if (coll->kind == QDR_ALL_GATHER) {
        int64_t begin, n;
        qdri_coll_part(coll, comm->size, comm->rank, &begin, &n);
        if (coll->send == qdri_at(coll->recv, begin, coll->dtype)) in_place.send = NULL;
    }
    const qdr_status status = comm->table->launch(comm, &in_place, stream);
    if (status != QDR_OK) {
        qdri_comm_abort(comm);
        qdri_comm_drain(comm);
    }
    return status;
}

qdri_counter *qdri_counter_of(qdri_comm *comm, const qdri_coll *coll)
{
    const int counted = coll->stage_of ? (int)coll->stage_of->kind : (int)coll->kind;
    return &comm->counters[coll->is_check ? QDR_N_COLL_KINDS : counted];
}

void qdri_count_call(qdri_comm *comm, const qdri_coll *coll)
{
    if (!coll->stage_of) atomic_fetch_add_explicit(&qdri_counter_of(comm, coll)->n_calls, 1, memory_order_relaxed);
}

void qdri_count_sent(qdri_comm *comm, const qdri_coll *coll, int64_t n_elems)
{
    atomic_fetch_add_explicit(&qdri_counter_of(comm, coll)->bytes_sent, n_elems * (int64_t)qdr_dtype_bytes(coll->dtype),
                              memory_order_relaxed);
}

void qdri_comm_need(const qdri_comm *comm, const qdri_coll *coll, qdri_need *need)
{
    if (comm->table->need) {
        comm->table->need(comm, coll, need);
    } else if (comm->inner) {
        qdri_comm_need(comm->inner, coll, need);
    } else if (comm->size > 1 && comm->table->scratch_bytes) {
        const size_t bytes = comm->table->scratch_bytes(comm, coll);
        if (bytes > need->own) need->own = bytes;
    }
}

void qdri_comm_drain(const qdri_comm *comm)
{
    for (const qdri_comm *each = comm; each; each = each->inner)
        if (each->table->drain) each->table->drain(each);
}

size_t qdri_need_bytes(const qdri_need *need) { return need->own + need->coded + need->inside; }

int qdri_comm_summed_first(const qdri_comm *comm, const qdri_coll *coll)
{
    if (comm->inner) return qdri_comm_summed_first(comm->inner, coll);
    return comm->table->summed_first ? comm->table->summed_first(comm, coll) : 1;
}

qdr_status qdri_comm_reserve(qdri_comm *comm, const qdri_need *need)
{
    if (comm->table->reserve) return comm->table->reserve(comm, need);
    if (comm->inner) return qdri_comm_reserve(comm->inner, need);
    return need->own > comm->scratch_bytes ? qdri_staging_reserve(comm, need->own) : QDR_OK;
}

qdr_traffic qdri_comm_traffic(const qdri_comm *comm, qdr_coll_kind kind)
{
    if (comm->table->traffic) return comm->table->traffic(comm, kind);
    if (comm->inner) return qdri_comm_traffic(comm->inner, kind);
    const qdri_counter *counter = &comm->counters[kind];
    const int64_t bytes_sent = atomic_load(&counter->bytes_sent);
    return (qdr_traffic){.n_calls = atomic_load(&counter->n_calls),
                         .bytes_sent = bytes_sent,
                         .bytes_off_node = atomic_load(&counter->bytes_off_node),
                         .bytes_plain = bytes_sent,
                         .secs = (double)atomic_load(&counter->nanosecs) * 1e-9};
}

void qdri_comm_reset_traffic(qdri_comm *comm)
{
    if (comm->table->reset_traffic) comm->table->reset_traffic(comm);
    if (comm->inner) qdri_comm_reset_traffic(comm->inner);
    for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
        atomic_store(&comm->counters[kind].n_calls, 0);
        atomic_store(&comm->counters[kind].bytes_sent, 0);
        atomic_store(&comm->counters[kind].bytes_off_node, 0);
        atomic_store(&comm->counters[kind].nanosecs, 0);
    }
}

void qdri_comm_set_observer(qdri_comm *comm, qdri_comm_observer observer, void *user)
{
    comm->observer = observer;
    comm->observer_user = user;
}
