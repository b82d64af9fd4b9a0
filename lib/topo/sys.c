/* SPDX-License-Identifier: Apache-2.0 */
/* Small files under /sys. */
#include "topo/sys.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "topo/machine.h"

static int read_line(char *text, size_t capacity, const char *path)
{
    char line[1024];
    *text = '\0';
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (!fgets(line, sizeof line, file)) line[0] = '\0';
    fclose(file);
    for (char *end = line; *end; end++)
        if (*end == '\n') *end = '\0';
    qdri_topo_copy(text, capacity, line);
    return *text != '\0';
}

#define PATH_OF(path, format)                                                                                          \
    do {                                                                                                               \
        va_list arguments;                                                                                             \
        va_start(arguments, format);                                                                                   \
        vsnprintf(path, sizeof(path), format, arguments);                                                              \
        va_end(arguments);                                                                                             \
    } while (0)

int qdri_sys_line(char *text, size_t capacity, const char *format, ...)
{
    char path[256];
    PATH_OF(path, format);
    return read_line(text, capacity, path);
}

double qdri_sys_number(double missing, const char *format, ...)
{
    char path[256], text[64], *end = text;
    PATH_OF(path, format);
    if (!read_line(text, sizeof text, path)) return missing;
    const double number = strtod(text, &end);
    return end == text ? missing : number;
}

void qdri_sys_locate(const qdr_topo *topo, const char *bus, int *package, int *numa)
{
    const int os_index = (int)qdri_sys_number(-1, "/sys/bus/pci/devices/%s/numa_node", bus);
    *package = *numa = -1;
    for (int i = 0; i < topo->n_numas && os_index >= 0; i++)
        if (topo->numas[i].os_index == os_index) *numa = i;
    if (*numa >= 0) *package = topo->numas[*numa].package;
}

/* ---- hardware threads ---- */

static void add_range(qdri_cpus *cpus, long first, long last)
{
    for (long cpu = first < 0 ? 0 : first; cpu <= last && cpu < QDRI_MAX_CPUS; cpu++) cpus->has[cpu] = 1;
}

int qdri_sys_cpus(qdri_cpus *cpus, const char *format, ...)
{
    char path[256], text[1024];
    PATH_OF(path, format);
    *cpus = (qdri_cpus){{0}};
    if (!read_line(text, sizeof text, path)) return 0;
    for (char *at = text, *end = NULL; *at; at = *end == ',' ? end + 1 : end) {
        const long first = strtol(at, &end, 10);
        if (end == at) break;
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        add_range(cpus, first, last);
    }
    return 1;
}

int qdri_cpus_first(const qdri_cpus *cpus)
{
    for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++)
        if (cpus->has[cpu]) return cpu;
    return -1;
}

int qdri_cpus_count(const qdri_cpus *cpus)
{
    int n = 0;
    for (int cpu = 0; cpu < QDRI_MAX_CPUS; cpu++) n += cpus->has[cpu];
    return n;
}

void qdri_sys_siblings(int cpu, const qdri_cpus *all, qdri_cpus *siblings)
{
    qdri_sys_cpus(siblings, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    for (int i = 0; i < QDRI_MAX_CPUS; i++) siblings->has[i] &= all->has[i];
    siblings->has[cpu] = 1;
}
