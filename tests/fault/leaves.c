/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded before the ranks of leaves.sh, whose LEAVES says what is different:
 *   late   rank 1 goes on polling for MPI after each barrier and all-reduce, as a rank does that shares a core
 *   apart  no rank can map memory of another, as on different machines
 */
#define _GNU_SOURCE 1 /* memfd_create */
#include <dlfcn.h>
#include <errno.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LATE_SECS 0.15

static int is(const char *what)
{
    const char *given = getenv("LEAVES");
    return given && strcmp(given, what) == 0;
}

static int poll_longer(int code)
{
    int rank = 0, found = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (const double begin = PMPI_Wtime(); rank == 1 && is("late") && PMPI_Wtime() - begin < LATE_SECS;)
        PMPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    return code;
}

int MPI_Barrier(MPI_Comm comm) { return poll_longer(PMPI_Barrier(comm)); }

int MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return poll_longer(PMPI_Allreduce(from, to, n, type, op, comm));
}

int memfd_create(const char *name, unsigned flags)
{
    int (*create)(const char *, unsigned);
    *(void **)&create = dlsym(RTLD_NEXT, "memfd_create");
    errno = ENOSYS;
    return is("apart") ? -1 : create(name, flags);
}
