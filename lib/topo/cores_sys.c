/* SPDX-License-Identifier: Apache-2.0 */
/* The cores that this process may use, and the processor's name, in a build without hwloc. */
#define _GNU_SOURCE 1 /* sched_getaffinity */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "topo/machine.h"
#include "topo/sys.h"
#include "topo/topo.h"

void qdri_sys_bound(qdri_cpus *cpus)
{
    const long n_online = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t bytes = CPU_ALLOC_SIZE(QDRI_MAX_CPUS);
    cpu_set_t *set = CPU_ALLOC(QDRI_MAX_CPUS);
    const int is_known = set && sched_getaffinity(0, bytes, set) == 0;
    for (size_t cpu = 0; cpu < QDRI_MAX_CPUS; cpu++)
        cpus->has[cpu] = is_known ? CPU_ISSET_S(cpu, bytes, set) != 0 : (long)cpu < n_online;
    CPU_FREE(set);
}

qdr_status qdri_topo_cores(int *n_cores)
{
    qdri_cpus bound, siblings;
    int n = 0;
    qdri_sys_bound(&bound);
    for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++) {
        if (!bound.has[cpu]) continue;
        qdri_sys_siblings(cpu, &bound, &siblings);
        n += qdri_cpus_first(&siblings) == cpu;
    }
    n = qdri_topo_cores_by_share(n);
    *n_cores = n > 1 ? n : 1;
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
