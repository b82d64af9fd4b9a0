/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that MPI will have enough shared memory to start. If not, MPICH ends the program in MPI_Init with a message
 * about its internals. */
#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "comm/launcher.h"
#include "comm/mpi/internal.h"
#include "core/log.h"

#define FOLDER "/dev/shm"
#define RANK_BYTES (5.0 * (1 << 20)) /* used by MPICH 4.0 over UCX 1.13 when it starts */

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

void qdri_mpi_warn_of_shm(void)
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
