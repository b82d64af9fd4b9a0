/* SPDX-License-Identifier: Apache-2.0 */
/* Whether MPI will find the shared memory that it begins with. Where it does not, MPICH ends the program in MPI_Init,
 * with words about its own insides. */
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "comm/launcher.h"
#include "comm/mpi_internal.h"
#include "core/log.h"

#define FOLDER "/dev/shm"
#define RANK_BYTES (5.0 * (1 << 20)) /* that MPICH 4.0 over UCX 1.13 takes when it starts */

/* Of what an object there may have; < 0: none can be made, errno says why. */
static double room_bytes(void)
{
    char name[64];
    struct statvfs facts;
    snprintf(name, sizeof name, "/quadrille-%ld", (long)getpid());
    const int number = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (number < 0) return -1;
    shm_unlink(name);
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
    if (index != 0) return; /* another rank of this node looks */
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
