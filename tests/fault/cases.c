/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi/mpi.h"
#include "core/status.h"

#if QDRI_HAVE_MPI
MPI_Comm reordered_world(void)
{
    MPI_Comm comm;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank % 2 * size + rank, &comm);
    return comm;
}

static qdr_status launch_reordered(qdr_main_fn fn, void *user, int *exit_code)
{
    qdr_context *ctx = NULL;
    int started = 0;
    qdr_status status = qdri_mpi_start(&started);
    if (status != QDR_OK) return status;
    MPI_Comm comm = reordered_world();
    status = qdr_context_create_mpi(comm, NULL, &ctx);
    MPI_Comm_free(&comm); /* the context has a copy */
    if (status == QDR_OK) *exit_code = fn(ctx, user);
    qdr_context_destroy(&ctx);
    if (started) qdri_mpi_stop();
    return status;
}

#endif

static int run_each(const case_ranks *ranks, int n, char **names, case_fn run)
{
    int failed = 0;
    for (int i = 0; i < n; i++) {
        if (run(ranks, names[i]) != 0) {
            fprintf(stderr, "case %s failed; last error: %s\n", names[i], qdr_last_error());
            failed = 1;
        }
#if QDRI_HAVE_MPI
        /* A rank may come late from a case: the next begins when all have come. */
        if (ranks->n_local == 0) MPI_Barrier(MPI_COMM_WORLD);
#endif
    }
    return failed;
}

#if QDRI_HAVE_MPI
/* MPI runs from the first case to the last, and as qdr_launch() has it if there is one case only. */
static int run_under_mpi(const case_ranks *ranks, int n, char **names, case_fn run)
{
    int started = 0;
    if (n == 1) return run(ranks, names[0]);
    if (qdri_mpi_start(&started) != QDR_OK) return 1;
    const int failed = run_each(ranks, n, names, run);
    if (started) qdri_mpi_stop();
    return failed;
}
#endif

int cases_main(int argc, char **argv, case_fn run)
{
    case_ranks ranks = {0};
    int at = 1;
    if (argc > 3 && strcmp(argv[1], "--local") == 0) {
        ranks.n_local = atoi(argv[2]);
        at = 3;
    } else if (argc > 2 && strcmp(argv[1], "--reordered") == 0) {
        ranks.is_reordered = 1;
        at = 2;
    }
#if QDRI_HAVE_MPI
    if (argc > 2 && strcmp(argv[1], "--messages") == 0) {
        qdri_mpi_use_node_memory = 0;
        at = 2;
    }
    if (at < argc && ranks.n_local == 0) return run_under_mpi(&ranks, argc - at, argv + at, run);
#endif
    return at < argc && argv[at][0] != '-' ? run_each(&ranks, argc - at, argv + at, run) : 2;
}

int case_launch(const case_ranks *ranks, qdr_main_fn fn, void *user)
{
    int exit_code = WRONG;
    qdr_status status;
#if QDRI_HAVE_MPI
    if (ranks->is_reordered)
        status = launch_reordered(fn, user, &exit_code);
    else
#endif
        status = qdr_launch(ranks->n_local, NULL, fn, user, &exit_code);
    if (status != QDR_OK) fprintf(stderr, "launch: %s\n", qdr_last_error());
    return status == QDR_OK && exit_code == AS_EXPECTED ? 0 : 1;
}
