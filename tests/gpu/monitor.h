/* SPDX-License-Identifier: Apache-2.0 */
/* Times of work on a GPU, by the host's clock, each with the GPU's clock and power in the middle of it. Both are from
 * NVML, which is opened at run time; without it they are not numbers. No calls of CUDA but the library's. */
#ifndef QDR_TESTS_GPU_MONITOR_H
#define QDR_TESTS_GPU_MONITOR_H

#include "gpu.h"

enum { GPU_MOST_SAMPLES = 32 };

typedef struct gpu_monitor gpu_monitor;
gpu_monitor *gpu_monitor_open(const gpu_place *place);
void gpu_monitor_close(gpu_monitor *monitor);

/* Samples of one kind of work, in the order in which they were taken. */
typedef struct gpu_series {
    const char *name;
    int n_warm; /* samples that are not kept, to begin with */
    int n;
    double last_ms;
    double ms[GPU_MOST_SAMPLES]; /* of one run of the work */
    double megahertz[GPU_MOST_SAMPLES], watts[GPU_MOST_SAMPLES];
    double is_limited[GPU_MOST_SAMPLES]; /* 1: the clock was lowered to save power */
} gpu_series;

/* Runs the work n_runs times back to back, and waits. */
void gpu_series_take(gpu_series *series, const gpu_place *place, const gpu_monitor *monitor, int n_runs,
                     void (*work)(void *user), void *user);
void gpu_series_report(gpu_report *report, const gpu_series *series);
/* What a takes over what b takes, sample by sample; in the GPU's cycles, too. */
void gpu_series_compare(gpu_report *report, const char *name, const gpu_series *a, const gpu_series *b);

#endif
