/* SPDX-License-Identifier: Apache-2.0 */
/* Latency and bandwidth of collectives: median, minimum and 90th percentile of each size.
 *
 *   bench_coll [--local P] [SECONDS]     without --local: the ranks that mpiexec started */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "grid/internal.h"
#include "quadrille/quadrille.h"

enum { MAX_SAMPLES = 2000, MAX_BYTES = 16 << 20 };

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

/* Runs one collective again and again, as a step of a training run would: enqueue, wait. */
static qdr_status measure(qdr_context *ctx, const qdri_coll *coll, qdr_stream *stream, int n,
                          double *secs)
{
    qdri_comm *comm = qdri_context_world(ctx);
    const qdr_status status = qdri_comm_reserve(comm, qdri_comm_scratch_bytes(comm, coll));
    if (status != QDR_OK) return status;
    for (int i = -3; i < n; i++) {
        const double begin = now_secs();
        qdr_status done = qdri_comm_launch(comm, coll, stream);
        if (done == QDR_OK) done = qdr_stream_synchronize(stream);
        if (done != QDR_OK) return done;
        if (i >= 0) secs[i] = now_secs() - begin;
    }
    qsort(secs, (size_t)n, sizeof *secs, compare);
    return QDR_OK;
}

static int bench(qdr_context *ctx, void *user)
{
    const double budget_secs = *(const double *)user;
    const int size = qdr_context_size(ctx), first = qdr_context_rank(ctx) == 0;
    qdr_stream *stream = NULL;
    void *send = NULL, *recv = NULL;
    static double all_secs[64][MAX_SAMPLES];
    double *secs = all_secs[qdr_context_rank(ctx) % 64];
    if (qdr_mem_alloc(ctx, MAX_BYTES, &send) != QDR_OK) return 1;
    if (qdr_mem_alloc(ctx, MAX_BYTES, &recv) != QDR_OK) return 1;
    memset(send, 0, MAX_BYTES);
    memset(recv, 0, MAX_BYTES);
    if (qdri_stream_create(qdri_context_dev(ctx), QDRI_STREAM_COMM, &stream) != QDR_OK) return 1;
    if (first)
        printf("%-14s %10s %8s %10s %10s %10s %8s\n", "collective", "bytes", "samples", "median us",
               "min us", "p90 us", "GB/s");
    for (int kind = 0; kind <= QDR_BROADCAST; kind++) {
        for (int64_t bytes = 8; bytes <= MAX_BYTES; bytes = bytes < 1024 ? bytes * 8 : bytes * 4) {
            const int64_t n = bytes / 4;
            qdri_coll coll = {.kind = (qdr_coll_kind)kind, .send = send, .recv = recv, .count = n};
            if (kind == QDR_ALL_GATHER || kind == QDR_REDUCE_SCATTER) coll.split_unit = 1;
            int n_samples = (int)(budget_secs / (20e-6 + (double)bytes * 1e-9 * size));
            if (n_samples > MAX_SAMPLES) n_samples = MAX_SAMPLES;
            if (n_samples < 5) n_samples = 5;
            if (measure(ctx, &coll, stream, n_samples, secs) != QDR_OK) return 1;
            const double median = secs[n_samples / 2];
            if (first)
                printf("%-14s %10lld %8d %10.1f %10.1f %10.1f %8.2f\n",
                       qdr_coll_kind_name((qdr_coll_kind)kind), (long long)bytes, n_samples,
                       median * 1e6, secs[0] * 1e6, secs[n_samples * 9 / 10] * 1e6,
                       (double)bytes / median * 1e-9);
        }
    }
    qdri_stream_destroy(&stream);
    qdr_mem_free(ctx, &send);
    qdr_mem_free(ctx, &recv);
    return 0;
}

int main(int argc, char **argv)
{
    int n_local = 0, exit_code = 1;
    double budget_secs = 0.1;
    if (argc > 2 && strcmp(argv[1], "--local") == 0) {
        n_local = atoi(argv[2]);
        argc -= 2;
        argv += 2;
    }
    if (argc > 1) budget_secs = strtod(argv[1], NULL);
    if (qdr_launch(n_local, NULL, bench, &budget_secs, &exit_code) != QDR_OK)
        fprintf(stderr, "bench_coll: %s\n", qdr_last_error());
    return exit_code;
}
