/* SPDX-License-Identifier: Apache-2.0 */
/* QDR_CODEC_CHECK finds what it is there for. Linked so that encoding, decoding and adding can be made to go wrong on
 * one of three ranks, which are threads; that rank must say what is wrong, and without a fault nobody may. */
#define _GNU_SOURCE /* setenv */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/run.h"
#include "quadrille/quadrille.h"

enum { N_RANKS = 3, N = 5000, BLOCK = 128, TINY_BLOCK = 2, SICK = 1, PER_PART = N / N_RANKS };

typedef enum fault { NONE, SCALE, CODE, COPY, SUM, FEEDBACK } fault;
typedef enum call { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER } call;

enum { FADING_STEPS = 40 };

typedef struct trial {
    call call;
    const char *codec;
    qdr_dtype dtype;
    fault fault;
    const char *says;
    atomic_int n_said; /* ranks whose message has it */
    int n_calls; /* after the first one elements are zeros: only feedback is left, until it is too small, too */
} trial;

static trial *current;
static _Thread_local int my_rank;
static _Thread_local char *result; /* N elements */

#define OK(expression)                                                                                                 \
    do {                                                                                                               \
        if ((expression) == QDR_OK) break;                                                                             \
        fprintf(stderr, "coded_check: %s:%d: %s\n", __FILE__, __LINE__, qdr_last_error());                             \
        exit(1);                                                                                                       \
    } while (0)

/* ---- faults ---- */

/* Changes a byte by one bit, or a float by a factor. */
typedef struct change {
    char *byte;
    float *number;
} change;

static qdr_status run_change(void *args)
{
    const change *c = args;
    if (c->byte) *c->byte = (char)(*c->byte ^ 0x40);
    if (c->number) *c->number *= 1.0001F;
    return QDR_OK;
}

static qdr_status spoil(qdr_stream *stream, void *byte, void *number)
{
    const change c = {byte, number};
    return qdri_work_anywhere(stream, run_change, &c, sizeof c);
}

static int sick(fault which) { return my_rank == SICK && current->fault == which; }

qdr_status __real_qdri_encode(qdr_stream *stream, const qdri_message *message, const void *x, float *feedback,
                              uint64_t seed, void *wire, int64_t *bytes);
qdr_status __wrap_qdri_encode(qdr_stream *stream, const qdri_message *message, const void *x, float *feedback,
                              uint64_t seed, void *wire, int64_t *bytes);
qdr_status __wrap_qdri_encode(qdr_stream *stream, const qdri_message *message, const void *x, float *feedback,
                              uint64_t seed, void *wire, int64_t *bytes)
{
    const int64_t most = qdr_codec_bytes(message->codec, message->dtype, message->n);
    QDR_TRY(__real_qdri_encode(stream, message, x, feedback, seed, wire, bytes));
    if (sick(SCALE)) QDR_TRY(spoil(stream, NULL, wire));
    if (sick(CODE)) QDR_TRY(spoil(stream, (char *)wire + most / 2, NULL));
    return sick(FEEDBACK) ? spoil(stream, NULL, feedback + message->n / 2) : QDR_OK;
}

qdr_status __real_qdri_decode(qdr_stream *stream, const qdri_message *message, const void *wire, int64_t bytes,
                              int is_added, void *y);
qdr_status __wrap_qdri_decode(qdr_stream *stream, const qdri_message *message, const void *wire, int64_t bytes,
                              int is_added, void *y);
qdr_status __wrap_qdri_decode(qdr_stream *stream, const qdri_message *message, const void *wire, int64_t bytes,
                              int is_added, void *y)
{
    const char *to = y;
    QDR_TRY(__real_qdri_decode(stream, message, wire, bytes, is_added, y));
    const int is_result = to >= result && to < result + N * qdr_dtype_bytes(message->dtype);
    return sick(COPY) && is_result ? spoil(stream, y, NULL) : QDR_OK;
}

qdr_status __real_qdri_decode_sum(qdr_stream *stream, const qdri_message *message, const qdri_message_sum *sum);
qdr_status __wrap_qdri_decode_sum(qdr_stream *stream, const qdri_message *message, const qdri_message_sum *sum);
qdr_status __wrap_qdri_decode_sum(qdr_stream *stream, const qdri_message *message, const qdri_message_sum *sum)
{
    QDR_TRY(__real_qdri_decode_sum(stream, message, sum));
    return sick(SUM) ? spoil(stream, sum->y, NULL) : QDR_OK;
}

/* ---- trials ---- */

/* Elements from -1 to 1; those of one block are zeros but for one, which is too small once it is rotated. */
static void fill(qdr_dtype dtype, int rank, void *data)
{
    for (int i = 0; i < N; i++) {
        const float drawn = (float)((i * 7919 + rank * 104729) % 2000 - 1000) / 1000;
        const float x = i / BLOCK != TINY_BLOCK ? drawn : i == TINY_BLOCK * BLOCK + 5 ? 0x1p-97F : 0;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == QDR_F32) memcpy((char *)data + (size_t)i * sizeof x, &x, sizeof x);
        if (dtype == QDR_BF16) ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    }
}

static qdr_status run_call(qdr_grid *grid, const trial *t, const qdr_codec *codec, void *data, float *feedback)
{
    static const int64_t counts[N_RANKS] = {PER_PART, PER_PART, N - 2 * PER_PART}; /* until the call has run */
    const int64_t mine = counts[my_rank];
    char *own = (char *)data + (size_t)(my_rank * PER_PART) * qdr_dtype_bytes(t->dtype);
    if (t->call == ALL_REDUCE)
        return qdr_all_reduce_coded(grid, QDR_D, QDR_SUM, data, N, t->dtype, NULL, codec, feedback);
    if (t->call == ALL_GATHER)
        return qdr_all_gather_coded(grid, QDR_D, NULL, data, mine, counts, t->dtype, NULL, codec, feedback);
    return qdr_reduce_scatter_coded(grid, QDR_D, QDR_SUM, data, own, mine, counts, t->dtype, NULL, codec, feedback);
}

static int run_rank(qdr_local_world *world, int rank, void *user)
{
    trial *t = user;
    const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 1, .d = N_RANKS};
    qdr_context *ctx = NULL;
    qdr_grid *grid = NULL;
    qdr_codec codec;
    void *data = NULL, *feedback = NULL;
    my_rank = rank;
    OK(qdr_context_create_local(world, rank, NULL, &ctx));
    OK(qdr_grid_create(ctx, &opts, &grid));
    OK(qdr_codec_parse(t->codec, &codec));
    OK(qdr_mem_alloc(ctx, N * sizeof(float), &data));
    OK(qdr_mem_alloc(ctx, N * sizeof(float), &feedback));
    memset(feedback, 0, N * sizeof(float));
    fill(t->dtype, rank, data);
    result = data;
    qdr_status status = QDR_OK;
    for (int i = 0; status == QDR_OK && i < (t->n_calls ? t->n_calls : 1); i++) {
        if (i > 0) memset(data, 0, N * sizeof(float));
        status = run_call(grid, t, &codec, data, codec.flags & QDR_CODEC_FEEDBACK ? feedback : NULL);
        if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    }
    const char *said = status == QDR_OK ? "" : qdr_last_error();
    if (strstr(said, t->says)) atomic_fetch_add(&t->n_said, 1);
    if (rank == SICK || status != QDR_OK) printf("  rank %d: %s\n", rank, status == QDR_OK ? "ok" : said);
    qdr_mem_free(ctx, &data);
    qdr_mem_free(ctx, &feedback);
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    return t->fault == NONE && status != QDR_OK;
}

/* The sentence of a rank that learns of another's fault has the other's. */
static int found(trial *t)
{
    int failed = 0;
    current = t;
    printf("%s, %s, fault %d\n", t->codec, qdr_dtype_name(t->dtype), (int)t->fault);
    const qdr_status status = qdr_local_run(N_RANKS, run_rank, t, &failed);
    const int right = t->fault == NONE ? status == QDR_OK && !failed : atomic_load(&t->n_said) >= 1;
    if (!right) fprintf(stderr, "coded_check: %s, fault %d: no rank says \"%s\"\n", t->codec, (int)t->fault, t->says);
    return right;
}

int main(void)
{
    static const char *const codecs[] = {"bf16", "int16", "int8/64+stochastic", "int4+hadamard+feedback", "lossless"};
    int n_failed = 0;
    setenv("QDR_CODEC_CHECK", "1", 1);
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++)
        for (int kind = 0; kind < 3; kind++)
            for (int narrow = 0; narrow < 2; narrow++) {
                trial t = {(call)kind, codecs[c], narrow ? QDR_BF16 : QDR_F32, NONE, "codec check", 0, 1};
                n_failed += !found(&t);
            }
    static const char *const fading[] = {"int4+hadamard+feedback", "int8/64+feedback", "int8+hadamard"};
    for (size_t c = 0; c < sizeof fading / sizeof *fading; c++) {
        trial t = {ALL_REDUCE, fading[c], QDR_F32, NONE, "codec check", 0, FADING_STEPS};
        n_failed += !found(&t);
    }
    trial faults[] = {
        {ALL_GATHER, "int8", QDR_F32, SCALE, "d=1: the block that begins with element 0 has the scale", 0, 1},
        {REDUCE_SCATTER, "int4/64", QDR_BF16, SCALE, "d=1: the block that begins with element 0 has the scale", 0, 1},
        {ALL_REDUCE, "int8+hadamard", QDR_F32, SCALE, "d=1: the block that begins with element 0 has the scale", 0, 1},
        {ALL_REDUCE, "int8", QDR_F32, CODE, "int8/128 may change it by", 0, 1},
        {ALL_GATHER, "bf16", QDR_F32, CODE, "bf16 may change it by", 0, 1},
        {ALL_GATHER, "lossless", QDR_F32, CODE, "lossless may change it by 0", 0, 1},
        {ALL_GATHER, "int8", QDR_F32, COPY, "d=1 has other elements than rank 0 at x=0 y=0 z=0 d=0 among 0 to 77", 0,
         1},
        {ALL_REDUCE, "bf16", QDR_F32, COPY, "d=1 has other elements than rank 0 at x=0 y=0 z=0 d=0 among 0 to 77", 0,
         1},
        {ALL_REDUCE, "int8", QDR_BF16, SUM, "of the sum is", 0, 1},
        {REDUCE_SCATTER, "int16", QDR_F32, SUM, "of the sum is", 0, 1},
        {ALL_REDUCE, "int4+feedback", QDR_F32, FEEDBACK, "but its feedback is", 0, 1},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) n_failed += !found(&faults[i]);
    return n_failed > 0;
}
