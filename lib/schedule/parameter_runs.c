/* SPDX-License-Identifier: Apache-2.0 */
/* The positions of a shard's elements in the whole parameter. */
#include "core/block.h"
#include "schedule/net_parts.h"

/* Local rows or columns that are also consecutive globally. */
typedef struct segment {
    int64_t local, global, n;
} segment;

/* The segments along one side of the block; segments that are adjacent both locally and globally are merged. */
static int find_segments(const qdr_block blocks[QDR_MAX_BLOCKS], int n_parts, int part, segment found[QDR_MAX_BLOCKS])
{
    const int64_t width = qdri_blocks_part(blocks, n_parts, part);
    int n = 0;
    for (int64_t at = 0, run = 0; at < width; at += run) {
        const int64_t global = qdri_blocks_global(blocks, n_parts, part, at, &run);
        if (n && found[n - 1].global + found[n - 1].n == global)
            found[n - 1].n += run;
        else
            found[n++] = (segment){.local = at, .global = global, .n = run};
    }
    return n;
}

/* A block as it is stored: lines of consecutive elements. */
typedef struct lines {
    segment across[QDR_MAX_BLOCKS], along[QDR_MAX_BLOCKS]; /* which lines, and which elements of a line */
    int n_across, n_along;
    int64_t length; /* of a line */
    int turned; /* a line is a column */
    int64_t shard_begin;
} lines;

static segment cut(segment s, int64_t begin, int64_t end)
{
    const int64_t first = begin > s.local ? begin : s.local;
    const int64_t n = (end < s.local + s.n ? end : s.local + s.n) - first;
    return (segment){.local = first, .global = s.global + first - s.local, .n = n > 0 ? n : 0};
}

/* Adds elements [begin, end) of each of the lines [first, last). */
static int add_band(const lines *l, int64_t first, int64_t last, int64_t begin, int64_t end, qdr_parameter_run *runs)
{
    int n = 0;
    for (int i = 0; i < l->n_across; i++)
        for (int j = 0; j < l->n_along; j++) {
            const segment across = cut(l->across[i], first, last), along = cut(l->along[j], begin, end);
            const segment *rows = l->turned ? &along : &across, *cols = l->turned ? &across : &along;
            if (!across.n || !along.n) continue;
            runs[n++] = (qdr_parameter_run){.offset = across.local * l->length + along.local - l->shard_begin,
                                            .row = rows->global,
                                            .col = cols->global,
                                            .n_rows = rows->n,
                                            .n_cols = cols->n,
                                            .row_step = l->turned ? 1 : l->length,
                                            .col_step = l->turned ? l->length : 1};
        }
    return n;
}

/* A shard consists of the end of a line, whole lines, and the beginning of a line. */
int qdri_parameter_runs(const qdri_parameter *p, qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS])
{
    lines l = {.turned = p->storage == QDR_IN_OUT, .shard_begin = p->shard_begin};
    if (p->n_elems == 0) return 0;
    l.length = l.turned ? p->n_rows : p->n_cols;
    const int n_rows = find_segments(p->rows, p->row_parts, p->row_part, l.turned ? l.along : l.across);
    const int n_cols = find_segments(p->cols, p->col_parts, p->col_part, l.turned ? l.across : l.along);
    l.n_across = l.turned ? n_cols : n_rows;
    l.n_along = l.turned ? n_rows : n_cols;
    const int64_t begin = p->shard_begin, end = begin + p->n_elems;
    const int64_t first = begin / l.length, last = (end - 1) / l.length;
    const int64_t from = begin % l.length, to = (end - 1) % l.length + 1;
    if (first == last) return add_band(&l, first, first + 1, from, to, runs);
    const int whole_first = from == 0, whole_last = to == l.length;
    int n = 0;
    if (!whole_first) n += add_band(&l, first, first + 1, from, l.length, runs);
    n += add_band(&l, first + !whole_first, last + whole_last, 0, l.length, runs + n);
    if (!whole_last) n += add_band(&l, last, last + 1, 0, to, runs + n);
    return n;
}

int qdri_parameter_state_runs(const qdri_parameter *p, qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS])
{
    qdri_parameter part = *p;
    part.shard_begin += p->state_begin;
    part.n_elems = qdri_parameter_updates(p);
    return qdri_parameter_runs(&part, runs);
}
