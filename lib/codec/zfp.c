/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of zfp with a fixed rate: each run is a stream of blocks of four elements, of 4·rate bits each, filled up to
 * whole words of 64 bits. */
#include "codec/zfp.h"

#include <math.h>
#include <string.h>

#include "config.h"

int qdri_has_zfp(void) { return QDRI_HAVE_ZFP; }

#if QDRI_HAVE_ZFP
#include <zfp.h>

#include "core/size.h"
#include "dev/cpu/narrow.h"

/* A segment has a whole number of words at any rate. */
enum { BLOCK = 4, SEGMENT = 4096, MOST_RATE = 24, SEGMENT_WORDS = SEGMENT * MOST_RATE / 64 };

/* zfp has no NaN and no Inf: such a block is sent as larger numbers than those of other blocks, which stay below
 * least_read whatever their errors. And zfp overflows for blocks below 2^-97: they are sent as zeros. */
static const float none = 0x1p127F, least_none = 0x1p124F, least_read = 0x1p126F, least_sent = 0x1p-96F;

typedef struct zfp_work {
    qdr_dtype dtype;
    int rate, encodes, is_added;
    int64_t n, run;
    char *elems, *wire; /* of which one is only read */
} zfp_work;

/* zfp reads and writes whole words, and messages may lie anywhere. */
typedef struct coder {
    zfp_stream *zfp;
    bitstream *bits;
    uint64_t words[SEGMENT_WORDS + 1]; /* it reads one ahead */
} coder;

static qdr_status coder_open(coder *c, int rate)
{
    memset(c->words, 0, sizeof c->words);
    c->bits = stream_open(c->words, sizeof c->words);
    c->zfp = c->bits ? zfp_stream_open(c->bits) : NULL;
    if (!c->zfp) {
        if (c->bits) stream_close(c->bits);
        return QDR_FAIL(QDR_ERR_MEMORY, "zfp: out of memory for a stream; free some");
    }
    zfp_stream_set_rate(c->zfp, rate, zfp_type_float, 1, zfp_false);
    return QDR_OK;
}

static void coder_close(coder *c)
{
    zfp_stream_close(c->zfp);
    stream_close(c->bits);
}

static void load(const zfp_work *w, int64_t at, int n, float x[BLOCK])
{
    qdri_convert(QDR_F32, x, w->dtype, w->elems + at * (int64_t)qdr_dtype_bytes(w->dtype), n);
}

static void store(const zfp_work *w, int64_t at, int n, const float x[BLOCK])
{
    float sum[BLOCK];
    memcpy(sum, x, sizeof sum);
    if (w->is_added) {
        load(w, at, n, sum);
        for (int i = 0; i < n; i++) sum[i] += x[i];
    }
    qdri_convert(w->dtype, w->elems + at * (int64_t)qdr_dtype_bytes(w->dtype), QDR_F32, sum, n);
}

/* Whether all are below a limit, as a NaN is not. */
static int are_below(float limit, const float x[BLOCK], int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(x[i]) < limit)) return 0;
    return 1;
}

static void fill(float x[BLOCK], float value)
{
    for (int i = 0; i < BLOCK; i++) x[i] = value;
}

static void encode_block(coder *c, const zfp_work *w, int64_t at, int n)
{
    float x[BLOCK];
    load(w, at, n, x);
    if (!are_below(least_none, x, n)) fill(x, none);
    if (are_below(least_sent, x, n)) fill(x, 0);
    if (n == BLOCK)
        zfp_encode_block_float_1(c->zfp, x);
    else
        zfp_encode_partial_block_strided_float_1(c->zfp, x, (size_t)n, 1);
}

static void decode_block(coder *c, const zfp_work *w, int64_t at, int n)
{
    float x[BLOCK] = {0};
    if (n == BLOCK)
        zfp_decode_block_float_1(c->zfp, x);
    else
        zfp_decode_partial_block_strided_float_1(c->zfp, x, (size_t)n, 1);
    if (!are_below(least_read, x, n)) fill(x, NAN);
    store(w, at, n, x);
}

static size_t bytes_of(const zfp_work *w, int64_t n)
{
    const qdr_codec codec = {.kind = QDR_CODEC_ZFP, .rate = w->rate};
    return (size_t)qdr_codec_bytes(&codec, QDR_F32, n);
}

/* A segment of elements, and its words. */
static void code_segment(coder *c, const zfp_work *w, int64_t at, int64_t n)
{
    zfp_stream_rewind(c->zfp);
    for (int64_t i = 0; i < n; i += BLOCK)
        (w->encodes ? encode_block : decode_block)(c, w, at + i, (int)qdri_least(BLOCK, n - i));
}

static qdr_status run_work(void *args)
{
    const zfp_work *w = args;
    char *wire = w->wire;
    coder c;
    QDR_TRY(coder_open(&c, w->rate));
    for (int64_t run = 0, at = 0; run < w->n; run += w->run)
        for (const int64_t end = qdri_least(run + w->run, w->n); at < end;) {
            const int64_t n = qdri_least(SEGMENT, end - at);
            const size_t bytes = bytes_of(w, n);
            if (!w->encodes) memcpy(c.words, wire, bytes);
            code_segment(&c, w, at, n);
            if (w->encodes) {
                zfp_stream_flush(c.zfp); /* fills up to its own words, of 8 to 64 bits */
                const size_t written = zfp_stream_compressed_size(c.zfp);
                memset((char *)c.words + written, 0, bytes - written);
                memcpy(wire, c.words, bytes);
            }
            wire += bytes;
            at += n;
        }
    coder_close(&c);
    return QDR_OK;
}

static qdr_status enqueue(qdr_stream *stream, const qdri_message *message, int encodes, int is_added, const void *elems,
                          const void *wire)
{
    const zfp_work work = {.dtype = message->dtype,
                           .rate = message->codec->rate,
                           .encodes = encodes,
                           .is_added = is_added,
                           .n = message->n,
                           .run = message->run && message->run < message->n ? message->run : message->n,
                           .elems = (char *)(uintptr_t)elems,
                           .wire = (char *)(uintptr_t)wire};
    return message->n ? qdri_work_anywhere(stream, run_work, &work, sizeof work) : QDR_OK;
}
#else
static qdr_status enqueue(qdr_stream *stream, const qdri_message *message, int encodes, int is_added, const void *elems,
                          const void *wire)
{
    (void)stream, (void)message, (void)encodes, (void)is_added, (void)elems, (void)wire;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "zfp: the library was built without it");
}
#endif

qdr_status qdri_zfp_encode(qdr_stream *stream, const qdri_message *message, const void *x, void *wire)
{
    return enqueue(stream, message, 1, 0, x, wire);
}

qdr_status qdri_zfp_decode(qdr_stream *stream, const qdri_message *message, const void *wire, int is_added, void *y)
{
    return enqueue(stream, message, 0, is_added, y, wire);
}
