/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine under this process is like. */
#ifndef QDRI_TOPO_TOPO_H
#define QDRI_TOPO_TOPO_H

#include "core/status.h"

/* Cores this process may use: those of its binding and its cpuset, and no more than its share of CPU time (cgroup v2)
 * lets it keep busy; at least 1. */
QDR_NODISCARD qdr_status qdri_topo_cores(int *n_cores);
/* Whole cores' worth of CPU time per period that the cgroup grants; `n_cores` if it sets no limit. */
int qdri_topo_cores_by_share(int n_cores);
/* The processor's name, as hwloc has it: "AMD EPYC 7763"; "" where it has none. */
QDR_NODISCARD qdr_status qdri_topo_cpu_model(char *text, size_t capacity);
/* This machine has a network adapter that reads the memory of others by itself (InfiniBand, RoCE, Omni-Path,
 * Slingshot). */
int qdri_topo_reads_remotely(void);
/* "2.9.0", of the hwloc that runs; "none" in a build without. */
const char *qdri_topo_hwloc_version(void);

#endif
