/* SPDX-License-Identifier: Apache-2.0 */
/* Finding places for values. The smallest workspace is a problem of packing rectangles (bytes by tasks), for which
 * simple rules get within a few percent of the bound, and mostly reach it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/memory_parts.h"

/* MOST_STEPS: of a try times their number. */
enum { MOST_TRIES = 40, MOST_STEPS = 400000, MOST_OCCUPANTS = 32 };

static size_t end_of(const qdri_lifetime *l) { return l->offset + l->bytes; }

/* ---- the least memory ---- */

/* Neighbours that have places in this try, by offset. */
static int find_taken(qdri_memory_pass *p, const qdri_lifetime *l)
{
    int n = 0;
    for (int i = 0; i < l->n_near; i++) {
        qdri_lifetime *other = &p->lives[l->near[i]];
        int at = n;
        if (other->placed != p->n_tries) continue;
        for (; at > 0 && p->taken[at - 1]->offset > other->offset; at--) p->taken[at] = p->taken[at - 1];
        p->taken[at] = other;
        n++;
    }
    return n;
}

/* The smallest gap between neighbours, else behind all of them. */
static size_t find_gap(qdri_memory_pass *p, const qdri_lifetime *l)
{
    const int n = find_taken(p, l);
    size_t free_from = 0, best = 0, least = SIZE_MAX;
    for (int i = 0; i < n; i++) {
        const size_t next = p->taken[i]->offset;
        if (next > free_from && next - free_from >= l->bytes && next - free_from < least) {
            least = next - free_from;
            best = free_from;
        }
        if (end_of(p->taken[i]) > free_from) free_from = end_of(p->taken[i]);
    }
    return least < SIZE_MAX ? best : free_from;
}

/* Stops at the first value that ends behind `most`, which comes first at the next try. @return 1: all have places */
static int place_by_order(qdri_memory_pass *p, size_t most)
{
    size_t top = 0;
    p->n_tries++;
    for (int i = 0; i < p->n; i++) {
        qdri_lifetime *l = p->order[i];
        l->offset = find_gap(p, l);
        if (end_of(l) > most) {
            memmove(&p->order[1], &p->order[0], (size_t)i * sizeof(qdri_lifetime *));
            p->order[0] = l;
            return 0;
        }
        l->placed = p->n_tries;
        if (end_of(l) > top) top = end_of(l);
    }
    p->best_bytes = top;
    for (int i = 0; i < p->n; i++) p->best[i] = p->lives[i].offset;
    return 1;
}

static int by_bytes(const void *a, const void *b)
{
    const qdri_lifetime *x = *(qdri_lifetime *const *)a, *y = *(qdri_lifetime *const *)b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : (x > y) - (x < y);
}

/* In order of time, then the largest first. */
static void find_least(qdri_memory_pass *p)
{
    const int64_t n_tries = MOST_STEPS / (p->n_near + p->n + 1);
    const int most_tries = n_tries < 2 ? 2 : n_tries > MOST_TRIES ? MOST_TRIES : (int)n_tries;
    p->best_bytes = SIZE_MAX;
    for (int largest_first = 0; largest_first < 2; largest_first++) {
        for (int i = 0; i < p->n; i++) p->order[i] = &p->lives[i];
        if (largest_first) qsort(p->order, (size_t)p->n, sizeof(qdri_lifetime *), by_bytes);
        for (int try = 0; try < most_tries && p->best_bytes > p->least_bytes; try++)
            (void)place_by_order(p, p->best_bytes - 1);
    }
    for (int i = 0; i < p->n; i++) p->lives[i].offset = p->best[i];
}

/* ---- few waits ---- */

static int share_bytes(const qdri_lifetime *a, size_t offset, size_t bytes)
{
    return a->offset < offset + bytes && offset < end_of(a);
}

/* The streams for which `l` must wait if it follows `before` in the same place, and would not wait anyway. */
static unsigned waits_for(const qdri_memory_pass *p, const qdri_lifetime *l, const qdri_lifetime *before)
{
    unsigned streams = 0;
    for (int s = 0; s < QDRI_N_STREAMS; s++)
        if (s != l->stream && before->last_on[s] > p->after[l->first][s]) streams |= 1U << s;
    return streams;
}

/* The waits that a place adds: of the value for those that were there before, and of the one that follows it. Those
 * used much earlier or later are ordered anyway. */
static int waits_at(const qdri_memory_pass *p, const qdri_lifetime *l, size_t offset)
{
    const int at = (int)(l - p->lives);
    unsigned streams = 0, following = 0;
    for (int i = at - 1; i >= 0 && i >= at - MOST_OCCUPANTS; i--)
        if (p->lives[i].end <= l->first && share_bytes(&p->lives[i], offset, l->bytes))
            streams |= waits_for(p, l, &p->lives[i]);
    for (int i = at + 1; i < p->n && i <= at + MOST_OCCUPANTS; i++) {
        if (p->lives[i].first < l->end || !share_bytes(&p->lives[i], offset, l->bytes)) continue;
        following = waits_for(p, &p->lives[i], l);
        break;
    }
    return __builtin_popcount(streams) + __builtin_popcount(following);
}

static void try_place(const qdri_memory_pass *p, const qdri_lifetime *l, size_t offset, int *n_waits, size_t *best)
{
    const int n = waits_at(p, l, offset);
    if (n >= *n_waits) return;
    *n_waits = n;
    *best = offset;
}

/* Moves a value to the beginning or the end of another gap if that needs fewer waits. */
static void move(qdri_memory_pass *p, qdri_lifetime *l)
{
    int n_waits = waits_at(p, l, l->offset);
    if (n_waits == 0) return;
    const int n = find_taken(p, l);
    size_t free_from = 0, best = l->offset;
    for (int i = 0; i <= n; i++) {
        const size_t gap_end = i < n ? p->taken[i]->offset : p->best_bytes;
        if (gap_end >= free_from + l->bytes) {
            try_place(p, l, free_from, &n_waits, &best);
            try_place(p, l, gap_end - l->bytes, &n_waits, &best);
        }
        if (i < n && end_of(p->taken[i]) > free_from) free_from = end_of(p->taken[i]);
    }
    l->offset = best;
}

void qdri_memory_find_places(qdri_memory_pass *p)
{
    find_least(p);
    for (int i = 0; i < p->n; i++) p->lives[i].placed = p->n_tries;
    for (int i = 0; i < p->n; i++) move(p, &p->lives[i]);
}
