/* SPDX-License-Identifier: Apache-2.0 */
/* Must fail in an address-sanitized build: shows that leaks are detected, also with MPI ("mpi" as argument). */
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "core/size.h"

#if QDRI_HAVE_MPI
#include <mpi.h>
#endif

/* Not inlined, and several times: no old copy of a pointer must be left in a register. */
static __attribute__((noinline)) int lose(void)
{
    for (int i = 0; i < 10; i++) {
        char *text = NULL;
        if (qdri_strdup("about seventy bytes, which nobody will ever give back to the system", &text)) return 0;
        ((volatile char *)text)[0] = 'A';
    }
    return 1;
}

int main(int argc, char **argv)
{
    const int with_mpi = argc > 1 && strcmp(argv[1], "mpi") == 0;
    (void)with_mpi;
#if QDRI_HAVE_MPI
    int provided;
    if (with_mpi) MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
#endif
    if (!lose()) return 0;
#if QDRI_HAVE_MPI
    if (with_mpi) MPI_Finalize();
#endif
    return 0;
}
