/* SPDX-License-Identifier: Apache-2.0 */
/* Network adapters, in a build without hwloc. GPUs are found by NVML only. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "topo/machine.h"
#include "topo/sys.h"

static int is_bus(const char *part)
{
    unsigned domain, bus, device, function;
    int n = 0;
    return sscanf(part, "%4x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &n) == 4 && n == 12;
}

/* The last PCI device on the path to it; "": none. */
static void find_bus(const char *link, char bus[24])
{
    char *path = realpath(link, NULL), *rest = NULL;
    *bus = '\0';
    if (!path) return;
    for (const char *part = strtok_r(path, "/", &rest); part; part = strtok_r(NULL, "/", &rest))
        if (is_bus(part)) snprintf(bus, 24, "%.12s", part);
    free(path);
}

static int is_known(const qdr_topo *topo, const char *bus)
{
    for (int i = 0; i < topo->n_nics; i++)
        if (*bus && strcmp(topo->nics[i].bus, bus) == 0) return 1;
    return 0;
}

static qdr_status add_nic(topo_loader *loader, const char *name, const char *bus)
{
    qdr_topo *topo = loader->topo;
    QDR_TRY(qdri_list_grow((void **)&topo->nics, topo->n_nics, &loader->nic_capacity, sizeof *topo->nics,
                           "adapters of a machine"));
    qdr_topo_nic *nic = &topo->nics[topo->n_nics++];
    *nic = (qdr_topo_nic){.rate = qdri_topo_line_rate(name)};
    qdri_topo_copy(nic->name, sizeof nic->name, name);
    qdri_topo_copy(nic->bus, sizeof nic->bus, bus);
    qdri_sys_locate(topo, bus, &nic->package, &nic->numa);
    return QDR_OK;
}

/* Loads the entries that have a device; one for each PCI function. */
static qdr_status load_class(topo_loader *loader, const char *class_path)
{
    DIR *folder = opendir(class_path);
    qdr_status status = QDR_OK;
    if (!folder) return QDR_OK;
    for (const struct dirent *entry = readdir(folder); entry && status == QDR_OK; entry = readdir(folder)) {
        char link[512], bus[24];
        if (entry->d_name[0] == '.') continue;
        snprintf(link, sizeof link, "%s/%s/device", class_path, entry->d_name);
        find_bus(link, bus);
        if (*bus && !is_known(loader->topo, bus)) status = add_nic(loader, entry->d_name, bus);
    }
    closedir(folder);
    return status;
}

/* Names for fast networks come first, and are kept. */
qdr_status qdri_topo_load_devices(topo_loader *loader)
{
    QDR_TRY(load_class(loader, "/sys/class/infiniband"));
    return load_class(loader, "/sys/class/net");
}
