/* SPDX-License-Identifier: Apache-2.0 */
/* Small files under /sys: their lines, and what they say about this process and the network adapters. */
#include "topo/machine.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

static int read_line(char *text, size_t capacity, const char *path)
{
    char line[1024];
    *text = '\0';
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (!fgets(line, sizeof line, file)) line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    qdri_topo_copy(text, capacity, line);
    return *text != '\0';
}

double qdri_sys_number(double missing, const char *format, ...)
{
    char path[256], text[64], *end = text;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    if (!read_line(text, sizeof text, path)) return missing;
    const double number = strtod(text, &end);
    return end == text ? missing : number;
}

void qdri_sys_locate(const qdr_topo *topo, const char *bus, int *package, int *numa)
{
    const int os_index = (int)qdri_sys_number(-1, "/sys/bus/pci/devices/%s/numa_node", bus);
    *package = *numa = -1;
    for (int i = 0; i < topo->n_numas && os_index >= 0; i++)
        if (topo->lists->numas[i].os_index == os_index) *numa = i;
    if (*numa >= 0) *package = topo->lists->numas[*numa].package;
}

/* ---- CPU time granted by a control group ---- */

int qdri_topo_cores_by_share(int n_cores)
{
    char text[64];
    long quota_us = 0, period_us = 0;
    if (n_cores < 1) n_cores = 1;
    (void)read_line(text, sizeof text, "/sys/fs/cgroup/cpu.max");
    if (sscanf(text, "%ld %ld", &quota_us, &period_us) != 2 || quota_us < 1 || period_us < 1) /* "max" is no number */
        return n_cores;
    const long n_granted = (quota_us + period_us - 1) / period_us;
    return n_granted < n_cores ? (int)n_granted : n_cores;
}

/* ---- network adapters ---- */

static int has_entries(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;
    if (!folder) return 0;
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) n += entry->d_name[0] != '.';
    closedir(folder);
    return n > 0;
}

int qdri_topo_reads_remotely(void) { return has_entries("/sys/class/infiniband") || has_entries("/sys/class/cxi"); }

double qdri_topo_line_rate(const char *name)
{
    const double mbits = qdri_sys_number(0, "/sys/class/net/%s/speed", name);
    const double gbits = qdri_sys_number(0, "/sys/class/infiniband/%s/ports/1/rate", name);
    return mbits > 0 ? mbits * 1e6 / 8 : gbits * 1e9 / 8;
}
