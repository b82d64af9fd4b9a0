/* SPDX-License-Identifier: Apache-2.0 */
/* CPU time and memory of this process, and numbers of all ranks. */
#include "meter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "program.h"

double meter_cpu_secs(void)
{
    struct rusage use;
    if (getrusage(RUSAGE_SELF, &use) != 0) return 0;
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* A line of /proc/self/status, in kB. */
static double status_bytes(const char *key)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    double bytes = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) bytes = 1024 * strtod(line + strlen(key), NULL);
    if (file != NULL) fclose(file);
    return bytes;
}

double meter_memory_now(void) { return status_bytes("VmRSS:"); }

double meter_memory_peak(void) { return status_bytes("VmHWM:"); }

void meter_sleep(double secs)
{
    struct timespec left = {(time_t)secs, (long)((secs - (double)(time_t)secs) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

qdr_status meter_reduce(qdr_grid *grid, qdr_reduce operation, void *numbers, int64_t n, qdr_dtype type)
{
    qdr_context *ctx = qdr_grid_context(grid);
    const size_t bytes = (size_t)n * qdr_dtype_bytes(type);
    void *shared = NULL;
    qdr_status status = qdr_agree(ctx, qdr_mem_alloc(ctx, bytes, &shared));
    if (status >= 0) status = qdr_copy(ctx, shared, numbers, bytes, NULL);
    for (int axis = 0; status >= 0 && axis < QDR_N_AXES; axis++)
        status = qdr_all_reduce(grid, (qdr_axis)axis, operation, shared, n, type, NULL);
    if (status >= 0) status = qdr_copy(ctx, numbers, shared, bytes, NULL);
    /* Also after a failure, since what was enqueued before it still uses the memory. */
    const qdr_status ended = qdr_stream_synchronize(qdr_context_stream(ctx));
    qdr_mem_free(ctx, &shared);
    return status < 0 ? status : ended;
}

qdr_status meter_all(qdr_grid *grid, double value, double *all)
{
    const qdr_context *ctx = qdr_grid_context(grid);
    const int n = qdr_context_size(ctx);
    memset(all, 0, (size_t)n * sizeof *all);
    all[qdr_context_rank(ctx)] = value;
    return meter_reduce(grid, QDR_SUM, all, n, QDR_F64);
}

qdr_status meter_over_ranks(qdr_grid *grid, double value, double *sum, double *most)
{
    *sum = *most = value;
    TRY(meter_reduce(grid, QDR_SUM, sum, 1, QDR_F64));
    return meter_reduce(grid, QDR_MAX, most, 1, QDR_F64);
}
