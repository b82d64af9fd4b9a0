/* SPDX-License-Identifier: Apache-2.0 */
/** @file version.h  What this build of the library is made of. */
#ifndef QUADRILLE_VERSION_H
#define QUADRILLE_VERSION_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif
/** Versions as text; "none" where a part is not built in. The strings live as long as the library. */
typedef struct qdr_versions {
    size_t size; /**< as the library knows it */
    const char *quadrille, *compiler, *mpi, *blas, *onednn, *hwloc, *zfp;
} qdr_versions;
/** Local, thread-safe. The struct is the library's. */
QDR_API const qdr_versions *qdr_get_versions(void);
#ifdef __cplusplus
}
#endif
#endif
