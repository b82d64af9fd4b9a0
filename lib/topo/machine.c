/* SPDX-License-Identifier: Apache-2.0 */
/* Assembles a machine: from hwloc (machine_hwloc.c; without it machine_flat.c) and NVML. */
#include "topo/machine.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/size.h"
#include "core/sized.h"

qdr_status qdr_topo_load(const qdr_topo_opts *given, qdr_topo **topo)
{
    qdr_topo_opts opts = {QDR_INIT(qdr_topo_opts)};
    QDR_TRY(QDRI_CLEAR_POINTER("topology", topo));
    if (given) QDR_TRY(QDRI_TAKE(qdr_topo_opts, given, &opts));
    const char *xml = opts.xml ? opts.xml : getenv("HWLOC_XMLFILE");
    topo_loader loader = {0};
    if (xml && !*xml && !opts.xml) xml = NULL; /* as hwloc does */
    QDR_TRY(QDRI_NEW(1, "a machine", &loader.topo));
    loader.topo->size = sizeof *loader.topo;
    qdr_status status = QDRI_NEW(1, "a machine", &loader.topo->lists);
    if (status == QDR_OK) status = qdri_topo_load_machine(&loader, xml);
    char name[sizeof loader.topo->host] = "";
    if (loader.topo->is_this_machine && gethostname(name, sizeof name - 1) == 0)
        qdri_topo_copy(loader.topo->host, sizeof name, name);
    if (status == QDR_OK) status = qdri_topo_load_nvml(&loader);
    if (status != QDR_OK) qdr_topo_destroy(&loader.topo);
    *topo = loader.topo;
    return status;
}

void qdr_topo_destroy(qdr_topo **topo)
{
    if (!topo || !*topo) return;
    struct qdr_topo_lists *lists = (*topo)->lists;
    if (lists) {
        free(lists->packages);
        free(lists->numas);
        free(lists->caches);
        free(lists->cores);
        free(lists->gpus);
        free(lists->gpu_links);
        free(lists->nics);
    }
    free(lists);
    free(*topo);
    *topo = NULL;
}

/* ---- its parts ---- */

#define PART(part, parts)                                                                                              \
    const qdr_topo_##part *qdr_topo_##part##_at(const qdr_topo *topo, int index)                                       \
    {                                                                                                                  \
        return topo && index >= 0 && index < topo->n_##parts ? &topo->lists->parts[index] : NULL;                      \
    }
PART(package, packages)
PART(numa, numas)
PART(cache, caches)
PART(core, cores)
PART(gpu, gpus)
PART(gpu_link, gpu_links)
PART(nic, nics)
