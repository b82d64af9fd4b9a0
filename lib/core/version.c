/* SPDX-License-Identifier: Apache-2.0 */
/* The components of this build, as determined by its configuration. */
#include "quadrille/version.h"

#include "config.h"

const qdr_versions *qdr_get_versions(void)
{
    static const qdr_versions versions = {
        QDR_INIT(qdr_versions),      .quadrille = QDR_VERSION_STRING, .compiler = QDRI_COMPILER_VERSION,
        .mpi = QDRI_MPI_VERSION,     .blas = QDRI_BLAS_VERSION,       .onednn = QDRI_ONEDNN_VERSION,
        .hwloc = QDRI_HWLOC_VERSION, .zfp = QDRI_ZFP_VERSION,
    };
    return &versions;
}
