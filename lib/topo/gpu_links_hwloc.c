/* SPDX-License-Identifier: Apache-2.0 */
/* Links between GPUs according to hwloc: matrices of rates supplied by drivers, and PCI switches.
 *
 * NVLinkBandwidth is between GPUs, switches and packages; paths through switches are summed here (hwloc's own
 * transformation erases the direct links if there is no switch). XGMIBandwidth is 100 GB/s for every pair: a constant
 * of hwloc, not a measurement. */
#include <hwloc.h>
#include <hwloc/distances.h>
#include <stdio.h>
#include <string.h>

#include "core/size.h"
#include "topo/machine.h"

#define MB_PER_SEC 1e6 /* the unit of hwloc's rates */

/* ---- matrices ---- */

/* The GPU that is, or contains, an object of a matrix; -1: none. */
static int gpu_of(const qdr_topo *topo, hwloc_obj_t object)
{
    char bus[24];
    while (object && object->type == HWLOC_OBJ_OS_DEVICE) object = object->parent;
    if (!object || object->type != HWLOC_OBJ_PCI_DEVICE) return -1;
    const struct hwloc_pcidev_attr_s *pci = &object->attr->pcidev;
    snprintf(bus, sizeof bus, "%04x:%02x:%02x.%x", pci->domain, pci->bus, pci->dev, pci->func);
    return qdri_topo_find_gpu(topo, bus);
}

typedef struct matrix {
    const qdr_topo *topo;
    const struct hwloc_distances_s *of;
    int n;
} matrix;

static double value_at(const matrix *m, int row, int column)
{
    const double rate = MB_PER_SEC * (double)m->of->values[row * m->n + column];
    return qdri_topo_rate(1e-9 * rate) > 0 ? rate : 0;
}
static hwloc_obj_t object_at(const matrix *m, int index) { return m->of->objs[index]; }
static int is_switch(const matrix *m, int index)
{
    const hwloc_obj_t object = object_at(m, index);
    return object && object->type == HWLOC_OBJ_PCI_DEVICE && gpu_of(m->topo, object) < 0;
}

/* The rate between two GPUs through the switches to which both have links; *n_each: the smaller of their numbers of
 * switches. */
static double rate_through_switches(const matrix *m, int a, int b, int *n_each)
{
    double rate = 0;
    int n_a = 0, n_b = 0;
    for (int i = 0; i < m->n; i++) {
        if (!is_switch(m, i)) continue;
        const double left = value_at(m, a, i), right = value_at(m, b, i);
        rate += left < right ? left : right;
        n_a += left > 0;
        n_b += right > 0;
    }
    *n_each = n_a < n_b ? n_a : n_b;
    return rate;
}

static qdr_status take_nvlink(topo_loader *loader, const matrix *m, int a, int b)
{
    qdr_topo_gpu_link link = {.a = gpu_of(m->topo, object_at(m, a)), .b = gpu_of(m->topo, object_at(m, b)), .peer = -1};
    int n_switches;
    link.rate = value_at(m, a, b);
    link.link = QDR_LINK_NVLINK;
    link.n_hops = 1;
    if (link.rate > 0) return qdri_topo_set_link(loader, &link);
    link.rate = rate_through_switches(m, a, b, &n_switches);
    link.link = QDR_LINK_NVSWITCH;
    /* No switch in common: the switches are connected, but the rate is unknown. */
    link.n_hops = link.rate > 0 ? 2 : 3;
    return n_switches ? qdri_topo_set_link(loader, &link) : QDR_OK;
}

static qdr_status take_xgmi(topo_loader *loader, const matrix *m, int a, int b)
{
    const int gpu_a = gpu_of(m->topo, object_at(m, a)), gpu_b = gpu_of(m->topo, object_at(m, b));
    if (gpu_a < 0 || gpu_b < 0 || value_at(m, a, b) <= 0) return QDR_OK;
    const char *module = m->topo->gpus[gpu_a].module;
    const int is_module = *module && strcmp(module, m->topo->gpus[gpu_b].module) == 0;
    return qdri_topo_set_link(loader, &(qdr_topo_gpu_link){
                                          .a = gpu_a,
                                          .b = gpu_b,
                                          .link = is_module ? QDR_LINK_XGMI_MODULE : QDR_LINK_XGMI,
                                          .is_assumed = 1,
                                          .peer = -1,
                                          .rate = value_at(m, a, b),
                                      });
}

static qdr_status take_hops(topo_loader *loader, const matrix *m, int a, int b)
{
    qdr_topo_gpu_link *link = (qdr_topo_gpu_link *)qdri_topo_find_link(m->topo, gpu_of(m->topo, object_at(m, a)),
                                                                       gpu_of(m->topo, object_at(m, b)));
    (void)loader;
    if (link) link->n_hops = (int)m->of->values[a * m->n + b];
    return QDR_OK;
}

/* NVLink between GPUs and their package. */
static void take_host_links(topo_loader *loader, const matrix *m)
{
    for (int i = 0; i < m->n; i++) {
        const int gpu = object_at(m, i) ? gpu_of(m->topo, object_at(m, i)) : -1;
        for (int j = 0; gpu >= 0 && j < m->n; j++)
            if (object_at(m, j) && object_at(m, j)->type == HWLOC_OBJ_PACKAGE)
                loader->topo->gpus[gpu].host_rate += value_at(m, i, j);
    }
}

typedef qdr_status (*pair_taker)(topo_loader *loader, const matrix *m, int a, int b);

static qdr_status take_pairs(topo_loader *loader, const matrix *m, pair_taker take)
{
    for (int a = 0; a < m->n; a++) {
        if (!object_at(m, a) || gpu_of(m->topo, object_at(m, a)) < 0) continue;
        for (int b = a + 1; b < m->n; b++)
            if (object_at(m, b) && gpu_of(m->topo, object_at(m, b)) >= 0) QDR_TRY(take(loader, m, a, b));
    }
    return QDR_OK;
}

static qdr_status take_matrix(topo_loader *loader, const char *name, pair_taker take)
{
    struct hwloc_distances_s *distances = NULL;
    unsigned n = 1;
    if (hwloc_distances_get_by_name(loader->hwloc, name, &n, &distances, 0) != 0 || n < 1)
        return QDR_OK; /* hwloc has no such matrix */
    const matrix m = {loader->topo, distances, (int)distances->nbobjs};
    const qdr_status status = take_pairs(loader, &m, take);
    if (take == take_nvlink) take_host_links(loader, &m);
    hwloc_distances_release(loader->hwloc, distances);
    return status;
}

/* ---- PCI switches ---- */

/* hwloc's own function for this compares depths, which devices do not have. */
static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b)
{
    for (; a; a = a->parent)
        for (hwloc_obj_t above = b; above; above = above->parent)
            if (above == a) return a;
    return NULL;
}

/* Whether the nearest bridge above both GPUs is a switch rather than the host's. */
static int share_switch(hwloc_topology_t hwloc, const char *bus_a, const char *bus_b)
{
    const hwloc_obj_t a = hwloc_get_pcidev_by_busidstring(hwloc, bus_a);
    const hwloc_obj_t b = hwloc_get_pcidev_by_busidstring(hwloc, bus_b);
    if (!a || !b) return 0;
    const hwloc_obj_t above = common_ancestor(a, b);
    return above && above->type == HWLOC_OBJ_BRIDGE && above->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

static qdr_status take_switches(topo_loader *loader)
{
    const qdr_topo *topo = loader->topo;
    for (int a = 0; a < topo->n_gpus; a++) {
        for (int b = a + 1; b < topo->n_gpus; b++) {
            const double rate_a = topo->gpus[a].pci_rate, rate_b = topo->gpus[b].pci_rate;
            if (!share_switch(loader->hwloc, topo->gpus[a].bus, topo->gpus[b].bus)) continue;
            const qdr_topo_gpu_link link = {
                .a = a, .b = b, .link = QDR_LINK_PCI, .peer = -1, .rate = rate_a < rate_b ? rate_a : rate_b};
            QDR_TRY(qdri_topo_set_link(loader, &link));
        }
    }
    return QDR_OK;
}

qdr_status qdri_topo_load_links(topo_loader *loader)
{
    QDR_TRY(take_switches(loader));
    QDR_TRY(take_matrix(loader, "XGMIBandwidth", take_xgmi));
    QDR_TRY(take_matrix(loader, "XGMIHops", take_hops));
    return take_matrix(loader, "NVLinkBandwidth", take_nvlink);
}
