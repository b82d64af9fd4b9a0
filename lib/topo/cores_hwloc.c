/* SPDX-License-Identifier: Apache-2.0 */
/* The cores that this process may use, and the processor's name, according to hwloc. */
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "topo/topo.h"
#include "topo/xml_hwloc.h"

/* Cores with at least one hardware thread in the process's binding. */
static int cores_by_binding(hwloc_topology_t topology, hwloc_bitmap_t bound)
{
    int n_cores = 0;
    if (hwloc_get_cpubind(topology, bound, HWLOC_CPUBIND_PROCESS) != 0) hwloc_bitmap_fill(bound);
    hwloc_obj_t core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, NULL);
    const int has_cores = core != NULL; /* some virtual machines show hardware threads only */
    const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    if (!has_cores) core = hwloc_get_next_obj_by_type(topology, type, NULL);
    for (; core; core = hwloc_get_next_obj_by_type(topology, type, core)) {
        n_cores += hwloc_bitmap_intersects(core->cpuset, bound);
    }
    return n_cores;
}

static qdr_status topology_load(hwloc_topology_t *topology)
{
    if (hwloc_topology_init(topology) != 0) {
        *topology = NULL;
        return QDR_FAIL(QDR_ERR_MEMORY, "topology: hwloc could not be initialised; has memory run out?");
    }
    hwloc_topology_set_all_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    const char *xml = getenv("HWLOC_XMLFILE");
    if (xml && *xml) return qdri_topo_load_xml(*topology, xml);
    if (hwloc_topology_load(*topology) != 0) {
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "topology: hwloc could not read this machine; set "
                                             "the number of threads in the options");
    }
    return QDR_OK;
}

qdr_status qdri_topo_cores(int *n_cores)
{
    hwloc_topology_t topology = NULL;
    *n_cores = 0;
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    qdr_status status = QDR_OK;
    if (!bound) return QDR_FAIL(QDR_ERR_MEMORY, "topology: out of memory for a set of cores");
    QDR_TRY_OUT(status, topology_load(&topology));
    const int n_bound = qdri_topo_cores_by_share(cores_by_binding(topology, bound));
    *n_cores = n_bound > 1 ? n_bound : 1;
out:
    if (topology) hwloc_topology_destroy(topology);
    hwloc_bitmap_free(bound);
    return status;
}

/* hwloc stores the name with the package, or with the machine if it shows no package. */
static const char *model_of(hwloc_topology_t topology)
{
    hwloc_obj_t package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, NULL);
    const char *name = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    if (!name) name = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topology), "CPUModel");
    return name ? name : "";
}

qdr_status qdri_topo_cpu_model(char *text, size_t capacity)
{
    hwloc_topology_t topology = NULL;
    *text = '\0';
    const qdr_status status = topology_load(&topology);
    if (status == QDR_OK) snprintf(text, capacity, "%s", model_of(topology));
    if (topology) hwloc_topology_destroy(topology);
    return status;
}

const char *qdri_topo_hwloc_version(void)
{
    static _Thread_local char text[24];
    const unsigned api = hwloc_get_api_version();
    hwloc_topology_t topology = NULL;
    snprintf(text, sizeof text, "%u.%u", api >> 16, (api >> 8) & 255u);
    if (hwloc_topology_init(&topology) != 0) return text;
    /* Only a loaded topology states the library's release; the API version is often older. */
    if (hwloc_topology_set_synthetic(topology, "pu:1") == 0 && hwloc_topology_load(topology) == 0) {
        const char *release = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topology), "hwlocVersion");
        if (release) snprintf(text, sizeof text, "%s", release);
    }
    hwloc_topology_destroy(topology);
    return text;
}
