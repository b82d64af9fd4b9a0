/* SPDX-License-Identifier: Apache-2.0 */
/* Races: two unordered accesses to the same bytes, one of them a write. The history of a block keeps the accesses with
 * which a later one may still race. */
#include "internal.h"

static int writes(const fake_access *access) { return access->kind == FAKE_WRITE || access->kind == FAKE_SCRATCH; }

static int is_before(const fake_past *past, const fake_clock *clock)
{
    return past->time <= fake_clock_at(clock, past->slot);
}

static const char *does(const fake_access *access) { return writes(access) ? "writes" : "reads"; }

static void report(const fake_past *past, const fake_access *access, const fake_stream *stream, const char *name)
{
    fake_report(FAKE_RACE,
                "\"%s\" on stream %d %s %lld x %zu bytes at %p, \"%s\" on stream %d %s %lld x %zu "
                "at %p, and no event or wait of the host orders them",
                past->name, past->stream, does(&past->access), (long long)past->access.n_rows, past->access.row_bytes,
                past->access.begin, name, stream->number, does(access), (long long)access->n_rows, access->row_bytes,
                access->begin);
}

/* Whether whatever races with the older one races with the newer one, too. */
static int replaces(const fake_access *newer, const fake_access *older)
{
    return (writes(newer) || !writes(older)) && fake_covers(newer, older);
}

/* What all who enqueue have waited for is before all that comes. */
static void clean(fake_history *history)
{
    fake_clock known = fake_hosts_clock();
    int n = 0;
    for (int i = 0; i < history->n; i++) {
        if (!is_before(&history->past[i], &known)) history->past[n++] = history->past[i];
    }
    history->n = n;
    history->n_clean = 2 * n > 64 ? 2 * n : 64;
    fake_clock_free(&known);
}

/* Drops what the access replaces; says whether it races. */
static int compare(fake_history *history, const fake_access *access, const fake_stream *stream, const char *name)
{
    int n = 0, n_races = 0;
    for (int i = 0; i < history->n; i++) {
        const fake_past *past = &history->past[i];
        const int before = is_before(past, &stream->clock);
        if (before && replaces(access, &past->access)) continue;
        if (!before && (writes(access) || writes(&past->access)) && fake_overlap(&past->access, access) &&
            n_races++ == 0)
            report(past, access, stream, name);
        history->past[n++] = *past;
    }
    history->n = n;
    return n_races;
}

void fake_history_add(fake_history *history, const fake_access *access, fake_stream *stream, const char *name)
{
    if (history->n > history->n_clean) clean(history);
    compare(history, access, stream, name);
    if (history->n == history->capacity) {
        history->capacity = history->capacity ? 2 * history->capacity : 8;
        history->past = fake_grow(history->past, (size_t)history->capacity, sizeof(fake_past));
    }
    history->past[history->n++] = (fake_past){*access, stream->slot, stream->number,
                                              fake_clock_at(&stream->clock, stream->slot), name};
}

const fake_past *fake_history_open(const fake_history *history)
{
    const fake_clock *known = fake_host_clock();
    for (int i = 0; i < history->n; i++) {
        if (!is_before(&history->past[i], known)) return &history->past[i];
    }
    return NULL;
}

void fake_history_free(fake_history *history)
{
    free(history->past);
    *history = (fake_history){0};
}
