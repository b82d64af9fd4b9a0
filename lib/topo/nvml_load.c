/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML knows about this machine, in addition to hwloc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "topo/machine.h"
#include "topo/nvml.h"
#include "topo/sys.h"

/* NVML's GPUs, and the corresponding ones of the machine. */
typedef struct nvml_machine {
    const nvml_library *nvml;
    nvml_gpu *gpus;
    int *indices; /* in topo->gpus */
    int n;
} nvml_machine;

/* hwloc knows where a GPU is; NVML knows what it is. */
static qdr_status take_gpu(topo_loader *loader, const nvml_gpu *from, int number, int *index)
{
    *index = *from->bus ? qdri_topo_find_gpu(loader->topo, from->bus) : -1;
    if (*index < 0) {
        qdr_topo_gpu *made;
        QDR_TRY(qdri_topo_add_gpu(loader, &made));
        qdri_topo_copy(made->bus, sizeof made->bus, from->bus);
        qdri_sys_locate(loader->topo, made->bus, &made->package, &made->numa);
        *index = loader->topo->n_gpus - 1;
    }
    qdr_topo_gpu *gpu = &loader->topo->gpus[*index];
    snprintf(gpu->name, sizeof gpu->name, "nvml%d", number);
    if (*from->name) qdri_topo_copy(gpu->model, sizeof gpu->model, from->name);
    if (from->bytes) gpu->bytes = from->bytes;
    return QDR_OK;
}

/* A link to a PCI address without a GPU ends in a switch. */
static void sort_out_switches(nvml_machine *machine)
{
    for (int i = 0; i < machine->n; i++) {
        nvml_gpu *gpu = &machine->gpus[i];
        for (int link = 0; link < QDRI_NVML_LINKS; link++) {
            int is_gpu = 0;
            for (int j = 0; j < machine->n; j++) is_gpu |= strcmp(gpu->remote_bus[link], machine->gpus[j].bus) == 0;
            if (gpu->links[link] == NVML_GPU && !is_gpu) gpu->links[link] = NVML_SWITCH;
        }
    }
}

static int count_links(const nvml_gpu *gpu, nvml_remote what, const char *bus)
{
    int n = 0;
    for (int link = 0; link < QDRI_NVML_LINKS; link++)
        n += gpu->links[link] == what && (!bus || strcmp(gpu->remote_bus[link], bus) == 0);
    return n;
}

/* If hwloc sees no PCI (in some containers), NVML reports the distance of two GPUs. */
static qdr_link link_of_level(int level)
{
    if (level < 0) return QDR_LINK_NONE;
    if (level <= NVML_LEVEL_SWITCH) return QDR_LINK_PCI;
    return level <= NVML_LEVEL_NODE ? QDR_LINK_NUMA : QDR_LINK_NODE;
}

static double smaller(double a, double b) { return a < b ? a : b; }

static qdr_status take_pair(topo_loader *loader, const nvml_machine *machine, int i, int j)
{
    const nvml_gpu *a = &machine->gpus[i], *b = &machine->gpus[j];
    const int index_a = machine->indices[i], index_b = machine->indices[j];
    const qdr_topo_gpu_link *known = qdri_topo_find_link(loader->topo, index_a, index_b);
    qdr_topo_gpu_link link = {.a = index_a, .b = index_b};
    const int n_direct = count_links(a, NVML_GPU, b->bus);
    const int n_a = count_links(a, NVML_SWITCH, NULL), n_b = count_links(b, NVML_SWITCH, NULL);
    if (n_direct) {
        link.link = QDR_LINK_NVLINK;
        link.n_hops = 1;
        link.rate = n_direct * a->link_rate;
    } else if (n_a && n_b) {
        link.link = QDR_LINK_NVSWITCH;
        link.n_hops = 2;
        link.rate = smaller(n_a * a->link_rate, n_b * b->link_rate);
    } else if (known) {
        link = *known;
    } else {
        link.link = link_of_level(qdri_nvml_level(machine->nvml, i, j));
        if (link.link == QDR_LINK_NONE) return QDR_OK;
    }
    link.peer = qdri_nvml_peer(machine->nvml, i, j);
    return qdri_topo_set_link(loader, &link);
}

static qdr_status take_all(topo_loader *loader, nvml_machine *machine)
{
    QDR_TRY(QDRI_NEW(machine->n, "GPUs of NVML", &machine->gpus));
    QDR_TRY(QDRI_NEW(machine->n, "indices of GPUs", &machine->indices));
    for (int i = 0; i < machine->n; i++) {
        qdri_nvml_read(machine->nvml, i, &machine->gpus[i]);
        QDR_TRY(take_gpu(loader, &machine->gpus[i], i, &machine->indices[i]));
    }
    sort_out_switches(machine);
    for (int i = 0; i < machine->n; i++) {
        const nvml_gpu *gpu = &machine->gpus[i];
        loader->topo->gpus[machine->indices[i]].host_rate = gpu->link_rate * count_links(gpu, NVML_HOST, NULL);
        for (int j = i + 1; j < machine->n; j++) QDR_TRY(take_pair(loader, machine, i, j));
    }
    return QDR_OK;
}

qdr_status qdri_topo_load_nvml(topo_loader *loader)
{
    qdr_topo *topo = loader->topo;
    nvml_machine machine = {0};
    if (!topo->is_this_machine) {
        snprintf(topo->gpu_source, sizeof topo->gpu_source, "as hwloc recorded them");
        return QDR_OK;
    }
    nvml_library *nvml = qdri_nvml_open(topo->gpu_source, sizeof topo->gpu_source);
    if (!nvml) return QDR_OK;
    machine.nvml = nvml;
    machine.n = qdri_nvml_count(nvml);
    const qdr_status status = take_all(loader, &machine);
    free(machine.gpus);
    free(machine.indices);
    qdri_nvml_close(nvml);
    return status;
}
