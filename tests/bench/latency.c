/* SPDX-License-Identifier: Apache-2.0 */
/* Small all-reduces (sum of F32, in place) that are waited for at once, compared with MPI's own in one run.
 *
 *   mpiexec -n P latency [ROUNDS [BYTES]]
 *
 * In each round each way makes CALLS calls of one size, one after the other, and waits after each. Prints for each size
 * the median time of a call on the slowest rank, and the median of the ratios by round. BYTES: the largest size. */
#include "dev/clock.h"
#include "quadrille/mpi.h"
#include "with_mpi.h"

enum { CALLS = 200, WARM_UP = 20, MAX_ROUNDS = 1000, MOST_BYTES = 1 << 20 };

static void call(qdr_grid *grid, int is_mpi, float *data, int64_t n)
{
    if (is_mpi) {
        MPI_Allreduce(MPI_IN_PLACE, data, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else {
        qdr_stream *stream = qdr_context_stream(qdr_grid_context(grid));
        check(qdr_all_reduce(grid, QDR_X, QDR_SUM, data, n, QDR_F32, stream));
        check(qdr_stream_synchronize(stream));
    }
}

/* Seconds for each call, on the slowest rank. */
static double measure(qdr_grid *grid, int is_mpi, float *data, int64_t n)
{
    for (int i = 0; i < WARM_UP; i++) call(grid, is_mpi, data, n);
    const int64_t begin_ns = qdri_now_ns();
    for (int i = 0; i < CALLS; i++) call(grid, is_mpi, data, n);
    double secs = 1e-9 * (double)(qdri_now_ns() - begin_ns) / CALLS;
    MPI_Allreduce(MPI_IN_PLACE, &secs, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return secs;
}

static void compare_size(qdr_grid *grid, float *own, float *mpis, int64_t bytes, int n_rounds)
{
    static double ours[MAX_ROUNDS], theirs[MAX_ROUNDS], ratios[MAX_ROUNDS];
    for (int i = 0; i < n_rounds; i++) {
        theirs[i] = measure(grid, 1, mpis, bytes / 4);
        ours[i] = measure(grid, 0, own, bytes / 4);
        ratios[i] = ours[i] / theirs[i];
    }
    const double ratio = median(ratios, n_rounds);
    const double our_secs = median(ours, n_rounds), their_secs = median(theirs, n_rounds);
    if (qdr_context_rank(qdr_grid_context(grid)) == 0)
        printf("%8lld B  %9.2f µs  MPI %9.2f µs  %6.2f times MPI's  (%d samples of %d calls)\n", (long long)bytes,
               1e6 * our_secs, 1e6 * their_secs, ratio, n_rounds, CALLS);
}

int main(int argc, char **argv)
{
    const int n_rounds = argc > 1 ? atoi(argv[1]) : 21;
    const int64_t most_bytes = argc > 2 ? atoll(argv[2]) : MOST_BYTES;
    int provided = 0;
    void *memory = NULL;
    float *mpis = calloc(MOST_BYTES, 1);
    qdr_context *ctx = NULL;
    qdr_grid *grid = NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    check(qdr_context_create_mpi(MPI_COMM_WORLD, NULL, &ctx));
    check(qdr_grid_create(
        ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = qdr_context_size(ctx), .y = 1, .z = 1, .d = 1}, &grid));
    check(qdr_mem_alloc(ctx, MOST_BYTES, &memory));
    if (!mpis || n_rounds < 1 || n_rounds > MAX_ROUNDS || most_bytes > MOST_BYTES) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int64_t bytes = 8; bytes <= most_bytes; bytes *= bytes < 4096 || bytes >= 65536 ? 2 : 4)
        compare_size(grid, memory, mpis, bytes, n_rounds);
    qdr_mem_free(ctx, &memory);
    free(mpis);
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    MPI_Finalize();
    return 0;
}
