/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a buffer are divided into spans at the boundaries of what tasks access, so that tasks on different rows
 * of a matrix need not wait for one another. */
#include "schedule/waits.h"

#include <stdlib.h>
#include <string.h>

#include "core/size.h"

/* From `begin` to the beginning of the next span, or without end. Task numbers; writer -1: none. */
typedef struct qdri_span {
    size_t begin;
    int next; /* -1: the last of its buffer */
    int writer;
    unsigned read_by; /* after the last write: bit s: a task on stream s, the last of which is readers[s] */
    int readers[QDRI_N_STREAMS];
} qdri_span;

typedef struct qdri_spans {
    int64_t list; /* for which they were recorded */
    int first;
    int found; /* the one that was found last; a write joins only those after it, so it is one still */
} qdri_spans;

typedef struct pass {
    qdri_schedule *schedule;
    qdri_hazards *hazards;
    int waited[QDRI_N_STREAMS][QDRI_N_STREAMS]; /* waited[s][t]: last task on stream t for which stream s has waited */
} pass;

/* ---- spans ---- */

/* Room for the spans of one more task, each of whose operands adds at most three: the first one of a buffer, and one at
 * either end. */
static qdr_status reserve(qdri_hazards *hazards)
{
    const int n = hazards->n_spans + 3 * (QDRI_MAX_READS + QDRI_MAX_WRITES);
    qdri_span *larger = NULL;
    if (n <= hazards->span_capacity) return QDR_OK;
    QDR_TRY(QDRI_NEW(2 * n, "a schedule", &larger));
    if (hazards->n_spans) memcpy(larger, hazards->spans, (size_t)hazards->n_spans * sizeof *larger);
    free(hazards->spans);
    hazards->spans = larger;
    hazards->span_capacity = 2 * n;
    return QDR_OK;
}

void qdri_hazards_free(qdri_hazards *hazards)
{
    free(hazards->of_buffer);
    free(hazards->spans);
    *hazards = (qdri_hazards){0};
}

/* The index of the span that begins at `at`, at or after span `from`. A span that contains `at` is split there. */
static int cut(qdri_hazards *hazards, int from, size_t at)
{
    int i = from;
    qdri_span *spans = hazards->spans;
    while (spans[i].next >= 0 && spans[spans[i].next].begin <= at) i = spans[i].next;
    if (spans[i].begin == at) return i;
    const int added = hazards->n_spans++;
    spans[added] = spans[i];
    spans[added].begin = at;
    spans[i].next = added;
    return added;
}

static size_t end_of(qdri_ref ref) { return ref.offset + ref.bytes; }

/* The first span of what a reference refers to. Often it is near the one that was found last. */
static int find(qdri_hazards *hazards, qdri_ref ref)
{
    qdri_spans *of = &hazards->of_buffer[ref.buffer];
    if (of->list != hazards->list) {
        of->list = hazards->list;
        of->first = of->found = hazards->n_spans++;
        hazards->spans[of->first] = (qdri_span){.begin = 0, .next = -1, .writer = -1};
    }
    const int from = hazards->spans[of->found].begin <= ref.offset ? of->found : of->first;
    of->found = cut(hazards, from, ref.offset);
    (void)cut(hazards, of->found, end_of(ref));
    return of->found;
}

/* ---- waits ---- */

/* Makes `task` wait for an earlier one, unless its stream has already done so. */
static void wait_for(pass *p, qdri_task *task, int earlier)
{
    if (earlier < 0) return;
    qdri_task *tasks = p->schedule->tasks;
    const int other = tasks[earlier].stream;
    if (other == task->stream || p->waited[task->stream][other] >= earlier) return;
    p->waited[task->stream][other] = earlier;
    tasks[earlier].signals = 1;
    for (int i = 0; i < task->n_waits; i++)
        if (tasks[task->waits[i]].stream == other) {
            task->waits[i] = earlier;
            return;
        }
    task->waits[task->n_waits++] = earlier;
}

static void read(pass *p, qdri_task *task, int number, qdri_ref ref)
{
    const size_t end = end_of(ref);
    if (ref.buffer < 0 || ref.bytes == 0) return;
    qdri_span *spans = p->hazards->spans;
    for (int i = find(p->hazards, ref); i >= 0 && spans[i].begin < end; i = spans[i].next) {
        wait_for(p, task, spans[i].writer);
        spans[i].readers[task->stream] = number;
        spans[i].read_by |= 1U << task->stream;
    }
}

/* What was written becomes a single span. */
static void write(pass *p, qdri_task *task, int number, qdri_ref ref)
{
    const size_t end = end_of(ref);
    if (ref.buffer < 0 || ref.bytes == 0) return;
    qdri_span *spans = p->hazards->spans;
    const int first = find(p->hazards, ref);
    int i = first;
    for (; i >= 0 && spans[i].begin < end; i = spans[i].next) {
        wait_for(p, task, spans[i].writer);
        for (int s = 0; spans[i].read_by >> s; s++)
            if (spans[i].read_by >> s & 1) wait_for(p, task, spans[i].readers[s]);
    }
    spans[first].writer = number;
    spans[first].read_by = 0;
    spans[first].next = i;
}

qdr_status qdri_schedule_set_waits(qdri_schedule *schedule, qdri_hazards *hazards, int overlap)
{
    pass p = {.schedule = schedule, .hazards = hazards};
    memset(p.waited, -1, sizeof p.waited);
    const int n_buffers = schedule->first_value + schedule->n_values;
    hazards->list++;
    hazards->n_spans = 0;
    if (n_buffers > hazards->n_buffers) {
        free(hazards->of_buffer);
        hazards->of_buffer = NULL;
        hazards->n_buffers = 0;
        QDR_TRY(QDRI_NEW(2 * n_buffers, "a schedule", &hazards->of_buffer));
        hazards->n_buffers = 2 * n_buffers;
    }
    for (int number = 0; number < schedule->n_tasks; number++) {
        qdri_task *task = &schedule->tasks[number];
        QDR_TRY(reserve(hazards));
        task->n_waits = task->signals = 0;
        for (int i = 0; i < task->n_reads; i++) read(&p, task, number, task->reads[i]);
        for (int i = 0; i < task->n_writes; i++) write(&p, task, number, task->writes[i]);
        /* A task of a class that may not overlap waits for the previous task, and the next task waits for it. */
        const int classes = number ? (int)task->overlap_class | (int)task[-1].overlap_class : 0;
        if (classes & ~overlap) wait_for(&p, task, number - 1);
    }
    return QDR_OK;
}
