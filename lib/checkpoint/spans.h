/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of a tensor were written. */
#ifndef QDRI_CHECKPOINT_SPANS_H
#define QDRI_CHECKPOINT_SPANS_H

#include <stdint.h>

#include "core/status.h"

/* From one byte up to another. */
typedef struct qdri_span {
    int64_t begin, end;
} qdri_span;

/* Spans in their order, which neither overlap nor touch. There is a gap in their memory where the last one was added,
 * so that the next one, which is near in most programs, moves few of them. */
typedef struct qdri_spans {
    qdri_span *items; /* n_before, then the gap, then n_after at the end of the memory */
    int n_before, n_after, capacity;
} qdri_spans;

/* Adds a span, unless one that is there has some of its bytes: then *overlaps becomes 1, and nothing changes. An empty
 * one is not added.
 * @retval QDR_ERR_MEMORY  out of memory */
QDR_NODISCARD qdr_status qdri_spans_add(qdri_spans *spans, int64_t begin, int64_t end, int *overlaps);
void qdri_spans_free(qdri_spans *spans);

#endif
