/* SPDX-License-Identifier: Apache-2.0 */
/* Launchers, recognised by the variables that they set for each process. */
#include "comm/launcher.h"

#include <limits.h>
#include <stdlib.h>

typedef struct launcher {
    const char *variable, *name;
    const char *beside; /* another variable that must be there, too; NULL: none */
    int is_rank; /* the variable is this process's number, from 0; how many there are is not said */
} launcher;

/* The first that says more than one counts. SLURM_NTASKS is what a job may start: a batch script has it, too. */
static const launcher launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "Open MPI's mpiexec", NULL, 0},
    {"PMI_SIZE", "a PMI launcher (MPICH's or Intel's mpiexec)", NULL, 0},
    {"MPI_LOCALNRANKS", "MPICH's mpiexec", NULL, 0},
    {"MV2_COMM_WORLD_SIZE", "MVAPICH's mpiexec", NULL, 0},
    {"MVP_COMM_WORLD_SIZE", "MVAPICH's mpiexec", NULL, 0},
    {"SLURM_STEP_NUM_TASKS", "srun", NULL, 0},
    {"SLURM_NTASKS", "srun", "SLURM_STEP_ID", 0},
    {"JSM_NAMESPACE_SIZE", "jsrun", NULL, 0},
    {"FLUX_JOB_SIZE", "flux run", "FLUX_TASK_RANK", 0},
    {"PALS_RANKID", "PALS's mpiexec", NULL, 1},
    {"ALPS_APP_PE", "aprun", NULL, 1},
    {"PMIX_RANK", "a PMIx launcher (prterun, or srun --mpi=pmix)", NULL, 1},
    {"WORLD_SIZE", "torchrun, or a launcher like it,", "RANK", 0},
};

/* The launcher that started n > 1 ranks. NULL: none is known to have, and *n = 1; or *n = 0 if the launcher only
 * numbers its processes and this is number 0, which cannot tell whether there are others (they can). */
static const launcher *find_launcher(long *n)
{
    int is_numbered = 0, is_counted = 0;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const launcher *one = &launchers[i];
        const char *value = getenv(one->variable);
        if (!value || (one->beside && !getenv(one->beside))) continue;
        *n = strtol(value, NULL, 10);
        if (one->is_rank && *n < LONG_MAX) ++*n;
        if (*n > 1) return one;
        if (one->is_rank)
            is_numbered = 1;
        else
            is_counted = 1;
    }
    *n = is_numbered && !is_counted ? 0 : 1;
    return NULL;
}

qdr_status qdri_launcher_check(int n_ranks, const char *why)
{
    long n;
    const launcher *by = find_launcher(&n);
    if (n_ranks != 1 || !by) return QDR_OK;
    return QDR_FAIL(QDR_ERR_MPI, "launch: %s started %s%ld ranks (%s=%s), but each believes it is alone: %s", by->name,
                    by->is_rank ? "at least " : "", n, by->variable, getenv(by->variable), why);
}

qdr_status qdri_launcher_check_local(int n_local)
{
    long n;
    const launcher *by = find_launcher(&n);
    if (!by) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "launch: %s started %s%ld processes (%s=%s), and each would run the same %d local ranks; leave "
                    "out the local ranks, or start one process",
                    by->name, by->is_rank ? "at least " : "", n, by->variable, getenv(by->variable), n_local);
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
