/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs on a GPU: the time to encode fp32, and to decode it and add it to an array, compared with a copy of the array
 * on the device, alternating in one process; first, whether they give the CPU's bits. Smaller arrays stay in the GPU's
 * cache. codec [ELEMENTS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

enum { N_SAMPLES = 31, WARM_SAMPLES = 2, N_REPEATS = 4, TAIL = 77 };

static const char *const codecs[] = {"int16",         "int8",          "int4",         "bf16",
                                     "int8+hadamard", "int4+hadamard", "int8+feedback"};

/* An array, its message, what is added to, the message's errors: on a GPU or a CPU. */
typedef struct place {
    qdr_context *ctx;
    void *x, *wire, *y;
    float *feedback;
} place;

typedef struct coding {
    qdr_codec codec;
    int64_t n, bytes;
} coding;

static void *memory(qdr_context *ctx, size_t bytes)
{
    void *data;
    OK(qdr_mem_alloc(ctx, bytes, &data));
    return data;
}

static place make_place(qdr_context *ctx, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof(float);
    return (place){ctx, memory(ctx, bytes), memory(ctx, bytes), memory(ctx, bytes), memory(ctx, bytes)};
}

static void free_place(place *p)
{
    void *feedback = p->feedback;
    qdr_mem_free(p->ctx, &p->x);
    qdr_mem_free(p->ctx, &p->wire);
    qdr_mem_free(p->ctx, &p->y);
    qdr_mem_free(p->ctx, &feedback);
}

static void encode(const place *p, const coding *c)
{
    float *feedback = c->codec.flags & QDR_CODEC_FEEDBACK ? p->feedback : NULL;
    int64_t bytes;
    OK(qdr_codec_encode(p->ctx, &c->codec, QDR_F32, p->x, c->n, feedback, 1, p->wire, &bytes, NULL));
}

static void decode_add(const place *p, const coding *c)
{
    OK(qdr_codec_decode(p->ctx, &c->codec, QDR_F32, p->wire, c->bytes, c->n, 1, p->y, NULL));
}

/* The GPU's array, copied to the host, must have the CPU's bits. */
static void compare(const place *gpu, const void *there, const void *here, size_t bytes, const char *codec,
                    const char *what)
{
    char *copy = malloc(bytes + 1);
    if (!copy) gpu_leave("no memory on the host for %zu bytes", bytes);
    OK(qdr_copy(gpu->ctx, copy, there, bytes, NULL));
    OK(qdr_stream_synchronize(qdr_context_stream(gpu->ctx)));
    for (size_t i = 0; i < bytes; i++)
        if (copy[i] != ((const char *)here)[i]) gpu_leave("%s: byte %zu of the %s is not the CPU's", codec, i, what);
    free(copy);
}

static void clear(qdr_context *ctx, void *data, size_t bytes)
{
    void *zeros = calloc(bytes, 1);
    if (!zeros) gpu_leave("no memory on the host for %zu bytes", bytes);
    OK(qdr_copy(ctx, data, zeros, bytes, NULL));
    OK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    free(zeros);
}

/* An odd number of elements, twice, so that the second message has errors of the first. */
static void check_bits(const place *gpu, const place *cpu, const coding *all, const char *name)
{
    const size_t bytes = (size_t)all->n * sizeof(float);
    coding c = *all;
    c.n = (c.n < (int64_t)1 << 22 ? c.n : (int64_t)1 << 22) - TAIL;
    c.bytes = qdr_codec_bytes(&c.codec, QDR_F32, c.n);
    OK(qdr_copy(gpu->ctx, cpu->x, gpu->x, bytes, NULL));
    OK(qdr_stream_synchronize(qdr_context_stream(gpu->ctx)));
    const place *const both[] = {gpu, cpu};
    for (int i = 0; i < 2; i++) {
        clear(both[i]->ctx, both[i]->y, bytes);
        clear(both[i]->ctx, both[i]->feedback, bytes);
        for (int round = 0; round < 2; round++) {
            encode(both[i], &c);
            decode_add(both[i], &c);
        }
        OK(qdr_stream_synchronize(qdr_context_stream(both[i]->ctx)));
    }
    compare(gpu, gpu->wire, cpu->wire, (size_t)c.bytes, name, "message");
    compare(gpu, gpu->y, cpu->y, (size_t)c.n * sizeof(float), name, "decoded sum");
    compare(gpu, gpu->feedback, cpu->feedback, (size_t)c.n * sizeof(float), name, "feedback");
}

static void copy(const place *p, const coding *c)
{
    OK(qdr_copy(p->ctx, p->y, p->x, (size_t)c->n * sizeof(float), NULL));
}

/* Milliseconds of one call. */
static double time_calls(void (*call)(const place *, const coding *), const place *p, const coding *c, gpu_marks *marks)
{
    gpu_marks_reset(marks);
    gpu_mark(marks);
    for (int i = 0; i < N_REPEATS; i++) call(p, c);
    gpu_mark(marks);
    gpu_marks_wait(marks);
    return gpu_between(marks, 0) / N_REPEATS;
}

static void measure(const place *gpu, const coding *c, const char *name, gpu_marks *marks)
{
    double copies[N_SAMPLES], encodes[N_SAMPLES], decodes[N_SAMPLES];
    char text[96];
    for (int i = -WARM_SAMPLES; i < N_SAMPLES; i++) {
        const int at = i < 0 ? 0 : i;
        copies[at] = time_calls(copy, gpu, c, marks);
        encodes[at] = time_calls(encode, gpu, c, marks);
        decodes[at] = time_calls(decode_add, gpu, c, marks);
    }
    snprintf(text, sizeof text, "%s, %lld MiB of fp32", name, (long long)(c->n >> 18));
    gpu_report *report = gpu_report_begin("codec", text);
    gpu_report_samples(report, "copy on the device, ms", copies, N_SAMPLES);
    gpu_report_samples(report, "encode, ms", encodes, N_SAMPLES);
    gpu_report_samples(report, "decode and add, ms", decodes, N_SAMPLES);
    gpu_report_number(report, "copy, GB/s of fp32", 4e-6 * (double)c->n / gpu_median(copies, N_SAMPLES));
    for (int i = 0; i < N_SAMPLES; i++) {
        encodes[i] = copies[i] / encodes[i];
        decodes[i] = copies[i] / decodes[i];
    }
    gpu_report_samples(report, "encode, rate over the copy's", encodes, N_SAMPLES);
    gpu_report_bar(report, "encode, rate over the copy's", 0.5);
    gpu_report_samples(report, "decode and add, rate over the copy's", decodes, N_SAMPLES);
    gpu_report_bar(report, "decode and add, rate over the copy's", 0.5);
    gpu_report_end(report);
}

int main(int argc, char **argv)
{
    const int64_t n = argc > 1 ? atoll(argv[1]) : (int64_t)1 << 26;
    const qdr_context_opts on_cpu = {QDR_INIT(qdr_context_opts), .device = "cpu"};
    if (n <= TAIL) gpu_leave("codec needs more than %d elements", TAIL);
    gpu_place gpu = gpu_open();
    qdr_context *ctx;
    OK(qdr_context_create_self(&on_cpu, &ctx));
    place there = make_place(gpu.ctx, n), here = make_place(ctx, n);
    gpu_marks marks = gpu_marks_make(gpu.stream);
    gpu_fill(&gpu, there.x, n, QDR_F32, 1);
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        coding c = {.n = n};
        OK(qdr_codec_parse(codecs[i], &c.codec));
        c.bytes = qdr_codec_bytes(&c.codec, QDR_F32, n);
        check_bits(&there, &here, &c, codecs[i]);
        measure(&there, &c, codecs[i], &marks);
    }
    gpu_marks_free(&marks);
    free_place(&there);
    free_place(&here);
    qdr_context_destroy(&ctx);
    gpu_close(&gpu);
    return 0;
}
