/* SPDX-License-Identifier: Apache-2.0 */
/* How a qdr_topo is filled, for the files that fill it. */
#ifndef QDRI_TOPO_MACHINE_H
#define QDRI_TOPO_MACHINE_H

#include "core/status.h"
#include "quadrille/topo.h"

/* A machine being read. */
typedef struct topo_loader {
    void *hwloc; /* hwloc_topology_t, while it reads */
    qdr_topo *topo;
    int gpu_capacity, nic_capacity, link_capacity;
} topo_loader;

/* All but what NVML knows: machine_hwloc.c, or machine_sys.c in a build without hwloc. xml: a file that hwloc wrote;
 * NULL: this machine, or what hwloc's variables say. */
QDR_NODISCARD qdr_status qdri_topo_load_machine(topo_loader *loader, const char *xml);
/* gpus_hwloc.c: PCI devices that compute, and adapters; devices_sys.c: adapters. */
QDR_NODISCARD qdr_status qdri_topo_load_devices(topo_loader *loader);
/* gpu_links_hwloc.c: what hwloc knows about links of GPUs. */
QDR_NODISCARD qdr_status qdri_topo_load_links(topo_loader *loader);
/* nvml_load.c: GPUs of this machine and their links, as the driver has them; topo->gpu_source. It is no failure if
 * there is no driver. */
QDR_NODISCARD qdr_status qdri_topo_load_nvml(topo_loader *loader);

/* Adds a GPU, unknown but for its name. It is the last one. */
QDR_NODISCARD qdr_status qdri_topo_add_gpu(topo_loader *loader, qdr_topo_gpu **gpu);
/* Index of the GPU with this PCI address; -1: none. */
int qdri_topo_find_gpu(const qdr_topo *topo, const char *bus);
/* Adds a link, or takes the place of the one that the pair has. GPUs that are none are ignored. */
QDR_NODISCARD qdr_status qdri_topo_set_link(topo_loader *loader, const qdr_topo_gpu_link *link);
/* places.c: the link of two GPUs, in any order; NULL: none. topo may be NULL. */
const qdr_topo_gpu_link *qdri_topo_find_link(const qdr_topo *topo, int a, int b);
/* What the cores have in common for which is_used is not 0. */
void qdri_topo_confine(const qdr_topo *topo, const unsigned char *is_used, qdr_topo_place *place);
/* Copies as much as fits, without blanks at the ends and twice in a row. */
void qdri_topo_copy(char *to, size_t capacity, const char *from);
/* A recorded number of `unit`s as bytes of memory; 0, unknown, where it is more than any part of a machine has. */
int64_t qdri_topo_bytes(uint64_t n, uint64_t unit);
/* A recorded rate of gigabytes per second in bytes per second; 0, unknown, where no link is so fast. */
double qdri_topo_rate(double gigabytes_per_sec);
/* network.c: bytes per second of an adapter's line, by the name that the system has for it; 0: unknown. */
double qdri_topo_line_rate(const char *name);

#endif
