/* SPDX-License-Identifier: Apache-2.0 */
/* Hazards of a schedule: which task last accessed which bytes of a buffer. The bytes of a buffer are divided into spans
 * at the boundaries of what tasks access, so that tasks on different rows of a matrix need not wait for one another. */
#ifndef QDRI_SCHEDULE_HAZARD_H
#define QDRI_SCHEDULE_HAZARD_H

#include "quadrille/grid.h"
#include "schedule/buffer.h"

/* Streams: 0 is the compute stream, 1 + channel runs that channel's collectives. */
#define QDRI_STREAM_OF_COMPUTE 0
#define QDRI_STREAM_OF_CHANNEL(channel) (1 + (int)(channel))
#define QDRI_N_STREAMS (1 + (int)QDR_N_CHANNELS)

/* Task numbers; -1: none. */
typedef struct qdri_span {
    size_t begin, end;
    int writer;
    int readers[QDRI_N_STREAMS]; /* after the last write: the last reader on each stream */
} qdri_span;

/* Zeroed, or those of an earlier list, whose memory is reused. */
typedef struct qdri_hazards {
    struct qdri_spans *of_buffer;
    int n_buffers;
    int64_t list; /* the current list; records for other lists are ignored */
} qdri_hazards;

/* Begins a new list: nothing has been accessed yet. */
void qdri_hazards_begin(qdri_hazards *hazards);
/* Finds the spans that make up `ref`, adding boundaries at its ends where there are none. They are valid until the next
 * call. */
QDR_NODISCARD qdr_status qdri_hazards_find(qdri_hazards *hazards, qdri_ref ref, qdri_span **spans, int *n_spans);
/* Task `number` writes all of `ref`, which becomes a single span. `ref` must have been found. */
void qdri_hazards_write(qdri_hazards *hazards, qdri_ref ref, int number);
void qdri_hazards_free(qdri_hazards *hazards);

#endif
