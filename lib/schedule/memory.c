/* SPDX-License-Identifier: Apache-2.0 */
/* The lifetimes of values, and their places. The smallest workspace is a problem of packing rectangles (bytes by
 * tasks), for which simple rules get within a few percent of the bound, and mostly reach it. */
#include "schedule/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"

/* A value that is used, from task `first` until before task `end`. */
typedef struct lifetime {
    int value, first, end;
    int stream; /* of the first task */
    int last_on[QDRI_N_STREAMS]; /* the last task on each stream; -1: none */
    size_t bytes, offset; /* aligned */
    int n_near, *near; /* lives that it overlaps with in time */
    int placed; /* the number of the try in which it got its place */
} lifetime;

typedef struct memory_pass {
    const qdri_schedule *schedule;
    lifetime *lives; /* by first task */
    int n, n_near;
    size_t sum_bytes, least_bytes; /* of all lives; of those at the same time */
    int (*after)[QDRI_N_STREAMS]; /* by task: the last task of each stream that has ended before it begins; -1: none */
    int *near; /* of all lives */
    lifetime **order, **taken; /* while places are found: the lives to be placed; neighbours that have places */
    size_t *best; /* offsets of the smallest placement so far */
    size_t best_bytes;
    int n_tries;
} memory_pass;

/* ---- lives ---- */

static void note_use(memory_pass *p, int *life_of, int number, qdri_ref ref)
{
    const int value = ref.buffer - p->schedule->first_value;
    const int stream = p->schedule->tasks[number].stream;
    if (ref.buffer < 0 || value < 0 || ref.bytes == 0) return;
    if (life_of[value] < 0) {
        const qdri_value *of = &p->schedule->values[value];
        lifetime *added = &p->lives[p->n];
        life_of[value] = p->n++;
        *added = (lifetime){.value = value, .first = number, .stream = stream};
        added->end = of->end < p->schedule->n_tasks ? of->end : p->schedule->n_tasks;
        added->bytes = qdri_align_bytes(of->bytes, QDRI_BUFFER_ALIGN);
        memset(added->last_on, -1, sizeof added->last_on);
        p->sum_bytes += added->bytes;
    }
    lifetime *life = &p->lives[life_of[value]];
    life->last_on[stream] = number;
    if (life->end <= number) life->end = number + 1;
}

static qdr_status find_lives(memory_pass *p)
{
    int *life_of = NULL;
    const int n_values = p->schedule->n_values;
    QDR_TRY(QDRI_NEW(n_values, "a schedule", &p->lives));
    QDR_TRY(QDRI_NEW(n_values, "a schedule", &life_of));
    memset(life_of, -1, (size_t)n_values * sizeof *life_of);
    for (int i = 0; i < p->schedule->n_tasks; i++) {
        const qdri_task *task = &p->schedule->tasks[i];
        for (int j = 0; j < task->n_reads; j++) note_use(p, life_of, i, task->reads[j]);
        for (int j = 0; j < task->n_writes; j++) note_use(p, life_of, i, task->writes[j]);
    }
    free(life_of);
    return QDR_OK;
}

/* Calls `meet` for all pairs of lives that overlap in time. */
static qdr_status each_pair(memory_pass *p, void (*meet)(memory_pass *p, int a, int b))
{
    int n = 0, *alive = NULL;
    size_t sum = 0;
    QDR_TRY(QDRI_NEW(p->n, "a schedule", &alive));
    for (int i = 0; i < p->n; i++) {
        int n_left = 0;
        for (int j = 0; j < n; j++) {
            if (p->lives[alive[j]].end <= p->lives[i].first) {
                sum -= p->lives[alive[j]].bytes;
                continue;
            }
            alive[n_left++] = alive[j];
            meet(p, alive[j], i);
        }
        alive[n_left] = i;
        n = n_left + 1;
        sum += p->lives[i].bytes;
        if (sum > p->least_bytes) p->least_bytes = sum;
    }
    free(alive);
    return QDR_OK;
}

static void count_pair(memory_pass *p, int a, int b)
{
    p->lives[a].n_near++;
    p->lives[b].n_near++;
    p->n_near += 2;
}

static void note_pair(memory_pass *p, int a, int b)
{
    p->lives[a].near[p->lives[a].n_near++] = b;
    p->lives[b].near[p->lives[b].n_near++] = a;
}

/* ---- order ---- */

/* The last tasks that used a buffer or a value; writer -1: none. */
typedef struct uses {
    int writer;
    unsigned read_by; /* since then: bit s: a task on stream s, the last of which is readers[s] */
    int readers[QDRI_N_STREAMS];
} uses;

/* Task i begins after an earlier one has ended, and those that ended before. */
static void put_after(memory_pass *p, int i, int earlier)
{
    if (earlier < 0) return;
    const int stream = p->schedule->tasks[earlier].stream;
    int *after = p->after[i];
    if (after[stream] >= earlier) return;
    for (int s = 0; s < QDRI_N_STREAMS; s++)
        if (p->after[earlier][s] > after[s]) after[s] = p->after[earlier][s];
    after[stream] = earlier;
}

/* By data, a whole value at a time: places are chosen by it, but nothing relies on it. */
static qdr_status find_order(memory_pass *p)
{
    const qdri_schedule *schedule = p->schedule;
    const int n = schedule->first_value + schedule->n_values;
    int last_on[QDRI_N_STREAMS];
    uses *of = NULL;
    QDR_TRY(QDRI_NEW(schedule->n_tasks, "a schedule", &p->after));
    QDR_TRY(QDRI_NEW(n, "a schedule", &of));
    for (int i = 0; i < n; i++) of[i].writer = -1;
    memset(last_on, -1, sizeof last_on);
    for (int i = 0; i < schedule->n_tasks; i++) {
        const qdri_task *task = &schedule->tasks[i];
        memset(p->after[i], -1, sizeof p->after[i]);
        put_after(p, i, last_on[task->stream]);
        last_on[task->stream] = i;
        for (int j = 0; j < task->n_reads; j++) {
            if (task->reads[j].buffer < 0) continue;
            uses *read = &of[task->reads[j].buffer];
            put_after(p, i, read->writer);
            read->readers[task->stream] = i;
            read->read_by |= 1U << task->stream;
        }
        for (int j = 0; j < task->n_writes; j++) {
            if (task->writes[j].buffer < 0) continue;
            uses *written = &of[task->writes[j].buffer];
            put_after(p, i, written->writer);
            for (int s = 0; written->read_by >> s; s++)
                if (s != task->stream && written->read_by >> s & 1) put_after(p, i, written->readers[s]);
            written->writer = i;
            written->read_by = 0;
        }
    }
    free(of);
    return QDR_OK;
}

/* MOST_STEPS: of a try times their number. */
enum { MOST_TRIES = 40, MOST_STEPS = 400000, MOST_OCCUPANTS = 32 };

static size_t end_of(const lifetime *l) { return l->offset + l->bytes; }

/* ---- the least memory ---- */

/* Neighbours that have places in this try, by offset. */
static int find_taken(memory_pass *p, const lifetime *l)
{
    int n = 0;
    for (int i = 0; i < l->n_near; i++) {
        lifetime *other = &p->lives[l->near[i]];
        int at = n;
        if (other->placed != p->n_tries) continue;
        for (; at > 0 && p->taken[at - 1]->offset > other->offset; at--) p->taken[at] = p->taken[at - 1];
        p->taken[at] = other;
        n++;
    }
    return n;
}

/* The smallest gap between neighbours, else behind all of them. */
static size_t find_gap(memory_pass *p, const lifetime *l)
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
static int place_by_order(memory_pass *p, size_t most)
{
    size_t top = 0;
    p->n_tries++;
    for (int i = 0; i < p->n; i++) {
        lifetime *l = p->order[i];
        l->offset = find_gap(p, l);
        if (end_of(l) > most) {
            memmove(&p->order[1], &p->order[0], (size_t)i * sizeof(lifetime *));
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
    const lifetime *x = *(lifetime *const *)a, *y = *(lifetime *const *)b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : (x > y) - (x < y);
}

/* In order of time, then the largest first. */
static void find_least(memory_pass *p)
{
    const int64_t n_tries = MOST_STEPS / (p->n_near + p->n + 1);
    const int most_tries = n_tries < 2 ? 2 : n_tries > MOST_TRIES ? MOST_TRIES : (int)n_tries;
    p->best_bytes = SIZE_MAX;
    for (int largest_first = 0; largest_first < 2; largest_first++) {
        for (int i = 0; i < p->n; i++) p->order[i] = &p->lives[i];
        if (largest_first) qsort(p->order, (size_t)p->n, sizeof(lifetime *), by_bytes);
        for (int try = 0; try < most_tries && p->best_bytes > p->least_bytes; try++)
            (void)place_by_order(p, p->best_bytes - 1);
    }
    for (int i = 0; i < p->n; i++) p->lives[i].offset = p->best[i];
}

/* ---- few waits ---- */

static int share_bytes(const lifetime *a, size_t offset, size_t bytes)
{
    return a->offset < offset + bytes && offset < end_of(a);
}

/* The streams for which `l` must wait if it follows `before` in the same place, and would not wait anyway. */
static unsigned waits_for(const memory_pass *p, const lifetime *l, const lifetime *before)
{
    unsigned streams = 0;
    for (int s = 0; s < QDRI_N_STREAMS; s++)
        if (s != l->stream && before->last_on[s] > p->after[l->first][s]) streams |= 1U << s;
    return streams;
}

/* The waits that a place adds: of the value for those that were there before, and of the one that follows it. Those
 * used much earlier or later are ordered anyway. */
static int waits_at(const memory_pass *p, const lifetime *l, size_t offset)
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

static void try_place(const memory_pass *p, const lifetime *l, size_t offset, int *n_waits, size_t *best)
{
    const int n = waits_at(p, l, offset);
    if (n >= *n_waits) return;
    *n_waits = n;
    *best = offset;
}

/* Moves a value to the beginning or the end of another gap if that needs fewer waits. */
static void move(memory_pass *p, lifetime *l)
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

/* ---- the pass ---- */

static qdr_status place_values(memory_pass *p)
{
    QDR_TRY(find_lives(p));
    QDR_TRY(each_pair(p, count_pair));
    if (p->least_bytes == p->sum_bytes) {
        p->best_bytes = 0;
        for (int i = 0; i < p->n; i++) {
            p->lives[i].offset = p->best_bytes;
            p->best_bytes += p->lives[i].bytes;
        }
        return QDR_OK;
    }
    QDR_TRY(QDRI_NEW(p->n_near, "a schedule", &p->near));
    for (int i = 0, at = 0; i < p->n; i++) {
        p->lives[i].near = &p->near[at];
        at += p->lives[i].n_near;
        p->lives[i].n_near = 0;
    }
    QDR_TRY(each_pair(p, note_pair));
    QDR_TRY(find_order(p));
    QDR_TRY(QDRI_NEW(p->n, "a schedule", &p->order));
    QDR_TRY(QDRI_NEW(p->n, "a schedule", &p->taken));
    QDR_TRY(QDRI_NEW(p->n, "a schedule", &p->best));
    find_least(p);
    for (int i = 0; i < p->n; i++) p->lives[i].placed = p->n_tries;
    for (int i = 0; i < p->n; i++) move(p, &p->lives[i]);
    return QDR_OK;
}

static void move_ref(const qdri_schedule *schedule, qdri_ref workspace, qdri_ref *ref)
{
    if (ref->buffer < schedule->first_value) return;
    ref->offset += schedule->values[ref->buffer - schedule->first_value].offset;
    ref->buffer = workspace.buffer;
}

qdr_status qdri_schedule_allocate(qdri_schedule *schedule, qdri_ref workspace)
{
    memory_pass p = {.schedule = schedule};
    if (schedule->n_values == 0) return QDR_OK;
    const qdr_status status = place_values(&p);
    for (int i = 0; status == QDR_OK && i < p.n; i++) schedule->values[p.lives[i].value].offset = p.lives[i].offset;
    schedule->workspace_bytes = p.best_bytes;
    schedule->least_bytes = p.least_bytes;
    for (int i = 0; status == QDR_OK && i < schedule->n_tasks; i++) {
        qdri_task *task = &schedule->tasks[i];
        for (int j = 0; j < task->n_reads; j++) move_ref(schedule, workspace, &task->reads[j]);
        for (int j = 0; j < task->n_writes; j++) move_ref(schedule, workspace, &task->writes[j]);
    }
    free(p.lives);
    free(p.near);
    free(p.after);
    free(p.order);
    free(p.taken);
    free(p.best);
    return status;
}
