/* SPDX-License-Identifier: Apache-2.0 */
/* MPI in an unsuitable state: not initialised, insufficient thread level, finalised, another launcher; and
 * communicators created by the program. One process, no mpiexec. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quadrille/mpi.h"
#include "quadrille/quadrille.h"

static int expect(const char *when, qdr_status got, qdr_status wanted, const char *words)
{
    if (got == wanted && (wanted == QDR_OK || strstr(qdr_last_error(), words))) return 0;
    fprintf(stderr, "%s: %s, not %s: %s\n", when, qdr_status_name(got), qdr_status_name(wanted), qdr_last_error());
    return 1;
}

static int unused_rank(qdr_context *ctx, void *user)
{
    (void)ctx;
    (void)user;
    return 0;
}

/* qdr_launch() initialises MPI: it must be the first to do so. */
static int launch_cases(void)
{
    int code = 0;
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    int failed = expect("other launcher", qdr_launch(0, NULL, unused_rank, NULL, &code), QDR_ERR_MPI,
                        "OMPI_COMM_WORLD_SIZE=3");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    failed += code != 1;
    failed += expect("launched twice", qdr_launch(0, NULL, unused_rank, NULL, &code), QDR_ERR_STATE, "finalised");
    return failed;
}

static int n_handled;
static void note_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm, (void)code;
    n_handled++;
}

static int inter_cases(void)
{
    qdr_context *ctx = NULL;
    int rank, size;
    MPI_Comm half, inter;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2) return 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &inter);
    const int failed = expect("an intercommunicator", qdr_context_create_mpi(inter, NULL, &ctx), QDR_ERR_ARGUMENT,
                              "MPI_Intercomm_merge");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    return failed;
}

/* What is no communicator is a status, whatever MPI does about errors; and what it does stays as it was. */
static int handle_cases(void)
{
    qdr_context *ctx = NULL;
    MPI_Comm freed;
    MPI_Errhandler handler, now;
    int failed = expect("no communicator", qdr_context_create_mpi(MPI_COMM_NULL, NULL, &ctx), QDR_ERR_ARGUMENT,
                        "MPI_COMM_NULL");
    MPI_Comm_dup(MPI_COMM_WORLD, &freed);
    const MPI_Comm copy = freed;
    MPI_Comm_free(&freed);
    failed += expect("a freed one", qdr_context_create_mpi(copy, NULL, &ctx), QDR_ERR_ARGUMENT, "does not know");
    MPI_Comm_create_errhandler(note_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    failed += expect("with a handler", qdr_context_create_mpi(copy, NULL, &ctx), QDR_ERR_ARGUMENT, "does not know");
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &now);
    if (now != handler || n_handled != 0) fprintf(stderr, "the program's handler of errors was changed, or called\n");
    failed += now != handler || n_handled != 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&now);
    MPI_Errhandler_free(&handler);
    return failed + inter_cases();
}

static int own_cases(void)
{
    qdr_context *ctx = NULL;
    qdr_context_opts bad = {.size = 1};
    int provided, code = 9;
    int failed = expect("before MPI_Init", qdr_context_create_mpi(MPI_COMM_WORLD, NULL, &ctx), QDR_ERR_STATE,
                        "not initialised");
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    failed += expect("bad options", qdr_context_create_mpi(MPI_COMM_WORLD, &bad, &ctx), QDR_ERR_ARGUMENT,
                     "its size is 1");
    failed += expect("no result", qdr_context_create_mpi(MPI_COMM_WORLD, NULL, NULL), QDR_ERR_ARGUMENT, "NULL");
    failed += handle_cases();
    failed += expect("own communicator", qdr_context_create_mpi(MPI_COMM_SELF, NULL, &ctx), QDR_OK, "");
    failed += qdr_context_size(ctx) != 1;
    failed += expect("barrier", qdr_barrier(ctx), QDR_OK, "");
    qdr_context_destroy(&ctx);
    failed += expect("launch in a program with MPI", qdr_launch(0, NULL, unused_rank, NULL, &code), QDR_OK, "");
    failed += code != 0;
    MPI_Finalize();
    failed += expect("after MPI_Finalize", qdr_context_create_mpi(MPI_COMM_WORLD, NULL, &ctx), QDR_ERR_STATE,
                     "finalised");
    return failed;
}

static int few_threads(void)
{
    qdr_context *ctx = NULL;
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    const int failed = provided >= MPI_THREAD_MULTIPLE
                           ? 0
                           : expect("few threads", qdr_context_create_mpi(MPI_COMM_WORLD, NULL, &ctx), QDR_ERR_STATE,
                                    "MPI_THREAD_MULTIPLE");
    MPI_Finalize();
    return failed;
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    if (strcmp(argv[1], "launch") == 0) return launch_cases() != 0;
    if (strcmp(argv[1], "own") == 0) return own_cases() != 0;
    return few_threads() != 0;
}
