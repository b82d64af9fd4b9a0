/* SPDX-License-Identifier: Apache-2.0 */
/* Reads this machine from /sys, in a build without hwloc: packages, NUMA nodes, caches, cores and adapters. Recorded
 * machines and PCI switches need hwloc. */
#define _GNU_SOURCE 1 /* sched_getaffinity, realpath */
#include <dirent.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/size.h"
#include "topo/machine.h"
#include "topo/topo.h"

#define CPU "/sys/devices/system/cpu/cpu%d/"
#define NODES "/sys/devices/system/node/"
enum { MAX_CPUS = 4096, MAX_PACKAGES = 256, N_CACHE_LEVELS = 5, N_CACHES_OF_CPU = 8 };

/* Hardware threads. */
typedef struct cpu_list {
    unsigned char has[MAX_CPUS];
} cpu_list;

typedef struct sys_machine {
    qdr_topo *topo;
    cpu_list cpus, cores; /* online CPUs; the first one of each core */
    int package_ids[MAX_PACKAGES]; /* the system's, by index */
    int cpu_package[MAX_CPUS], cpu_numa[MAX_CPUS], cpu_cache[MAX_CPUS];
} sys_machine;

/* ---- hardware threads ---- */

/* Reads "0-3,8" from the file named by the format; 0: no such file, the set is empty. */
static __attribute__((format(printf, 2, 3))) int read_cpus(cpu_list *cpus, const char *format, ...)
{
    char path[256], text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    *cpus = (cpu_list){{0}};
    if (!qdri_sys_line(text, sizeof text, "%s", path)) return 0;
    for (char *at = text, *end = NULL; *at; at = *end == ',' ? end + 1 : end) {
        const long first = strtol(at, &end, 10);
        if (end == at) break;
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long cpu = first < 0 ? 0 : first; cpu <= last && cpu < MAX_CPUS; cpu++) cpus->has[cpu] = 1;
    }
    return 1;
}

/* -1: none */
static int first_of(const cpu_list *cpus)
{
    for (int cpu = 0; cpu < MAX_CPUS; cpu++)
        if (cpus->has[cpu]) return cpu;
    return -1;
}

static int count_of(const cpu_list *cpus)
{
    int n = 0;
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) n += cpus->has[cpu];
    return n;
}

/* The hardware threads of the core that contains `cpu`, restricted to `all`. */
static void find_siblings(int cpu, const cpu_list *all, cpu_list *siblings)
{
    read_cpus(siblings, CPU "topology/thread_siblings_list", cpu);
    for (int i = 0; i < MAX_CPUS; i++) siblings->has[i] &= all->has[i];
    siblings->has[cpu] = 1;
}

/* The hardware threads on which the calling thread may run; all, if the system does not report them. */
static void find_bound(cpu_list *cpus)
{
    const long n_online = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    cpu_set_t *set = CPU_ALLOC(MAX_CPUS);
    const int is_known = set && sched_getaffinity(0, bytes, set) == 0;
    for (size_t cpu = 0; cpu < MAX_CPUS; cpu++)
        cpus->has[cpu] = is_known ? CPU_ISSET_S(cpu, bytes, set) != 0 : (long)cpu < n_online;
    CPU_FREE(set);
}

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
    for (int cpu = 0; cpu < MAX_CPUS; cpu++)
        if (machine->cpus.has[cpu]) machine->cpu_package[cpu] = package_of(machine, cpu);
    QDR_TRY(QDRI_NEW(topo->n_packages, "packages of a machine", &topo->packages));
    for (int i = 0; i < topo->n_packages; i++) {
        qdr_topo_package *package = &topo->packages[i];
        QDR_TRY(qdri_topo_cpu_model(package->model, sizeof package->model));
        for (int cpu = 0; cpu < MAX_CPUS; cpu++)
            package->n_cores += machine->cores.has[cpu] && machine->cpu_package[cpu] == i;
    }
    return QDR_OK;
}

static void add_numa(sys_machine *machine, int os_index, int is_seen)
{
    qdr_topo *topo = machine->topo;
    qdr_topo_numa *numa = &topo->numas[topo->n_numas];
    cpu_list cpus = machine->cpus;
    char line[128];
    *numa = (qdr_topo_numa){.os_index = os_index, .package = -1};
    if (is_seen) { /* "Node 0 MemTotal: 5597396 kB"; without such files one node has all memory. */
        const char *value = NULL;
        read_cpus(&cpus, NODES "node%d/cpulist", os_index);
        if (qdri_sys_line(line, sizeof line, NODES "node%d/meminfo", os_index)) value = strstr(line, "MemTotal:");
        numa->bytes = value ? 1024 * strtoll(value + strlen("MemTotal:"), NULL, 10) : 0;
    } else {
        numa->bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    }
    for (int cpu = 0, n = 0; cpu < MAX_CPUS; cpu++) {
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
    cpu_list numas; /* a list of the same format */
    const int is_seen = read_cpus(&numas, NODES "has_memory");
    if (!is_seen) numas.has[0] = 1;
    QDR_TRY(QDRI_NEW(count_of(&numas), "NUMA nodes of a machine", &machine->topo->numas));
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) machine->cpu_numa[cpu] = -1;
    for (int i = 0; i < MAX_CPUS; i++)
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
    cpu_list shared;
    if (!read_cpus(&shared, CPU "cache/index%d/shared_cpu_list", cpu, index)) shared.has[cpu] = 1;
    QDR_TRY(
        qdri_list_grow((void **)&topo->caches, topo->n_caches, capacity, sizeof *topo->caches, "caches of a machine"));
    qdr_topo_cache *cache = &topo->caches[topo->n_caches];
    *cache = (qdr_topo_cache){.level = level,
                              .bytes = 1024 * (int64_t)qdri_sys_number(0, CPU "cache/index%d/size", cpu, index)};
    for (int i = 0; i < MAX_CPUS; i++) {
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
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) machine->cpu_cache[cpu] = -1;
    for (int level = 1; level <= N_CACHE_LEVELS; level++) {
        const int before = machine->topo->n_caches;
        for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
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

static qdr_status load_cores(sys_machine *machine)
{
    qdr_topo *topo = machine->topo;
    cpu_list siblings;
    QDR_TRY(QDRI_NEW(count_of(&machine->cores), "cores of a machine", &topo->cores));
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
        if (!machine->cores.has[cpu]) continue;
        find_siblings(cpu, &machine->cpus, &siblings);
        topo->cores[topo->n_cores++] = (qdr_topo_core){.package = machine->cpu_package[cpu],
                                                       .numa = machine->cpu_numa[cpu],
                                                       .cache = machine->cpu_cache[cpu],
                                                       .n_threads = count_of(&siblings),
                                                       .first_cpu = cpu};
    }
    topo->n_threads = count_of(&machine->cpus);
    qsort(topo->cores, (size_t)topo->n_cores, sizeof *topo->cores, by_place);
    return QDR_OK;
}

/* ---- adapters ---- */

/* The last PCI device on the path to it; "": none. */
static void find_bus(const char *link, char bus[24])
{
    char *path = realpath(link, NULL), *rest = NULL;
    *bus = '\0';
    if (!path) return;
    for (const char *part = strtok_r(path, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
        unsigned domain, number, device, function;
        int n = 0;
        if (sscanf(part, "%4x:%2x:%2x.%1x%n", &domain, &number, &device, &function, &n) == 4 && n == 12)
            snprintf(bus, 24, "%.12s", part);
    }
    free(path);
}

/* Loads the entries that have a device; one for each PCI function. */
static qdr_status load_class(topo_loader *loader, const char *class_path)
{
    DIR *folder = opendir(class_path);
    qdr_status status = QDR_OK;
    if (!folder) return QDR_OK;
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        char link[512], bus[24];
        qdr_topo_nic *nic;
        if (entry->d_name[0] == '.') continue;
        snprintf(link, sizeof link, "%s/%s/device", class_path, entry->d_name);
        find_bus(link, bus);
        int is_known = 0;
        for (int i = 0; i < loader->topo->n_nics; i++) is_known |= strcmp(loader->topo->nics[i].bus, bus) == 0;
        if (!*bus || is_known) continue;
        status = qdri_topo_add_nic(loader, entry->d_name, &nic);
        if (status != QDR_OK) break;
        nic->rate = qdri_topo_line_rate(entry->d_name);
        qdri_topo_copy(nic->bus, sizeof nic->bus, bus);
        qdri_sys_locate(loader->topo, bus, &nic->package, &nic->numa);
    }
    closedir(folder);
    return status;
}

/* ---- the other properties ---- */

static qdr_status load_binding(const sys_machine *machine)
{
    qdr_topo *topo = machine->topo;
    unsigned char *is_used = NULL;
    cpu_list bound, siblings;
    find_bound(&bound);
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) bound.has[cpu] &= machine->cpus.has[cpu];
    QDR_TRY(QDRI_NEW(topo->n_cores, "a set of cores", &is_used));
    for (int i = 0; i < topo->n_cores; i++) {
        find_siblings(topo->cores[i].first_cpu, &machine->cpus, &siblings);
        for (int cpu = 0; cpu < MAX_CPUS; cpu++) is_used[i] |= siblings.has[cpu] & bound.has[cpu];
    }
    qdri_topo_confine(topo, is_used, &topo->here);
    free(is_used);
    size_t n = 0; /* "0-3,8", as much as fits */
    for (int cpu = 0; cpu < MAX_CPUS && n < sizeof topo->cpus; cpu++) {
        const int first = cpu;
        if (!bound.has[cpu]) continue;
        while (cpu + 1 < MAX_CPUS && bound.has[cpu + 1]) cpu++;
        n += (size_t)snprintf(topo->cpus + n, sizeof topo->cpus - n, first == cpu ? "%s%d" : "%s%d-%d", n ? "," : "",
                              first, cpu);
    }
    return QDR_OK;
}

qdr_status qdri_topo_load_machine(topo_loader *loader, const char *xml)
{
    qdr_topo *topo = loader->topo;
    sys_machine machine = {.topo = topo};
    cpu_list siblings;
    const char *made_up = getenv("HWLOC_SYNTHETIC");
    if (made_up && *made_up)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "topology: HWLOC_SYNTHETIC asks hwloc for another machine, and this build "
                                             "has no hwloc; unset it, or install libhwloc-dev and build again");
    if (xml)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "topology: %.300s: recorded machines are read by hwloc, and this build has "
                        "none; install libhwloc-dev and build again",
                        xml);
    topo->is_this_machine = 1;
    qdri_sys_line(topo->product, sizeof topo->product, "/sys/class/dmi/id/product_name");
    if (!read_cpus(&machine.cpus, "/sys/devices/system/cpu/online")) find_bound(&machine.cpus);
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
        if (!machine.cpus.has[cpu]) continue;
        find_siblings(cpu, &machine.cpus, &siblings);
        machine.cores.has[cpu] = first_of(&siblings) == cpu;
    }
    QDR_TRY(load_packages(&machine));
    QDR_TRY(load_numas(&machine));
    QDR_TRY(load_caches(&machine));
    QDR_TRY(load_cores(&machine));
    QDR_TRY(load_binding(&machine));
    QDR_TRY(load_class(loader, "/sys/class/infiniband")); /* names for fast networks come first, and are kept */
    return load_class(loader, "/sys/class/net");
}

/* ---- only the cores ---- */

qdr_status qdri_topo_cores(int *n_cores)
{
    cpu_list bound, siblings;
    int n = 0;
    find_bound(&bound);
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
        if (!bound.has[cpu]) continue;
        find_siblings(cpu, &bound, &siblings);
        n += first_of(&siblings) == cpu;
    }
    *n_cores = qdri_topo_cores_by_share(n);
    return QDR_OK;
}

qdr_status qdri_topo_cpu_model(char *text, size_t capacity)
{
    static const char key[] = "model name";
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    *text = '\0';
    while (file && !*text && fgets(line, sizeof line, file)) {
        char *value = strncmp(line, key, sizeof key - 1) == 0 ? strchr(line, ':') : NULL;
        line[strcspn(line, "\n")] = '\0';
        if (value) qdri_topo_copy(text, capacity, value + 1);
    }
    if (file) fclose(file);
    return QDR_OK;
}

const char *qdri_topo_hwloc_version(void) { return "none"; }
