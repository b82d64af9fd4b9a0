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

/* Of the messages of a chunk of LOSSLESS, by part: the bytes sent, received, gathered. */
enum { SENT, RECEIVED, GATHERED };
static int64_t *lengths(const coded_transfer *t, int c, int which)
{
    char *begin = gathered(t, c) + qdri_align_bytes(t->plan->gather_bytes, QDRI_CODED_STAGING_ALIGN);
    return t->plan->lengths_bytes ? (int64_t *)(void *)begin + which * t->plan->n_parts : NULL;
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

/* Messages that a device codes at once, if it can. */
typedef struct batch {
    qdri_kernel_kind kind;
    int n;
    qdri_code_part parts[QDRI_CODE_PARTS_MOST];
} batch;

static qdr_status end_batch(const coded_transfer *t, batch *all)
{
    const qdri_message message = message_of(t, 0);
    const int n = all->n;
    all->n = 0;
    return qdri_code_parts(t->comm->codecs, all->kind, &message, all->parts, n);
}

static qdr_status add(const coded_transfer *t, batch *all, qdri_code_part part)
{
    all->parts[all->n++] = part;
    return all->n < QDRI_CODE_PARTS_MOST ? QDR_OK : end_batch(t, all);
}

/* bytes: receives those of a message of LOSSLESS, from the stream. */
static qdr_status encode(const coded_transfer *t, int c, int j, void *wire, int64_t *bytes, batch *all)
{
    qdri_message message = message_of(t, qdri_code_chunk(t->plan, c, j));
    const int64_t at = is_gather(t) ? c * t->plan->chunk_elems : first_elem(t, c, j);
    float *feedback = t->coll->feedback ? t->coll->feedback + at : NULL;
    const void *x = qdri_at(t->x, at, t->coll->dtype);
    int64_t known;
    if (message.n == 0) return QDR_OK; /* the stream has cleared its length */
    if (qdri_codes_parts(&message, t->comm->base.dev))
        return add(
            t, all,
            (qdri_code_part){.n = message.n, .seed = ++t->comm->seed, .x = x, .wire = wire, .feedback = feedback});
    QDR_TRY(qdri_coded_keep(t, &message, x, feedback));
    QDR_TRY(qdri_encode(t->comm->codecs, &message, x, feedback, ++t->comm->seed, wire, bytes ? bytes : &known));
    message.n_bytes = bytes;
    return qdri_coded_hold(t, &message, wire, feedback, at);
}

/* Counts the bytes of messages whose lengths the codecs have written, and of the lengths. */
typedef struct sent_lengths {
    compressed_comm *comm;
    const int64_t *lengths; /* of n messages, each sent to n_receivers; its length, too */
    int n, n_receivers;
    qdr_coll_kind kind;
} sent_lengths;

static qdr_status note_sent(void *args)
{
    const sent_lengths *self = args;
    int64_t bytes = 0;
    for (int j = 0; j < self->n; j++) bytes += self->n_receivers * self->lengths[j];
    atomic_fetch_sub(&self->comm->bytes_saved[self->kind], bytes);
    return QDR_OK;
}

/* Lengths travel before the messages that have them. */
static qdr_status send_lengths(const coded_transfer *t, int c, qdri_coll *coll)
{
    const int n = t->plan->n_parts, to_all = coll->kind == QDR_ALL_GATHER;
    const int64_t *out = lengths(t, c, to_all ? GATHERED : SENT);
    int64_t *in = lengths(t, c, to_all ? GATHERED : RECEIVED);
    const sent_lengths sent = {t->comm, to_all ? out + t->plan->own : out, to_all ? 1 : n, to_all ? n - 1 : 1,
                               t->coll->kind};
    const qdri_coll first = {.kind = coll->kind,
                             .dtype = QDR_U8,
                             .send = to_all ? NULL : out,
                             .recv = in,
                             .count = sizeof *in,
                             .label = coll->label,
                             .stage_of = coll->stage_of};
    if (!out) return QDR_OK;
    coll->lengths = out;
    coll->recv_lengths = to_all ? NULL : in;
    atomic_fetch_sub(&t->comm->bytes_saved[t->coll->kind], (n - 1) * (int64_t)sizeof *in);
    QDR_TRY(qdri_work_anywhere(t->comm->codecs, note_sent, &sent, sizeof sent));
    return qdri_comm_launch(t->comm->between, &first, t->stream);
}

/* Sends messages once the codecs have written them. */
static qdr_status travel(const coded_transfer *t, int c, qdri_coll coll)
{
    compressed_comm *comm = t->comm;
    coll.dtype = QDR_U8;
    coll.label = t->coll->label;
    coll.stage_of = &t->plan->called;
    QDR_TRY(qdri_event_record(comm->written[c % QDRI_CODED_SLOTS], comm->codecs));
    QDR_TRY(qdri_stream_wait(t->stream, comm->written[c % QDRI_CODED_SLOTS]));
    QDR_TRY(send_lengths(t, c, &coll));
    QDR_TRY(qdri_comm_launch(comm->between, &coll, t->stream));
    return qdri_event_record((coll.kind == QDR_ALL_TO_ALL ? comm->exchanged : comm->gathered)[c % QDRI_CODED_SLOTS],
                             t->stream);
}

/* Where the length of this member's message in a gather is; NULL: it is known. */
static int64_t *length_of_own(const coded_transfer *t, int c)
{
    int64_t *all = lengths(t, c, GATHERED);
    return all ? all + t->plan->own : NULL;
}

/* Messages of no elements are not encoded. */
static qdr_status clear_own(const coded_transfer *t, int c)
{
    int64_t *own = length_of_own(t, c);
    return own ? qdri_fill_zero(t->comm->codecs, own, sizeof *own) : QDR_OK;
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
    int64_t *bytes = lengths(t, c, SENT);
    char *wire = slot(t, c);
    batch all = {.kind = QDRI_K_ENCODE};
    if (bytes) QDR_TRY(qdri_fill_zero(t->comm->codecs, bytes, (size_t)t->plan->n_parts * sizeof *bytes));
    for (int j = 0; j < t->plan->n_parts; j++, wire += sends[j - 1])
        if (j != t->plan->own) QDR_TRY(encode(t, c, j, wire, bytes ? bytes + j : NULL, &all));
    QDR_TRY(end_batch(t, &all));
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
        .lengths = lengths(t, c, RECEIVED),
        .wire = gathers ? gathered_part(t, c, own) : NULL,
        .wire_bytes = length_of_own(t, c),
        .feedback = gathers && t->coll->feedback ? t->coll->feedback + at : NULL,
        .seed = ++t->comm->seed,
        .y = qdri_at_mutable(t->y, gathers ? at : of_part, t->coll->dtype),
        .scratch = qdri_coded_scratch(t),
    };
    if (gathers) QDR_TRY(clear_own(t, c));
    QDR_TRY(qdri_coded_keep_sum(t, &message, &sum));
    QDR_TRY(qdri_decode_sum(t->comm->codecs, &message, &sum));
    QDR_TRY(qdri_coded_hold_sum(t, &message, &sum, at));
    return gathers ? gather(t, c) : QDR_OK;
}

static qdr_status send_part(const coded_transfer *t, int c)
{
    batch all = {.kind = QDRI_K_ENCODE};
    QDR_TRY(clear_own(t, c));
    QDR_TRY(encode(t, c, t->plan->own, gathered_part(t, c, t->plan->own), length_of_own(t, c), &all));
    QDR_TRY(end_batch(t, &all));
    return gather(t, c);
}

static qdr_status take_parts(const coded_transfer *t, int c)
{
    batch all = {.kind = QDRI_K_DECODE};
    for (int j = 0; j < t->plan->n_parts; j++) {
        qdri_message message = message_of(t, qdri_code_chunk(t->plan, c, j));
        char *wire = gathered_part(t, c, j);
        void *y = qdri_at_mutable(t->y, first_elem(t, c, j), t->coll->dtype);
        if (t->plan->lengths_bytes) message.n_bytes = lengths(t, c, GATHERED) + j;
        if (j == t->plan->own && !is_gather(t)) continue; /* decoded when it was encoded */
        if (qdri_codes_parts(&message, t->comm->base.dev))
            QDR_TRY(add(t, &all, (qdri_code_part){.n = message.n, .wire = wire, .y = y}));
        else
            QDR_TRY(qdri_decode(t->comm->codecs, &message, wire, qdri_message_bytes(&message), 0, y));
    }
    return end_batch(t, &all);
}

static qdr_status add_both(const coded_transfer *t, int c)
{
    const qdri_message message = message_of(t, qdri_code_chunk(t->plan, c, 0));
    const qdri_message_sum sum = {
        .n_sources = 2,
        .own = -1,
        .sources = gathered(t, c),
        .stride = (size_t)of_chunk(t, t->plan->gathers, c)[0],
        .lengths = lengths(t, c, GATHERED),
        .y = qdri_at_mutable(t->y, first_elem(t, c, 0), t->coll->dtype),
        .scratch = qdri_coded_scratch(t),
    };
    QDR_TRY(qdri_coded_keep_sum(t, &message, &sum));
    QDR_TRY(qdri_decode_sum(t->comm->codecs, &message, &sum));
    return qdri_coded_hold_sum(t, &message, &sum, first_elem(t, c, 0));
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
