/* SPDX-License-Identifier: Apache-2.0 */
/* Launchers, by the variables they set for each process. */
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

qdr_status qdri_launcher_check(int n_ranks, const char *why)
{
    for (size_t i = 0; n_ranks == 1 && i < sizeof launchers / sizeof *launchers; i++) {
        const char *value = getenv(launchers[i].variable);
        const long n_started = value ? strtol(value, NULL, 10) : 0;
        if (n_started > 1)
            return QDR_FAIL(QDR_ERR_MPI,
                            "launch: %s started %ld ranks (%s=%s), but each believes to be alone: "
                            "%s",
                            launchers[i].name, n_started, launchers[i].variable, value, why);
    }
    return QDR_OK;
}
