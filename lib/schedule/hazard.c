/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of buffers. */
#include "schedule/hazard.h"

#include <stdlib.h>
#include <string.h>

#include "core/size.h"

/* Sorted, without gaps, from 0 to SIZE_MAX. */
typedef struct qdri_spans {
    qdri_span *items;
    int n, capacity;
    int64_t list; /* for which they were recorded */
} qdri_spans;

/* Room for two more spans. */
static qdr_status reserve(qdri_spans *spans)
{
    qdri_span *larger = NULL;
    if (spans->n + 2 <= spans->capacity) return QDR_OK;
    const int capacity = spans->capacity ? 2 * spans->capacity : 4;
    QDR_TRY(QDRI_NEW(capacity, "a schedule", &larger));
    if (spans->n) memcpy(larger, spans->items, (size_t)spans->n * sizeof *larger);
    free(spans->items);
    spans->items = larger;
    spans->capacity = capacity;
    return QDR_OK;
}

static qdr_status enlarge(qdri_hazards *hazards, int n_buffers)
{
    qdri_spans *larger = NULL;
    QDR_TRY(QDRI_NEW(n_buffers, "a schedule", &larger));
    if (hazards->n_buffers) memcpy(larger, hazards->of_buffer, (size_t)hazards->n_buffers * sizeof *larger);
    free(hazards->of_buffer);
    hazards->of_buffer = larger;
    hazards->n_buffers = n_buffers;
    return QDR_OK;
}

static void begin(qdri_spans *spans, int64_t list)
{
    spans->list = list;
    spans->items[0] = (qdri_span){.begin = 0, .end = SIZE_MAX, .writer = -1};
    for (int s = 0; s < QDRI_N_STREAMS; s++) spans->items[0].readers[s] = -1;
    spans->n = 1;
}

/* The first span that begins at or after `at`; a span that contains `at` is split there. */
static int cut(qdri_spans *spans, size_t at)
{
    int i = 0;
    while (i < spans->n && spans->items[i].end <= at) i++;
    if (i == spans->n || spans->items[i].begin == at) return i;
    memmove(&spans->items[i + 1], &spans->items[i], (size_t)(spans->n - i) * sizeof *spans->items);
    spans->items[i].end = spans->items[i + 1].begin = at;
    spans->n++;
    return i + 1;
}

void qdri_hazards_begin(qdri_hazards *hazards) { hazards->list++; }

static size_t end_of(qdri_ref ref) { return ref.bytes ? ref.offset + ref.bytes : SIZE_MAX; }

qdr_status qdri_hazards_find(qdri_hazards *hazards, qdri_ref ref, qdri_span **spans, int *n_spans)
{
    *n_spans = 0;
    if (ref.buffer >= hazards->n_buffers) QDR_TRY(enlarge(hazards, 2 * ref.buffer + 16));
    qdri_spans *all = &hazards->of_buffer[ref.buffer];
    QDR_TRY(reserve(all));
    if (all->list != hazards->list) begin(all, hazards->list);
    const int first = cut(all, ref.offset), behind = cut(all, end_of(ref));
    *spans = &all->items[first];
    *n_spans = behind - first;
    return QDR_OK;
}

void qdri_hazards_write(qdri_hazards *hazards, qdri_ref ref, int number)
{
    qdri_spans *all = &hazards->of_buffer[ref.buffer];
    const int first = cut(all, ref.offset), behind = cut(all, end_of(ref));
    qdri_span *span = &all->items[first];
    span->end = end_of(ref);
    span->writer = number;
    for (int s = 0; s < QDRI_N_STREAMS; s++) span->readers[s] = -1;
    memmove(span + 1, &all->items[behind], (size_t)(all->n - behind) * sizeof *span);
    all->n -= behind - first - 1;
}

void qdri_hazards_free(qdri_hazards *hazards)
{
    for (int i = 0; i < hazards->n_buffers; i++) free(hazards->of_buffer[i].items);
    free(hazards->of_buffer);
    *hazards = (qdri_hazards){0};
}
