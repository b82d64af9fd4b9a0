/* SPDX-License-Identifier: Apache-2.0 */
/* The lifetimes of values, and what follows from their places. */
#include "schedule/memory.h"

#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "schedule/memory_parts.h"

/* ---- lives ---- */

static void note_use(qdri_memory_pass *p, int *life_of, int number, qdri_ref ref)
{
    const int value = ref.buffer - p->schedule->first_value;
    const int stream = p->schedule->tasks[number].stream;
    if (ref.buffer < 0 || value < 0 || ref.bytes == 0) return;
    if (life_of[value] < 0) {
        const qdri_value *of = &p->schedule->values[value];
        qdri_lifetime *added = &p->lives[p->n];
        life_of[value] = p->n++;
        *added = (qdri_lifetime){.value = value, .first = number, .stream = stream};
        added->end = of->end < p->schedule->n_tasks ? of->end : p->schedule->n_tasks;
        added->bytes = qdri_align_bytes(of->bytes, QDRI_BUFFER_ALIGN);
        memset(added->last_on, -1, sizeof added->last_on);
        p->sum_bytes += added->bytes;
    }
    qdri_lifetime *life = &p->lives[life_of[value]];
    life->last_on[stream] = number;
    if (life->end <= number) life->end = number + 1;
}

static qdr_status find_lives(qdri_memory_pass *p)
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
static qdr_status each_pair(qdri_memory_pass *p, void (*meet)(qdri_memory_pass *p, int a, int b))
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

static void count_pair(qdri_memory_pass *p, int a, int b)
{
    p->lives[a].n_near++;
    p->lives[b].n_near++;
    p->n_near += 2;
}

static void note_pair(qdri_memory_pass *p, int a, int b)
{
    p->lives[a].near[p->lives[a].n_near++] = b;
    p->lives[b].near[p->lives[b].n_near++] = a;
}

static qdr_status find_neighbours(qdri_memory_pass *p)
{
    int *next = NULL;
    QDR_TRY(QDRI_NEW(p->n_near, "a schedule", &p->near));
    next = p->near;
    for (int i = 0; i < p->n; i++) {
        p->lives[i].near = next;
        next += p->lives[i].n_near;
        p->lives[i].n_near = 0;
    }
    return each_pair(p, note_pair);
}

/* ---- order ---- */

/* The last tasks that used a buffer or a value; writer -1: none. */
typedef struct uses {
    int writer;
    unsigned read_by; /* since then: bit s: a task on stream s, the last of which is readers[s] */
    int readers[QDRI_N_STREAMS];
} uses;

/* Task i begins after an earlier one has ended, and those that ended before. */
static void put_after(qdri_memory_pass *p, int i, int earlier)
{
    if (earlier < 0) return;
    const int stream = p->schedule->tasks[earlier].stream;
    int *after = p->after[i];
    if (after[stream] >= earlier) return;
    for (int s = 0; s < QDRI_N_STREAMS; s++)
        if (p->after[earlier][s] > after[s]) after[s] = p->after[earlier][s];
    after[stream] = earlier;
}

static void order_task(qdri_memory_pass *p, int i, uses *of)
{
    const qdri_task *task = &p->schedule->tasks[i];
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

/* By data, a whole value at a time: places are chosen by it, but nothing relies on it. */
static qdr_status find_order(qdri_memory_pass *p)
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
        const int stream = schedule->tasks[i].stream;
        memset(p->after[i], -1, sizeof p->after[i]);
        put_after(p, i, last_on[stream]);
        order_task(p, i, of);
        last_on[stream] = i;
    }
    free(of);
    return QDR_OK;
}

/* ---- the pass ---- */

static void release(qdri_memory_pass *p)
{
    free(p->lives);
    free(p->near);
    free(p->after);
    free(p->order);
    free(p->taken);
    free(p->best);
}

static void place_apart(qdri_memory_pass *p)
{
    p->best_bytes = 0;
    for (int i = 0; i < p->n; i++) {
        p->lives[i].offset = p->best_bytes;
        p->best_bytes += p->lives[i].bytes;
    }
}

static qdr_status place_values(qdri_memory_pass *p)
{
    QDR_TRY(find_lives(p));
    QDR_TRY(each_pair(p, count_pair));
    if (p->least_bytes == p->sum_bytes) {
        place_apart(p);
        return QDR_OK;
    }
    QDR_TRY(find_neighbours(p));
    QDR_TRY(find_order(p));
    QDR_TRY(QDRI_NEW(p->n, "a schedule", &p->order));
    QDR_TRY(QDRI_NEW(p->n, "a schedule", &p->taken));
    QDR_TRY(QDRI_NEW(p->n, "a schedule", &p->best));
    qdri_memory_find_places(p);
    return QDR_OK;
}

static void move(const qdri_schedule *schedule, qdri_ref workspace, qdri_ref *ref)
{
    if (ref->buffer < schedule->first_value) return;
    ref->offset += schedule->values[ref->buffer - schedule->first_value].offset;
    ref->buffer = workspace.buffer;
}

static void move_operands(const qdri_schedule *schedule, qdri_ref workspace)
{
    for (int i = 0; i < schedule->n_tasks; i++) {
        qdri_task *task = &schedule->tasks[i];
        for (int j = 0; j < task->n_reads; j++) move(schedule, workspace, &task->reads[j]);
        for (int j = 0; j < task->n_writes; j++) move(schedule, workspace, &task->writes[j]);
    }
}

qdr_status qdri_schedule_place(qdri_schedule *schedule, qdri_ref workspace)
{
    qdri_memory_pass p = {.schedule = schedule};
    if (schedule->n_values == 0) return QDR_OK;
    const qdr_status status = place_values(&p);
    for (int i = 0; status == QDR_OK && i < p.n; i++) schedule->values[p.lives[i].value].offset = p.lives[i].offset;
    schedule->workspace_bytes = p.best_bytes;
    schedule->least_bytes = p.least_bytes;
    if (status == QDR_OK) move_operands(schedule, workspace);
    release(&p);
    return status;
}
