/* SPDX-License-Identifier: Apache-2.0 */
/* Launchers, recognised by the variables that they set for each process. */
#include "comm/launcher.h"

#include <stdlib.h>

typedef struct launcher {
    const char *variable, *name;
} launcher;

static const launcher launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec"},
    {"PMI_SIZE", "a PMI launcher (MPICH's or Intel's mpiexec)"},
    {"MPI_LOCALNRANKS", "MPICH's mpiexec"},
    {"MV2_COMM_WORLD_SIZE", "MVAPICH's mpiexec"},
    {"SLURM_STEP_NUM_TASKS", "srun"},
};

/* The launcher that started n > 1 ranks; NULL: none, and *n = 1. */
static const launcher *find_launcher(long *n)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *value = getenv(launchers[i].variable);
        *n = value ? strtol(value, NULL, 10) : 0;
        if (*n > 1) return &launchers[i];
    }
    *n = 1;
    return NULL;
}

qdr_status qdri_launcher_check(int n_ranks, const char *why)
{
    long n;
    const launcher *by = find_launcher(&n);
    if (n_ranks != 1 || !by) return QDR_OK;
    return QDR_FAIL(QDR_ERR_MPI, "launch: %s started %ld ranks (%s=%s), but each believes it is alone: %s", by->name, n,
                    by->variable, getenv(by->variable), why);
}

qdr_status qdri_launcher_check_local(int n_local)
{
    long n;
    const launcher *by = find_launcher(&n);
    if (!by) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "launch: %s started %ld processes (%s=%s), and each would run the same %d local ranks; leave out "
                    "the local ranks, or start one process",
                    by->name, n, by->variable, getenv(by->variable), n_local);
}

long qdri_launcher_ranks(void)
{
    long n;
    (void)find_launcher(&n);
    return n;
}

long qdri_launcher_node_ranks(long *index)
{
    const char *own = getenv("MPI_LOCALRANKID"), *count = getenv("MPI_LOCALNRANKS");
    const long n = count ? strtol(count, NULL, 10) : 1;
    *index = own ? strtol(own, NULL, 10) : 0;
    return n > 1 ? n : 1;
}
