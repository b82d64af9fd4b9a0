/* SPDX-License-Identifier: Apache-2.0 */
/* The decorator `checked`: before each collective, the members exchange records of what they are about to call, on the
 * same stream, and compare them. If a member calls something else, all members fail with a message that names it,
 * instead of hanging or receiving bytes that belong elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "comm/internal.h"
#include "core/size.h"
#include "dev/clock.h"

/* A call as the other members see it. */
typedef struct record {
    int64_t total; /* -1: counts differ between members */
    int64_t count, recv_count; /* for a send-recv */
    uint64_t parts, label; /* digests: of all members' counts and of the coded call; of the caller's label */
    int32_t kind, dtype, op, peer, peer2;
    char text[QDRI_CALL_BYTES];
} record;

typedef struct checked_comm {
    qdri_comm base;
    record *records; /* by member */
    int64_t *counts; /* for an all-to-all, by member: what it sends to each and expects from each; allocated at the
                      * first all-to-all */
} checked_comm;

static record record_of(const qdri_comm *comm, const qdri_coll *coll)
{
    const int pairs = coll->kind == QDR_SEND_RECV, has_peer = pairs || coll->kind == QDR_BROADCAST;
    record made = {.total = qdri_coll_total(coll, comm->size),
                   .count = pairs && coll->peer >= 0 ? coll->count : 0,
                   .recv_count = pairs && coll->peer2 >= 0 ? coll->recv_count : 0,
                   .kind = (int32_t)coll->kind,
                   .dtype = (int32_t)coll->dtype,
                   .op = qdri_coll_reduces(coll) ? (int32_t)coll->op : 0,
                   .peer = has_peer ? coll->peer : 0,
                   .peer2 = pairs ? coll->peer2 : 0};
    if (coll->kind == QDR_ALL_GATHER || coll->kind == QDR_REDUCE_SCATTER) {
        for (int j = 0; j < comm->size; j++) {
            int64_t begin, n;
            qdri_coll_part(coll, comm->size, j, &begin, &n);
            const uint64_t both[] = {made.parts, (uint64_t)n};
            made.parts = qdri_digest_of(both, sizeof both);
        }
    }
    if (coll->stage_of) {
        const uint64_t both[] = {made.parts, coll->stage_of->digest};
        made.parts = qdri_digest_of(both, sizeof both);
    }
    if (coll->label) made.label = qdri_digest_of(coll->label, strlen(coll->label));
    qdri_coll_describe(coll, comm->size, made.text);
    return made;
}

/* The peers of a send-recv may differ. */
static int is_same(const record *a, const record *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->total == b->total &&
           a->parts == b->parts && a->label == b->label && (a->kind != QDR_BROADCAST || a->peer == b->peer);
}

static qdr_status fail_calls(const checked_comm *checked, int a, int b, const char *rule)
{
    const record *first = &checked->records[a], *other = &checked->records[b];
    const int only_parts = strcmp(first->text, other->text) == 0;
    char who[QDRI_MEMBER_BYTES], who_else[QDRI_MEMBER_BYTES];
    qdri_comm_name_member(&checked->base, a, who, sizeof who);
    qdri_comm_name_member(&checked->base, b, who_else, sizeof who_else);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "comm: %s: %s calls %s, %s calls %s%s; %s%s", qdri_comm_name(&checked->base), who,
                    first->text, who_else, other->text, only_parts ? " in other parts" : "", rule,
                    qdri_coll_why_differs(&checked->base, (qdr_coll_kind)first->kind, (qdr_coll_kind)other->kind));
}

/* What j sends must be what its peer expects, and vice versa. */
static qdr_status compare_pairs(const checked_comm *checked)
{
    static const char rule[] = "what one sends, the other must expect";
    for (int j = 0; j < checked->base.size; j++) {
        const record *mine = &checked->records[j];
        const record *to = mine->peer < 0 ? NULL : &checked->records[mine->peer];
        const record *from = mine->peer2 < 0 ? NULL : &checked->records[mine->peer2];
        if (to && (to->peer2 != j || to->recv_count != mine->count)) return fail_calls(checked, j, mine->peer, rule);
        if (from && from->peer != j) return fail_calls(checked, j, mine->peer2, rule);
    }
    return QDR_OK;
}

static qdr_status compare_calls(const checked_comm *checked)
{
    const record *records = checked->records;
    int usual = 0, most = 0, other = 0; /* usual: the first member that makes the most frequent call */
    for (int j = 0; j < checked->base.size && most < checked->base.size; j++) {
        int n_same = 0;
        for (int i = 0; i < checked->base.size; i++) n_same += is_same(&records[j], &records[i]);
        if (n_same > most) usual = j;
        if (n_same > most) most = n_same;
    }
    if (most == checked->base.size) return records[0].kind == QDR_SEND_RECV ? compare_pairs(checked) : QDR_OK;
    while (is_same(&records[usual], &records[other])) other++;
    return fail_calls(checked, usual, other, "all must call the same");
}

static qdr_status compare_counts(const checked_comm *checked)
{
    const int size = checked->base.size;
    for (int i = 0; i < size * size; i++) {
        const int from = i / size, to = i % size;
        const int64_t sent = checked->counts[(int64_t)from * 2 * size + to];
        const int64_t expected = checked->counts[(int64_t)to * 2 * size + size + from];
        if (sent == expected) continue;
        char who[QDRI_MEMBER_BYTES], who_else[QDRI_MEMBER_BYTES];
        qdri_comm_name_member(&checked->base, from, who, sizeof who);
        qdri_comm_name_member(&checked->base, to, who_else, sizeof who_else);
        return QDR_FAIL(QDR_ERR_SHAPE, "comm: %s: in %s, %s sends %" PRId64 " elements to %s, which expects %" PRId64,
                        qdri_comm_name(&checked->base), checked->records[from].text, who, sent, who_else, expected);
    }
    return QDR_OK;
}

/* ---- work on the stream ---- */

typedef struct comparison {
    const checked_comm *checked;
    qdr_status (*compare)(const checked_comm *checked);
    int64_t found_ns; /* time when a difference was found; 0: none */
} comparison;

enum { GRACE_NS = 200000000 };

/* A member that finds a difference first gives the others time to find it, too, before they learn that this rank has
 * failed. */
static qdr_status run_comparison(void *args)
{
    comparison *self = args;
    const qdr_status status = self->compare(self->checked);
    if (status == QDR_OK) return QDR_OK;
    const int64_t now = qdri_now_ns();
    if (self->found_ns == 0) self->found_ns = now;
    if (now - self->found_ns >= GRACE_NS) return status;
    qdri_look_within(GRACE_NS - (now - self->found_ns));
    return QDR_PENDING;
}

typedef struct writing {
    checked_comm *checked;
    record mine;
} writing;

static qdr_status write_record(void *args)
{
    const writing *self = args;
    self->checked->records[self->checked->base.rank] = self->mine;
    return QDR_OK;
}

typedef struct counting {
    checked_comm *checked;
    qdri_coll coll;
} counting;

static qdr_status write_counts(void *args)
{
    const counting *self = args;
    const int size = self->checked->base.size;
    int64_t *mine = self->checked->counts + (int64_t)self->checked->base.rank * 2 * size, begin;
    for (int j = 0; j < size; j++) {
        qdri_coll_outgoing(&self->coll, j, &begin, &mine[j]);
        qdri_coll_incoming(&self->coll, j, &begin, &mine[size + j]);
    }
    return QDR_OK;
}

/* A step of a check: on the stream, or, if streams run no host work, on the calling thread, before the launch. */
static qdr_status run(const checked_comm *checked, qdri_work_fn fn, void *args, size_t bytes, qdr_stream *stream)
{
    return qdri_dev_runs_work(checked->base.dev) ? qdri_work_anywhere(stream, fn, args, bytes) : fn(args);
}

/* Gathers n_bytes from every member, one after the other, and then runs the comparison. */
static qdr_status exchange(checked_comm *checked, void *data, size_t n_bytes,
                           qdr_status (*compare)(const checked_comm *checked), qdr_stream *stream)
{
    const comparison self = {checked, compare, 0};
    const qdri_coll coll = {.kind = QDR_ALL_GATHER,
                            .dtype = QDR_U8,
                            .recv = data,
                            .count = (int64_t)n_bytes,
                            .label = checked->records[checked->base.rank].text,
                            .is_check = 1};
    if (qdri_dev_runs_work(checked->base.dev)) {
        QDR_TRY(qdri_comm_launch(checked->base.inner, &coll, stream));
        return qdri_work_anywhere(stream, run_comparison, &self, sizeof self);
    }
    for (int j = 0; j < checked->base.size; j++)
        QDR_TRY(qdri_comm_broadcast(checked->base.inner, j, (char *)data + (size_t)j * n_bytes, n_bytes));
    return compare(checked);
}

static qdr_status check(checked_comm *checked, const qdri_coll *coll, qdr_stream *stream)
{
    const size_t size = (size_t)checked->base.size;
    writing self = {checked, record_of(&checked->base, coll)};
    counting counts = {checked, *coll};
    _Static_assert(sizeof self <= QDRI_WORK_BYTES, "a record must fit into work of a stream");
    QDR_TRY(run(checked, write_record, &self, sizeof self, stream));
    QDR_TRY(exchange(checked, checked->records, sizeof(record), compare_calls, stream));
    if (coll->kind != QDR_ALL_TO_ALL) return QDR_OK;
    if (!checked->counts) QDR_TRY(QDRI_NEW(2 * size * size, "counts of an all-to-all", &checked->counts));
    QDR_TRY(run(checked, write_counts, &counts, sizeof counts, stream));
    return exchange(checked, checked->counts, 2 * size * sizeof(int64_t), compare_counts, stream);
}

/* After a difference the device drops all later work. */
static qdr_status checked_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream)
{
    const qdr_status status = check((checked_comm *)comm, coll, stream);
    if (status == QDR_OK) return qdri_comm_launch(comm->inner, coll, stream);
    if (qdri_dev_runs_work(comm->dev)) return status;
    qdri_dev_poison(comm->dev, status, qdr_last_error()); /* here, too, a difference is an asynchronous error */
    return QDR_OK;
}

static void checked_free(checked_comm *checked)
{
    if (!checked) return;
    free(checked->records);
    free(checked->counts);
    free(checked);
}

static void checked_destroy(qdri_comm *comm)
{
    qdri_comm_destroy(&comm->inner);
    checked_free((checked_comm *)comm);
}

static qdr_status wrap(qdri_comm *parent, qdri_comm **comm);

static const qdri_comm_table checked_table = {
    .name = "checked",
    .unrecorded = "QDR_CHECK compares calls on the host; unset it",
    .launch = checked_launch,
    .wrap = wrap,
    .destroy = checked_destroy,
};

/* parent: NULL for a world. */
static qdr_status wrap(qdri_comm *parent, qdri_comm **comm)
{
    qdri_comm *inner = *comm;
    checked_comm *made = NULL;
    qdr_status status = QDR_OK;
    if (inner && inner->size > 1) {
        status = QDRI_NEW(1, "a checked communicator", &made);
        if (status == QDR_OK) status = QDRI_NEW(inner->size, "records of calls", &made->records);
    }
    status = qdri_comm_decorate(status, made ? &made->base : NULL, &checked_table, parent, comm);
    if (status != QDR_OK) checked_free(made);
    return status;
}

qdr_status qdri_comm_check(qdri_comm **comm) { return wrap(NULL, comm); }
