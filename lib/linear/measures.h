/* SPDX-License-Identifier: Apache-2.0 */
/* Measured times of the tasks in a stack's lists on this rank, and medians. */
#ifndef QDRI_LINEAR_MEASURES_H
#define QDRI_LINEAR_MEASURES_H

#include "schedule/net.h"

/* Forward lists: that without returns, and that with them. */
enum { QDRI_KEPT_RUNS = 32, QDRI_N_FORWARDS = 2, QDRI_N_LISTS = QDRI_N_FORWARDS + QDRI_N_BACKWARDS };

/* Times on CLOCK_MONOTONIC; 0: not reached. Written by the threads of streams. */
typedef struct qdri_stamps {
    int64_t begin_ns, end_ns;
} qdri_stamps;

typedef struct qdri_measured_list {
    const qdri_schedule *schedule;
    int64_t n_runs; /* includes the first run, which is not timed */
    qdri_stamps *stamps; /* [QDRI_KEPT_RUNS][n_tasks], used in rotation; NULL: none yet, or out of memory */
} qdri_measured_list;

typedef struct qdri_measures {
    qdri_measured_list lists[QDRI_N_LISTS]; /* the forward lists, then the backward ones */
} qdri_measures;

QDR_NODISCARD qdr_status qdri_measures_create(const qdri_net_lists *lists, qdri_measures **measures);
void qdri_measures_free(qdri_measures **measures);
/* Begins a run of the list. Returns storage for the times of its tasks; NULL: not measured. measures may be NULL. */
qdri_stamps *qdri_measures_next(qdri_measures *measures, const qdri_schedule *schedule);
/* Forgets all times: tasks have changed. measures may be NULL. */
void qdri_measures_restart(qdri_measures *measures);
/* Number of runs for which there are times. */
int qdri_measured_runs(const qdri_measured_list *list);
/* Medians over those runs, with idle streams: of task `number`, and of the whole list. */
double qdri_measured_task(const qdri_measured_list *list, int number);
double qdri_measured_whole(const qdri_measured_list *list);
/* The median of n values (the mean of the two middle ones if n is even); 0 if n is 0. Sorts the values. */
double qdri_median(double *values, int n);

#endif
