/* SPDX-License-Identifier: Apache-2.0 */
/* What each task of a list waits for: the last writer of the bytes that it reads, the last readers and the last writer
 * of those that it writes, as far as they are on other streams. Follows from the operands alone. If values have their
 * places (memory.h), waits for memory that is used again are among them. */
#ifndef QDRI_SCHEDULE_WAITS_H
#define QDRI_SCHEDULE_WAITS_H

#include "schedule/schedule.h"

/* Memory for finding waits, which is reused. Zeroed at first. */
typedef struct qdri_hazards {
    struct qdri_spans *of_buffer;
    int n_buffers;
    struct qdri_span *spans;
    int n_spans, span_capacity;
    int64_t list; /* the current list; what was recorded for others is ignored */
} qdri_hazards;

/* Sets waits and signals of all tasks. overlap: the QDR_OVERLAP_… classes that may overlap with other tasks; those of
 * other classes wait for the task before, and the next task waits for them. */
QDR_NODISCARD qdr_status qdri_schedule_set_waits(qdri_schedule *schedule, qdri_hazards *hazards, int overlap);
void qdri_hazards_free(qdri_hazards *hazards);

#endif
