/* SPDX-License-Identifier: Apache-2.0 */
/* QDR_CODEC_CHECK, of coded collectives on CPUs: what encoders send is decoded and compared with its elements, sums are
 * added again, and members compare digests of what they then hold. All on the streams that do the work. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/check.h"
#include "comm/decorators/compressed.h"
#include "core/facts.h"
#include "core/size.h"
#include "dev/cpu/narrow.h"

enum { N_PIECES = 64, WHERE_BYTES = 192 };

struct coded_check {
    qdri_coded_errors *errors; /* the last one first; accessed on the stream of the codecs */
    uint64_t *digests; /* by member, of N_PIECES each */
};

qdr_status qdri_coded_check_create(int size, coded_check **check)
{
    coded_check *made = NULL;
    QDR_TRY(QDRI_NEW(1, "the check of a communicator's codecs", &made));
    const qdr_status status = QDRI_NEW((size_t)size * N_PIECES, "digests of coded collectives", &made->digests);
    if (status == QDR_OK) *check = made;
    if (status != QDR_OK) free(made);
    return status;
}

void qdri_coded_check_free(coded_check *check)
{
    if (!check) return;
    for (qdri_coded_errors *next = check->errors; next;) {
        qdri_coded_errors *errors = next;
        next = errors->next;
        free(errors);
    }
    free(check->digests);
    free(check);
}

const qdri_coded_errors *qdri_coded_check_errors(const coded_check *check) { return check ? check->errors : NULL; }

/* ---- elements in fp32 ---- */

/* Room for the elements of a chunk: as they are to be, as they are decoded, and these in their own type. */
typedef struct copies {
    float *exact, *decoded;
    uint16_t *narrow;
} copies;

size_t qdri_coded_check_bytes(const qdri_code_plan *plan)
{
    return (size_t)plan->chunk_elems * (2 * sizeof(float) + sizeof(uint16_t));
}

static copies copies_of(const coded_transfer *t)
{
    float *exact = (float *)(void *)(t->staging + qdri_code_staging_bytes(t->plan));
    float *decoded = exact + t->plan->chunk_elems;
    return (copies){exact, decoded, (uint16_t *)(void *)(decoded + t->plan->chunk_elems)};
}

static float load_one(qdr_dtype dtype, const void *x, int64_t i)
{
    return dtype == QDR_F32 ? ((const float *)x)[i] : qdri_narrow_load(dtype, ((const uint16_t *)x)[i]);
}

static float rounded(qdr_dtype dtype, float x)
{
    return dtype == QDR_F32 ? x : qdri_narrow_load(dtype, qdri_narrow_round(dtype, x));
}

/* The type to which messages are decoded before they are added: fp32, or for codecs of elements as they are, theirs. */
static qdr_dtype decoded_dtype(const qdri_message *message)
{
    const qdr_codec_kind kind = message->codec->kind;
    return kind == QDR_CODEC_LOSSLESS || kind == QDR_CODEC_ZFP ? message->dtype : QDR_F32;
}

static void *decoded_place(const coded_transfer *t, const qdri_message *message)
{
    const copies c = copies_of(t);
    return decoded_dtype(message) == QDR_F32 ? (void *)c.decoded : (void *)c.narrow;
}

static qdr_status decode(const coded_transfer *t, const qdri_message *message, const void *wire)
{
    qdri_message whole = *message;
    whole.dtype = decoded_dtype(message);
    return qdri_decode(t->comm->codecs, &whole, wire, qdri_message_bytes(message), 0, decoded_place(t, message));
}

/* exact = x, or exact + x; then rounded to `round`. */
typedef struct addition {
    float *exact;
    const void *x; /* NULL: none */
    int64_t n;
    qdr_dtype dtype, round;
    int is_first;
} addition;

static qdr_status run_addition(void *args)
{
    const addition *a = args;
    for (int64_t i = 0; a->x && i < a->n; i++) {
        const float more = load_one(a->dtype, a->x, i);
        if (a->is_first)
            a->exact[i] = more;
        else
            a->exact[i] += more;
    }
    for (int64_t i = 0; a->round != QDR_F32 && i < a->n; i++) a->exact[i] = rounded(a->round, a->exact[i]);
    return QDR_OK;
}

static qdr_status add(const coded_transfer *t, int64_t n, qdr_dtype dtype, const void *x, int is_first)
{
    const addition a = {copies_of(t).exact, x, n, dtype, QDR_F32, is_first};
    return qdri_work_anywhere(t->comm->codecs, run_addition, &a, sizeof a);
}

qdr_status qdri_coded_keep(const coded_transfer *t, const qdri_message *message, const void *x, const float *feedback)
{
    if (!t->comm->check) return QDR_OK;
    QDR_TRY(add(t, message->n, message->dtype, x, 1));
    return feedback ? add(t, message->n, QDR_F32, feedback, 0) : QDR_OK;
}

/* Codecs that work on elements as they are code the rounded sum. */
qdr_status qdri_coded_keep_sum(const coded_transfer *t, const qdri_message *message, const qdri_message_sum *sum)
{
    const char *next = sum->sources;
    qdri_message version = *message;
    if (!t->comm->check || message->n == 0) return QDR_OK;
    for (int i = 0; i < sum->n_sources; i++) {
        if (i == sum->own) {
            QDR_TRY(add(t, message->n, message->dtype, sum->x, i == 0));
            continue;
        }
        if (sum->lengths) version.n_bytes = &sum->lengths[i];
        QDR_TRY(decode(t, &version, next));
        QDR_TRY(add(t, message->n, decoded_dtype(message), decoded_place(t, message), i == 0));
        next += sum->stride;
    }
    if (sum->feedback) QDR_TRY(add(t, message->n, QDR_F32, sum->feedback, 0));
    const addition round = {.exact = copies_of(t).exact, .n = message->n, .round = decoded_dtype(message)};
    return qdri_work_anywhere(t->comm->codecs, run_addition, &round, sizeof round);
}

/* ---- comparing with messages ---- */

/* On what a collective works, for sentences. */
typedef struct place {
    const compressed_comm *comm;
    const char *label;
    qdr_codec codec;
    qdr_coll_kind kind;
    int traffic;
} place;

typedef struct holding {
    place place;
    coded_check *check;
    qdri_message message; /* its codec is `place`'s */
    qdri_message_copy copy;
    float *decoded; /* what `copy` has */
    const uint16_t *narrow; /* the same in its own type, if it was not decoded to fp32 */
    const void *y; /* what was made of it, in the message's type; NULL: nothing */
    int64_t first; /* number of its first element among the caller's */
} holding;

static place place_of(const coded_transfer *t)
{
    return (place){t->comm, t->coll->label, *t->coll->codec, t->coll->kind, t->coll->traffic};
}

static const char *traffic_name(int traffic)
{
    return traffic ? qdri_traffic_name((qdr_traffic_class)(traffic - 1)) : "elements";
}

/* "gradient of 'fc1', all-reduce over d as int8" */
static void describe(const place *p, char where[WHERE_BYTES])
{
    char codec[64];
    qdr_codec_text(&p->codec, codec, sizeof codec);
    int at = snprintf(where, WHERE_BYTES, "codec check: ");
    if (p->label)
        at += snprintf(where + at, WHERE_BYTES - (size_t)at, "%s of '%.60s', ", traffic_name(p->traffic), p->label);
    snprintf(where + at, WHERE_BYTES - (size_t)at, "%s over %s as %s", qdr_coll_kind_name(p->kind),
             qdri_comm_name(&p->comm->base), codec);
}

static qdr_status fail_at(const place *p, const char *text)
{
    char where[WHERE_BYTES], who[QDRI_MEMBER_BYTES];
    describe(p, where);
    qdri_comm_name_member(&p->comm->base, p->comm->base.rank, who, sizeof who);
    return QDR_FAIL(QDR_ERR_DEVICE, "%s: %s: %s", where, who, text);
}

static qdr_status find_errors(const holding *h, qdri_message_errors **errors)
{
    const char *label = h->place.label ? h->place.label : "";
    qdri_coded_errors *made = h->check->errors;
    while (made &&
           (made->traffic != h->place.traffic || memcmp(&made->codec, &h->place.codec, sizeof made->codec) != 0 ||
            strncmp(made->label, label, sizeof made->label - 1) != 0))
        made = made->next;
    if (!made) {
        QDR_TRY(QDRI_NEW(1, "errors of codecs", &made));
        snprintf(made->label, sizeof made->label, "%s", label);
        made->traffic = h->place.traffic;
        made->codec = h->place.codec;
        made->next = h->check->errors;
        h->check->errors = made;
    }
    *errors = &made->errors;
    return QDR_OK;
}

/* The first element of y that is not what it should be, rounded to its type; -1: none. */
static int64_t wrong_result(const holding *h, const float *wanted)
{
    for (int64_t i = 0; h->y && i < h->message.n; i++) {
        const float is = load_one(h->message.dtype, h->y, i), should = rounded(h->message.dtype, wanted[i]);
        if (qdri_float_bits(is) != qdri_float_bits(should) && !(isnan(is) && isnan(should))) return i;
    }
    return -1;
}

static qdr_status run_holding(void *args)
{
    holding *h = args;
    char text[256];
    qdri_message_errors *errors = NULL;
    const float *wanted = h->copy.wire ? h->copy.decoded : h->copy.exact;
    h->message.codec = &h->place.codec;
    QDR_TRY(find_errors(h, &errors));
    if (h->copy.wire && h->narrow) qdri_convert(QDR_F32, h->decoded, h->message.dtype, h->narrow, h->message.n);
    if (h->copy.wire && qdri_message_wrong(&h->message, &h->copy, h->first, errors, text, sizeof text) >= 0)
        return fail_at(&h->place, text);
    const int64_t i = wrong_result(h, wanted);
    if (i < 0) return QDR_OK;
    snprintf(text, sizeof text, "element %" PRId64 " of the sum is %.9g, but what came adds up to %.9g", h->first + i,
             (double)load_one(h->message.dtype, h->y, i), (double)rounded(h->message.dtype, wanted[i]));
    return fail_at(&h->place, text);
}

static qdr_status hold(const coded_transfer *t, const qdri_message *message, const void *wire, const float *feedback,
                       const void *y, int64_t first)
{
    const copies c = copies_of(t);
    const holding h = {.place = place_of(t),
                       .check = t->comm->check,
                       .message = *message,
                       .copy = {c.exact, c.decoded, wire, feedback, .is_sum = y != NULL},
                       .decoded = c.decoded,
                       .narrow = decoded_dtype(message) == QDR_F32 ? NULL : c.narrow,
                       .y = y,
                       .first = t->plan->slice_begin + first};
    _Static_assert(sizeof h <= QDRI_WORK_BYTES, "must fit into work of a stream");
    if (wire) QDR_TRY(decode(t, message, wire));
    return qdri_work_anywhere(t->comm->codecs, run_holding, &h, sizeof h);
}

qdr_status qdri_coded_hold(const coded_transfer *t, const qdri_message *message, const void *wire,
                           const float *feedback, int64_t first)
{
    return t->comm->check ? hold(t, message, wire, feedback, NULL, first) : QDR_OK;
}

qdr_status qdri_coded_hold_sum(const coded_transfer *t, const qdri_message *message, const qdri_message_sum *sum,
                               int64_t first)
{
    qdri_message sent = *message;
    if (!t->comm->check || message->n == 0) return QDR_OK;
    sent.n_bytes = sum->wire_bytes;
    return hold(t, &sent, sum->wire, sum->feedback, sum->y, first);
}

/* ---- comparing copies ---- */

/* What all members hold after a gather or an all-reduce. */
typedef struct copy {
    place place;
    coded_check *check;
    const void *data;
    int64_t n;
    size_t each; /* bytes of an element */
} copy;

static int64_t piece_begin(const copy *c, int piece) { return c->n * piece / N_PIECES; }

static qdr_status run_digests(void *args)
{
    const copy *c = args;
    uint64_t *mine = c->check->digests + (size_t)c->place.comm->base.rank * N_PIECES;
    for (int p = 0; p < N_PIECES; p++) {
        const size_t begin = (size_t)piece_begin(c, p) * c->each, end = (size_t)piece_begin(c, p + 1) * c->each;
        mine[p] = qdri_digest_of((const char *)c->data + begin, end - begin);
    }
    return QDR_OK;
}

static int n_same(const copy *c, int piece, int member)
{
    int n = 0;
    for (int j = 0; j < c->place.comm->base.size; j++)
        n += c->check->digests[j * N_PIECES + piece] == c->check->digests[member * N_PIECES + piece];
    return n;
}

/* Of a piece that is not the same everywhere: a member that has what most have, and one that has not. */
static qdr_status fail_copies(const copy *c, int piece)
{
    const qdri_comm *base = &c->place.comm->base;
    const uint64_t *digests = c->check->digests + piece;
    char where[WHERE_BYTES], who[QDRI_MEMBER_BYTES], who_else[QDRI_MEMBER_BYTES];
    int usual = 0, other = 0;
    for (int j = 1; j < base->size; j++)
        if (n_same(c, piece, j) > n_same(c, piece, usual)) usual = j;
    while (digests[other * N_PIECES] == digests[usual * N_PIECES]) other++;
    describe(&c->place, where);
    qdri_comm_name_member(base, usual, who, sizeof who);
    qdri_comm_name_member(base, other, who_else, sizeof who_else);
    return QDR_FAIL(QDR_ERR_DEVICE,
                    "%s: %s has other elements than %s among %" PRId64 " to %" PRId64 "; all must have the same bits",
                    where, who_else, who, piece_begin(c, piece), piece_begin(c, piece + 1) - 1);
}

static qdr_status run_copies(void *args)
{
    const copy *c = args;
    for (int p = 0; p < N_PIECES; p++)
        if (n_same(c, p, 0) < c->place.comm->base.size) return fail_copies(c, p);
    return QDR_OK;
}

qdr_status qdri_coded_compare(const coded_transfer *t)
{
    coded_check *check = t->comm->check;
    if (!check || t->coll->kind == QDR_REDUCE_SCATTER) return QDR_OK;
    const copy c = {.place = place_of(t),
                    .check = check,
                    .data = t->coll->recv,
                    .n = qdri_coll_total(t->coll, t->comm->base.size),
                    .each = qdr_dtype_bytes(t->coll->dtype)};
    const qdri_coll gather = {.kind = QDR_ALL_GATHER,
                              .dtype = QDR_U8,
                              .recv = check->digests,
                              .count = N_PIECES * sizeof *check->digests,
                              .label = t->coll->label ? t->coll->label : "a comparison of copies",
                              .is_check = 1};
    QDR_TRY(qdri_work_anywhere(t->stream, run_digests, &c, sizeof c));
    QDR_TRY(qdri_comm_launch(t->comm->base.inner, &gather, t->stream));
    return qdri_work_anywhere(t->stream, run_copies, &c, sizeof c);
}
