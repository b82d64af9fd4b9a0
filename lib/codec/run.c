/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/run.h"

#include "codec/zfp.h"
#include "core/coded.h"
#include "dev/device.h"

int64_t qdri_message_bytes(const qdri_message *message)
{
    return qdri_coded_row_bytes(message->codec, message->dtype, message->n, message->run);
}

qdr_status qdri_codec_check_dev(const qdr_codec *codec, qdr_dtype dtype, const qdri_dev *dev, const char *who)
{
    char text[64];
    if (!qdri_codec_shortens(codec, dtype) || codec->kind == QDR_CODEC_BF16 || qdri_codec_bits(codec)) return QDR_OK;
    qdr_codec_text(codec, text, sizeof text);
    if (codec->kind == QDR_CODEC_ZFP && !qdri_has_zfp())
        return QDR_FAIL(
            QDR_ERR_UNSUPPORTED,
            "%s: %s: this library was built without zfp; install libzfp-dev and build it again, or use bf16, "
            "int16, int8 or int4",
            who, text);
    if (qdri_dev_runs_work(dev)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s: GPUs have no %s; use bf16, int16, int8 or int4", who, text);
}

/* Whether its messages are made by the kernels of codecs: those of BF16 are on GPUs, all of a step at once. */
static int has_kernels(const qdri_message *message, const qdri_dev *dev)
{
    return qdri_codec_bits(message->codec) || (message->codec->kind == QDR_CODEC_BF16 && !qdri_dev_runs_work(dev));
}

static qdri_kernel codec_kernel(const qdri_message *message, qdri_kernel_kind kind)
{
    qdri_kernel kernel = {.kind = kind, .dtype = message->dtype};
    kernel.u.codec.n = message->n;
    kernel.u.codec.run = message->run;
    kernel.u.codec.bits = qdri_codec_bits(message->codec);
    kernel.u.codec.block = qdri_codec_block(message->codec);
    kernel.u.codec.flags = message->codec->flags;
    kernel.u.codec.own = -1;
    return kernel;
}

static qdri_kernel cast_kernel(qdr_dtype from, qdr_dtype to, int64_t n, const void *x, void *y)
{
    qdri_kernel kernel = {.kind = QDRI_K_CAST, .dtype = from};
    kernel.u.binary.dtype2 = to;
    kernel.u.binary.n = n;
    kernel.u.binary.a = x;
    kernel.u.binary.y = y;
    return kernel;
}

static qdr_status add(qdr_stream *stream, const qdri_message *message, qdr_dtype from, const void *x, void *y)
{
    qdri_kernel kernel = {.kind = QDRI_K_ADD, .dtype = message->dtype};
    kernel.u.binary.dtype2 = from;
    kernel.u.binary.n = message->n;
    kernel.u.binary.a = y;
    kernel.u.binary.b = x;
    kernel.u.binary.y = y;
    return qdri_kernel_run(stream, &kernel);
}

qdr_status qdri_encode(qdr_stream *stream, const qdri_message *message, const void *x, float *feedback, uint64_t seed,
                       void *wire, int64_t *bytes)
{
    const qdr_dtype dtype = message->dtype;
    const qdr_codec_kind codec = message->codec->kind;
    const int is_coded = message->n > 0 && qdri_codec_shortens(message->codec, dtype);
    const int packs = is_coded && codec == QDR_CODEC_LOSSLESS; /* the stream may still be writing an earlier length */
    if (!packs) *bytes = qdri_message_bytes(message);
    if (!is_coded) return qdri_copy(stream, wire, x, (size_t)message->n * qdr_dtype_bytes(dtype));
    if (codec == QDR_CODEC_ZFP) return qdri_zfp_encode(stream, message, x, wire);
    qdri_kernel kernel = cast_kernel(dtype, QDR_BF16, message->n, x, wire);
    if (codec == QDR_CODEC_BF16) return qdri_kernel_run(stream, &kernel);
    kernel = codec_kernel(message, packs ? QDRI_K_PACK : QDRI_K_ENCODE);
    kernel.u.codec.x = x;
    kernel.u.codec.feedback = feedback;
    kernel.u.codec.seed = seed;
    kernel.u.codec.wire = wire;
    kernel.u.codec.n_bytes = bytes;
    return qdri_kernel_run(stream, &kernel);
}

qdr_status qdri_decode(qdr_stream *stream, const qdri_message *message, const void *wire, int64_t bytes, int is_added,
                       void *y)
{
    const qdr_dtype dtype = message->dtype;
    const int is_coded = qdri_codec_shortens(message->codec, dtype);
    const qdr_dtype stored = is_coded && message->codec->kind == QDR_CODEC_BF16 ? QDR_BF16 : dtype;
    if (message->n == 0) return QDR_OK;
    if (is_coded && message->codec->kind == QDR_CODEC_ZFP) return qdri_zfp_decode(stream, message, wire, is_added, y);
    if (is_coded && message->codec->kind != QDR_CODEC_BF16) {
        qdri_kernel kernel = codec_kernel(message, qdri_codec_bits(message->codec) ? QDRI_K_DECODE : QDRI_K_UNPACK);
        kernel.u.codec.stride = (size_t)bytes;
        kernel.u.codec.n_bytes = (int64_t *)(uintptr_t)message->n_bytes; /* only read */
        kernel.u.codec.wire = (void *)(uintptr_t)wire; /* only read */
        kernel.u.codec.y = y;
        kernel.accumulate = is_added;
        return qdri_kernel_run(stream, &kernel);
    }
    if (is_added) return add(stream, message, stored, wire, y);
    if (stored == dtype) return qdri_copy(stream, y, wire, (size_t)message->n * qdr_dtype_bytes(dtype));
    const qdri_kernel kernel = cast_kernel(stored, dtype, message->n, wire, y);
    return qdri_kernel_run(stream, &kernel);
}

int qdri_codes_parts(const qdri_message *message, const qdri_dev *dev)
{
    return !qdri_dev_runs_work(dev) && has_kernels(message, dev);
}

qdr_status qdri_code_parts(qdr_stream *stream, qdri_kernel_kind kind, const qdri_message *message,
                           const qdri_code_part *parts, int n_parts)
{
    qdri_kernel kernel = codec_kernel(message, kind);
    kernel.u.codec.n = 0;
    for (int i = 0; i < n_parts; i++)
        if (parts[i].n > kernel.u.codec.n) kernel.u.codec.n = parts[i].n;
    if (kernel.u.codec.n == 0) return QDR_OK;
    kernel.u.codec.n_parts = n_parts;
    kernel.u.codec.parts = parts;
    return qdri_kernel_run(stream, &kernel);
}

/* ---- sums ---- */

size_t qdri_sum_scratch_bytes(const qdri_message *message)
{
    const int unpacks = message->codec->kind != QDR_CODEC_BF16 && message->dtype != QDR_F32;
    if (qdri_codec_bits(message->codec)) return 0;
    return (size_t)message->n * (sizeof(float) + (unpacks ? qdr_dtype_bytes(message->dtype) : 0));
}

/* total = or += n elements of another type. */
static qdr_status add_to(qdr_stream *stream, float *total, const void *more, qdr_dtype dtype, int64_t n, int is_first)
{
    qdri_kernel kernel = cast_kernel(dtype, QDR_F32, n, more, total);
    if (is_first && dtype == QDR_F32) return qdri_copy(stream, total, more, (size_t)n * sizeof *total);
    if (is_first) return qdri_kernel_run(stream, &kernel);
    const qdri_message all = {.dtype = QDR_F32, .n = n};
    return add(stream, &all, dtype, more, total);
}

/* total = or += version i. Messages of F32 are added as they are decoded; others would be rounded. */
static qdr_status add_version(qdr_stream *stream, const qdri_message *message, const qdri_message_sum *sum, int i,
                              const void *wire)
{
    const qdr_dtype dtype = message->dtype;
    const int64_t n = message->n;
    float *total = sum->scratch;
    qdri_message version = *message;
    if (i == sum->own) return add_to(stream, total, sum->x, dtype, n, i == 0);
    if (sum->lengths) version.n_bytes = &sum->lengths[i];
    const int64_t most = qdri_message_bytes(message);
    if (dtype == QDR_F32) return qdri_decode(stream, &version, wire, most, i > 0, total);
    QDR_TRY(qdri_decode(stream, &version, wire, most, 0, total + n));
    return add_to(stream, total, total + n, dtype, n, i == 0);
}

/* Messages without kernels for sums. */
static qdr_status sum_versions(qdr_stream *stream, const qdri_message *message, const qdri_message_sum *sum)
{
    const int is_wide = message->dtype == QDR_F32, is_lossless = message->codec->kind == QDR_CODEC_LOSSLESS;
    const void *rounded = is_wide ? sum->scratch : sum->y;
    const char *next = sum->sources;
    int64_t known = 0;
    for (int i = 0; i < sum->n_sources; i++) {
        QDR_TRY(add_version(stream, message, sum, i, next));
        if (i != sum->own) next += sum->stride;
    }
    const qdri_kernel round = cast_kernel(QDR_F32, message->dtype, message->n, sum->scratch, sum->y);
    if (!is_wide) QDR_TRY(qdri_kernel_run(stream, &round));
    if (is_wide && (!sum->wire || is_lossless))
        QDR_TRY(qdri_copy(stream, sum->y, sum->scratch, (size_t)message->n * sizeof(float)));
    if (!sum->wire) return QDR_OK;
    QDR_TRY(qdri_encode(stream, message, rounded, NULL, 0, sum->wire, sum->wire_bytes ? sum->wire_bytes : &known));
    return is_lossless ? QDR_OK : qdri_decode(stream, message, sum->wire, known, 0, sum->y);
}

qdr_status qdri_decode_sum(qdr_stream *stream, const qdri_message *message, const qdri_message_sum *sum)
{
    if (message->n == 0) return QDR_OK;
    if (!has_kernels(message, stream->dev)) return sum_versions(stream, message, sum);
    qdri_kernel kernel = codec_kernel(message, QDRI_K_DECODE_SUM);
    kernel.u.codec.n_sources = sum->n_sources;
    kernel.u.codec.own = sum->own;
    kernel.u.codec.x = sum->x;
    kernel.u.codec.sources = sum->sources;
    kernel.u.codec.stride = sum->stride;
    kernel.u.codec.wire = sum->wire;
    kernel.u.codec.feedback = sum->feedback;
    kernel.u.codec.seed = sum->seed;
    kernel.u.codec.y = sum->y;
    return qdri_kernel_run(stream, &kernel);
}
