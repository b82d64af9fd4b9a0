/* SPDX-License-Identifier: Apache-2.0 */
/* NVML's clock and power beside times. */
#include "monitor.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "quadrille/cuda.h"

/* Of nvml.h, which is rarely installed; these do not change. */
enum { NVML_CLOCK_SM = 1, NVML_POWER_INSTANT = 186, NVML_REASON_POWER = 0x4 };
typedef struct nvml_field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, status;
    union {
        unsigned number;
        double real;
    } value;
} nvml_field;

struct gpu_monitor {
    void *library, *device; /* NULL: there is none */
    int (*clock)(void *device, int kind, unsigned *megahertz);
    int (*fields)(void *device, int n, nvml_field *fields);
    int (*reasons)(void *device, unsigned long long *reasons);
};

static void find_function(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}

static void open_device(gpu_monitor *monitor, const char *bus)
{
    int (*start)(void) = NULL;
    int (*find)(const char *bus, void **device) = NULL;
    find_function(monitor->library, "nvmlInit_v2", &start);
    find_function(monitor->library, "nvmlDeviceGetHandleByPciBusId_v2", &find);
    find_function(monitor->library, "nvmlDeviceGetClockInfo", &monitor->clock);
    find_function(monitor->library, "nvmlDeviceGetFieldValues", &monitor->fields);
    find_function(monitor->library, "nvmlDeviceGetCurrentClocksThrottleReasons", &monitor->reasons);
    if (!start || !find || !monitor->clock || !monitor->fields || !monitor->reasons || start() != 0 ||
        find(bus, &monitor->device) != 0)
        monitor->device = NULL;
}

gpu_monitor *gpu_monitor_open(const gpu_place *place)
{
    gpu_monitor *monitor = calloc(1, sizeof *monitor);
    qdr_gpu gpu = {QDR_INIT(qdr_gpu)};
    if (!monitor) gpu_leave("no memory for a monitor");
    OK(qdr_gpu_describe(qdr_context_gpu(place->ctx), &gpu));
    monitor->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (monitor->library) open_device(monitor, gpu.bus);
    if (!monitor->device) fprintf(stderr, "there is no NVML: neither clocks nor power are measured\n");
    return monitor;
}

void gpu_monitor_close(gpu_monitor *monitor)
{
    if (monitor->library) dlclose(monitor->library);
    free(monitor);
}

static void read_monitor(const gpu_monitor *monitor, gpu_series *series, int at)
{
    unsigned megahertz = 0;
    unsigned long long reasons = 0;
    nvml_field power = {.id = NVML_POWER_INSTANT};
    void *device = monitor->device;
    if (device && monitor->clock(device, NVML_CLOCK_SM, &megahertz) == 0) series->megahertz[at] = megahertz;
    if (device && monitor->fields(device, 1, &power) == 0 && power.status == 0)
        series->watts[at] = 1e-3 * power.value.number;
    if (device && monitor->reasons(device, &reasons) == 0) series->is_limited[at] = (reasons & NVML_REASON_POWER) != 0;
}

static void sleep_ms(double ms)
{
    const long nanosecs = (long)(1e6 * fmod(ms, 1000));
    const struct timespec time = {(time_t)(ms / 1000), nanosecs};
    if (ms > 0) nanosleep(&time, NULL);
}

void gpu_series_take(gpu_series *series, const gpu_place *place, const gpu_monitor *monitor, int n_runs,
                     void (*work)(void *user), void *user)
{
    const int at = series->n;
    if (at == GPU_MOST_SAMPLES) gpu_leave("more than %d samples", GPU_MOST_SAMPLES);
    gpu_wait(place);
    const double begin = gpu_now();
    for (int i = 0; i < n_runs; i++) work(user);
    /* Half way, by the last sample. */
    sleep_ms(series->last_ms * n_runs / 2 - 1e-3 * (gpu_now() - begin));
    series->megahertz[at] = series->watts[at] = series->is_limited[at] = NAN;
    read_monitor(monitor, series, at);
    gpu_wait(place);
    series->last_ms = series->ms[at] = 1e-3 * (gpu_now() - begin) / n_runs;
    if (series->n_warm > 0)
        series->n_warm--;
    else
        series->n++;
}

static void report_one(gpu_report *report, const gpu_series *series, const char *unit, const double *samples)
{
    char name[128];
    snprintf(name, sizeof name, "%s, %s", series->name, unit);
    gpu_report_samples(report, name, samples, series->n);
}

void gpu_series_report(gpu_report *report, const gpu_series *series)
{
    report_one(report, series, "ms", series->ms);
    report_one(report, series, "MHz", series->megahertz);
    report_one(report, series, "W", series->watts);
    report_one(report, series, "limited by power", series->is_limited);
}

void gpu_series_compare(gpu_report *report, const char *name, const gpu_series *a, const gpu_series *b)
{
    double times[GPU_MOST_SAMPLES], cycles[GPU_MOST_SAMPLES];
    char text[128];
    const int n = a->n < b->n ? a->n : b->n;
    for (int i = 0; i < n; i++) {
        times[i] = a->ms[i] / b->ms[i];
        cycles[i] = times[i] * a->megahertz[i] / b->megahertz[i];
    }
    gpu_report_samples(report, name, times, n);
    snprintf(text, sizeof text, "%s, in cycles", name);
    gpu_report_samples(report, text, cycles, n);
}
