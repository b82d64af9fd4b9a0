/* SPDX-License-Identifier: Apache-2.0 */
/* Timestamps of tasks, and their medians. */
#include "linear/measures.h"

#include <stdlib.h>

#include "core/size.h"

qdr_status qdri_measures_create(const qdri_net_lists *lists, qdri_measures **measures)
{
    QDR_TRY(QDRI_NEW(1, "measures", measures));
    qdri_measured_list *list = (*measures)->lists;
    list[0].schedule = &lists->forward;
    list[1].schedule = &lists->first_forward;
    for (int i = 0; i < QDRI_N_BACKWARDS; i++) list[QDRI_N_FORWARDS + i].schedule = &lists->backward[i];
    return QDR_OK;
}

void qdri_measures_free(qdri_measures **measures)
{
    if (!*measures) return;
    for (int i = 0; i < QDRI_N_LISTS; i++) free((*measures)->lists[i].stamps);
    free(*measures);
    *measures = NULL;
}

static qdri_stamps *stamps_of_run(const qdri_measured_list *list, int64_t run)
{
    return list->stamps + run % QDRI_KEPT_RUNS * list->schedule->n_tasks;
}

qdri_stamps *qdri_measures_next(qdri_measures *measures, const qdri_schedule *schedule)
{
    int i = 0;
    while (measures && i < QDRI_N_LISTS && measures->lists[i].schedule != schedule) i++;
    if (!measures || i == QDRI_N_LISTS) return NULL;
    qdri_measured_list *list = &measures->lists[i];
    const int64_t run = list->n_runs++ - 1;
    const int64_t n_stamps = (int64_t)QDRI_KEPT_RUNS * list->schedule->n_tasks;
    if (run < 0) return NULL;
    /* Memory is allocated at the second run: many lists run only once. */
    if (run == 0 && !list->stamps && QDRI_NEW(n_stamps, "stamps of tasks", &list->stamps) != QDR_OK) return NULL;
    return list->stamps ? stamps_of_run(list, run) : NULL;
}

void qdri_measures_restart(qdri_measures *measures)
{
    for (int i = 0; measures && i < QDRI_N_LISTS; i++) measures->lists[i].n_runs = 0;
}

int qdri_measured_runs(const qdri_measured_list *list)
{
    if (!list->stamps || list->n_runs == 0) return 0;
    return list->n_runs - 1 < QDRI_KEPT_RUNS ? (int)(list->n_runs - 1) : QDRI_KEPT_RUNS;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double qdri_median(double *values, int n)
{
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double qdri_measured_task(const qdri_measured_list *list, int number)
{
    double secs[QDRI_KEPT_RUNS];
    const int n = qdri_measured_runs(list);
    for (int run = 0; run < n; run++) {
        const qdri_stamps *stamps = &stamps_of_run(list, run)[number];
        secs[run] = 1e-9 * (double)(stamps->end_ns - stamps->begin_ns);
    }
    return qdri_median(secs, n);
}

double qdri_measured_whole(const qdri_measured_list *list)
{
    double secs[QDRI_KEPT_RUNS];
    const int n = qdri_measured_runs(list);
    for (int run = 0; run < n; run++) {
        const qdri_stamps *stamps = stamps_of_run(list, run);
        int64_t begin = INT64_MAX, end = 0;
        for (int i = 0; i < list->schedule->n_tasks; i++) {
            if (stamps[i].begin_ns < begin) begin = stamps[i].begin_ns;
            if (stamps[i].end_ns > end) end = stamps[i].end_ns;
        }
        secs[run] = 1e-9 * (double)(end - begin);
    }
    return qdri_median(secs, n);
}
