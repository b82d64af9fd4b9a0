/* SPDX-License-Identifier: Apache-2.0 */
/* How fast codecs are. Not fitted: the machine has the rates as measured. */
#include <math.h>
#include <stdlib.h>

#include "calibrate/calibrate.h"
#include "common/memory.h"

/* 1 MiB: a chunk of collectives; on GPUs enough for their memory. */
enum { N_ELEMS = 1 << 18, QUICK_ELEMS = 1 << 15, GPU_ELEMS = 1 << 24, ZFP_RATE = 8 };

typedef struct coding {
    calibration *c;
    qdr_codec codec;
    int64_t n, bytes;
    void *x, *wire, *feedback;
} coding;

static qdr_status encode(void *user)
{
    coding *self = user;
    float *feedback = self->codec.flags & QDR_CODEC_FEEDBACK ? self->feedback : NULL;
    return qdr_codec_encode(self->c->alone, &self->codec, QDR_F32, self->x, self->n, feedback, 1, self->wire,
                            &self->bytes, NULL);
}

static qdr_status decode(void *user)
{
    const coding *self = user;
    return qdr_codec_decode(self->c->alone, &self->codec, QDR_F32, self->wire, self->bytes, self->n, 1, self->x, NULL);
}

static int measure(coding *self, qdr_codec codec, double *encode_rate, double *decode_rate, failure *why)
{
    qdr_context *ctx = self->c->alone;
    const calibrate_work works[] = {{encode, ctx, self, 64, 0}, {decode, ctx, self, 64, 0}};
    double secs[2] = {0};
    self->codec = codec;
    if (fail_status(why, memory_set(ctx, self->feedback, 0, (size_t)self->n * sizeof(float)))) return why->code;
    for (int i = 0; i < 2; i++)
        if (calibrate_time(self->c, &works[i], &secs[i], why)) return why->code;
    *encode_rate = secs[0] > 0 ? (double)self->n * sizeof(float) / secs[0] : 0;
    *decode_rate = secs[1] > 0 ? (double)self->n * sizeof(float) / secs[1] : 0;
    return EXIT_OK;
}

/* GPUs lack codecs whose messages have no fixed length, and some builds zfp. */
static int has(const coding *self, const qdr_codec *codec)
{
    int64_t bytes;
    return qdr_codec_encode(self->c->alone, codec, QDR_F32, NULL, 0, NULL, 0, NULL, &bytes, NULL) >= 0;
}

static int measure_all(coding *self, failure *why)
{
    qdr_machine_codecs *codecs = &self->c->machine.codecs;
    double rotated[2], kept[2];
    for (int kind = QDR_CODEC_BF16; kind < QDR_N_CODECS; kind++) {
        const qdr_codec codec = {.kind = (qdr_codec_kind)kind, .rate = kind == QDR_CODEC_ZFP ? ZFP_RATE : 0};
        if (!has(self, &codec)) continue;
        if (measure(self, codec, &codecs->encode_bytes_per_sec[kind], &codecs->decode_bytes_per_sec[kind], why))
            return why->code;
    }
    if (measure(self, (qdr_codec){.kind = QDR_CODEC_INT8, .flags = QDR_CODEC_HADAMARD}, &rotated[0], &rotated[1],
                why) ||
        measure(self, (qdr_codec){.kind = QDR_CODEC_INT8, .flags = QDR_CODEC_FEEDBACK}, &kept[0], &kept[1], why))
        return why->code;
    /* Both only add work: above 1 there was something else on the processor, or the clock changed. */
    codecs->rotated_factor = fmin(1, rotated[0] / codecs->encode_bytes_per_sec[QDR_CODEC_INT8]);
    codecs->feedback_factor = fmin(1, kept[0] / codecs->encode_bytes_per_sec[QDR_CODEC_INT8]);
    codecs->processor_share = self->c->is_on_gpu ? 0 : 1;
    return EXIT_OK;
}

int calibrate_codecs(calibration *c, failure *why)
{
    coding self = {.c = c, .n = c->is_quick ? QUICK_ELEMS : c->is_on_gpu ? GPU_ELEMS : N_ELEMS};
    const qdr_codec longest = {.kind = QDR_CODEC_LOSSLESS};
    const size_t bytes = (size_t)self.n * sizeof(float), wire = (size_t)qdr_codec_bytes(&longest, QDR_F32, self.n);
    calibrate_show(c, "codecs");
    if (!fail_status(why, qdr_mem_alloc(c->alone, bytes, &self.x)) &&
        !fail_status(why, qdr_mem_alloc(c->alone, wire, &self.wire)))
        fail_status(why, qdr_mem_alloc(c->alone, bytes, &self.feedback));
    float *here = malloc(bytes);
    if (!here) fail_memory(why, "calibrate: out of memory for %lld numbers", (long long)self.n);
    uint64_t bits = 1;
    for (int64_t i = 0; i < self.n && here; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        here[i] = (float)(int32_t)(bits >> 32) * 0x1p-31F;
    }
    if (!why->code) fail_status(why, memory_copy(c->alone, self.x, here, bytes));
    free(here);
    if (!fail_together(why, c->ctx)) measure_all(&self, why);
    qdr_mem_free(c->alone, &self.x);
    qdr_mem_free(c->alone, &self.wire);
    qdr_mem_free(c->alone, &self.feedback);
    return why->code;
}
