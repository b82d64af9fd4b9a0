/* SPDX-License-Identifier: Apache-2.0 */
/* One call for programs that run under mpiexec, or with ranks as threads. */
#include "quadrille/launch.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/launcher.h"
#include "config.h"
#include "context/context.h"
#include "core/log.h"
#include "topo/topo.h"
#if QDRI_HAVE_MPI
#include "comm/mpi/mpi.h"
#endif

#define CROWD 16 /* a warning is logged if there are more ranks per core */

/* Shared by the local ranks of one launch. */
typedef struct launch {
    const qdr_context_opts *opts;
    qdr_main_fn fn;
    void *user;
    pthread_mutex_t mutex; /* protects the rest */
    int exit_code; /* the highest */
    int failed_rank; /* the lowest that could not create a context; -1: none */
    qdr_status status;
    char sentence[QDRI_ERROR_BYTES];
} launch;

/* What qdr_launch_watch() has set. */
static qdri_stuck_watch watch_for_stuck;

void qdr_launch_watch(qdr_stuck_fn fn, void *user) { watch_for_stuck = (qdri_stuck_watch){fn, user}; }

/* Of other codes, systems pass on the lowest eight bits: 256 would be a success. */
static int portable_code(int code) { return code >= 0 && code <= 255 ? code : 1; }

static int run_local_rank(qdr_local_world *world, int rank, void *user)
{
    launch *shared = user;
    qdr_context *ctx = NULL;
    const qdr_status status = qdr_context_create_local(world, rank, shared->opts, &ctx);
    const int exit_code = status == QDR_OK ? portable_code(shared->fn(ctx, shared->user)) : 1;
    qdri_context_leave(&ctx);
    pthread_mutex_lock(&shared->mutex);
    if (exit_code > shared->exit_code) shared->exit_code = exit_code;
    if (status != QDR_OK && (shared->failed_rank < 0 || rank < shared->failed_rank)) {
        shared->failed_rank = rank;
        shared->status = status;
        strncpy(shared->sentence, qdr_last_error(), sizeof shared->sentence - 1);
    }
    pthread_mutex_unlock(&shared->mutex);
    return status == QDR_OK ? 0 : 1;
}

/* A process with MPI running knows its rank, and may run local ranks in addition. */
static qdr_status check_local(int n)
{
    int n_cores = 0;
#if QDRI_HAVE_MPI
    if (qdri_mpi_is_initialised()) return QDR_OK;
#endif
    QDR_TRY(qdri_launcher_check_local(n));
    QDR_TRY(qdri_dev_check_address_space(n));
    /* Cores are counted only if there could be too many ranks for them. */
    if (n > CROWD && qdri_topo_cores(&n_cores) == QDR_OK && n > CROWD * n_cores)
        qdri_log(QDRI_LOG_WARNING, "launch: %d local ranks share %d core%s; many fewer will be faster", n, n_cores,
                 n_cores == 1 ? "" : "s");
    return QDR_OK;
}

static qdr_status launch_ranks(int n_local, const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code)
{
    launch shared = {.opts = opts, .fn = fn, .user = user, .failed_rank = -1};
    qdr_context_opts taken;
    qdri_watch_opts watch;
#if QDRI_HAVE_MPI
    if (n_local == 0) return qdri_launch_mpi(opts, fn, user, exit_code, &watch_for_stuck);
#endif
    QDR_TRY(qdri_context_take_opts(opts, &taken, &watch)); /* before anything is started */
    if (n_local > 0)
        QDR_TRY(check_local(n_local));
    else
        QDR_TRY(qdri_launcher_check(
            1, "this build of Quadrille has no MPI; rebuild it with -Dmpi=mpich, or use local ranks"));
    pthread_mutex_init(&shared.mutex, NULL);
    /* Without MPI: a world of one rank, so that it is traced in the same way. */
    const qdr_status status = qdr_local_run(n_local > 0 ? n_local : 1, run_local_rank, &shared, NULL);
    pthread_mutex_destroy(&shared.mutex);
    QDR_TRY(status);
    *exit_code = shared.failed_rank < 0 ? shared.exit_code : 1;
    if (shared.failed_rank >= 0) qdri_set_last_error(shared.sentence);
    return shared.failed_rank < 0 ? QDR_OK : shared.status;
}

qdr_status qdr_launch(int n_local, const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code)
{
    int unused;
    int *code = exit_code ? exit_code : &unused;
    *code = 1;
    if (!fn) return QDR_FAIL(QDR_ERR_ARGUMENT, "launch: the function is NULL");
    if (n_local < 0) return QDR_FAIL(QDR_ERR_ARGUMENT, "launch: %d local ranks; use 1 or more, or 0 for MPI", n_local);
    const qdr_status status = launch_ranks(n_local, opts, fn, user, code);
    *code = portable_code(*code);
    return status;
}

void qdr_launch_mpi_version(char *text, size_t bytes)
{
    if (!text || bytes == 0) return;
#if QDRI_HAVE_MPI
    qdri_mpi_describe(text, bytes);
#else
    snprintf(text, bytes, "none");
#endif
}

int qdr_launched(void)
{
    const long n = qdri_launcher_ranks();
    return n < INT_MAX ? (int)n : INT_MAX;
}
