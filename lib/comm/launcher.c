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

typedef struct started_ranks {
    const launcher *by;
    const char *value; /* the value of its variable */
    long n;
} started_ranks;

/* The launcher that started several ranks, if any: n > 1. */
static started_ranks find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *value = getenv(launchers[i].variable);
        const long n = value ? strtol(value, NULL, 10) : 0;
        if (n > 1) return (started_ranks){&launchers[i], value, n};
    }
    return (started_ranks){0};
}

qdr_status qdri_launcher_check(int n_ranks, const char *why)
{
    const started_ranks started = find_launcher();
    if (n_ranks != 1 || started.n < 2) return QDR_OK;
    return QDR_FAIL(QDR_ERR_MPI, "launch: %s started %ld ranks (%s=%s), but each believes it is alone: %s",
                    started.by->name, started.n, started.by->variable, started.value, why);
}

qdr_status qdri_launcher_check_local(int n_local)
{
    const started_ranks started = find_launcher();
    if (started.n < 2) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "launch: %s started %ld processes (%s=%s), and each would run the same %d local ranks; leave out "
                    "the local ranks, or start one process",
                    started.by->name, started.n, started.by->variable, started.value, n_local);
}

long qdri_launcher_ranks(void)
{
    const started_ranks started = find_launcher();
    return started.n > 1 ? started.n : 1;
}

long qdri_launcher_node_ranks(long *index)
{
    const char *own = getenv("MPI_LOCALRANKID"), *count = getenv("MPI_LOCALNRANKS");
    const long n = count ? strtol(count, NULL, 10) : 1;
    *index = own ? strtol(own, NULL, 10) : 0;
    return n > 1 ? n : 1;
}
