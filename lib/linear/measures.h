/* SPDX-License-Identifier: Apache-2.0 */
/* What the tasks of a stack's lists took on this rank. */
#ifndef QDRI_LINEAR_MEASURES_H
#define QDRI_LINEAR_MEASURES_H

#include "core/net.h"

enum { QDRI_KEPT_RUNS = 32, QDRI_N_LISTS = 1 + QDRI_N_BACKWARDS };

/* A moment of CLOCK_MONOTONIC each; 0: it has not come. Written by the threads of streams. */
typedef struct qdri_stamps {
    int64_t begin_ns, end_ns;
} qdri_stamps;

typedef struct qdri_measured_list {
    const qdri_schedule *schedule;
    int64_t n_runs; /* the first, which is not stamped, among them */
    qdri_stamps *stamps; /* [QDRI_KEPT_RUNS][n_tasks], taking turns; NULL: none yet, or no memory */
} qdri_measured_list;

typedef struct qdri_measures {
    qdri_measured_list lists[QDRI_N_LISTS]; /* forward, then backwards */
} qdri_measures;

QDR_NODISCARD qdr_status qdri_measures_create(const qdri_net_lists *lists, qdri_measures **measures);
void qdri_measures_free(qdri_measures **measures);
/* Begins a run of the list: places for the stamps of its tasks; NULL: it is not measured. measures may be NULL. */
qdri_stamps *qdri_measures_next(qdri_measures *measures, const qdri_schedule *schedule);
/* Runs of which there are stamps. */
int qdri_measured_runs(const qdri_measured_list *list);
/* Medians over those, streams idle: of task `number`, and of the whole list. */
double qdri_measured_task(const qdri_measured_list *list, int number);
double qdri_measured_whole(const qdri_measured_list *list);

#endif
