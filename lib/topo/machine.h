/* SPDX-License-Identifier: Apache-2.0 */
/* How a qdr_topo is filled in; for the files that do so. */
#ifndef QDRI_TOPO_MACHINE_H
#define QDRI_TOPO_MACHINE_H

#include "core/status.h"
#include "quadrille/topo.h"

/* What a qdr_topo lists. */
struct qdr_topo_lists {
    qdr_topo_package *packages;
    qdr_topo_numa *numas;
    qdr_topo_cache *caches;
    qdr_topo_core *cores;
    qdr_topo_gpu *gpus;
    qdr_topo_gpu_link *gpu_links; /* by a, then b */
    qdr_topo_nic *nics;
};

/* A machine being read. */
typedef struct topo_loader {
    void *hwloc; /* hwloc_topology_t, while it reads */
    qdr_topo *topo;
    int gpu_capacity, nic_capacity, link_capacity;
} topo_loader;

/* Loads everything except what NVML knows: machine_hwloc.c, or machine_flat.c in a build without hwloc. xml: a file
 * written by hwloc; NULL: this machine, or the one selected by hwloc's variables. */
QDR_NODISCARD qdr_status qdri_topo_load_machine(topo_loader *loader, const char *xml);
/* devices_hwloc.c: PCI devices that compute, and network adapters; what hwloc knows about links between GPUs. */
QDR_NODISCARD qdr_status qdri_topo_load_devices(topo_loader *loader);
/* nvml.c: this machine's GPUs and their links, as reported by the driver; topo->gpu_source. Having no driver is
 * not an error. */
QDR_NODISCARD qdr_status qdri_topo_load_nvml(topo_loader *loader);

/* Appends a GPU, of which only the name is known. */
QDR_NODISCARD qdr_status qdri_topo_add_gpu(topo_loader *loader, qdr_topo_gpu **gpu);
/* Appends an adapter, of which only the name is known. */
QDR_NODISCARD qdr_status qdri_topo_add_nic(topo_loader *loader, const char *name, qdr_topo_nic **nic);
/* Index of the GPU with this PCI address; -1: none. */
int qdri_topo_find_gpu(const qdr_topo *topo, const char *bus);
/* Adds a link, or replaces the pair's existing one. Nonexistent GPUs are ignored. */
QDR_NODISCARD qdr_status qdri_topo_set_link(topo_loader *loader, const qdr_topo_gpu_link *link);
/* places.c: the link between two GPUs, in any order; NULL: none. topo may be NULL. */
const qdr_topo_gpu_link *qdri_topo_find_link(const qdr_topo *topo, int a, int b);
/* The number of ranks of a grid, as qdr_topo_map() checks it. */
QDR_NODISCARD qdr_status qdri_topo_check_grid(const int sizes[QDR_N_AXES], const char *order,
                                              const qdr_topo_place *places, int *n_ranks);
/* What the cores for which is_used is not 0 have in common. */
void qdri_topo_confine(const qdr_topo *topo, const unsigned char *is_used, qdr_topo_place *place);
/* Copies as much as fits, without leading, trailing or repeated blanks. */
void qdri_topo_copy(char *to, size_t capacity, const char *from);
/* A recorded number of `unit`s in bytes of memory; 0 (unknown) if it is implausibly large. */
int64_t qdri_topo_bytes(uint64_t n, uint64_t unit);
/* A recorded rate of gigabytes per second in bytes per second; 0 (unknown) if it is implausibly high. */
double qdri_topo_rate(double gigabytes_per_sec);

/* ---- sys.c: information that Linux provides in small files under /sys ---- */

/* A number from the file named by the format; `missing` if there is none. */
double qdri_sys_number(double missing, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The NUMA node and the package to which a PCI device is attached; -1: unknown. */
void qdri_sys_locate(const qdr_topo *topo, const char *bus, int *package, int *numa);
/* Line rate of an adapter in bytes per second, by its system name; 0: unknown. */
double qdri_topo_line_rate(const char *name);

#endif
