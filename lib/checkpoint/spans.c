/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of a tensor were written. */
#include "checkpoint/spans.h"

#include <stdlib.h>
#include <string.h>

#include "core/size.h"

static qdri_span *item(const qdri_spans *spans, int i)
{
    const int n_gap = spans->capacity - spans->n_before - spans->n_after;
    return &spans->items[i < spans->n_before ? i : i + n_gap];
}

/* The number of spans that begin before a byte. */
static int find(const qdri_spans *spans, int64_t byte)
{
    int low = 0, high = spans->n_before + spans->n_after;
    if (spans->n_before && item(spans, spans->n_before - 1)->begin < byte) low = spans->n_before;
    if (low < high && item(spans, low)->begin >= byte) return low; /* most are added at the gap */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (item(spans, middle)->begin < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Moves the gap behind the first n spans. */
static void move_gap(qdri_spans *spans, int n)
{
    qdri_span *after = spans->items + spans->capacity - spans->n_after;
    const int n_moved = n - spans->n_before;
    if (n_moved > 0) memmove(spans->items + spans->n_before, after, (size_t)n_moved * sizeof *after);
    if (n_moved < 0) memmove(after + n_moved, spans->items + n, (size_t)-n_moved * sizeof *after);
    spans->n_before += n_moved;
    spans->n_after -= n_moved;
}

static qdr_status grow(qdri_spans *spans)
{
    const int old = spans->capacity;
    if (spans->n_before + spans->n_after < old) return QDR_OK;
    QDR_TRY(qdri_list_grow((void **)&spans->items, old, &spans->capacity, sizeof *spans->items, "parts of a tensor"));
    memmove(spans->items + spans->capacity - spans->n_after, spans->items + old - spans->n_after,
            (size_t)spans->n_after * sizeof *spans->items);
    return QDR_OK;
}

qdr_status qdri_spans_add(qdri_spans *spans, int64_t begin, int64_t end, int *overlaps)
{
    *overlaps = 0;
    if (begin == end) return QDR_OK;
    const int at = find(spans, begin), n = spans->n_before + spans->n_after;
    qdri_span *before = at > 0 ? item(spans, at - 1) : NULL, *after = at < n ? item(spans, at) : NULL;
    *overlaps = (before && before->end > begin) || (after && after->begin < end);
    if (*overlaps) return QDR_OK;
    if (before && before->end == begin && after && after->begin == end) {
        before->end = after->end;
        move_gap(spans, at);
        spans->n_after--;
    } else if (before && before->end == begin) {
        before->end = end;
    } else if (after && after->begin == end) {
        after->begin = begin;
    } else {
        QDR_TRY(grow(spans));
        move_gap(spans, at);
        spans->items[spans->n_before++] = (qdri_span){begin, end};
    }
    return QDR_OK;
}

void qdri_spans_free(qdri_spans *spans)
{
    free(spans->items);
    *spans = (qdri_spans){0};
}
