/* SPDX-License-Identifier: Apache-2.0 */
/* MPI in this process: its version, whether it runs, its errors in words, and the pauses of those who wait for it. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/mates.h"
#include "comm/mpi/internal.h"
#include "dev/clock.h"

enum { N_YIELDS = 64, MIN_PAUSE_NS = 20000, MAX_PAUSE_NS = 500000 };

atomic_int qdri_mpi_somebody_is_missing;

qdr_status qdri_mpi_fail(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return QDR_FAIL(QDR_ERR_MPI, "MPI: %.40s: %.300s", what, text);
}

void qdri_mpi_describe(char *text, size_t bytes)
{
    char said[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(said, &length) != MPI_SUCCESS) *said = '\0';
    said[strcspn(said, "\n,")] = '\0';
    for (char *tab = said; (tab = strchr(tab, '\t'));) *tab = ' ';
    snprintf(text, bytes, "%s", *said ? said : "unknown");
}

int qdri_mpi_is_initialised(void)
{
    int initialised = 0;
    return MPI_Initialized(&initialised) == MPI_SUCCESS && initialised;
}

int qdri_mpi_is_over(void)
{
    int finalised = 0;
    return MPI_Finalized(&finalised) == MPI_SUCCESS && finalised;
}

qdr_status qdri_mpi_check_runs(void)
{
    if (!qdri_mpi_is_over()) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE,
                    "MPI: it is finalised, and the context can only be destroyed; call MPI_Finalize after "
                    "the last use of a context");
}

int qdri_mpi_misses_a_rank(void) { return atomic_load(&qdri_mpi_somebody_is_missing); }

qdr_status qdri_mpi_fail_creation(int rank, int size, double limit_secs)
{
    char missing[160];
    const int n = qdri_mates_missing(NULL, missing, sizeof missing); /* MPI does not say which ranks are missing */
    atomic_store(&qdri_mpi_somebody_is_missing, 1);
    return QDR_FAIL(
        QDR_ERR_TIMEOUT,
        "comm: rank %d has waited %g s in the creation of contexts for others of the %d ranks%s%s; find out "
        "what they do, or allow more than QDR_TIMEOUT=%g",
        rank, limit_secs, size, n > 0 ? ": " : "", missing, limit_secs);
}

double qdri_mpi_now_secs(void) { return 1e-9 * (double)qdri_now_ns(); }

void qdri_mpi_pause(int n_polls)
{
    if (n_polls < N_YIELDS) {
        sched_yield();
        return;
    }
    const int doublings = (n_polls - N_YIELDS) / 8;
    long ns = doublings > 5 ? MAX_PAUSE_NS : (long)MIN_PAUSE_NS << doublings;
    if (ns > MAX_PAUSE_NS) ns = MAX_PAUSE_NS;
    const struct timespec pause = {.tv_nsec = ns};
    nanosleep(&pause, NULL);
}
