/* SPDX-License-Identifier: Apache-2.0 */
/* A trace: when each task of a schedule ran on this rank. Events are added by the host thread and stamped by the
 * threads of the streams; it is written when the streams are idle. The file is Chrome's trace format, which Perfetto
 * shows, in microseconds of this rank's clock, with a member "quadrille" for `quadrille trace`, where clocks are in
 * nanoseconds. */
#ifndef QDRI_CORE_TRACE_H
#define QDRI_CORE_TRACE_H

#include <stdio.h>

#include "core/clock_offset.h"
#include "core/schedule.h"

#define QDRI_TRACE_VERSION 2
#define QDRI_TRACE_NAME_BYTES 40

typedef struct qdri_trace_event {
    char name[QDRI_TRACE_NAME_BYTES]; /* of the layer or operation */
    const char *kind; /* static: "product", "all-reduce", … */
    int stream; /* as in schedules */
    int task, run; /* its number in the schedule; schedules executed before this one */
    int64_t bytes_sent;
    double flops;
    int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC; 0: it never came to that */
} qdri_trace_event;

typedef struct qdri_trace qdri_trace;

/* id: the same on all ranks, and in no other program's run. */
QDR_NODISCARD qdr_status qdri_trace_create(int rank, int n_ranks, uint64_t id, qdri_trace **trace);
void qdri_trace_free(qdri_trace **trace);
/* The offset of this rank's clock from rank 0's: before the first schedule, and after the last. */
void qdri_trace_add_clock(qdri_trace *trace, const qdri_clock_offset *clock);
/* The next schedule begins. The file says where the rank stood in the last one. */
void qdri_trace_next_run(qdri_trace *trace, const qdri_place *place);
/* An event that stays where it is until the trace is freed; NULL where there is no memory (the event is counted as
 * lost). */
qdri_trace_event *qdri_trace_add(qdri_trace *trace, const qdri_task *task, int number);
/* Event number `index` of those added; NULL: there are fewer. */
const qdri_trace_event *qdri_trace_event_at(const qdri_trace *trace, int index);
/* Writes all events that ended. @return 0: not all was written */
int qdri_trace_write(const qdri_trace *trace, FILE *file);

#endif
