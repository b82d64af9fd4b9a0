/* SPDX-License-Identifier: Apache-2.0 */
/* The decorator `compressed`: collectives whose elements travel as the messages of a codec.
 *
 *   reduce-scatter  each member encodes what the others own, all exchange (all-to-all), each sums what it owns, its own
 *                   version as it is
 *   all-gather      each encodes what it owns, all gather, each decodes everything, its own part, too
 *   all-reduce      the first, the sum encoded, the second; between two members each sends the other everything, and
 *                   both add the same two messages
 *
 * so that nothing is rounded more than twice, whatever the number of members, and all members have the same bits. In
 * groups with several members on each of several nodes, members of a node sum first, and gather last, without a codec,
 * and only what goes to other nodes is coded. Chunks pass through a pipeline of two: codecs run on a stream of their
 * own, messages travel on the caller's, and events order the two. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/decorators/compressed_plan.h"
#include "comm/internal.h"
#include "core/codec.h"
#include "core/size.h"
#include "dev/clock.h"

enum { ALIGN = 64, N_SLOTS = 2, MOST_PLANS = 256 };

typedef struct compressed_comm {
    qdri_comm base;
    qdri_coded_group group;
    qdri_comm *inside, *between; /* members of this node, counterparts; NULL and `inner` if all are counterparts */
    qdr_stream *codecs;
    qdr_event *begun, *ended;
    qdr_event *written[N_SLOTS]; /* by slot: messages are there to be sent */
    qdr_event *exchanged[N_SLOTS], *gathered[N_SLOTS]; /* all have come */
    qdri_code_plan *plans; /* of collectives so far: they recur */
    int n_plans;
    uint64_t seed; /* of stochastic rounding: of the last message; this and n_launched */
    uint64_t n_launched;
    int64_t codecs_begun_ns; /* accessed on the stream of the codecs */
    _Atomic int64_t codec_nanosecs[QDR_N_COLL_KINDS];
    _Atomic int64_t bytes_saved[QDR_N_COLL_KINDS];
} compressed_comm;

/* One collective between counterparts. */
typedef struct transfer {
    compressed_comm *comm;
    const qdri_code_plan *plan;
    const qdri_coll *coll;
    qdr_stream *stream;
    const void *x; /* sums: all parts, as this member has them; a gather: its own part */
    void *y; /* a gather: where all parts go; a reduce-scatter: where its own part goes */
    char *staging;
} transfer;

/* ---- what a step works on ---- */

static qdri_message message_of(const transfer *t, int64_t n_elems)
{
    return (qdri_message){.codec = t->coll->codec, .dtype = t->coll->dtype, .n = n_elems, .run = t->coll->row_elems};
}

static char *slot(const transfer *t, int c)
{
    return t->staging + (size_t)(c % N_SLOTS) * qdri_code_slot_bytes(t->plan);
}
static char *received(const transfer *t, int c) { return slot(t, c) + qdri_align_bytes(t->plan->send_bytes, ALIGN); }
static char *gathered(const transfer *t, int c)
{
    return received(t, c) + qdri_align_bytes(t->plan->receive_bytes, ALIGN);
}
static char *scratch(const transfer *t) { return slot(t, 0) + N_SLOTS * qdri_code_slot_bytes(t->plan); }

static const int64_t *of_chunk(const transfer *t, const int64_t *bytes, int c)
{
    return bytes + (int64_t)c * t->plan->n_parts;
}

/* Where the message of part j is among those gathered. */
static char *gathered_part(const transfer *t, int c, int j)
{
    return gathered(t, c) + qdri_coll_offset(of_chunk(t, t->plan->gathers, c), 0, j);
}

/* The first element of a chunk of part j, among all. */
static int64_t first_elem(const transfer *t, int c, int j) { return t->plan->begin[j] + c * t->plan->chunk_elems; }

static int is_gather(const transfer *t) { return t->coll->kind == QDR_ALL_GATHER; }

/* ---- work ---- */

static qdr_status encode(const transfer *t, int c, int j, void *wire)
{
    const qdri_message message = message_of(t, qdri_code_chunk(t->plan, c, j));
    const int64_t at = is_gather(t) ? c * t->plan->chunk_elems : first_elem(t, c, j);
    float *feedback = t->coll->feedback ? t->coll->feedback + at : NULL;
    int64_t bytes;
    return qdri_encode(t->comm->codecs, &message, qdri_at(t->x, at, t->coll->dtype), feedback, ++t->comm->seed, wire,
                       &bytes);
}

/* Sends messages once the codecs have written them. */
static qdr_status travel(const transfer *t, int c, qdri_coll coll)
{
    compressed_comm *comm = t->comm;
    coll.dtype = QDR_U8;
    coll.label = t->coll->label;
    coll.stage_of = 1 + (int)t->coll->kind;
    QDR_TRY(qdri_event_record(comm->written[c % N_SLOTS], comm->codecs));
    QDR_TRY(qdri_stream_wait(t->stream, comm->written[c % N_SLOTS]));
    QDR_TRY(qdri_comm_launch(comm->between, &coll, t->stream));
    return qdri_event_record((coll.kind == QDR_ALL_TO_ALL ? comm->exchanged : comm->gathered)[c % N_SLOTS], t->stream);
}

static qdr_status gather(const transfer *t, int c)
{
    const qdri_coll coll = {.kind = QDR_ALL_GATHER, .recv = gathered(t, c), .counts = of_chunk(t, t->plan->gathers, c)};
    return travel(t, c, coll);
}

/* The steps of a chunk. Each but the first begins when the messages of the one before have come. */

static qdr_status send_versions(const transfer *t, int c)
{
    const int64_t *sends = of_chunk(t, t->plan->sends, c);
    char *wire = slot(t, c);
    for (int j = 0; j < t->plan->n_parts; j++, wire += sends[j - 1])
        if (j != t->plan->own) QDR_TRY(encode(t, c, j, wire));
    const qdri_coll coll = {.kind = QDR_ALL_TO_ALL,
                            .send = slot(t, c),
                            .recv = received(t, c),
                            .counts = sends,
                            .recv_counts = of_chunk(t, t->plan->receives, c)};
    return travel(t, c, coll);
}

static qdr_status sum_versions(const transfer *t, int c)
{
    const int own = t->plan->own, gathers = t->coll->kind == QDR_ALL_REDUCE;
    const qdri_message message = message_of(t, qdri_code_chunk(t->plan, c, own));
    const int64_t at = first_elem(t, c, own), of_part = c * t->plan->chunk_elems;
    const qdri_message_sum sum = {
        .n_sources = t->plan->n_parts,
        .own = own,
        .x = qdri_at(t->x, at, t->coll->dtype),
        .sources = received(t, c),
        .stride = (size_t)of_chunk(t, t->plan->receives, c)[own == 0],
        .wire = gathers ? gathered_part(t, c, own) : NULL,
        .feedback = gathers && t->coll->feedback ? t->coll->feedback + at : NULL,
        .seed = ++t->comm->seed,
        .y = qdri_at_mutable(t->y, gathers ? at : of_part, t->coll->dtype),
        .scratch = scratch(t),
    };
    QDR_TRY(qdri_decode_sum(t->comm->codecs, &message, &sum));
    return gathers ? gather(t, c) : QDR_OK;
}

static qdr_status send_part(const transfer *t, int c)
{
    QDR_TRY(encode(t, c, t->plan->own, gathered_part(t, c, t->plan->own)));
    return gather(t, c);
}

static qdr_status take_parts(const transfer *t, int c)
{
    for (int j = 0; j < t->plan->n_parts; j++) {
        const qdri_message message = message_of(t, qdri_code_chunk(t->plan, c, j));
        void *y = qdri_at_mutable(t->y, first_elem(t, c, j), t->coll->dtype);
        if (j == t->plan->own && !is_gather(t)) continue; /* decoded when it was encoded */
        QDR_TRY(qdri_decode(t->comm->codecs, &message, gathered_part(t, c, j), qdri_message_bytes(&message), 0, y));
    }
    return QDR_OK;
}

static qdr_status add_both(const transfer *t, int c)
{
    const qdri_message message = message_of(t, qdri_code_chunk(t->plan, c, 0));
    const qdri_message_sum sum = {
        .n_sources = 2,
        .own = -1,
        .sources = gathered(t, c),
        .stride = (size_t)of_chunk(t, t->plan->gathers, c)[0],
        .y = qdri_at_mutable(t->y, first_elem(t, c, 0), t->coll->dtype),
        .scratch = scratch(t),
    };
    return qdri_decode_sum(t->comm->codecs, &message, &sum);
}

/* Adds up the time between two places of the stream of the codecs, where streams run host work. */
typedef struct timing {
    compressed_comm *comm;
    int kind; /* -1: the first place */
} timing;

static qdr_status note_time(void *args)
{
    const timing *self = args;
    compressed_comm *comm = self->comm;
    const int64_t now_ns = qdri_now_ns();
    if (self->kind < 0)
        comm->codecs_begun_ns = now_ns;
    else
        atomic_fetch_add(&comm->codec_nanosecs[self->kind], now_ns - comm->codecs_begun_ns);
    return QDR_OK;
}

static qdr_status take_time(const transfer *t, int kind)
{
    const timing self = {t->comm, kind};
    if (!qdri_dev_runs_work(t->comm->base.dev)) return QDR_OK;
    return qdri_work_anywhere(t->comm->codecs, note_time, &self, sizeof self);
}

/* A chunk's first step is enqueued before the second one of the chunk before it, and so on: codecs and messages of
 * different chunks overlap. What a step finds in its slot has been used: the codecs, in their order, have waited for
 * it. */
static qdr_status run_pipeline(const transfer *t)
{
    typedef qdr_status (*step)(const transfer *t, int c);
    static const step reduce_scatter[] = {send_versions, sum_versions}, all_gather[] = {send_part, take_parts},
                      all_reduce[] = {send_versions, sum_versions, take_parts}, exchange[] = {send_part, add_both};
    const int is_all_reduce = t->coll->kind == QDR_ALL_REDUCE && !t->plan->is_exchange;
    const step *steps = is_gather(t)           ? all_gather
                        : t->plan->is_exchange ? exchange
                        : is_all_reduce        ? all_reduce
                                               : reduce_scatter;
    const int n_steps = is_all_reduce ? 3 : 2, n_exchanges = steps[0] == send_versions;
    compressed_comm *comm = t->comm;
    QDR_TRY(qdri_event_record(comm->begun, t->stream));
    QDR_TRY(qdri_stream_wait(comm->codecs, comm->begun));
    for (int turn = 0; turn < t->plan->n_chunks + n_steps - 1; turn++)
        for (int s = 0; s < n_steps; s++) {
            const int c = turn - s;
            if (c < 0 || c >= t->plan->n_chunks) continue;
            if (s > 0)
                QDR_TRY(
                    qdri_stream_wait(comm->codecs, (s == n_exchanges ? comm->exchanged : comm->gathered)[c % N_SLOTS]));
            QDR_TRY(take_time(t, -1));
            QDR_TRY(steps[s](t, c));
            QDR_TRY(take_time(t, (int)t->coll->kind));
        }
    QDR_TRY(qdri_event_record(comm->ended, comm->codecs));
    return qdri_stream_wait(t->stream, comm->ended);
}

/* ---- members of a node among themselves, without a codec ---- */

static qdr_status run_inside(const transfer *t, qdri_coll coll)
{
    coll.dtype = t->coll->dtype;
    coll.label = t->coll->label;
    coll.stage_of = 1 + (int)t->coll->kind;
    return qdri_comm_launch(t->comm->inside, &coll, t->stream);
}

static qdr_status all_reduce(transfer t)
{
    const compressed_comm *comm = t.comm;
    const qdri_coll *coll = t.coll;
    t.x = qdri_at(qdri_coll_source(coll), t.plan->slice_begin, coll->dtype);
    t.y = qdri_at_mutable(coll->recv, t.plan->slice_begin, coll->dtype);
    if (!comm->inside) return run_pipeline(&t);
    qdri_coll slices = {.kind = QDR_REDUCE_SCATTER,
                        .op = coll->op,
                        .send = qdri_coll_source(coll),
                        .recv = t.y,
                        .count = coll->count,
                        .split_unit = coll->row_elems ? coll->row_elems : 1};
    QDR_TRY(run_inside(&t, slices));
    t.x = t.y;
    QDR_TRY(run_pipeline(&t));
    slices.kind = QDR_ALL_GATHER;
    slices.send = NULL;
    slices.recv = coll->recv;
    return run_inside(&t, slices);
}

/* The parts of a node's members: one after the other, from this element on. */
static const int64_t *parts_on(const transfer *t, int node, int64_t *begin)
{
    const int first = node * t->comm->group.per_node;
    *begin = qdri_coll_offset(t->plan->members, 0, first);
    return t->plan->members + first;
}

static qdr_status reduce_scatter(transfer t)
{
    const compressed_comm *comm = t.comm;
    int64_t begin;
    t.x = t.coll->send;
    t.y = t.coll->recv;
    if (!comm->inside) return run_pipeline(&t);
    char *slice = scratch(&t) + qdri_align_bytes(t.plan->scratch_bytes, ALIGN);
    for (int node = 0; node < comm->group.n_nodes; node++) {
        qdri_coll sum = {.kind = QDR_REDUCE_SCATTER, .op = t.coll->op, .counts = parts_on(&t, node, &begin)};
        sum.send = qdri_at(t.coll->send, begin, t.coll->dtype);
        sum.recv = qdri_at_mutable(slice, t.plan->begin[node], t.coll->dtype);
        QDR_TRY(run_inside(&t, sum));
    }
    t.x = slice;
    return run_pipeline(&t);
}

static qdr_status all_gather(transfer t)
{
    const compressed_comm *comm = t.comm;
    int64_t begin;
    t.x = t.coll->send ? t.coll->send : qdri_at(t.coll->recv, t.plan->begin[t.plan->own], t.coll->dtype);
    t.y = t.coll->recv;
    QDR_TRY(run_pipeline(&t));
    for (int node = 0; comm->inside && node < comm->group.n_nodes; node++) {
        qdri_coll rest = {.kind = QDR_ALL_GATHER, .counts = parts_on(&t, node, &begin)};
        rest.recv = qdri_at_mutable(t.coll->recv, begin, t.coll->dtype);
        QDR_TRY(run_inside(&t, rest));
    }
    return QDR_OK;
}

/* ---- plans ---- */

/* Those of a caller whose sizes never recur are dropped in the end. */
static qdr_status drop_plans(compressed_comm *comm, qdr_stream *stream)
{
    if (stream) QDR_TRY(qdri_stream_synchronize(stream));
    for (qdri_code_plan *next = comm->plans; next;) {
        qdri_code_plan *plan = next;
        next = plan->next;
        qdri_code_plan_free(plan);
    }
    comm->plans = NULL;
    comm->n_plans = 0;
    return QDR_OK;
}

static qdri_code_plan *known_plan(const compressed_comm *comm, const qdri_coll *coll)
{
    const qdri_code_key key = qdri_code_key_of(coll, comm->base.size);
    for (qdri_code_plan *plan = comm->plans; plan; plan = plan->next)
        if (memcmp(&plan->key, &key, sizeof key) == 0) return plan;
    return NULL;
}

static qdr_status find_plan(compressed_comm *comm, const qdri_coll *coll, qdr_stream *stream,
                            const qdri_code_plan **plan)
{
    qdri_code_plan *made = known_plan(comm, coll);
    *plan = made;
    if (made) return QDR_OK;
    if (comm->n_plans == MOST_PLANS) QDR_TRY(drop_plans(comm, stream));
    QDR_TRY(qdri_code_plan_create(&comm->group, coll, &made));
    made->next = comm->plans;
    comm->plans = made;
    comm->n_plans++;
    *plan = made;
    return QDR_OK;
}

/* ---- the communicator ---- */

static qdr_status compressed_launch(qdri_comm *base, const qdri_coll *coll, qdr_stream *stream)
{
    compressed_comm *comm = (compressed_comm *)base;
    if (!qdri_coll_is_coded(coll)) return qdri_comm_launch(base->inner, coll, stream);
    transfer t = {.comm = comm, .coll = coll, .stream = stream};
    QDR_TRY(find_plan(comm, coll, stream, &t.plan));
    const size_t bytes = qdri_code_staging_bytes(t.plan);
    if (bytes > base->scratch_bytes) QDR_TRY(qdri_staging_reserve(base, bytes));
    t.staging = base->scratch;
    /* Of one collective there are fewer messages than 2^24. */
    comm->seed = (coll->seed ? coll->seed : ++comm->n_launched) << 24;
    atomic_fetch_add(&qdri_counter_of(base, coll)->n_calls, 1);
    atomic_fetch_add(&comm->bytes_saved[coll->kind], t.plan->bytes_saved);
    if (coll->kind == QDR_ALL_REDUCE) return all_reduce(t);
    return coll->kind == QDR_REDUCE_SCATTER ? reduce_scatter(t) : all_gather(t);
}

qdr_status qdri_comm_check_codec(const qdr_codec *codec, qdr_dtype dtype, const qdri_dev *dev, const char *who)
{
    if (codec->kind == QDR_CODEC_LOSSLESS && qdri_codec_shortens(codec, dtype))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s: collectives have no lossless; use bf16, int16, int8 or int4", who);
    return qdri_codec_check_dev(codec, dtype, dev, who);
}

static qdr_status compressed_check(const qdri_comm *base, const qdri_coll *coll)
{
    const char *name = qdr_coll_kind_name(coll->kind);
    if (!coll->codec) return QDR_OK;
    QDR_TRY(qdri_codec_check(coll->codec, name));
    if (!qdri_coll_is_coded(coll)) return QDR_OK;
    QDR_TRY(qdri_comm_check_codec(coll->codec, coll->dtype, base->dev, name));
    const int64_t row = coll->row_elems;
    if (row < 0 || (row > 0 && coll->count % row))
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: rows of %" PRId64 " elements do not divide %" PRId64, name, row,
                        coll->count);
    if (coll->feedback && !(coll->codec->flags & QDR_CODEC_FEEDBACK))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: feedback for a codec without it; pass NULL, or add +feedback", name);
    if (!coll->feedback && (coll->codec->flags & QDR_CODEC_FEEDBACK))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: the codec has feedback, but its memory is NULL; pass a float for each "
                        "element sent",
                        name);
    return qdri_dev_check_memory(base->dev, coll->feedback, sizeof *coll->feedback, name);
}

static void compressed_need(const qdri_comm *base, const qdri_coll *coll, qdri_need *need)
{
    const compressed_comm *comm = (const compressed_comm *)base;
    qdri_code_plan *plan = NULL;
    if (!qdri_coll_is_coded(coll)) {
        qdri_comm_need(base->inner, coll, need);
        return;
    }
    if (qdri_code_plan_create(&comm->group, coll, &plan) != QDR_OK) return; /* then launching fails, too */
    const size_t bytes = qdri_code_staging_bytes(plan);
    if (bytes > need->coded) need->coded = bytes;
    if (comm->inside && coll->kind != QDR_ALL_GATHER) {
        int64_t most = plan->n_elems;
        for (int j = 0; j < base->size && coll->kind == QDR_REDUCE_SCATTER; j++)
            if (plan->members[j] > most) most = plan->members[j];
        const qdri_coll sum = {.kind = QDR_REDUCE_SCATTER, .dtype = coll->dtype, .op = coll->op, .count = most};
        qdri_need inside = {0};
        qdri_comm_need(comm->inside, &sum, &inside);
        if (inside.own > need->inside) need->inside = inside.own;
    }
    qdri_code_plan_free(plan);
}

static qdr_status compressed_reserve(qdri_comm *base, const qdri_need *need)
{
    compressed_comm *comm = (compressed_comm *)base;
    const qdri_need inside = {.own = need->inside};
    if (need->coded > base->scratch_bytes) QDR_TRY(qdri_staging_reserve(base, need->coded));
    if (comm->inside) QDR_TRY(qdri_comm_reserve(comm->inside, &inside));
    return qdri_comm_reserve(base->inner, need);
}

static void add_traffic(qdr_traffic *all, qdr_traffic more)
{
    all->n_calls += more.n_calls;
    all->bytes_sent += more.bytes_sent;
    all->bytes_off_node += more.bytes_off_node;
    all->bytes_plain += more.bytes_plain;
    all->secs += more.secs;
    all->codec_secs += more.codec_secs;
}

static qdr_traffic compressed_traffic(const qdri_comm *base, qdr_coll_kind kind)
{
    const compressed_comm *comm = (const compressed_comm *)base;
    qdr_traffic all = qdri_comm_traffic(base->inner, kind);
    add_traffic(&all, (qdr_traffic){.n_calls = atomic_load(&base->counters[kind].n_calls),
                                    .bytes_plain = atomic_load(&comm->bytes_saved[kind]),
                                    .codec_secs = 1e-9 * (double)atomic_load(&comm->codec_nanosecs[kind])});
    if (!comm->inside) return all;
    add_traffic(&all, qdri_comm_traffic(comm->inside, kind));
    add_traffic(&all, qdri_comm_traffic(comm->between, kind));
    return all;
}

static void compressed_reset(qdri_comm *base)
{
    compressed_comm *comm = (compressed_comm *)base;
    for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
        atomic_store(&comm->bytes_saved[kind], 0);
        atomic_store(&comm->codec_nanosecs[kind], 0);
    }
    if (!comm->inside) return;
    qdri_comm_reset_traffic(comm->inside);
    qdri_comm_reset_traffic(comm->between);
}

/* Frees what is there; the inner communicator stays. */
static void compressed_free(compressed_comm *comm)
{
    qdri_stream_destroy(&comm->codecs);
    qdri_event_destroy(&comm->begun);
    qdri_event_destroy(&comm->ended);
    for (int s = 0; s < N_SLOTS; s++) {
        qdri_event_destroy(&comm->written[s]);
        qdri_event_destroy(&comm->exchanged[s]);
        qdri_event_destroy(&comm->gathered[s]);
    }
    const qdr_status dropped = drop_plans(comm, NULL);
    (void)dropped; /* waits for nothing */
    if (comm->inside) {
        qdri_comm_destroy(&comm->between);
        qdri_comm_destroy(&comm->inside);
    }
    free(comm);
}

static void compressed_destroy(qdri_comm *base)
{
    qdri_comm *inner = base->inner;
    compressed_free((compressed_comm *)base);
    qdri_comm_destroy(&inner);
}

/* Its parts are as its inner communicator's. */
static qdr_status compressed_wrap(qdri_comm *base, qdri_comm **part)
{
    (void)base;
    (void)part;
    return QDR_OK;
}

static const qdri_comm_table compressed_table = {
    .name = "compressed",
    .check = compressed_check,
    .launch = compressed_launch,
    .wrap = compressed_wrap,
    .need = compressed_need,
    .reserve = compressed_reserve,
    .traffic = compressed_traffic,
    .reset_traffic = compressed_reset,
    .destroy = compressed_destroy,
};

int qdri_comm_is_compressed(const qdri_comm *comm) { return comm->table == &compressed_table; }

static void describe_inside(const void *user, int member, char *text, size_t capacity)
{
    const compressed_comm *comm = user;
    qdri_comm_name_member(&comm->base, comm->group.node * comm->group.per_node + member, text, capacity);
}

static void describe_between(const void *user, int member, char *text, size_t capacity)
{
    const compressed_comm *comm = user;
    qdri_comm_name_member(&comm->base, member * comm->group.per_node + comm->group.index, text, capacity);
}

static qdr_status create(qdri_comm *inner, const int *nodes, compressed_comm **comm)
{
    compressed_comm *made = NULL;
    qdr_status status = QDRI_NEW(1, "a communicator with codecs", &made);
    QDR_TRY_OUT(status, status);
    made->group = qdri_coded_group_of(nodes, inner->size, inner->rank);
    made->between = inner;
    QDR_TRY_OUT(status, qdri_stream_create(inner->dev, QDRI_STREAM_COMPUTE, &made->codecs));
    QDR_TRY_OUT(status, qdri_event_create(inner->dev, &made->begun));
    QDR_TRY_OUT(status, qdri_event_create(inner->dev, &made->ended));
    for (int s = 0; s < N_SLOTS; s++) {
        QDR_TRY_OUT(status, qdri_event_create(inner->dev, &made->written[s]));
        QDR_TRY_OUT(status, qdri_event_create(inner->dev, &made->exchanged[s]));
        QDR_TRY_OUT(status, qdri_event_create(inner->dev, &made->gathered[s]));
    }
    *comm = made;
    return QDR_OK;
out:
    if (made) compressed_free(made);
    return status;
}

static qdr_status split(compressed_comm *comm, qdri_comm *inner)
{
    const qdri_coded_group *group = &comm->group;
    qdri_comm *inside = NULL, *between = NULL;
    if (group->per_node == 1) return QDR_OK;
    QDR_TRY(qdri_comm_split(inner, group->node, group->index, &inside));
    const qdr_status status = qdri_comm_split(inner, group->index, group->node, &between);
    if (status != QDR_OK) {
        qdri_comm_destroy(&inside);
        return status;
    }
    comm->inside = inside;
    comm->between = between;
    qdri_comm_set_names(inside, inner->name, describe_inside, comm);
    qdri_comm_set_names(between, inner->name, describe_between, comm);
    return QDR_OK;
}

qdr_status qdri_comm_compress(qdri_comm **comm, const int *nodes)
{
    qdri_comm *inner = *comm;
    compressed_comm *made = NULL;
    if (inner->size == 1) return QDR_OK;
    qdr_status status = qdri_comm_agree(inner, create(inner, nodes, &made));
    if (status == QDR_OK) status = split(made, inner);
    if (status == QDR_OK) status = qdri_comm_decorate(QDR_OK, &made->base, &compressed_table, NULL, comm);
    if (status != QDR_OK) {
        if (made) compressed_free(made);
        return status;
    }
    qdri_comm_set_names(&made->base, inner->name, inner->describe, inner->describe_user);
    return QDR_OK;
}
