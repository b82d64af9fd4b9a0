/* SPDX-License-Identifier: Apache-2.0 */
/* One JSON object for each measured case; record.py reads them. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "gpu.h"

struct gpu_report {
    json_t *all, *values, *bars, *limits, *words;
};

static json_t *object_in(json_t *parent, const char *name)
{
    json_t *object = json_object();
    if (json_object_set_new(parent, name, object) != 0) gpu_leave("no memory for a report");
    return object;
}

gpu_report *gpu_report_begin(const char *benchmark, const char *title)
{
    gpu_report *report = calloc(1, sizeof *report);
    if (!report) gpu_leave("no memory for a report");
    report->all = json_pack("{s:s,s:s}", "benchmark", benchmark, "case", title);
    report->values = object_in(report->all, "values");
    report->bars = object_in(report->all, "bars");
    report->limits = object_in(report->all, "limits");
    report->words = object_in(report->all, "words");
    return report;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double gpu_median(const double *samples, int n)
{
    double *sorted = calloc((size_t)n, sizeof *sorted);
    if (!sorted) gpu_leave("no memory for %d samples", n);
    for (int i = 0; i < n; i++) sorted[i] = samples[i];
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    const double median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    free(sorted);
    return median;
}

void gpu_report_samples(gpu_report *report, const char *name, const double *samples, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, isfinite(samples[i]) ? json_real(samples[i]) : json_null());
    json_object_set_new(report->values, name, list);
}

void gpu_report_number(gpu_report *report, const char *name, double value)
{
    gpu_report_samples(report, name, &value, 1);
}

void gpu_report_word(gpu_report *report, const char *name, const char *word)
{
    json_object_set_new(report->words, name, json_string(word));
}

void gpu_report_bar(gpu_report *report, const char *name, double least)
{
    json_object_set_new(report->bars, name, json_real(least));
}

void gpu_report_limit(gpu_report *report, const char *name, double most)
{
    json_object_set_new(report->limits, name, json_real(most));
}

void gpu_report_end(gpu_report *report)
{
    if (json_dumpf(report->all, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(7)) != 0)
        gpu_leave("a report cannot be written");
    putchar('\n');
    fflush(stdout);
    json_decref(report->all);
    free(report);
}
