/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that is created is freed: after a hundred rounds of create, step and destroy, a process has as many open
 * files, mappings, threads and shared memory objects as after the first round, and no more resident memory than after
 * the rounds in which MPI fills its buffer pools.
 *
 *   fault_resources [--local P]     without --local: the ranks started by mpiexec */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "quadrille/quadrille.h"
#if QDRI_HAVE_MPI
#include "comm/mpi/mpi.h"
#include "quadrille/mpi.h"
#endif

/* Large enough that the weight, its gradient and what is gathered are blocks of memory that ranks of a node map from
 * each other, and are moved without copies in between. */
enum { N_ROUNDS = 100, N_FILLING = 40, WIDTH = 512, N_ROWS = 16 };
enum { SETTLE_TRIES = 200, SETTLE_NS = 10000000 };

typedef struct usage {
    long n_files, n_mappings, n_threads, n_shared; /* n_shared: files and mappings that are shared memory of ours */
    long resident_kib;
} usage;

/* ---- what this process has ---- */

static int is_ours(const char *name) { return strstr(name, "memfd:quadrille") || strstr(name, "/dev/shm/quadrille"); }

/* Entries of a folder of /proc; is_fd: without the one that reads it, and counting what is ours in *n_shared. */
static long count_entries(const char *folder, int is_fd, long *n_shared)
{
    long n = 0;
    DIR *open_folder = opendir(folder);
    for (const struct dirent *entry; open_folder && (entry = readdir(open_folder)) != NULL;) {
        char path[300], target[300];
        if (entry->d_name[0] == '.') continue;
        n++;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        const ssize_t length = is_fd ? readlink(path, target, sizeof target - 1) : -1;
        if (length <= 0) continue;
        target[length] = '\0';
        *n_shared += is_ours(target);
    }
    if (open_folder) closedir(open_folder);
    return is_fd ? n - 1 : n;
}

static void read_mappings(usage *now)
{
    char line[600];
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file)) {
        now->n_mappings++;
        now->n_shared += is_ours(line);
    }
    if (file) fclose(file);
}

/* Without what malloc keeps for later: how much that is depends on which ranks ran at the same time. */
static long read_resident_kib(void)
{
    long n_pages = 0;
    malloc_trim(0);
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &n_pages) != 1) n_pages = -1;
    if (file) fclose(file);
    return n_pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static usage look(void)
{
    usage now = {0};
    now.n_files = count_entries("/proc/self/fd", 1, &now.n_shared);
    now.n_threads = count_entries("/proc/self/task", 0, NULL);
    read_mappings(&now);
    now.resident_kib = read_resident_kib();
    return now;
}

/* ---- a round ---- */

static qdr_status make_stack(qdr_grid *grid, qdr_stack **stack)
{
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = N_ROWS};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{WIDTH, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{WIDTH, 1}}, .out = {{WIDTH, 1}},
                                  .bias = 1};
    qdr_edge edge = 0;
    qdr_linear *layer = NULL;
    qdr_status status = qdr_stack_create(grid, &opts, stack);
    if (status == QDR_OK) status = qdr_stack_add_input(*stack, "x", &input, 1, &edge);
    if (status == QDR_OK) status = qdr_stack_add_linear(*stack, &desc, edge, &edge, &layer);
    if (status == QDR_OK) status = qdr_stack_build(*stack);
    return status == QDR_OK ? qdr_stack_init(*stack, 1, 0.1) : status;
}

static qdr_status step(qdr_context *ctx, qdr_stack *stack, qdr_adamw *optimizer)
{
    qdr_status status = qdr_stack_forward(stack);
    if (status == QDR_OK) status = qdr_stack_backward(stack, 0, 1);
    if (status == QDR_OK) status = qdr_adamw_step(optimizer, 1e-3);
    return status == QDR_OK ? qdr_stream_synchronize(qdr_context_stream(ctx)) : status;
}

/* All ranks in one group, along the axis over which weights are gathered. */
static qdr_status use(qdr_context *ctx)
{
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = qdr_context_size(ctx), .d = 1};
    qdr_grid *grid = NULL;
    qdr_stack *stack = NULL;
    qdr_adamw *optimizer = NULL;
    qdr_status status = qdr_grid_create(ctx, &shape, &grid);
    if (status == QDR_OK) status = make_stack(grid, &stack);
    if (status == QDR_OK) status = qdr_adamw_create(stack, NULL, &optimizer);
    if (status == QDR_OK) status = step(ctx, stack, optimizer);
    qdr_adamw_destroy(&optimizer);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
    return status;
}

static int run_local_rank(qdr_local_world *world, int rank, void *user)
{
    qdr_context *ctx = NULL;
    (void)user;
    qdr_status status = qdr_context_create_local(world, rank, NULL, &ctx);
    if (status == QDR_OK) status = use(ctx);
    if (status != QDR_OK) fprintf(stderr, "rank %d: %s\n", rank, qdr_last_error());
    qdr_context_destroy(&ctx);
    return status != QDR_OK;
}

/* n_local = 0: of the ranks that mpiexec started. @return 1: it went well */
static int run_round(int n_local)
{
    int failed = 0;
    if (n_local > 0) return qdr_local_run(n_local, run_local_rank, NULL, &failed) == QDR_OK && !failed;
#if QDRI_HAVE_MPI
    qdr_context *ctx = NULL;
    qdr_status status = qdr_context_create_mpi(MPI_COMM_WORLD, NULL, &ctx);
    if (status == QDR_OK) status = use(ctx);
    if (status != QDR_OK) fprintf(stderr, "%s\n", qdr_last_error());
    qdr_context_destroy(&ctx);
    failed = status != QDR_OK;
#endif
    return !failed;
}

/* ---- comparing ---- */

/* A thread that has been joined may be listed for another moment. */
static usage look_when_settled(long n_threads)
{
    usage now = look();
    for (int i = 0; i < SETTLE_TRIES && now.n_threads > n_threads; i++) {
        nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL);
        now = look();
    }
    return now;
}

/* Half of what is lost by rounds that each lose the smallest array of a stack, a rank's input: what malloc keeps in
 * other places than after the first round is less. Smaller things are for the leak checkers, which see each. */
static const long allowance_kib = (N_ROUNDS - N_FILLING) * (N_ROWS * WIDTH * 4L / 1024) / 2;

static int is_same(const char *what, long first, long last, long allowance)
{
    if (last - first <= allowance) return 1;
    fprintf(stderr, "%s: %ld after the first rounds, %ld after round %d; at most %ld more are expected\n", what, first,
            last, N_ROUNDS, allowance);
    return 0;
}

/* Mappings: OpenBLAS keeps a buffer for each thread that was in it at the same time as others, so each local rank may
 * add one after the first round. A mapping lost by each round is N_ROUNDS - 1. */
static int run(int n_local)
{
    int right = run_round(n_local);
    const usage first = look_when_settled(1);
    long filled_kib = first.resident_kib;
    for (int round = 1; round < N_ROUNDS && right; round++) {
        right = run_round(n_local);
        if (round == N_FILLING - 1) filled_kib = read_resident_kib();
    }
    const usage last = look_when_settled(first.n_threads);
    if (!right) return 0;
    printf("files %ld %ld, mappings %ld %ld, threads %ld %ld, shared %ld %ld, resident %ld %ld %ld KiB\n",
           first.n_files, last.n_files, first.n_mappings, last.n_mappings, first.n_threads, last.n_threads,
           first.n_shared, last.n_shared, first.resident_kib, filled_kib, last.resident_kib);
    right &= is_same("open files", first.n_files, last.n_files, 0);
    right &= is_same("threads", first.n_threads, last.n_threads, 0);
    right &= is_same("shared memory", 0, last.n_shared, 0);
    right &= is_same("mappings", first.n_mappings, last.n_mappings, n_local);
    right &= is_same("KiB resident", filled_kib, last.resident_kib, allowance_kib);
    return right;
}

int main(int argc, char **argv)
{
    const int n_local = argc == 3 && strcmp(argv[1], "--local") == 0 ? atoi(argv[2]) : 0;
    if (n_local > 0) return run(n_local) ? 0 : 1;
#if QDRI_HAVE_MPI
    int started = 0;
    if (qdri_mpi_start(&started) != QDR_OK) return 1;
    const int right = run(0);
    qdri_mpi_stop();
    return right ? 0 : 1;
#else
    return 2;
#endif
}
