/* SPDX-License-Identifier: Apache-2.0 */
/* CPU time granted by a control group. */
#include <stdio.h>

#include "topo/topo.h"

#define CPU_SHARE_FILE "/sys/fs/cgroup/cpu.max"

int qdri_topo_cores_by_share(int n_cores)
{
    long quota_us = 0;
    long period_us = 0;
    FILE *file = fopen(CPU_SHARE_FILE, "r");
    if (!file) return n_cores;
    const int n_read = fscanf(file, "%ld %ld", &quota_us, &period_us); /* "max" is no number */
    fclose(file);
    if (n_read != 2 || quota_us < 1 || period_us < 1) return n_cores;
    const long n_granted = (quota_us + period_us - 1) / period_us;
    return n_granted < n_cores ? (int)n_granted : n_cores;
}
