/* SPDX-License-Identifier: Apache-2.0 */
/* A coded collective between counterparts, chunk by chunk: codecs on a stream of their own, messages on the
 * caller's. */
#include "comm/decorators/compressed.h"
#include "core/size.h"
#include "dev/clock.h"

/* ---- what a step works on ---- */

static qdri_message message_of(const coded_transfer *t, int64_t n_elems)
{
    return (qdri_message){.codec = t->coll->codec, .dtype = t->coll->dtype, .n = n_elems, .run = t->coll->row_elems};
}

static char *slot(const coded_transfer *t, int c)
{
    return t->staging + (size_t)(c % QDRI_CODED_SLOTS) * qdri_code_slot_bytes(t->plan);
}
static char *received(const coded_transfer *t, int c)
{
    return slot(t, c) + qdri_align_bytes(t->plan->send_bytes, QDRI_CODED_STAGING_ALIGN);
}
static char *gathered(const coded_transfer *t, int c)
{
    return received(t, c) + qdri_align_bytes(t->plan->receive_bytes, QDRI_CODED_STAGING_ALIGN);
}
char *qdri_coded_scratch(const coded_transfer *t)
{
    return slot(t, 0) + QDRI_CODED_SLOTS * qdri_code_slot_bytes(t->plan);
}

static const int64_t *of_chunk(const coded_transfer *t, const int64_t *bytes, int c)
{
    return bytes + (int64_t)c * t->plan->n_parts;
}

/* Where the message of part j is among those gathered. */
static char *gathered_part(const coded_transfer *t, int c, int j)
{
    return gathered(t, c) + qdri_coll_offset(of_chunk(t, t->plan->gathers, c), 0, j);
}

/* The first element of a chunk of part j, among all. */
static int64_t first_elem(const coded_transfer *t, int c, int j)
{
    return t->plan->begin[j] + c * t->plan->chunk_elems;
}

static int is_gather(const coded_transfer *t) { return t->coll->kind == QDR_ALL_GATHER; }

/* ---- work ---- */

static qdr_status encode(const coded_transfer *t, int c, int j, void *wire)
{
    const qdri_message message = message_of(t, qdri_code_chunk(t->plan, c, j));
    const int64_t at = is_gather(t) ? c * t->plan->chunk_elems : first_elem(t, c, j);
    float *feedback = t->coll->feedback ? t->coll->feedback + at : NULL;
    int64_t bytes;
    return qdri_encode(t->comm->codecs, &message, qdri_at(t->x, at, t->coll->dtype), feedback, ++t->comm->seed, wire,
                       &bytes);
}

/* Sends messages once the codecs have written them. */
static qdr_status travel(const coded_transfer *t, int c, qdri_coll coll)
{
    compressed_comm *comm = t->comm;
    coll.dtype = QDR_U8;
    coll.label = t->coll->label;
    coll.stage_of = 1 + (int)t->coll->kind;
    QDR_TRY(qdri_event_record(comm->written[c % QDRI_CODED_SLOTS], comm->codecs));
    QDR_TRY(qdri_stream_wait(t->stream, comm->written[c % QDRI_CODED_SLOTS]));
    QDR_TRY(qdri_comm_launch(comm->between, &coll, t->stream));
    return qdri_event_record((coll.kind == QDR_ALL_TO_ALL ? comm->exchanged : comm->gathered)[c % QDRI_CODED_SLOTS],
                             t->stream);
}

static qdr_status gather(const coded_transfer *t, int c)
{
    const qdri_coll coll = {.kind = QDR_ALL_GATHER, .recv = gathered(t, c), .counts = of_chunk(t, t->plan->gathers, c)};
    return travel(t, c, coll);
}

/* The steps of a chunk. Each but the first begins when the messages of the one before have come. */

static qdr_status send_versions(const coded_transfer *t, int c)
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

static qdr_status sum_versions(const coded_transfer *t, int c)
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
        .scratch = qdri_coded_scratch(t),
    };
    QDR_TRY(qdri_decode_sum(t->comm->codecs, &message, &sum));
    return gathers ? gather(t, c) : QDR_OK;
}

static qdr_status send_part(const coded_transfer *t, int c)
{
    QDR_TRY(encode(t, c, t->plan->own, gathered_part(t, c, t->plan->own)));
    return gather(t, c);
}

static qdr_status take_parts(const coded_transfer *t, int c)
{
    for (int j = 0; j < t->plan->n_parts; j++) {
        const qdri_message message = message_of(t, qdri_code_chunk(t->plan, c, j));
        void *y = qdri_at_mutable(t->y, first_elem(t, c, j), t->coll->dtype);
        if (j == t->plan->own && !is_gather(t)) continue; /* decoded when it was encoded */
        QDR_TRY(qdri_decode(t->comm->codecs, &message, gathered_part(t, c, j), qdri_message_bytes(&message), 0, y));
    }
    return QDR_OK;
}

static qdr_status add_both(const coded_transfer *t, int c)
{
    const qdri_message message = message_of(t, qdri_code_chunk(t->plan, c, 0));
    const qdri_message_sum sum = {
        .n_sources = 2,
        .own = -1,
        .sources = gathered(t, c),
        .stride = (size_t)of_chunk(t, t->plan->gathers, c)[0],
        .y = qdri_at_mutable(t->y, first_elem(t, c, 0), t->coll->dtype),
        .scratch = qdri_coded_scratch(t),
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

static qdr_status take_time(const coded_transfer *t, int kind)
{
    const timing self = {t->comm, kind};
    if (!qdri_dev_runs_work(t->comm->base.dev)) return QDR_OK;
    return qdri_work_anywhere(t->comm->codecs, note_time, &self, sizeof self);
}

/* A chunk's first step is enqueued before the second one of the chunk before it, and so on: codecs and messages of
 * different chunks overlap. What a step finds in its slot has been used: the codecs, in their order, have waited for
 * it. */
qdr_status qdri_coded_transfer(const coded_transfer *t)
{
    typedef qdr_status (*step)(const coded_transfer *t, int c);
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
                QDR_TRY(qdri_stream_wait(comm->codecs,
                                         (s == n_exchanges ? comm->exchanged : comm->gathered)[c % QDRI_CODED_SLOTS]));
            QDR_TRY(take_time(t, -1));
            QDR_TRY(steps[s](t, c));
            QDR_TRY(take_time(t, (int)t->coll->kind));
        }
    QDR_TRY(qdri_event_record(comm->ended, comm->codecs));
    return qdri_stream_wait(t->stream, comm->ended);
}
