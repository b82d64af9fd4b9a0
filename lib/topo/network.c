/* SPDX-License-Identifier: Apache-2.0 */
/* The network adapters of this machine, as listed by the kernel. */
#include <dirent.h>

#include "topo/machine.h"
#include "topo/sys.h"
#include "topo/topo.h"

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
