/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a machine with hwloc: this one, or one recorded as XML. */
#include <hwloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/input.h"
#include "core/size.h"
#include "topo/machine.h"
#include "topo/topo.h"

enum { MOST_XML_BYTES = 256 << 20 };
static const hwloc_obj_type_t cache_types[] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE,
                                               HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L5CACHE};
enum { N_CACHE_TYPES = sizeof cache_types / sizeof *cache_types };

/* ---- opening ---- */

static qdr_status begin(hwloc_topology_t *hwloc)
{
    if (hwloc_topology_init(hwloc) == 0) return QDR_OK;
    *hwloc = NULL;
    return QDR_FAIL(QDR_ERR_MEMORY, "topology: hwloc could not be initialised; has memory run out?");
}

/* Ranks that are threads load at the same time, but libudev, which tells hwloc about disks and networks, does not lock
 * what it prepares when it is first used. @return 0: loaded */
static int load(hwloc_topology_t hwloc)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    const int result = hwloc_topology_load(hwloc);
    pthread_mutex_unlock(&mutex);
    return result;
}

/* Loads a recorded machine. hwloc would read the file without limits of size and time, also when HWLOC_XMLFILE names
 * it; it does not report what is wrong with a file either, and may read this machine instead. */
static qdr_status load_xml(hwloc_topology_t hwloc, const char *path)
{
    char *text;
    size_t bytes;
    if (qdr_input_read(path, MOST_XML_BYTES, &text, &bytes) != QDR_OK) {
        char why[QDRI_ERROR_BYTES];
        snprintf(why, sizeof why, "%s", qdr_last_error());
        return QDR_FAIL(QDR_ERR_IO, "topology: %s", why);
    }
    /* hwloc counts the zero byte at the end. */
    const int is_loaded = bytes && hwloc_topology_set_xmlbuffer(hwloc, text, (int)bytes + 1) == 0 && load(hwloc) == 0;
    free(text);
    if (is_loaded) return QDR_OK;
    if (!bytes)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: %.300s is empty; write one with 'lstopo FILE.xml' there", path);
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "topology: %.300s is not a machine that hwloc %s can read; write one with "
                    "'lstopo FILE.xml' there (lstopo --export-xml-flags v2 with hwloc 3)",
                    path, qdri_topo_hwloc_version());
}

static qdr_status open_machine(const char *xml, topo_loader *loader)
{
    hwloc_topology_t hwloc;
    QDR_TRY(begin(&hwloc));
    loader->hwloc = hwloc;
    hwloc_topology_set_all_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_icache_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (xml) {
        QDR_TRY(load_xml(hwloc, xml));
        if (!hwloc_topology_is_thissystem(hwloc)) return QDR_OK;
        return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: hwloc treats %.300s as this machine; unset HWLOC_THISSYSTEM", xml);
    }
    if (load(hwloc) != 0) return QDR_FAIL(QDR_ERR_UNSUPPORTED, "topology: hwloc could not read this machine");
    loader->topo->is_this_machine = hwloc_topology_is_thissystem(hwloc);
    return QDR_OK;
}

/* Opens only cores and packages; *hwloc must be destroyed, also after an error, unless it is NULL. */
static qdr_status open_cores(hwloc_topology_t *hwloc)
{
    QDR_TRY(begin(hwloc));
    hwloc_topology_set_all_types_filter(*hwloc, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(*hwloc, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(*hwloc, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    const char *xml = getenv("HWLOC_XMLFILE");
    if (xml && *xml) return load_xml(*hwloc, xml);
    if (load(*hwloc) == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "topology: hwloc could not read this machine; set "
                                         "the number of threads in the options");
}

/* ---- lists ---- */

/* Number of objects of a type, at all depths; hwloc has caches and groups at several. */
static int count_of(hwloc_topology_t hwloc, hwloc_obj_type_t type)
{
    const int n = hwloc_get_nbobjs_by_type(hwloc, type);
    return n > 0 ? n : 0;
}

/* Some virtual machines show hardware threads only. */
static hwloc_obj_type_t core_type(hwloc_topology_t hwloc)
{
    return count_of(hwloc, HWLOC_OBJ_CORE) ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

/* Index of the only package that contains the set; -1: none does. */
static int package_of(hwloc_topology_t hwloc, hwloc_const_bitmap_t cpus)
{
    if (!cpus || hwloc_bitmap_iszero(cpus)) return -1;
    for (int i = 0; i < count_of(hwloc, HWLOC_OBJ_PACKAGE); i++) {
        const hwloc_obj_t package = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_PACKAGE, (unsigned)i);
        if (hwloc_bitmap_isincluded(cpus, package->cpuset)) return i;
    }
    return -1;
}

static int cores_in(hwloc_topology_t hwloc, hwloc_const_bitmap_t cpus)
{
    const int n = cpus ? hwloc_get_nbobjs_inside_cpuset_by_type(hwloc, cpus, core_type(hwloc)) : 0;
    return n > 0 ? n : 0; /* -1: at several depths */
}

/* hwloc stores the processor's name with the package, or with the machine if it shows no package; NULL: unknown. */
static const char *model_of(hwloc_topology_t hwloc, hwloc_obj_t package)
{
    const char *name = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    return name ? name : hwloc_obj_get_info_by_name(hwloc_get_root_obj(hwloc), "CPUModel");
}

/* Packages, NUMA nodes and caches. */
static qdr_status load_parts(hwloc_topology_t hwloc, qdr_topo *topo)
{
    int n = count_of(hwloc, HWLOC_OBJ_PACKAGE);
    QDR_TRY(QDRI_NEW(n, "packages of a machine", &topo->lists->packages));
    for (; topo->n_packages < n; topo->n_packages++) {
        const hwloc_obj_t object = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_PACKAGE, (unsigned)topo->n_packages);
        qdr_topo_package *package = &topo->lists->packages[topo->n_packages];
        package->n_cores = cores_in(hwloc, object->cpuset);
        qdri_topo_copy(package->model, sizeof package->model, model_of(hwloc, object));
    }
    n = count_of(hwloc, HWLOC_OBJ_NUMANODE);
    QDR_TRY(QDRI_NEW(n, "NUMA nodes of a machine", &topo->lists->numas));
    for (; topo->n_numas < n; topo->n_numas++) {
        const hwloc_obj_t object = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, (unsigned)topo->n_numas);
        qdr_topo_numa *numa = &topo->lists->numas[topo->n_numas];
        numa->os_index = (int)object->os_index;
        numa->package = package_of(hwloc, object->cpuset);
        numa->n_cores = cores_in(hwloc, object->cpuset);
        numa->bytes = qdri_topo_bytes(object->attr->numanode.local_memory, 1);
        topo->bytes += numa->bytes;
    }
    n = 0;
    for (int i = 0; i < N_CACHE_TYPES; i++) n += count_of(hwloc, cache_types[i]);
    QDR_TRY(QDRI_NEW(n, "caches of a machine", &topo->lists->caches));
    for (int i = 0; i < N_CACHE_TYPES; i++) {
        for (int j = 0; j < count_of(hwloc, cache_types[i]); j++) {
            const hwloc_obj_t object = hwloc_get_obj_by_type(hwloc, cache_types[i], (unsigned)j);
            topo->lists->caches[topo->n_caches++] = (qdr_topo_cache){
                .level = i + 1,
                .n_cores = cores_in(hwloc, object->cpuset),
                .bytes = qdri_topo_bytes(object->attr->cache.size, 1),
            };
        }
    }
    return QDR_OK;
}

/* Index in topo->lists->caches of the outermost cache above an object; -1: none. */
static int outer_cache(hwloc_topology_t hwloc, hwloc_obj_t object)
{
    int found = -1, before = 0;
    for (int i = 0; i < N_CACHE_TYPES; i++) {
        const hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(hwloc, cache_types[i], object);
        const int n = count_of(hwloc, cache_types[i]); /* 0 also where a damaged file has the type on several levels */
        if (cache && (int)cache->logical_index < n) found = before + (int)cache->logical_index;
        before += n;
    }
    return found;
}

/* The nearest memory: the first that is local to the object. */
static int numa_of(hwloc_topology_t hwloc, hwloc_obj_t object)
{
    for (int i = 0; object->nodeset && i < count_of(hwloc, HWLOC_OBJ_NUMANODE); i++) {
        const hwloc_obj_t numa = hwloc_get_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, (unsigned)i);
        if (hwloc_bitmap_isset(object->nodeset, numa->os_index) &&
            hwloc_bitmap_isincluded(object->cpuset, numa->cpuset))
            return i;
    }
    return -1;
}

static qdr_status load_cores(hwloc_topology_t hwloc, qdr_topo *topo)
{
    const hwloc_obj_type_t type = core_type(hwloc);
    const int n = count_of(hwloc, type);
    QDR_TRY(QDRI_NEW(n, "cores of a machine", &topo->lists->cores));
    for (int i = 0; i < n; i++) {
        const hwloc_obj_t object = hwloc_get_obj_by_type(hwloc, type, (unsigned)i);
        const int n_threads = hwloc_bitmap_weight(object->cpuset);
        if (n_threads <= 0) continue; /* a damaged file: none, or the full set */
        topo->lists->cores[topo->n_cores++] = (qdr_topo_core){
            .package = package_of(hwloc, object->cpuset),
            .numa = numa_of(hwloc, object),
            .cache = outer_cache(hwloc, object),
            .n_threads = n_threads,
            .first_cpu = hwloc_bitmap_first(object->cpuset),
        };
        topo->n_threads += n_threads;
    }
    return QDR_OK;
}

/* ---- the other properties ---- */

static void load_names(hwloc_topology_t hwloc, qdr_topo *topo)
{
    const hwloc_obj_t root = hwloc_get_root_obj(hwloc);
    const char *product = hwloc_obj_get_info_by_name(root, "DMIProductName");
    if (!product) product = hwloc_obj_get_info_by_name(root, "PlatformModel");
    qdri_topo_copy(topo->product, sizeof topo->product, product);
    qdri_topo_copy(topo->host, sizeof topo->host, hwloc_obj_get_info_by_name(root, "HostName"));
}

static qdr_status load_binding(hwloc_topology_t hwloc, qdr_topo *topo)
{
    unsigned char *is_used = NULL;
    topo->here = (qdr_topo_place){0, -1, -1, -1, -1, -1};
    if (!topo->is_this_machine) return QDR_OK;
    QDR_TRY(QDRI_NEW(topo->n_cores, "a set of cores", &is_used));
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (cpus && hwloc_get_cpubind(hwloc, cpus, HWLOC_CPUBIND_THREAD) == 0) {
        const hwloc_obj_type_t type = core_type(hwloc);
        hwloc_bitmap_and(cpus, cpus, hwloc_topology_get_topology_cpuset(hwloc));
        for (int i = 0; i < topo->n_cores; i++)
            is_used[i] = (unsigned char)hwloc_bitmap_intersects(hwloc_get_obj_by_type(hwloc, type, (unsigned)i)->cpuset,
                                                                cpus);
        qdri_topo_confine(topo, is_used, &topo->here);
        hwloc_bitmap_list_snprintf(topo->cpus, sizeof topo->cpus, cpus);
    }
    hwloc_bitmap_free(cpus);
    free(is_used);
    return QDR_OK;
}

qdr_status qdri_topo_load_machine(topo_loader *loader, const char *xml)
{
    qdr_topo *topo = loader->topo;
    qdr_status status = open_machine(xml, loader);
    if (status == QDR_OK) load_names(loader->hwloc, topo);
    if (status == QDR_OK) status = load_parts(loader->hwloc, topo);
    if (status == QDR_OK) status = load_cores(loader->hwloc, topo);
    if (status == QDR_OK) status = load_binding(loader->hwloc, topo);
    if (status == QDR_OK) status = qdri_topo_load_devices(loader);
    if (loader->hwloc) hwloc_topology_destroy(loader->hwloc);
    loader->hwloc = NULL;
    return status;
}

/* ---- only the cores ---- */

qdr_status qdri_topo_cores(int *n_cores)
{
    hwloc_topology_t hwloc = NULL;
    *n_cores = 0;
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (!bound) return QDR_FAIL(QDR_ERR_MEMORY, "topology: out of memory for a set of cores; free some");
    const qdr_status status = open_cores(&hwloc);
    if (status == QDR_OK) {
        /* Cores with at least one hardware thread in the process's binding. */
        const hwloc_obj_type_t type = core_type(hwloc);
        int n = 0;
        if (hwloc_get_cpubind(hwloc, bound, HWLOC_CPUBIND_PROCESS) != 0) hwloc_bitmap_fill(bound);
        for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(hwloc, type, core)) != NULL;)
            n += hwloc_bitmap_intersects(core->cpuset, bound);
        *n_cores = qdri_topo_cores_by_share(n);
    }
    if (hwloc) hwloc_topology_destroy(hwloc);
    hwloc_bitmap_free(bound);
    return status;
}

qdr_status qdri_topo_cpu_model(char *text, size_t capacity)
{
    hwloc_topology_t hwloc = NULL;
    *text = '\0';
    const qdr_status status = open_cores(&hwloc);
    if (status == QDR_OK) {
        const char *name = model_of(hwloc, hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_PACKAGE, NULL));
        snprintf(text, capacity, "%s", name ? name : "");
    }
    if (hwloc) hwloc_topology_destroy(hwloc);
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
