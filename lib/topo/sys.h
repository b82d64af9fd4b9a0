/* SPDX-License-Identifier: Apache-2.0 */
/* What Linux reports in small files under /sys. */
#ifndef QDRI_TOPO_SYS_H
#define QDRI_TOPO_SYS_H

#include "quadrille/topo.h"

/* The first line of the file that the format names, without blanks at its ends; 0: there is none. */
int qdri_sys_line(char *text, size_t capacity, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A number from the file that the format names; `missing` if there is none. */
double qdri_sys_number(double missing, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The NUMA node and the package that a PCI device is attached to; -1: unknown. */
void qdri_sys_locate(const qdr_topo *topo, const char *bus, int *package, int *numa);

/* Hardware threads, in a build without hwloc. */
#define QDRI_MAX_CPUS 4096
typedef struct qdri_cpus {
    unsigned char has[QDRI_MAX_CPUS];
} qdri_cpus;

/* "0-3,8" from the file that the format names; 0: there is none, the set is empty. */
int qdri_sys_cpus(qdri_cpus *cpus, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Those on which the calling thread may run; all, if the system does not report them. */
void qdri_sys_bound(qdri_cpus *cpus);
/* Those of the core that `cpu` is in, without the ones that are not in `all`. */
void qdri_sys_siblings(int cpu, const qdri_cpus *all, qdri_cpus *siblings);
int qdri_cpus_first(const qdri_cpus *cpus); /* -1: none */
int qdri_cpus_count(const qdri_cpus *cpus);

#endif
