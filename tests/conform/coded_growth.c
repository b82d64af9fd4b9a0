/* SPDX-License-Identifier: Apache-2.0 */
/* The error of a coded sum does not grow with the number of ranks, as that of a ring does, in which each rank decodes
 * what comes, adds its own and encodes the sum for the next: relative, of Gaussian elements, over 4 and over 64 ranks,
 * which are threads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "quadrille/quadrille.h"

enum { N = 1 << 15, FEW = 4, MANY = 64 };

#define OK(expression)                                                                                                 \
    do {                                                                                                               \
        if ((expression) == QDR_OK) break;                                                                             \
        fprintf(stderr, "coded_growth: %s:%d: %s\n", __FILE__, __LINE__, qdr_last_error());                            \
        exit(1);                                                                                                       \
    } while (0)

/* SplitMix64 */
static double uniform(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return ((double)((x ^ x >> 31) >> 11) + 0.5) * 0x1p-53;
}

static void draw(int rank, float *x)
{
    uint64_t state = (uint64_t)rank << 32;
    for (int i = 0; i < N; i++) {
        const double radius = sqrt(-2 * log(uniform(&state)));
        x[i] = (float)(radius * cos(6.283185307179586 * uniform(&state)));
    }
}

static double relative_error(const float *got, const double *wanted)
{
    double squares = 0, errors = 0;
    for (int i = 0; i < N; i++) {
        squares += wanted[i] * wanted[i];
        errors += ((double)got[i] - wanted[i]) * ((double)got[i] - wanted[i]);
    }
    return sqrt(errors / squares);
}

typedef struct errors {
    const char *codec;
    int n_ranks;
    double sum, ring;
} errors;

/* Encoded and decoded once. */
static void pass_on(qdr_context *ctx, const qdr_codec *codec, float *x, void *wire)
{
    int64_t bytes = 0;
    OK(qdr_codec_encode(ctx, codec, QDR_F32, x, N, NULL, 0, wire, &bytes, NULL));
    OK(qdr_codec_decode(ctx, codec, QDR_F32, wire, bytes, N, 0, x, NULL));
    OK(qdr_stream_synchronize(qdr_context_stream(ctx)));
}

static double ring_error(qdr_context *ctx, const qdr_codec *codec, const double *wanted)
{
    static float x[N], sum[N];
    void *wire = NULL;
    OK(qdr_mem_alloc(ctx, (size_t)qdr_codec_bytes(codec, QDR_F32, N), &wire));
    draw(0, sum);
    for (int rank = 1; rank < qdr_context_size(ctx); rank++) {
        pass_on(ctx, codec, sum, wire);
        draw(rank, x);
        for (int i = 0; i < N; i++) sum[i] += x[i];
    }
    pass_on(ctx, codec, sum, wire); /* to those that gather it */
    qdr_mem_free(ctx, &wire);
    return relative_error(sum, wanted);
}

static int run_rank(qdr_local_world *world, int rank, void *user)
{
    errors *found = user;
    const int p = found->n_ranks;
    const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 1, .d = p};
    qdr_context *ctx = NULL;
    qdr_grid *grid = NULL;
    qdr_codec codec;
    void *data = NULL;
    OK(qdr_context_create_local(world, rank, NULL, &ctx));
    OK(qdr_grid_create(ctx, &opts, &grid));
    OK(qdr_codec_parse(found->codec, &codec));
    OK(qdr_mem_alloc(ctx, N * sizeof(float), &data));
    draw(rank, data);
    OK(qdr_all_reduce_coded(grid, QDR_D, QDR_SUM, data, N, QDR_F32, NULL, &codec, NULL));
    OK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    if (rank == 0) {
        static double wanted[N];
        static float x[N];
        for (int i = 0; i < N; i++) wanted[i] = 0;
        for (int j = 0; j < p; j++) {
            draw(j, x);
            for (int i = 0; i < N; i++) wanted[i] += (double)x[i];
        }
        found->sum = relative_error(data, wanted);
        found->ring = ring_error(ctx, &codec, wanted);
    }
    qdr_mem_free(ctx, &data);
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    return 0;
}

int main(void)
{
    static const char *const codecs[] = {"int8", "int4", "int16"};
    int failed = 0;
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        errors few = {.codec = codecs[i], .n_ranks = FEW}, many = {.codec = codecs[i], .n_ranks = MANY};
        OK(qdr_local_run(FEW, run_rank, &few, NULL));
        OK(qdr_local_run(MANY, run_rank, &many, NULL));
        const double growth = many.sum / few.sum, of_ring = many.ring / few.ring;
        printf("%s: %.3g over %d ranks, %.3g over %d: %.3f times; a ring: %.3g and %.3g, %.2f times\n", codecs[i],
               few.sum, FEW, many.sum, MANY, growth, few.ring, many.ring, of_ring);
        failed |= growth > 1.1 || of_ring < 3;
    }
    return failed;
}
