/* SPDX-License-Identifier: Apache-2.0 */
/* The components of this build. */
#include <quadrille/version.h>
#include <string.h>

#include "doctor/doctor.h"

#define GROUP "build"

static int is_none(const char *version) { return strcmp(version, "none") == 0; }

static void add_part(doctor_report *report, const char *name, const char *version, const char *without,
                     const char *remedy)
{
    if (is_none(version))
        doctor_advise(doctor_add(report, GROUP, name, DOCTOR_NOTE, "none: %s", without), "%s", remedy);
    else
        doctor_add(report, GROUP, name, DOCTOR_GOOD, "%s", version);
}

void doctor_find_build(doctor_report *report)
{
    const qdr_versions versions = qdr_get_versions();
    doctor_add(report, GROUP, "quadrille", DOCTOR_GOOD, "%s, %s", versions.quadrille, versions.compiler);
    /* The thread level that the library requests and requires; what MPI grants is only known once it has started. */
    if (is_none(versions.mpi))
        add_part(report, "MPI", versions.mpi, "ranks are threads of one process",
                 "for ranks on several nodes install libmpich-dev and mpich (or name another MPI: "
                 "-Dmpi=NAME) and build again");
    else
        doctor_add(report, GROUP, "MPI", DOCTOR_GOOD, "%s, started with MPI_THREAD_MULTIPLE", versions.mpi);
    add_part(report, "BLAS", versions.blas, "products on the CPU are plain C, on one thread",
             "for faster products on the CPU install libopenblas-dev and build again");
    add_part(report, "oneDNN", versions.onednn, "bf16 products on the CPU are converted to f32",
             "if the processor has bf16 (AVX-512 BF16, AMX) install libdnnl-dev and build again");
    add_part(report, "hwloc", versions.hwloc, "the topology comes from /sys and NVML",
             "for recorded machines and PCI switches install libhwloc-dev and build again");
}
