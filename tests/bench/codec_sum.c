/* SPDX-License-Identifier: Apache-2.0 */
/* A sum of coded versions in one kernel, compared with the same in turn: one core, four versions, of which one is not
 * coded, and the sum is encoded and decoded again. Medians of interleaved trials, for the elements of a chunk that
 * caches hold, and for many more.
 *
 *   codec_sum     prints one line per codec and size: GB/s of the elements, ms of both, how many times as fast */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codec/run.h"

enum { N_TRIALS = 15, N_SOURCES = 4, SMALL = 64 << 10, LARGE = 16 << 20 };

static qdri_dev *dev;
static qdr_stream *stream;

static void check(qdr_status status)
{
    if (status == QDR_OK) return;
    fprintf(stderr, "codec_sum: %s: %s\n", qdr_status_name(status), qdr_last_error());
    exit(1);
}

static void *memory(size_t bytes)
{
    void *data = NULL;
    check(qdri_mem_alloc(dev, bytes, &data));
    return data;
}

static double now_secs(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct arrays {
    float *x, *y;
    char *messages, *sum;
    size_t stride;
} arrays;

static void fused(const qdri_message *message, const arrays *a)
{
    const qdri_message_sum sum = {
        .n_sources = N_SOURCES, .x = a->x, .sources = a->messages, .stride = a->stride, .wire = a->sum, .y = a->y};
    check(qdri_decode_sum(stream, message, &sum));
}

static void in_turn(const qdri_message *message, const arrays *a)
{
    int64_t bytes = 0;
    check(qdri_copy(stream, a->y, a->x, (size_t)message->n * sizeof *a->x));
    for (int i = 0; i < N_SOURCES - 1; i++)
        check(qdri_decode(stream, message, a->messages + (size_t)i * a->stride, (int64_t)a->stride, 1, a->y));
    check(qdri_encode(stream, message, a->y, NULL, 1, a->sum, &bytes));
    check(qdri_decode(stream, message, a->sum, bytes, 0, a->y));
}

static double timed(void (*run)(const qdri_message *message, const arrays *a), const qdri_message *message,
                    const arrays *a, int n_times)
{
    const double begin = now_secs();
    for (int i = 0; i < n_times; i++) run(message, a);
    check(qdri_stream_synchronize(stream));
    return (now_secs() - begin) / n_times;
}

static void measure(const char *name, int64_t n)
{
    qdr_codec codec;
    double one[N_TRIALS], other[N_TRIALS], ratio[N_TRIALS];
    check(qdr_codec_parse(name, &codec));
    const qdri_message message = {.codec = &codec, .dtype = QDR_F32, .n = n};
    const size_t each = (size_t)n * sizeof(float), bytes = (size_t)qdr_codec_bytes(&codec, QDR_F32, n);
    arrays a = {memory(each), memory(each), memory((N_SOURCES - 1) * bytes), memory(bytes), bytes};
    for (int64_t i = 0; i < n; i++) a.x[i] = (float)((i * 7919) % 2003 - 1001) * 1e-3f;
    for (int i = 0; i < N_SOURCES - 1; i++) {
        int64_t coded = 0;
        check(qdri_encode(stream, &message, a.x, NULL, 1, a.messages + (size_t)i * bytes, &coded));
    }
    const int n_times = n == SMALL ? 100 : 1;
    timed(fused, &message, &a, n_times);
    timed(in_turn, &message, &a, n_times);
    for (int i = 0; i < N_TRIALS; i++) {
        one[i] = timed(fused, &message, &a, n_times);
        other[i] = timed(in_turn, &message, &a, n_times);
        ratio[i] = other[i] / one[i];
    }
    qsort(one, N_TRIALS, sizeof *one, compare);
    qsort(other, N_TRIALS, sizeof *other, compare);
    qsort(ratio, N_TRIALS, sizeof *ratio, compare);
    printf("%-26s %6.2f MiB  %6.1f GB/s  %9.3f ms, in turn %9.3f ms: %5.2f times as fast (%d trials)\n", name,
           (double)each / 0x1p20, 1e-9 * (double)each / one[N_TRIALS / 2], 1e3 * one[N_TRIALS / 2],
           1e3 * other[N_TRIALS / 2], ratio[N_TRIALS / 2], N_TRIALS);
    void *const freed[] = {a.x, a.y, a.messages, a.sum};
    for (size_t i = 0; i < sizeof freed / sizeof *freed; i++) qdri_mem_free(dev, &(void *){freed[i]});
}

int main(void)
{
    static const char *const codecs[] = {"int16", "int8", "int4", "int8+hadamard", "int4+hadamard"};
    check(qdri_dev_create_cpu(1, &dev));
    check(qdri_stream_create(dev, QDRI_STREAM_COMPUTE, &stream));
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        measure(codecs[i], SMALL);
        measure(codecs[i], LARGE);
    }
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
    return 0;
}
