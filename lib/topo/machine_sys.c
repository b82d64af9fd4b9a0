/* SPDX-License-Identifier: Apache-2.0 */
/* Reads this machine from /sys, in a build without hwloc: packages, NUMA nodes, caches, cores and adapters. Recorded
 * machines and PCI switches need hwloc. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/size.h"
#include "topo/machine.h"
#include "topo/sys.h"
#include "topo/topo.h"

#define CPU "/sys/devices/system/cpu/cpu%d/"
#define NODES "/sys/devices/system/node/"
enum { MAX_PACKAGES = 256, MAX_NUMAS = 1024, N_CACHE_LEVELS = 5, N_CACHES_OF_CPU = 8 };

typedef struct sys_machine {
    qdr_topo *topo;
    qdri_cpus cpus, cores; /* online CPUs; the first one of each core */
    int package_ids[MAX_PACKAGES]; /* the system's, by index */
    int cpu_package[QDRI_MAX_CPUS], cpu_numa[QDRI_MAX_CPUS], cpu_cache[QDRI_MAX_CPUS];
} sys_machine;

/* ---- parts ---- */

static int package_of(sys_machine *machine, int cpu)
{
    const int id = (int)qdri_sys_number(0, CPU "topology/physical_package_id", cpu);
    const int n = machine->topo->n_packages;
    for (int i = 0; i < n; i++)
        if (machine->package_ids[i] == id) return i;
    if (n == MAX_PACKAGES) return -1;
    machine->package_ids[n] = id;
    return machine->topo->n_packages++;
}

static qdr_status load_packages(sys_machine *machine)
{
    qdr_topo *topo = machine->topo;
    for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++)
        if (machine->cpus.has[cpu]) machine->cpu_package[cpu] = package_of(machine, cpu);
    QDR_TRY(QDRI_NEW(topo->n_packages, "packages of a machine", &topo->packages));
    for (int i = 0; i < topo->n_packages; i++) {
        qdr_topo_package *package = &topo->packages[i];
        QDR_TRY(qdri_topo_cpu_model(package->model, sizeof package->model));
        for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++)
            package->n_cores += machine->cores.has[cpu] && machine->cpu_package[cpu] == i;
    }
    return QDR_OK;
}

/* "Node 0 MemTotal: 5597396 kB"; without such files one node has all memory. */
static int64_t numa_bytes(int os_index, int is_seen)
{
    char line[128];
    const char *value = NULL;
    if (!is_seen) return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (qdri_sys_line(line, sizeof line, NODES "node%d/meminfo", os_index)) value = strstr(line, "MemTotal:");
    return value ? 1024 * strtoll(value + strlen("MemTotal:"), NULL, 10) : 0;
}

static void add_numa(sys_machine *machine, int os_index, int is_seen)
{
    qdr_topo *topo = machine->topo;
    qdr_topo_numa *numa = &topo->numas[topo->n_numas];
    qdri_cpus cpus = machine->cpus;
    if (is_seen) qdri_sys_cpus(&cpus, NODES "node%d/cpulist", os_index);
    *numa = (qdr_topo_numa){.os_index = os_index, .package = -1, .bytes = numa_bytes(os_index, is_seen)};
    for (int cpu = 0, n = 0; cpu < QDRI_MAX_CPUS; cpu++) {
        if (!cpus.has[cpu] || !machine->cpus.has[cpu]) continue;
        const int package = machine->cpu_package[cpu];
        numa->package = n++ == 0 || numa->package == package ? package : -1;
        numa->n_cores += machine->cores.has[cpu];
        machine->cpu_numa[cpu] = topo->n_numas;
    }
    topo->bytes += numa->bytes;
    topo->n_numas++;
}

static qdr_status load_numas(sys_machine *machine)
{
    qdri_cpus numas; /* a list of the same format */
    const int is_seen = qdri_sys_cpus(&numas, NODES "has_memory");
    if (!is_seen) numas.has[0] = 1;
    QDR_TRY(QDRI_NEW(qdri_cpus_count(&numas), "NUMA nodes of a machine", &machine->topo->numas));
    for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++) machine->cpu_numa[cpu] = -1;
    for (int i = 0; i < QDRI_MAX_CPUS; i++)
        if (numas.has[i]) add_numa(machine, i, is_seen);
    return QDR_OK;
}

/* ---- caches ---- */

/* The kernel's index of a CPU's data cache at this level; -1: none. */
static int find_cache(int cpu, int level)
{
    char type[32];
    for (int i = 0; i < N_CACHES_OF_CPU; i++) {
        if ((int)qdri_sys_number(-1, CPU "cache/index%d/level", cpu, i) != level) continue;
        if (!qdri_sys_line(type, sizeof type, CPU "cache/index%d/type", cpu, i)) continue;
        if (strcmp(type, "Instruction") != 0) return i;
    }
    return -1;
}

static qdr_status add_cache(sys_machine *machine, int *capacity, int cpu, int level, int index)
{
    qdr_topo *topo = machine->topo;
    qdri_cpus shared;
    if (!qdri_sys_cpus(&shared, CPU "cache/index%d/shared_cpu_list", cpu, index)) shared.has[cpu] = 1;
    QDR_TRY(
        qdri_list_grow((void **)&topo->caches, topo->n_caches, capacity, sizeof *topo->caches, "caches of a machine"));
    qdr_topo_cache *cache = &topo->caches[topo->n_caches];
    *cache = (qdr_topo_cache){.level = level,
                              .bytes = 1024 * (int64_t)qdri_sys_number(0, CPU "cache/index%d/size", cpu, index)};
    for (int i = 0; i < QDRI_MAX_CPUS; i++) {
        if (shared.has[i]) machine->cpu_cache[i] = topo->n_caches;
        cache->n_cores += shared.has[i] && machine->cores.has[i];
    }
    topo->n_caches++;
    return QDR_OK;
}

/* Level by level, so that the last cache of a CPU is the outermost. */
static qdr_status load_caches(sys_machine *machine)
{
    int capacity = 0;
    for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++) machine->cpu_cache[cpu] = -1;
    for (int level = 1; level <= N_CACHE_LEVELS; level++) {
        const int before = machine->topo->n_caches;
        for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++) {
            if (!machine->cpus.has[cpu] || machine->cpu_cache[cpu] >= before) continue;
            const int index = find_cache(cpu, level);
            if (index >= 0) QDR_TRY(add_cache(machine, &capacity, cpu, level, index));
        }
    }
    return QDR_OK;
}

/* ---- cores ---- */

/* Sorts cores so that neighbours share as much as possible. */
static int by_place(const void *a, const void *b)
{
    const qdr_topo_core *left = a, *right = b;
    if (left->package != right->package) return left->package - right->package;
    if (left->numa != right->numa) return left->numa - right->numa;
    if (left->cache != right->cache) return left->cache - right->cache;
    return left->first_cpu - right->first_cpu;
}

static void find_cpus(sys_machine *machine)
{
    qdri_cpus siblings;
    if (!qdri_sys_cpus(&machine->cpus, "/sys/devices/system/cpu/online")) qdri_sys_bound(&machine->cpus);
    for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++) {
        if (!machine->cpus.has[cpu]) continue;
        qdri_sys_siblings(cpu, &machine->cpus, &siblings);
        machine->cores.has[cpu] = qdri_cpus_first(&siblings) == cpu;
    }
}

static qdr_status load_cores(sys_machine *machine)
{
    qdr_topo *topo = machine->topo;
    qdri_cpus siblings;
    QDR_TRY(QDRI_NEW(qdri_cpus_count(&machine->cores), "cores of a machine", &topo->cores));
    for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++) {
        if (!machine->cores.has[cpu]) continue;
        qdri_sys_siblings(cpu, &machine->cpus, &siblings);
        topo->cores[topo->n_cores++] = (qdr_topo_core){.package = machine->cpu_package[cpu],
                                                       .numa = machine->cpu_numa[cpu],
                                                       .cache = machine->cpu_cache[cpu],
                                                       .n_threads = qdri_cpus_count(&siblings),
                                                       .first_cpu = cpu};
    }
    topo->n_threads = qdri_cpus_count(&machine->cpus);
    qsort(topo->cores, (size_t)topo->n_cores, sizeof *topo->cores, by_place);
    return QDR_OK;
}

/* ---- the other properties ---- */

/* "0-3,8", as much as fits. */
static void print_cpus(const qdri_cpus *cpus, char *text, size_t capacity)
{
    size_t n = 0;
    for (int cpu = 0; cpu < QDRI_MAX_CPUS && n < capacity; cpu++) {
        const int first = cpu;
        if (!cpus->has[cpu]) continue;
        while (cpu + 1 < QDRI_MAX_CPUS && cpus->has[cpu + 1]) cpu++;
        n += (size_t)snprintf(text + n, capacity - n, first == cpu ? "%s%d" : "%s%d-%d", n ? "," : "", first, cpu);
    }
}

static qdr_status load_binding(const sys_machine *machine)
{
    qdr_topo *topo = machine->topo;
    unsigned char *is_used = NULL;
    qdri_cpus bound, siblings;
    qdri_sys_bound(&bound);
    for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++) bound.has[cpu] &= machine->cpus.has[cpu];
    QDR_TRY(QDRI_NEW(topo->n_cores, "a set of cores", &is_used));
    for (int i = 0; i < topo->n_cores; i++) {
        qdri_sys_siblings(topo->cores[i].first_cpu, &machine->cpus, &siblings);
        for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++) is_used[i] |= siblings.has[cpu] & bound.has[cpu];
    }
    qdri_topo_confine(topo, is_used, &topo->here);
    print_cpus(&bound, topo->cpus, sizeof topo->cpus);
    free(is_used);
    return QDR_OK;
}

static void load_names(qdr_topo *topo)
{
    char name[sizeof topo->host] = "";
    topo->is_this_machine = 1;
    qdri_sys_line(topo->product, sizeof topo->product, "/sys/class/dmi/id/product_name");
    if (gethostname(name, sizeof name - 1) == 0) qdri_topo_copy(topo->host, sizeof topo->host, name);
}

/* Fails if another machine was requested. */
static qdr_status check_wishes(const char *xml)
{
    const char *made_up = getenv("HWLOC_SYNTHETIC");
    if (made_up && *made_up)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "topology: HWLOC_SYNTHETIC asks hwloc for another machine, and this build "
                                             "has no hwloc; unset it, or install libhwloc-dev and build again");
    if (!xml) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "topology: %.300s: recorded machines are read by hwloc, and this build has "
                    "none; install libhwloc-dev and build again",
                    xml);
}

qdr_status qdri_topo_load_machine(topo_loader *loader, const char *xml)
{
    sys_machine machine = {.topo = loader->topo};
    QDR_TRY(check_wishes(xml));
    load_names(loader->topo);
    find_cpus(&machine);
    QDR_TRY(load_packages(&machine));
    QDR_TRY(load_numas(&machine));
    QDR_TRY(load_caches(&machine));
    QDR_TRY(load_cores(&machine));
    QDR_TRY(load_binding(&machine));
    return qdri_topo_load_devices(loader);
}
