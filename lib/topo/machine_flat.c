/* SPDX-License-Identifier: Apache-2.0 */
/* This machine in a build without hwloc: one package with one NUMA node, and the cores that this thread may use. */
#define _GNU_SOURCE 1 /* sched_getaffinity */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/size.h"
#include "topo/machine.h"
#include "topo/topo.h"

enum { MAX_CPUS = 4096 };

/* Hardware threads on which this thread may run, by the first one of their core. */
typedef struct thread_counts {
    int n_threads[MAX_CPUS];
} thread_counts;

static void count_threads(thread_counts *counts)
{
    const size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    cpu_set_t *set = CPU_ALLOC(MAX_CPUS);
    const int is_known = set && sched_getaffinity(0, bytes, set) == 0;
    *counts = (thread_counts){{0}};
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
        if (!(is_known ? CPU_ISSET_S((size_t)cpu, bytes, set) : cpu < sysconf(_SC_NPROCESSORS_ONLN))) continue;
        /* "0,4" or "0-1" */
        const double first = qdri_sys_number(cpu, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        counts->n_threads[first >= 0 && first < MAX_CPUS ? (int)first : cpu]++;
    }
    CPU_FREE(set);
}

/* What follows "KEY:" in the first line that begins with KEY; "": there is none. */
static void read_value(const char *path, const char *key, char *text, size_t capacity)
{
    char line[1024];
    FILE *file = fopen(path, "r");
    *text = '\0';
    while (file && !*text && fgets(line, sizeof line, file)) {
        const char *value = strncmp(line, key, strlen(key)) == 0 ? strchr(line, ':') : NULL;
        line[strcspn(line, "\n")] = '\0';
        if (value) qdri_topo_copy(text, capacity, value + 1 + strspn(value + 1, "\t"));
    }
    if (file) fclose(file);
}

qdr_status qdri_topo_load_machine(topo_loader *loader, const char *xml)
{
    qdr_topo *topo = loader->topo;
    thread_counts counts;
    const char *made_up = getenv("HWLOC_SYNTHETIC");
    if (xml || (made_up && *made_up))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "topology: %.300s: hwloc reads recorded machines and makes others up, and this build has none; "
                        "install libhwloc-dev and build again",
                        xml ? xml : "HWLOC_SYNTHETIC");
    count_threads(&counts);
    QDR_TRY(QDRI_NEW(1, "packages of a machine", &topo->lists->packages));
    QDR_TRY(QDRI_NEW(1, "NUMA nodes of a machine", &topo->lists->numas));
    QDR_TRY(QDRI_NEW(MAX_CPUS, "cores of a machine", &topo->lists->cores));
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
        const int n_threads = counts.n_threads[cpu];
        if (n_threads == 0) continue;
        topo->lists->cores[topo->n_cores++] = (qdr_topo_core){.cache = -1, .n_threads = n_threads, .first_cpu = cpu};
        topo->n_threads += n_threads;
    }
    topo->is_this_machine = topo->n_packages = topo->n_numas = 1;
    topo->bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    topo->lists->packages[0].n_cores = topo->n_cores;
    topo->lists->numas[0] = (qdr_topo_numa){.n_cores = topo->n_cores, .bytes = topo->bytes};
    topo->here = (qdr_topo_place){0, 0, 0, -1, -1, -1};
    read_value("/proc/thread-self/status", "Cpus_allowed_list", topo->cpus, sizeof topo->cpus);
    return qdri_topo_cpu_model(topo->lists->packages[0].model, sizeof topo->lists->packages[0].model);
}

qdr_status qdri_topo_cores(int *n_cores)
{
    thread_counts counts;
    int n = 0;
    count_threads(&counts);
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) n += counts.n_threads[cpu] > 0;
    *n_cores = qdri_topo_cores_by_share(n);
    return QDR_OK;
}

qdr_status qdri_topo_cpu_model(char *text, size_t capacity)
{
    read_value("/proc/cpuinfo", "model name", text, capacity);
    return QDR_OK;
}

const char *qdri_topo_hwloc_version(void) { return "none"; }
