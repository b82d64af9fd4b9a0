/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce (sum of F32, in place) compared with MPI's own, alternating in one run.
 *
 *   mpiexec -n P all_reduce [BYTES [ROUNDS]]
 *
 * Each variant runs twice in a row and the second time counts, as in a loop of the same call. Prints the medians on the
 * slowest rank and the medians of the ratios by round: MPI_Allreduce, the library in its own memory (qdr_mem_alloc),
 * the library in the caller's (malloc). Then the number of bytes that the library has counted as sent to other nodes by
 * all ranks. Options before the numbers: -l omits MPI's own, so that links carry only the library's bytes. */
#include <string.h>

#include "comm/comm.h"
#include "dev/clock.h"
#include "grid/internal.h"
#include "quadrille/mpi.h"
#include "with_mpi.h"

enum { N_WAYS = 3, MAX_ROUNDS = 1000 };
static const char *const names[N_WAYS] = {"MPI_Allreduce", "library memory", "caller's memory"};

/* The largest value of all ranks; a barrier that does not spin, as MPI's does, on cores that other ranks need. */
static double most(qdr_context *ctx, double value)
{
    qdr_stream *stream = qdr_context_stream(ctx);
    const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .dtype = QDR_F64, .op = QDR_MAX, .recv = &value, .count = 1};
    check(qdri_comm_launch(qdri_context_world(ctx), &coll, stream));
    check(qdr_stream_synchronize(stream));
    return value;
}

static double measure(qdr_context *ctx, int way, float *data, int64_t n)
{
    qdr_stream *stream = qdr_context_stream(ctx);
    const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .recv = data, .count = n};
    (void)most(ctx, 0);
    const int64_t begin_ns = qdri_now_ns();
    if (way == 0) {
        MPI_Allreduce(MPI_IN_PLACE, data, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else {
        check(qdri_comm_launch(qdri_context_world(ctx), &coll, stream));
        check(qdr_stream_synchronize(stream));
    }
    return most(ctx, 1e-9 * (double)(qdri_now_ns() - begin_ns));
}

static double sent_off_node(qdr_context *ctx)
{
    const qdr_traffic sent = qdri_comm_traffic(qdri_context_world(ctx), QDR_ALL_REDUCE);
    double bytes = (double)sent.bytes_off_node, sum = 0;
    MPI_Reduce(&bytes, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return sum;
}

static void report(double secs[N_WAYS][MAX_ROUNDS], int n_rounds, int64_t bytes, int first_way)
{
    for (int way = first_way; way < N_WAYS; way++) {
        double ratios[MAX_ROUNDS];
        for (int i = 0; i < n_rounds; i++) ratios[i] = secs[first_way][i] / secs[way][i];
        const double ratio = median(ratios, n_rounds);
        double sorted[MAX_ROUNDS];
        memcpy(sorted, secs[way], sizeof sorted);
        const double middle = median(sorted, n_rounds);
        printf("%-16s %10.3f ms  %8.1f MB/s  %5.2f times the first  (%d samples)\n", names[way], 1e3 * middle,
               1e-6 * (double)bytes / middle, ratio, n_rounds);
    }
}

int main(int argc, char **argv)
{
    static double secs[N_WAYS][MAX_ROUNDS];
    const int first_way = argc > 1 && strcmp(argv[1], "-l") == 0;
    argc -= first_way;
    argv += first_way;
    const int64_t bytes = argc > 1 ? strtoll(argv[1], NULL, 10) : 16 << 20;
    const int n_rounds = argc > 2 ? atoi(argv[2]) : 21, n_warmup = n_rounds > 4 ? 2 : 1;
    int provided = 0, rank = 0;
    float *data[N_WAYS] = {0};
    void *memory = NULL;
    qdr_context *ctx = NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check(qdr_context_create_mpi(MPI_COMM_WORLD, NULL, &ctx));
    check(qdr_mem_alloc(ctx, (size_t)bytes, &memory));
    data[0] = calloc((size_t)bytes, 1);
    data[1] = memory;
    data[2] = calloc((size_t)bytes, 1);
    if (!data[0] || !data[2] || n_rounds < 1 || n_rounds > MAX_ROUNDS) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = -n_warmup; i < n_rounds; i++) {
        for (int way = first_way; way < N_WAYS; way++) {
            (void)measure(ctx, way, data[way], bytes / 4); /* caches hold what this way leaves */
            const double now = measure(ctx, way, data[way], bytes / 4);
            if (i >= 0) secs[way][i] = now;
        }
    }
    const double off_node = sent_off_node(ctx);
    if (rank == 0) {
        report(secs, n_rounds, bytes, first_way);
        printf("counted: %.0f bytes to other nodes, all ranks, warm-up included\n", off_node);
    }
    qdr_mem_free(ctx, &memory);
    free(data[0]);
    free(data[2]);
    qdr_context_destroy(&ctx);
    MPI_Finalize();
    return 0;
}
