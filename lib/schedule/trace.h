/* SPDX-License-Identifier: Apache-2.0 */
/* A trace: when each task of a schedule ran on this rank, and when it read and wrote checkpoints. Events are added
 * by the host thread and timestamped by the threads of the streams; the trace is written when the streams are idle.
 * The file uses Chrome's trace format, which Perfetto can display, in microseconds of this rank's clock, with a member
 * "quadrille" for `quadrille trace`, where clocks are in nanoseconds. */
#ifndef QDRI_SCHEDULE_TRACE_H
#define QDRI_SCHEDULE_TRACE_H

#include <stdio.h>

#include "core/clock_offset.h"
#include "schedule/schedule.h"

#define QDRI_TRACE_VERSION 3
#define QDRI_TRACE_NAME_BYTES 40
/* After the streams of schedules: reading and writing of files. */
#define QDRI_STREAM_OF_FILES QDRI_N_STREAMS
#define QDRI_N_TRACE_STREAMS (QDRI_N_STREAMS + 1)

typedef struct qdri_trace_event {
    char name[QDRI_TRACE_NAME_BYTES]; /* of the layer or operation */
    const char *kind; /* static: "product", "all-reduce", … */
    int stream; /* numbered as in schedules; of a collective: its channel's */
    int task, run; /* number of the task in the schedule, 0 for a file; number of schedules executed before this one */
    int64_t bytes_sent, bytes_plain; /* plain: without a codec */
    int64_t codec_ns; /* encoding and decoding, where it is known */
    double flops;
    int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC; 0: not reached */
} qdri_trace_event;

typedef struct qdri_trace qdri_trace;

/* id: the same on all ranks, and different for each run of a program. */
QDR_NODISCARD qdr_status qdri_trace_create(int rank, int n_ranks, uint64_t id, qdri_trace **trace);
void qdri_trace_free(qdri_trace **trace);
/* The offset of this rank's clock from rank 0's: before the first schedule, and after the last. */
void qdri_trace_add_clock(qdri_trace *trace, const qdri_clock_offset *clock);
/* Begins the next schedule. The file states the rank's position in the grid of the last one. */
void qdri_trace_next_run(qdri_trace *trace, const qdri_position *position);
/* Adds an event, which keeps its address until the trace is freed; NULL: out of memory (the event is counted as
 * lost). */
qdri_trace_event *qdri_trace_add(qdri_trace *trace, const qdri_task *task, int number);
/* The number of the last schedule; 0 also before the first. */
int qdri_trace_run(const qdri_trace *trace);
/* Adds what is no task: that bytes of a file were moved. kind: "copy to host", "write" or "read"; run: qdri_trace_run()
 * when it began. Like all events it is added by the host thread, after it has ended if another thread did it. */
void qdri_trace_add_file(qdri_trace *trace, const char *name, const char *kind, int run, int64_t bytes,
                         int64_t begin_ns, int64_t end_ns);
/* Event number `index`; NULL: there are fewer. */
const qdri_trace_event *qdri_trace_event_at(const qdri_trace *trace, int index);
/* Writes all events that have ended. @return 0: could not be written completely */
int qdri_trace_write(const qdri_trace *trace, FILE *file);

#endif
