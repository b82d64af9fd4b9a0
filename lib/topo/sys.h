/* SPDX-License-Identifier: Apache-2.0 */
/* Information that Linux provides in small files under /sys. */
#ifndef QDRI_TOPO_SYS_H
#define QDRI_TOPO_SYS_H

#include "quadrille/topo.h"

/* The first line of the file named by the format, without surrounding blanks; 0: no such file. */
int qdri_sys_line(char *text, size_t capacity, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A number from the file named by the format; `missing` if there is none. */
double qdri_sys_number(double missing, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The NUMA node and the package to which a PCI device is attached; -1: unknown. */
void qdri_sys_locate(const qdr_topo *topo, const char *bus, int *package, int *numa);

/* Hardware threads, in a build without hwloc. */
#define QDRI_MAX_CPUS 4096
typedef struct qdri_cpus {
    unsigned char has[QDRI_MAX_CPUS];
} qdri_cpus;

/* Reads "0-3,8" from the file named by the format; 0: no such file, the set is empty. */
int qdri_sys_cpus(qdri_cpus *cpus, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The hardware threads on which the calling thread may run; all, if the system does not report them. */
void qdri_sys_bound(qdri_cpus *cpus);
/* The hardware threads of the core that contains `cpu`, restricted to `all`. */
void qdri_sys_siblings(int cpu, const qdri_cpus *all, qdri_cpus *siblings);
int qdri_cpus_first(const qdri_cpus *cpus); /* -1: none */
int qdri_cpus_count(const qdri_cpus *cpus);

#endif
