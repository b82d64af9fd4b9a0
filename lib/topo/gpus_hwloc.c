/* SPDX-License-Identifier: Apache-2.0 */
/* PCI devices of a machine: those that compute, and network adapters. */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "topo/machine.h"

enum {
    CLASS_DISPLAY = 0x03, /* the upper byte of a PCI class */
    CLASS_NETWORK = 0x02,
    CLASS_VGA = 0x0300,
    VENDOR_AMD = 0x1002,
    VENDOR_INTEL = 0x8086,
    VENDOR_NVIDIA = 0x10de
};

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

static int64_t memory_of(hwloc_obj_t device)
{
    static const char *const keys[] = {"RSMIVRAMSize", "CUDAGlobalMemorySize", "LevelZeroHBMSize", "LevelZeroDDRSize",
                                       "OpenCLGlobalMemorySize"};
    for (int i = 0; i < 5; i++) {
        const char *text = info_of(device, keys[i]);
        if (text) return qdri_topo_bytes(strtoull(text, NULL, 10), 1024);
    }
    return 0;
}

static qdr_status load_gpu(topo_loader *loader, hwloc_obj_t device)
{
    const char *name = compute_name(device), *model = info_of(device, "GPUModel");
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
    gpu->bytes = memory_of(device);
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
    qdr_topo *topo = loader->topo;
    hwloc_obj_t best = NULL;
    double rate = 0;
    for (hwloc_obj_t child = device->io_first_child; child; child = child->next_sibling) {
        if (!is_network(child)) continue;
        if (!best || child->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) best = child;
        if (topo->is_this_machine && rate <= 0) rate = qdri_topo_line_rate(child->name);
    }
    if (!best && device->attr->pcidev.class_id >> 8 != CLASS_NETWORK) return QDR_OK;
    QDR_TRY(qdri_list_grow((void **)&topo->nics, topo->n_nics, &loader->nic_capacity, sizeof *topo->nics,
                           "adapters of a machine"));
    qdr_topo_nic *nic = &topo->nics[topo->n_nics++];
    *nic = (qdr_topo_nic){.rate = rate, .pci_rate = pci_rate(device)};
    qdri_topo_copy(nic->name, sizeof nic->name, best ? best->name : "no driver");
    print_bus(device, nic->bus, sizeof nic->bus);
    locate(loader->hwloc, device, &nic->package, &nic->numa);
    return QDR_OK;
}

/* ---- all devices ---- */

/* Devices that are not PCI functions: the adapters of some virtual machines. */
static qdr_status load_virtual_nics(topo_loader *loader)
{
    qdr_topo *topo = loader->topo;
    hwloc_obj_t device = NULL;
    while ((device = hwloc_get_next_osdev(loader->hwloc, device))) {
        if (!is_network(device) || device->parent->type == HWLOC_OBJ_PCI_DEVICE) continue;
        QDR_TRY(qdri_list_grow((void **)&topo->nics, topo->n_nics, &loader->nic_capacity, sizeof *topo->nics,
                               "adapters of a machine"));
        qdr_topo_nic *nic = &topo->nics[topo->n_nics++];
        *nic = (qdr_topo_nic){0};
        qdri_topo_copy(nic->name, sizeof nic->name, device->name);
        locate(loader->hwloc, device, &nic->package, &nic->numa);
        if (topo->is_this_machine) nic->rate = qdri_topo_line_rate(nic->name);
    }
    return QDR_OK;
}

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
        qsort(loader->topo->gpus, (size_t)loader->topo->n_gpus, sizeof *loader->topo->gpus, by_bus);
    return load_virtual_nics(loader);
}
