/* SPDX-License-Identifier: Apache-2.0 */
/* What fills in a machine: text and numbers as they were recorded, lists of devices and their links. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "topo/machine.h"

void qdri_topo_copy(char *to, size_t capacity, const char *from)
{
    size_t n = 0;
    for (; from && *from && n + 1 < capacity; from++) {
        if (*from == ' ' && (n == 0 || to[n - 1] == ' ')) continue;
        to[n++] = *from;
    }
    while (n > 0 && to[n - 1] == ' ') n--;
    to[n] = '\0';
}

int64_t qdri_topo_bytes(uint64_t n, uint64_t unit)
{
    const uint64_t most = UINT64_C(1) << 48;
    return n <= most / unit ? (int64_t)(n * unit) : 0;
}

double qdri_topo_rate(double gigabytes_per_sec)
{
    return gigabytes_per_sec >= 0 && gigabytes_per_sec < 1e6 ? 1e9 * gigabytes_per_sec : 0;
}

/* ---- lists ---- */

qdr_status qdri_topo_add_gpu(topo_loader *loader, qdr_topo_gpu **gpu)
{
    qdr_topo *topo = loader->topo;
    QDR_TRY(qdri_list_grow((void **)&topo->lists->gpus, topo->n_gpus, &loader->gpu_capacity, sizeof *topo->lists->gpus,
                           "GPUs of a machine"));
    *gpu = &topo->lists->gpus[topo->n_gpus];
    **gpu = (qdr_topo_gpu){.package = -1, .numa = -1};
    snprintf((*gpu)->name, sizeof(*gpu)->name, "gpu%d", topo->n_gpus++);
    return QDR_OK;
}

qdr_status qdri_topo_add_nic(topo_loader *loader, const char *name, qdr_topo_nic **nic)
{
    qdr_topo *topo = loader->topo;
    QDR_TRY(qdri_list_grow((void **)&topo->lists->nics, topo->n_nics, &loader->nic_capacity, sizeof *topo->lists->nics,
                           "adapters of a machine"));
    *nic = &topo->lists->nics[topo->n_nics++];
    **nic = (qdr_topo_nic){.rate = 0};
    qdri_topo_copy((*nic)->name, sizeof(*nic)->name, name);
    return QDR_OK;
}

int qdri_topo_find_gpu(const qdr_topo *topo, const char *bus)
{
    for (int i = 0; i < topo->n_gpus; i++)
        if (strcmp(topo->lists->gpus[i].bus, bus) == 0) return i;
    return -1;
}

static int by_gpus(const void *a, const void *b)
{
    const qdr_topo_gpu_link *left = a, *right = b;
    return left->a != right->a ? left->a - right->a : left->b - right->b;
}

qdr_status qdri_topo_set_link(topo_loader *loader, const qdr_topo_gpu_link *link)
{
    qdr_topo *topo = loader->topo;
    if (link->a < 0 || link->b < 0 || link->a == link->b) return QDR_OK;
    qdr_topo_gpu_link made = *link;
    made.a = link->a < link->b ? link->a : link->b;
    made.b = link->a < link->b ? link->b : link->a;
    qdr_topo_gpu_link *old = (qdr_topo_gpu_link *)qdri_topo_find_link(topo, made.a, made.b);
    if (old) {
        *old = made;
        return QDR_OK;
    }
    QDR_TRY(qdri_list_grow((void **)&topo->lists->gpu_links, topo->n_gpu_links, &loader->link_capacity,
                           sizeof *topo->lists->gpu_links, "links of GPUs"));
    topo->lists->gpu_links[topo->n_gpu_links++] = made;
    qsort(topo->lists->gpu_links, (size_t)topo->n_gpu_links, sizeof *topo->lists->gpu_links, by_gpus);
    return QDR_OK;
}
