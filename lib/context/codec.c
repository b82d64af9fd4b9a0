/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs for callers: single messages. */
#include "codec/run.h"
#include "context/context.h"
#include "context/internal.h"
#include "core/ranges.h"

enum { WIRE_ALIGN = 4 };

static qdr_status check(const qdr_context *ctx, const qdr_codec *codec, qdr_dtype dtype, int64_t n_elems,
                        const char *who)
{
    if (!ctx || !codec) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the context or the codec is NULL; pass both", who);
    QDR_TRY(qdri_dev_raise(qdri_context_dev(ctx)));
    QDR_TRY(qdri_codec_check(codec, who));
    if (qdr_dtype_bytes(dtype) == 0) return QDR_FAIL(QDR_ERR_DTYPE, "%s: unknown element type %d", who, (int)dtype);
    if (n_elems < 0 || n_elems > INT64_MAX / 64)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: %" PRId64 " elements; use 0 to 2^57", who, n_elems);
    return qdri_codec_check_dev(codec, dtype, qdri_context_dev(ctx), who);
}

static qdr_status check_memory(const qdr_context *ctx, const char *who, const void *data, size_t bytes,
                               size_t elem_bytes, const char *what)
{
    if (bytes > 0 && !data)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s is NULL; pass memory of %zu bytes", who, what, bytes);
    return bytes > 0 ? qdri_dev_check_memory(qdri_context_dev(ctx), data, elem_bytes, who) : QDR_OK;
}

qdr_status qdr_codec_encode(qdr_context *ctx, const qdr_codec *codec, qdr_dtype dtype, const void *x, int64_t n_elems,
                            float *feedback, uint64_t seed, void *wire, int64_t *bytes, qdr_stream *stream)
{
    static const char who[] = "encoding";
    QDR_TRY(check(ctx, codec, dtype, n_elems, who));
    const qdri_message message = {.codec = codec, .dtype = dtype, .n = n_elems};
    const size_t each = qdr_dtype_bytes(dtype), wire_bytes = (size_t)qdri_message_bytes(&message);
    const size_t x_bytes = (size_t)n_elems * each, feedback_bytes = feedback ? (size_t)n_elems * sizeof *feedback : 0;
    if (!bytes) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the pointer to the number of bytes is NULL; pass one", who);
    if (feedback && !(codec->flags & QDR_CODEC_FEEDBACK))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: feedback for a codec without it; pass NULL, or add +feedback", who);
    if (!feedback && (codec->flags & QDR_CODEC_FEEDBACK) && n_elems > 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the codec has feedback, but its memory is NULL; pass %" PRId64 " floats",
                        who, n_elems);
    QDR_TRY(check_memory(ctx, who, x, x_bytes, each, "x"));
    QDR_TRY(check_memory(ctx, who, wire, wire_bytes, WIRE_ALIGN, "the message"));
    QDR_TRY(check_memory(ctx, who, feedback, feedback_bytes, sizeof *feedback, "feedback"));
    QDR_TRY(QDRI_RANGES_CHECK(who, {.what = "x", .begin = x, .bytes = x_bytes},
                              {.what = "the message", .begin = wire, .bytes = wire_bytes, .writes = 1},
                              {.what = "feedback", .begin = feedback, .bytes = feedback_bytes, .writes = 1}));
    return qdri_encode(stream ? stream : qdr_context_stream(ctx), &message, x, feedback, seed, wire, bytes);
}

qdr_status qdr_codec_decode(qdr_context *ctx, const qdr_codec *codec, qdr_dtype dtype, const void *wire, int64_t bytes,
                            int64_t n_elems, int add, void *y, qdr_stream *stream)
{
    static const char who[] = "decoding";
    QDR_TRY(check(ctx, codec, dtype, n_elems, who));
    QDR_TRY(qdri_check_switch(who, "add", add));
    const qdri_message message = {.codec = codec, .dtype = dtype, .n = n_elems};
    const size_t each = qdr_dtype_bytes(dtype), y_bytes = (size_t)n_elems * each;
    const int is_lossless = codec->kind == QDR_CODEC_LOSSLESS && qdri_codec_shortens(codec, dtype);
    if (bytes < 0 || bytes > qdri_message_bytes(&message) || (!is_lossless && bytes < qdri_message_bytes(&message)))
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: the message has %" PRId64 " bytes; %" PRId64 " elements need %s%" PRId64,
                        who, bytes, n_elems, is_lossless ? "at most " : "", qdri_message_bytes(&message));
    QDR_TRY(check_memory(ctx, who, wire, (size_t)bytes, WIRE_ALIGN, "the message"));
    QDR_TRY(check_memory(ctx, who, y, y_bytes, each, "y"));
    QDR_TRY(QDRI_RANGES_CHECK(who, {.what = "the message", .begin = wire, .bytes = (size_t)bytes},
                              {.what = "y", .begin = y, .bytes = y_bytes, .writes = 1}));
    return qdri_decode(stream ? stream : qdr_context_stream(ctx), &message, wire, bytes, add, y);
}
