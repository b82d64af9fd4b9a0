/* SPDX-License-Identifier: Apache-2.0 */
/* Assembles a machine: from hwloc (machine_hwloc.c; without it machine_flat.c) and NVML. */
#include "topo/machine.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/size.h"

qdr_status qdr_topo_load(const qdr_topo_opts *opts, qdr_topo **topo)
{
    if (!topo) return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: the result pointer is NULL");
    *topo = NULL;
    if (opts && opts->version != QDR_OPTS_INIT)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: options of version %u; begin with QDR_OPTS_INIT", opts->version);
    const char *xml = opts && opts->xml ? opts->xml : getenv("HWLOC_XMLFILE");
    topo_loader loader = {0};
    if (xml && !*xml && !(opts && opts->xml)) xml = NULL; /* as hwloc does */
    QDR_TRY(QDRI_NEW(1, "a machine", &loader.topo));
    qdr_status status = qdri_topo_load_machine(&loader, xml);
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
    free((*topo)->packages);
    free((*topo)->numas);
    free((*topo)->caches);
    free((*topo)->cores);
    free((*topo)->gpus);
    free((*topo)->gpu_links);
    free((*topo)->nics);
    free(*topo);
    *topo = NULL;
}
