/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the machine on which this process runs. */
#ifndef QDRI_TOPO_TOPO_H
#define QDRI_TOPO_TOPO_H

#include "core/status.h"

/* The number of cores that this process may use: those of its binding and its cpuset, but not more than its share of
 * CPU time (cgroup v2) can keep busy; at least 1. */
QDR_NODISCARD qdr_status qdri_topo_cores(int *n_cores);
/* The CPU time per period granted by the cgroup, in whole cores; `n_cores`, or 1, if there is no limit. */
int qdri_topo_cores_by_share(int n_cores);
/* The processor's name: "AMD EPYC 7763"; "" if unknown. */
QDR_NODISCARD qdr_status qdri_topo_cpu_model(char *text, size_t capacity);
/* Whether this machine has a network adapter that reads remote memory itself (InfiniBand, RoCE, Omni-Path,
 * Slingshot). */
int qdri_topo_reads_remotely(void);
/* "2.9.0", the version of hwloc at run time; "none" in a build without hwloc. */
const char *qdri_topo_hwloc_version(void);

#endif
