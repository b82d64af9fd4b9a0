/* SPDX-License-Identifier: Apache-2.0 */
/* What network adapters this machine has, as the kernel lists them. */
#include <dirent.h>
#include <stdio.h>

#include "topo/machine.h"
#include "topo/topo.h"

static int has_entries(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;
    if (!folder) return 0;
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        n += entry->d_name[0] != '.';
    closedir(folder);
    return n > 0;
}

int qdri_topo_reads_remotely(void)
{
    return has_entries("/sys/class/infiniband") || has_entries("/sys/class/cxi");
}

/* A number from a file of the kernel, which is there for some adapters; 0: none. */
static double read_number(const char *format, const char *name)
{
    char path[256];
    double number = 0;
    snprintf(path, sizeof path, format, name);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%lf", &number) != 1 || number < 0) number = 0;
    fclose(file);
    return number;
}

double qdri_topo_line_rate(const char *name)
{
    const double mbits = read_number("/sys/class/net/%s/speed", name);
    const double gbits = read_number("/sys/class/infiniband/%s/ports/1/rate", name);
    return mbits > 0 ? mbits * 1e6 / 8 : gbits * 1e9 / 8;
}
