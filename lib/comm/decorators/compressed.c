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
#include <stdlib.h>
#include <string.h>

#include "comm/decorators/compressed.h"
#include "core/codec.h"
#include "core/codec_format.h"
#include "core/environment.h"
#include "core/ranges.h"
#include "core/size.h"

enum { MOST_PLANS = 256 };

/* ---- members of a node among themselves, without a codec ---- */

static qdr_status run_inside(const coded_transfer *t, qdri_coll coll)
{
    coll.dtype = t->coll->dtype;
    coll.label = t->coll->label;
    coll.stage_of = &t->plan->called;
    return qdri_comm_launch(t->comm->inside, &coll, t->stream);
}

/* Slices of an all-reduce, one for each member of a node. */
static qdri_coll slices_of(qdr_coll_kind kind, const qdri_coll *coll)
{
    return (qdri_coll){
        .kind = kind, .op = coll->op, .count = coll->count, .split_unit = coll->row_elems ? coll->row_elems : 1};
}

/* The parts of a node's members: one after the other, from element *begin on. */
static qdri_coll parts_on(const qdri_code_plan *plan, int per_node, int node, const qdri_coll *coll, int64_t *begin)
{
    const int first = node * per_node;
    *begin = qdri_coll_offset(plan->members, 0, first);
    return (qdri_coll){.kind = coll->kind, .op = coll->op, .counts = plan->members + first};
}

static qdr_status all_reduce(coded_transfer t)
{
    const compressed_comm *comm = t.comm;
    const qdri_coll *coll = t.coll;
    t.x = qdri_at(qdri_coll_source(coll), t.plan->slice_begin, coll->dtype);
    t.y = qdri_at_mutable(coll->recv, t.plan->slice_begin, coll->dtype);
    if (!comm->inside) return qdri_coded_transfer(&t);
    qdri_coll slices = slices_of(QDR_REDUCE_SCATTER, coll);
    slices.send = qdri_coll_source(coll);
    slices.recv = t.y;
    QDR_TRY(run_inside(&t, slices));
    t.x = t.y;
    QDR_TRY(qdri_coded_transfer(&t));
    slices = slices_of(QDR_ALL_GATHER, coll);
    slices.recv = coll->recv;
    return run_inside(&t, slices);
}

static qdr_status reduce_scatter(coded_transfer t)
{
    const compressed_comm *comm = t.comm;
    int64_t begin;
    t.x = t.coll->send;
    t.y = t.coll->recv;
    if (!comm->inside) return qdri_coded_transfer(&t);
    char *slice = qdri_coded_scratch(&t) + qdri_align_bytes(t.plan->scratch_bytes, QDRI_CODED_STAGING_ALIGN);
    for (int node = 0; node < comm->group.n_nodes; node++) {
        qdri_coll sum = parts_on(t.plan, comm->group.per_node, node, t.coll, &begin);
        sum.send = qdri_at(t.coll->send, begin, t.coll->dtype);
        sum.recv = qdri_at_mutable(slice, t.plan->begin[node], t.coll->dtype);
        QDR_TRY(run_inside(&t, sum));
    }
    t.x = slice;
    return qdri_coded_transfer(&t);
}

static qdr_status all_gather(coded_transfer t)
{
    const compressed_comm *comm = t.comm;
    int64_t begin;
    t.x = t.coll->send ? t.coll->send : qdri_at(t.coll->recv, t.plan->begin[t.plan->own], t.coll->dtype);
    t.y = t.coll->recv;
    QDR_TRY(qdri_coded_transfer(&t));
    for (int node = 0; comm->inside && node < comm->group.n_nodes; node++) {
        qdri_coll rest = parts_on(t.plan, comm->group.per_node, node, t.coll, &begin);
        rest.recv = qdri_at_mutable(t.coll->recv, begin, t.coll->dtype);
        QDR_TRY(run_inside(&t, rest));
    }
    return QDR_OK;
}

/* ---- plans ---- */

static void drop_plans(compressed_comm *comm)
{
    for (qdri_code_plan *next = comm->plans; next;) {
        qdri_code_plan *plan = next;
        next = plan->next;
        qdri_code_plan_free(plan);
    }
    comm->plans = NULL;
    comm->n_plans = 0;
}

static qdri_code_plan *known_plan(const compressed_comm *comm, const qdri_coll *coll)
{
    const qdri_code_key key = qdri_code_key_of(coll, comm->base.size, comm->chunk_bytes);
    for (qdri_code_plan *plan = comm->plans; plan; plan = plan->next)
        if (memcmp(&plan->key, &key, sizeof key) == 0) return plan;
    return NULL;
}

/* Drops all plans once there are MOST_PLANS and none is in use, for callers whose sizes keep changing. */
static qdr_status find_plan(compressed_comm *comm, const qdri_coll *coll, const qdri_code_plan **plan)
{
    qdri_code_plan *made = known_plan(comm, coll);
    *plan = made;
    if (made) return QDR_OK;
    if (comm->n_plans >= MOST_PLANS && qdri_event_reached(comm->over)) drop_plans(comm);
    QDR_TRY(qdri_code_plan_create(&comm->group, coll, comm->chunk_bytes, &made));
    made->next = comm->plans;
    comm->plans = made;
    comm->n_plans++;
    *plan = made;
    return QDR_OK;
}

/* ---- the communicator ---- */

/* Of the messages of a collective, of which there are fewer than 2^24: other ones on each member, so that their errors
 * are independent. */
static uint64_t first_seed(const qdri_comm *base, uint64_t seed)
{
    uint64_t x;
    return QDRI_CODEC_RANDOM(seed, (uint64_t)base->rank, x) << 24;
}

static size_t staging_bytes(const compressed_comm *comm, const qdri_code_plan *plan)
{
    return qdri_code_staging_bytes(plan) + (comm->check ? qdri_coded_check_bytes(plan) : 0);
}

static qdr_status compressed_launch(qdri_comm *base, const qdri_coll *coll, qdr_stream *stream)
{
    compressed_comm *comm = (compressed_comm *)base;
    if (!qdri_coll_is_coded(coll)) return qdri_comm_launch(base->inner, coll, stream);
    coded_transfer t = {.comm = comm, .coll = coll, .stream = stream};
    QDR_TRY(find_plan(comm, coll, &t.plan));
    const size_t bytes = staging_bytes(comm, t.plan);
    /* Twice as much as before, since old reserves are kept. */
    if (bytes > base->scratch_bytes)
        QDR_TRY(qdri_staging_reserve(base, bytes > 2 * base->scratch_bytes ? bytes : 2 * base->scratch_bytes));
    t.staging = base->scratch;
    comm->seed = first_seed(base, coll->seed ? coll->seed : ++comm->n_launched);
    atomic_fetch_add(&qdri_counter_of(base, coll)->n_calls, 1);
    atomic_fetch_add(&comm->bytes_saved[coll->kind], t.plan->bytes_saved);
    QDR_TRY(coll->kind == QDR_ALL_REDUCE   ? all_reduce(t)
            : coll->kind == QDR_ALL_GATHER ? all_gather(t)
                                           : reduce_scatter(t));
    QDR_TRY(qdri_coded_compare(&t));
    return qdri_event_record(comm->over, stream);
}

/* A float for each element that this member sends, apart from these and from what it receives; where members of a node
 * add first, only that part of it is used which has a float for each element of a slice. */
static qdr_status check_feedback(const qdri_comm *base, const qdri_coll *coll, const char *name)
{
    const size_t each = qdr_dtype_bytes(coll->dtype);
    int64_t begin, n_send, n_recv;
    qdri_coll_extent(coll, base->size, base->rank, &begin, &n_send, &n_recv);
    if (coll->feedback && !(coll->codec->flags & QDR_CODEC_FEEDBACK))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: feedback for a codec without it; pass NULL, or add +feedback", name);
    if (!coll->feedback && (coll->codec->flags & QDR_CODEC_FEEDBACK) && n_send > 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: the codec has feedback, but its memory is NULL; pass %" PRId64 " floats, one for each "
                        "element sent",
                        name, n_send);
    const int per_node = coll->kind == QDR_ALL_GATHER ? 1 : ((const compressed_comm *)base)->group.per_node;
    const size_t used = coll->feedback ? (size_t)(n_send / per_node) * sizeof *coll->feedback : 0;
    const qdri_range feedback = {.what = "feedback", .begin = coll->feedback, .bytes = used, .writes = 1};
    QDR_TRY(QDRI_RANGES_CHECK(name, feedback,
                              {.what = "send", .begin = coll->send, .bytes = coll->send ? (size_t)n_send * each : 0}));
    QDR_TRY(QDRI_RANGES_CHECK(name, feedback,
                              {.what = "recv", .begin = coll->recv, .bytes = (size_t)n_recv * each, .writes = 1}));
    return qdri_dev_check_memory(base->dev, coll->feedback, sizeof *coll->feedback, name);
}

static qdr_status compressed_check(const qdri_comm *base, const qdri_coll *coll)
{
    const char *name = qdr_coll_kind_name(coll->kind);
    if (!coll->codec) return QDR_OK;
    QDR_TRY(qdri_codec_check(coll->codec, name));
    if (!qdri_coll_is_coded(coll)) return QDR_OK;
    QDR_TRY(qdri_codec_check_dev(coll->codec, coll->dtype, base->dev, name));
    const int64_t row = coll->row_elems;
    if (row < 0 || (row > 0 && coll->count % row))
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: rows of %" PRId64 " elements do not divide %" PRId64, name, row,
                        coll->count);
    return check_feedback(base, coll, name);
}

static void raise_inside(const compressed_comm *comm, qdri_coll coll, qdr_dtype dtype, qdri_need *need)
{
    coll.dtype = dtype;
    qdri_comm_need(comm->inside, &coll, need);
}

static void compressed_need(const qdri_comm *base, const qdri_coll *coll, qdri_need *need)
{
    const compressed_comm *comm = (const compressed_comm *)base;
    qdri_code_plan *plan = NULL;
    if (!qdri_coll_is_coded(coll)) {
        qdri_comm_need(base->inner, coll, need);
        return;
    }
    if (qdri_code_plan_create(&comm->group, coll, comm->chunk_bytes, &plan) != QDR_OK)
        return; /* then launching fails, too */
    const size_t bytes = staging_bytes(comm, plan);
    if (bytes > need->coded) need->coded = bytes;
    qdri_need inside = {0};
    if (comm->inside && coll->kind == QDR_ALL_REDUCE) {
        raise_inside(comm, slices_of(QDR_REDUCE_SCATTER, coll), coll->dtype, &inside);
        raise_inside(comm, slices_of(QDR_ALL_GATHER, coll), coll->dtype, &inside);
    }
    for (int node = 0; comm->inside && coll->kind != QDR_ALL_REDUCE && node < comm->group.n_nodes; node++) {
        int64_t begin;
        raise_inside(comm, parts_on(plan, comm->group.per_node, node, coll, &begin), coll->dtype, &inside);
    }
    if (inside.own > need->inside) need->inside = inside.own;
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
    qdri_event_destroy(&comm->over);
    for (int s = 0; s < QDRI_CODED_SLOTS; s++) {
        qdri_event_destroy(&comm->written[s]);
        qdri_event_destroy(&comm->exchanged[s]);
        qdri_event_destroy(&comm->gathered[s]);
    }
    drop_plans(comm);
    qdri_coded_check_free(comm->check);
    if (comm->inside) {
        qdri_comm_destroy(&comm->between);
        qdri_comm_destroy(&comm->inside);
    }
    free(comm);
}

static void compressed_drain(const qdri_comm *base)
{
    const qdr_status status = qdri_stream_synchronize(((const compressed_comm *)base)->codecs);
    (void)status; /* the caller's streams have the same */
}

/* Before its staging is freed. */
static void compressed_end(qdri_comm *base) { qdri_stream_destroy(&((compressed_comm *)base)->codecs); }

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
    .drain = compressed_drain,
    .destroy_parts = compressed_end,
    .destroy = compressed_destroy,
};

int qdri_comm_is_compressed(const qdri_comm *comm) { return comm->table == &compressed_table; }

const qdri_coded_errors *qdri_comm_coded_errors(const qdri_comm *comm)
{
    return qdri_comm_is_compressed(comm) ? qdri_coded_check_errors(((const compressed_comm *)comm)->check) : NULL;
}

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

/* Work of streams of a GPU cannot compare anything. */
static qdr_status add_check(compressed_comm *comm, const qdri_comm *inner)
{
    if (qdri_dev_runs_work(inner->dev)) return qdri_coded_check_create(inner->size, &comm->check);
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "QDR_CODEC_CHECK: messages are compared on CPUs only; unset it, or run the same "
                    "with QDR_DEVICE=cpu, whose messages have the same bits");
}

static qdr_status create(qdri_comm *inner, const int *nodes, int is_checked, compressed_comm **comm)
{
    compressed_comm *made = NULL;
    qdr_status status = QDRI_NEW(1, "a communicator with codecs", &made);
    QDR_TRY_OUT(status, status);
    made->group = qdri_coded_group_of(nodes, inner->size, inner->rank);
    made->between = inner;
    made->chunk_bytes = qdri_dev_runs_work(inner->dev) ? QDRI_CODED_CHUNK_BYTES : QDRI_CODED_GPU_CHUNK_BYTES;
    if (is_checked) QDR_TRY_OUT(status, add_check(made, inner));
    QDR_TRY_OUT(status, qdri_stream_create(inner->dev, QDRI_STREAM_URGENT, &made->codecs));
    QDR_TRY_OUT(status, qdri_event_create(inner->dev, &made->begun));
    QDR_TRY_OUT(status, qdri_event_create(inner->dev, &made->ended));
    QDR_TRY_OUT(status, qdri_event_create(inner->dev, &made->over));
    for (int s = 0; s < QDRI_CODED_SLOTS; s++) {
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
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): agreed, so it was created */
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
    int is_checked = 0;
    if (inner->size == 1) return QDR_OK;
    qdr_status status = qdri_environment_choice(QDRI_VARIABLE_CODEC_CHECK, &is_checked);
    is_checked = qdri_comm_any(inner, status == QDR_OK && is_checked);
    if (status == QDR_OK) status = create(inner, nodes, is_checked, &made);
    status = qdri_comm_agree(inner, status);
    if (status == QDR_OK) status = split(made, inner);
    if (status == QDR_OK) status = qdri_comm_decorate(QDR_OK, &made->base, &compressed_table, NULL, comm);
    if (status != QDR_OK) {
        if (made) compressed_free(made);
        return status;
    }
    qdri_comm_set_names(&made->base, inner->name, inner->describe, inner->describe_user);
    return QDR_OK;
}
