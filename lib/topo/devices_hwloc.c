/* SPDX-License-Identifier: Apache-2.0 */
/* PCI devices of a machine: those that compute, and network adapters; and links between GPUs, as far as hwloc knows:
 * matrices of rates supplied by drivers, and PCI switches.
 *
 * NVLinkBandwidth is between GPUs, switches and packages; paths through switches are summed here (hwloc's own
 * transformation erases the direct links if there is no switch). XGMIBandwidth is 100 GB/s for every pair: a constant
 * of hwloc, not a measurement. */
#include <hwloc.h>
#include <hwloc/distances.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/machine.h"

enum {
    CLASS_DISPLAY = 0x03, /* the upper byte of a PCI class */
    CLASS_NETWORK = 0x02,
    CLASS_VGA = 0x0300,
    VENDOR_AMD = 0x1002,
    VENDOR_INTEL = 0x8086,
    VENDOR_NVIDIA = 0x10de
};
#define MB_PER_SEC 1e6 /* the unit of hwloc's rates of links */

static void print_bus(hwloc_obj_t device, char *text, size_t capacity)
{
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
    snprintf(text, capacity, "%04x:%02x:%02x.%x", pci->domain, pci->bus, pci->dev, pci->func);
}

/* hwloc has the current rate of the link, in gigabytes per second. */
static double pci_rate(hwloc_obj_t device) { return qdri_topo_rate((double)device->attr->pcidev.linkspeed); }

/* The parts of the machine to which a device is attached. */
static void locate(hwloc_topology_t hwloc, hwloc_obj_t device, int *package, int *numa)
{
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(hwloc, device);
    hwloc_obj_t object = NULL;
    *package = *numa = -1;
    while ((object = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_PACKAGE, object)))
        if (hwloc_bitmap_isincluded(near->cpuset, object->cpuset)) *package = (int)object->logical_index;
    object = NULL;
    while ((object = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, object)))
        if (*numa < 0 && hwloc_bitmap_isincluded(near->cpuset, object->cpuset)) *numa = (int)object->logical_index;
}

/* ---- GPUs ---- */

/* The best name comes first; a driver may provide several for one device. */
static const char *const name_beginnings[] = {"nvml", "rsmi", "cuda", "ze", "opencl"};
enum { N_NAMES = sizeof name_beginnings / sizeof *name_beginnings };

static int name_rank(const char *name)
{
    int i = 0;
    while (i < N_NAMES && strncmp(name, name_beginnings[i], strlen(name_beginnings[i])) != 0) i++;
    return i;
}

/* The name by which tools know it; NULL: no compute driver has it. */
static const char *compute_name(hwloc_obj_t device)
{
    const char *best = NULL;
    for (hwloc_obj_t child = device->io_first_child; child; child = child->next_sibling) {
        if (child->type != HWLOC_OBJ_OS_DEVICE || !child->name) continue;
        const hwloc_obj_osdev_type_t type = child->attr->osdev.type;
        if (type != HWLOC_OBJ_OSDEV_GPU && type != HWLOC_OBJ_OSDEV_COPROC) continue;
        const int rank = name_rank(child->name);
        if (rank < N_NAMES && (!best || rank < name_rank(best))) best = child->name;
    }
    return best;
}

/* If no driver identifies it: 3D controllers of GPU vendors, and their graphics cards (Intel's are part of
 * processors). */
static int looks_like_gpu(hwloc_obj_t device)
{
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
    if (pci->class_id >> 8 != CLASS_DISPLAY) return 0;
    return pci->vendor_id == VENDOR_NVIDIA || pci->vendor_id == VENDOR_AMD ||
           (pci->vendor_id == VENDOR_INTEL && pci->class_id != CLASS_VGA);
}

/* The first description of a device by a driver that has this key; NULL: none. */
static const char *info_of(hwloc_obj_t device, const char *key)
{
    const char *found = hwloc_obj_get_info_by_name(device, key);
    for (hwloc_obj_t child = device->io_first_child; child && !found; child = child->next_sibling)
        found = hwloc_obj_get_info_by_name(child, key);
    return found;
}

static qdr_status load_gpu(topo_loader *loader, hwloc_obj_t device)
{
    static const char *const sizes[] = {"RSMIVRAMSize", "CUDAGlobalMemorySize", "LevelZeroHBMSize", "LevelZeroDDRSize",
                                        "OpenCLGlobalMemorySize"};
    const char *name = compute_name(device), *model = info_of(device, "GPUModel"), *size = NULL;
    qdr_topo_gpu *gpu;
    QDR_TRY(qdri_topo_add_gpu(loader, &gpu));
    if (name) qdri_topo_copy(gpu->name, sizeof gpu->name, name);
    if (!model) model = info_of(device, "PCIDevice");
    qdri_topo_copy(gpu->model, sizeof gpu->model, model);
    if (!model)
        snprintf(gpu->model, sizeof gpu->model, "PCI %04x:%04x", device->attr->pcidev.vendor_id,
                 device->attr->pcidev.device_id);
    qdri_topo_copy(gpu->module, sizeof gpu->module, info_of(device, "AMDSerial"));
    print_bus(device, gpu->bus, sizeof gpu->bus);
    locate(loader->hwloc, device, &gpu->package, &gpu->numa);
    for (int i = 0; i < 5 && !size; i++) size = info_of(device, sizes[i]);
    gpu->bytes = size ? qdri_topo_bytes(strtoull(size, NULL, 10), 1024) : 0;
    gpu->pci_rate = pci_rate(device);
    return QDR_OK;
}

static int by_bus(const void *a, const void *b)
{
    return strcmp(((const qdr_topo_gpu *)a)->bus, ((const qdr_topo_gpu *)b)->bus);
}

/* ---- adapters ---- */

static int is_network(hwloc_obj_t child)
{
    return child->type == HWLOC_OBJ_OS_DEVICE && child->name &&
           (child->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
            child->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS);
}

/* One for each PCI function; with the name for fast networks, if it has one. */
static qdr_status load_nic(topo_loader *loader, hwloc_obj_t device)
{
    hwloc_obj_t best = NULL;
    qdr_topo_nic *nic;
    double rate = 0;
    for (hwloc_obj_t child = device->io_first_child; child; child = child->next_sibling) {
        if (!is_network(child)) continue;
        if (!best || child->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) best = child;
        if (loader->topo->is_this_machine && rate <= 0) rate = qdri_topo_line_rate(child->name);
    }
    if (!best && device->attr->pcidev.class_id >> 8 != CLASS_NETWORK) return QDR_OK;
    QDR_TRY(qdri_topo_add_nic(loader, best ? best->name : "no driver", &nic));
    nic->rate = rate;
    nic->pci_rate = pci_rate(device);
    print_bus(device, nic->bus, sizeof nic->bus);
    locate(loader->hwloc, device, &nic->package, &nic->numa);
    return QDR_OK;
}

/* ---- matrices ---- */

typedef struct matrix {
    topo_loader *loader;
    const struct hwloc_distances_s *of;
    int n;
} matrix;

static double value_at(const matrix *m, int row, int column)
{
    const double rate = MB_PER_SEC * (double)m->of->values[row * m->n + column];
    return qdri_topo_rate(1e-9 * rate) > 0 ? rate : 0;
}

/* The GPU that is, or contains, an object of a matrix; -1: none. */
static int gpu_at(const matrix *m, int index)
{
    char bus[24];
    hwloc_obj_t object = m->of->objs[index];
    while (object && object->type == HWLOC_OBJ_OS_DEVICE) object = object->parent;
    if (!object || object->type != HWLOC_OBJ_PCI_DEVICE) return -1;
    print_bus(object, bus, sizeof bus);
    return qdri_topo_find_gpu(m->loader->topo, bus);
}

static int is_of_type(const matrix *m, int index, hwloc_obj_type_t type)
{
    return m->of->objs[index] && m->of->objs[index]->type == type;
}

/* The rate between two GPUs through the switches to which both have links; *n_each: the smaller of their numbers of
 * switches. */
static double rate_through_switches(const matrix *m, int a, int b, int *n_each)
{
    double rate = 0;
    int n_a = 0, n_b = 0;
    for (int i = 0; i < m->n; i++) {
        if (!is_of_type(m, i, HWLOC_OBJ_PCI_DEVICE) || gpu_at(m, i) >= 0) continue; /* no switch */
        const double left = value_at(m, a, i), right = value_at(m, b, i);
        rate += left < right ? left : right;
        n_a += left > 0;
        n_b += right > 0;
    }
    *n_each = n_a < n_b ? n_a : n_b;
    return rate;
}

static qdr_status take_nvlink(const matrix *m, int a, int b)
{
    qdr_topo_gpu_link link = {.a = gpu_at(m, a), .b = gpu_at(m, b), .peer = -1};
    int n_switches;
    link.rate = value_at(m, a, b);
    link.link = QDR_LINK_NVLINK;
    link.n_hops = 1;
    if (link.rate > 0) return qdri_topo_set_link(m->loader, &link);
    link.rate = rate_through_switches(m, a, b, &n_switches);
    link.link = QDR_LINK_NVSWITCH;
    /* No switch in common: the switches are connected, but the rate is unknown. */
    link.n_hops = link.rate > 0 ? 2 : 3;
    return n_switches ? qdri_topo_set_link(m->loader, &link) : QDR_OK;
}

static qdr_status take_xgmi(const matrix *m, int a, int b)
{
    const qdr_topo_gpu *gpus = m->loader->topo->lists->gpus;
    qdr_topo_gpu_link link = {
        .a = gpu_at(m, a), .b = gpu_at(m, b), .is_assumed = 1, .peer = -1, .rate = value_at(m, a, b)};
    if (link.rate <= 0) return QDR_OK;
    const int is_module = *gpus[link.a].module && strcmp(gpus[link.a].module, gpus[link.b].module) == 0;
    link.link = is_module ? QDR_LINK_XGMI_MODULE : QDR_LINK_XGMI;
    return qdri_topo_set_link(m->loader, &link);
}

static qdr_status take_hops(const matrix *m, int a, int b)
{
    qdr_topo_gpu_link *link = (qdr_topo_gpu_link *)qdri_topo_find_link(m->loader->topo, gpu_at(m, a), gpu_at(m, b));
    if (link) link->n_hops = (int)m->of->values[a * m->n + b];
    return QDR_OK;
}

/* Of two GPUs, by their numbers in the matrix. */
typedef qdr_status (*pair_taker)(const matrix *m, int a, int b);

static qdr_status take_matrix(topo_loader *loader, const char *name, pair_taker take)
{
    struct hwloc_distances_s *distances = NULL;
    unsigned n = 1;
    if (hwloc_distances_get_by_name(loader->hwloc, name, &n, &distances, 0) != 0 || n < 1)
        return QDR_OK; /* hwloc has no such matrix */
    const matrix m = {loader, distances, (int)distances->nbobjs};
    qdr_status status = QDR_OK;
    for (int a = 0; a < m.n; a++) {
        const int gpu = gpu_at(&m, a);
        for (int b = a + 1; gpu >= 0 && b < m.n && status == QDR_OK; b++)
            if (gpu_at(&m, b) >= 0) status = take(&m, a, b);
        /* NVLink also leads from GPUs to their package. */
        for (int b = 0; gpu >= 0 && b < m.n && take == take_nvlink; b++)
            if (is_of_type(&m, b, HWLOC_OBJ_PACKAGE)) loader->topo->lists->gpus[gpu].host_rate += value_at(&m, a, b);
    }
    hwloc_distances_release(loader->hwloc, distances);
    return status;
}

/* ---- PCI switches ---- */

/* Whether the nearest bridge above both GPUs is a switch rather than the host's. */
static int share_switch(hwloc_topology_t hwloc, const char *bus_a, const char *bus_b)
{
    const hwloc_obj_t a = hwloc_get_pcidev_by_busidstring(hwloc, bus_a);
    const hwloc_obj_t b = hwloc_get_pcidev_by_busidstring(hwloc, bus_b);
    /* hwloc's own function for a common ancestor compares depths, which devices do not have. */
    for (hwloc_obj_t common = a; common; common = common->parent)
        for (hwloc_obj_t above = b; above; above = above->parent)
            if (above == common)
                return above->type == HWLOC_OBJ_BRIDGE && above->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
    return 0;
}

static qdr_status take_switches(topo_loader *loader)
{
    const qdr_topo *topo = loader->topo;
    for (int a = 0; a < topo->n_gpus; a++) {
        for (int b = a + 1; b < topo->n_gpus; b++) {
            const double rate_a = topo->lists->gpus[a].pci_rate, rate_b = topo->lists->gpus[b].pci_rate;
            if (!share_switch(loader->hwloc, topo->lists->gpus[a].bus, topo->lists->gpus[b].bus)) continue;
            const qdr_topo_gpu_link link = {
                .a = a, .b = b, .link = QDR_LINK_PCI, .peer = -1, .rate = rate_a < rate_b ? rate_a : rate_b};
            QDR_TRY(qdri_topo_set_link(loader, &link));
        }
    }
    return QDR_OK;
}

/* ---- all devices ---- */

qdr_status qdri_topo_load_devices(topo_loader *loader)
{
    hwloc_obj_t device = NULL;
    while ((device = hwloc_get_next_pcidev(loader->hwloc, device))) {
        if (compute_name(device) || looks_like_gpu(device))
            QDR_TRY(load_gpu(loader, device));
        else
            QDR_TRY(load_nic(loader, device));
    }
    if (loader->topo->n_gpus > 1)
        qsort(loader->topo->lists->gpus, (size_t)loader->topo->n_gpus, sizeof *loader->topo->lists->gpus, by_bus);
    /* Devices that are not PCI functions: the adapters of some virtual machines. */
    while ((device = hwloc_get_next_osdev(loader->hwloc, device))) {
        qdr_topo_nic *nic;
        if (!is_network(device) || device->parent->type == HWLOC_OBJ_PCI_DEVICE) continue;
        QDR_TRY(qdri_topo_add_nic(loader, device->name, &nic));
        locate(loader->hwloc, device, &nic->package, &nic->numa);
        if (loader->topo->is_this_machine) nic->rate = qdri_topo_line_rate(nic->name);
    }
    QDR_TRY(take_switches(loader));
    QDR_TRY(take_matrix(loader, "XGMIBandwidth", take_xgmi));
    QDR_TRY(take_matrix(loader, "XGMIHops", take_hops));
    return take_matrix(loader, "NVLinkBandwidth", take_nvlink);
}
