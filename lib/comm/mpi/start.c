/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and stopping MPI. */
#include <errno.h>
#include <float.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "comm/launcher.h"
#include "comm/mpi/heap.h"
#include "comm/mpi/internal.h"
#include "comm/mpi/lookout.h"
#include "comm/mpi/mpi.h"
#include "core/log.h"

#define FOLDER "/dev/shm"
#define RANK_BYTES (5.0 * (1 << 20)) /* MPICH 4.0 over UCX 1.13 takes 4.2 when it starts */

/* Space available for a shared-memory object; < 0: none can be created, and errno says why. */
static double room_bytes(void)
{
    char path[] = FOLDER "/quadrille-XXXXXX";
    struct statvfs facts;
    const int number = mkstemp(path);
    if (number < 0) return -1;
    unlink(path);
    close(number);
    if (statvfs(FOLDER, &facts) != 0 || facts.f_blocks == 0) return DBL_MAX; /* no limit */
    return (double)facts.f_bavail * (double)facts.f_frsize;
}

/* Checks that MPI will have enough shared memory to start. If not, MPICH ends the program in MPI_Init with a message
 * about its internals. */
static void warn_of_shm(void)
{
    char why[128];
    long index;
    const long n_ranks = qdri_launcher_node_ranks(&index);
    if (getenv("UCX_TLS")) return; /* somebody knows better */
    if (index != 0) return; /* another rank of this node checks */
    const double bytes = room_bytes(), least = RANK_BYTES * (double)n_ranks;
    if (bytes >= least) return;
    if (bytes < 0)
        snprintf(why, sizeof why, "nothing can be made there (%s)", strerror(errno));
    else
        snprintf(why, sizeof why, "%.1f MiB are free there", bytes / (1 << 20));
    qdri_log(QDRI_LOG_WARNING,
             "launch: MPI may need about %.0f MiB in " FOLDER " to start %ld rank%s, and %s; mount "
             "one of that size that this user may write to, or set UCX_TLS=tcp,self",
             least / (1 << 20), n_ranks, n_ranks == 1 ? "" : "s", why);
}

/* MPICH takes SIGUSR1 for news of a failed process, and in one that no launcher started then waits for ever for an
 * mpiexec that it starts: the signal keeps the effect that it has in this program. */
static int init(int *provided)
{
    struct sigaction usr1;
    const int is_known = sigaction(SIGUSR1, NULL, &usr1) == 0;
    const int code = QDRI_WAITS(MPI_Init_thread, NULL, NULL, MPI_THREAD_MULTIPLE, provided);
    if (is_known) (void)sigaction(SIGUSR1, &usr1, NULL);
    return code;
}

qdr_status qdri_mpi_start(int *started)
{
    int provided = MPI_THREAD_SINGLE;
    *started = 0;
    if (qdri_mpi_is_over())
        return QDR_FAIL(QDR_ERR_STATE, "launch: MPI is already finalised and cannot be initialised again; launch once "
                                       "per program, or use local ranks");
    if (qdri_mpi_is_initialised()) return QDR_OK;
    warn_of_shm();
    const int code = init(&provided);
    if (code != MPI_SUCCESS) return qdri_mpi_fail(code, "MPI_Init_thread");
    *started = 1;
    return QDR_OK;
}

#define LEAST_STILL_SECS 0.1
#define MOST_STILL_SECS 0.9
#define MOST_WAIT_SECS 10.0 /* then a rank must have been killed, and the others go on */
enum { LEAVING_TAG = 0x1ea, TIMED_BARRIERS = 4 };

typedef atomic_int leaving_count; /* how many ranks have left their last call of MPI before MPI_Finalize */

static void wait_for_all(leaving_count *count, int n_ranks)
{
    const double begin = qdri_mpi_now_secs();
    atomic_fetch_add(count, 1);
    for (int n_polls = 0; atomic_load(count) < n_ranks && qdri_mpi_now_secs() - begin < MOST_WAIT_SECS; n_polls++)
        qdri_mpi_pause(n_polls);
}

/* Waits by a counter that all ranks map. Returns 0 on every rank if any rank cannot map it, as on several machines. */
static int wait_by_counter(int rank, int n_ranks)
{
    memory_file file = {0};
    leaving_count *count = rank == 0 ? qdri_memory_file_create(sizeof *count, &file) : NULL;
    int maps = QDRI_WAITS(MPI_Bcast, &file, sizeof file, MPI_BYTE, 0, MPI_COMM_WORLD) == MPI_SUCCESS;
    if (rank != 0 && maps && file.bytes) count = qdri_memory_file_map(&file);
    maps = maps && count;
    if (QDRI_WAITS(MPI_Allreduce, MPI_IN_PLACE, &maps, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD) != MPI_SUCCESS) maps = 0;
    if (rank == 0 && count) qdri_memory_file_close(&file);
    if (maps) wait_for_all(count, n_ranks);
    if (count) munmap(count, sizeof *count);
    return maps;
}

/* Until the last rank must have left the last barrier: several times what a barrier takes, which is long where ranks
 * share cores. */
static void wait_some_time(void)
{
    double slowest_secs = 0;
    for (int round = 0; round <= TIMED_BARRIERS; round++) {
        const double begin = qdri_mpi_now_secs();
        if (QDRI_WAITS(MPI_Barrier, MPI_COMM_WORLD) != MPI_SUCCESS) return;
        const double secs = qdri_mpi_now_secs() - begin;
        if (round > 0 && secs > slowest_secs) slowest_secs = secs; /* the first one waits for late ranks */
    }
    if (QDRI_WAITS(MPI_Allreduce, MPI_IN_PLACE, &slowest_secs, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD) != MPI_SUCCESS)
        return;
    if (QDRI_WAITS(MPI_Barrier, MPI_COMM_WORLD) != MPI_SUCCESS) return;
    double still_secs = 4 * slowest_secs;
    if (still_secs < LEAST_STILL_SECS) still_secs = LEAST_STILL_SECS;
    if (still_secs > MOST_STILL_SECS) still_secs = MOST_STILL_SECS;
    nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * still_secs)}, NULL);
}

/* In MPICH 4.0 over UCX, a rank that has closed its connections waits in the process manager and answers no other rank
 * (pmodels/mpich, pull request 6596): a rank that still needs an answer then waits for it forever. Two kinds of answers
 * are needed, and each has its remedy:
 * - to be connected. Two ranks connect when one first sends to the other, at the latest when they close. So each rank
 *   sends one byte to each other rank first.
 * - to close. A rank has its answers before others lose theirs only if no rank answers before it has begun to close
 *   itself, and each call of MPI answers. So none enters MPI_Finalize before all have left their last call. */
static void begin_leaving_together(void)
{
    const char sent = 0;
    char received = 0;
    int rank = 0, n_ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    if (n_ranks == 1) return;
    for (int step = 1; step < n_ranks; step++) {
        const int to = (rank + step) % n_ranks, from = (rank + n_ranks - step) % n_ranks;
        if (QDRI_WAITS(MPI_Sendrecv, &sent, 1, MPI_CHAR, to, LEAVING_TAG, &received, 1, MPI_CHAR, from, LEAVING_TAG,
                       MPI_COMM_WORLD, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
    }
    if (!wait_by_counter(rank, n_ranks)) wait_some_time();
}

void qdri_mpi_stop(void)
{
    if (qdri_mpi_misses_a_rank()) return;
    qdri_mpi_free_kept();
    begin_leaving_together();
    qdri_mpi_enter("MPI_Finalize");
    (void)qdri_mpi_left(MPI_Finalize());
}
