/* SPDX-License-Identifier: Apache-2.0 */
/* Hazards of a schedule: which task touched which bytes of a buffer last. The bytes of a buffer are cut into spans at
 * the borders of what tasks touch, so that tasks on different rows of a matrix need not wait for one another. */
#ifndef QDRI_CORE_HAZARD_H
#define QDRI_CORE_HAZARD_H

#include "core/buffer.h"
#include "quadrille/grid.h"

/* Streams: 0 computes, 1 + channel carries that channel's collectives. */
#define QDRI_STREAM_OF_COMPUTE 0
#define QDRI_STREAM_OF_CHANNEL(channel) (1 + (int)(channel))
#define QDRI_N_STREAMS (1 + (int)QDR_CHANNEL_X_STAT)

/* Numbers of tasks; -1: nobody. */
typedef struct qdri_span {
    size_t begin, end;
    int writer;
    int readers[QDRI_N_STREAMS]; /* since then, the last of each stream */
} qdri_span;

/* Zero, or of an older list, whose memory is used again. */
typedef struct qdri_hazards {
    struct qdri_spans *of_buffer;
    int n_buffers;
    int64_t list; /* that is being made; what was noted for others counts for nothing */
} qdri_hazards;

/* A new list begins: nobody has touched anything. */
void qdri_hazards_begin(qdri_hazards *hazards);
/* The spans that make up `ref`, a new border on either side where there is none. They are valid until the next call. */
QDR_NODISCARD qdr_status qdri_hazards_find(qdri_hazards *hazards, qdri_ref ref, qdri_span **spans, int *n_spans);
/* Task `number` has written all of `ref`: one span from now on. `ref` must have been found. */
void qdri_hazards_write(qdri_hazards *hazards, qdri_ref ref, int number);
void qdri_hazards_free(qdri_hazards *hazards);

#endif
