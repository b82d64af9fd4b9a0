/* SPDX-License-Identifier: Apache-2.0 */
/* Appending tasks and finding what they must wait for. */
#include "core/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/size.h"

/* Who touched a buffer last. Task numbers; -1: nobody. */
struct qdri_hazard {
    int writer;
    int readers[QDRI_N_STREAMS];
};

/* Doubles a list of `size`-byte items; the old one is freed. */
static qdr_status enlarge(void **items, int n, int capacity, size_t size, const char *what)
{
    void *larger = NULL;
    QDR_TRY(qdri_calloc((size_t)capacity, size, what, &larger));
    if (n) memcpy(larger, *items, (size_t)n * size);
    free(*items);
    *items = larger;
    return QDR_OK;
}

void qdri_builder_begin(qdri_builder *builder, qdri_schedule *schedule, qdri_buffers *buffers,
                        const qdri_place *place, int overlap, int prefetch)
{
    *builder = (qdri_builder){.schedule = schedule,
                              .buffers = buffers,
                              .place = *place,
                              .overlap = overlap,
                              .prefetch = prefetch};
    for (int s = 0; s < QDRI_N_STREAMS; s++) {
        builder->last_on_stream[s] = -1;
        for (int t = 0; t < QDRI_N_STREAMS; t++) builder->waited[s][t] = -1;
    }
    builder->gradient_slots[0] = builder->gradient_slots[1] = builder->gradient_temp = QDRI_NO_REF;
    schedule->n_tasks = 0;
    qdri_buffers_reset_pool(buffers);
}

static struct qdri_hazard *hazard_of(qdri_builder *builder, qdri_ref ref)
{
    if (ref.buffer >= builder->n_hazards) {
        const int n = 2 * builder->buffers->n + 16;
        builder->status = enlarge((void **)&builder->hazards, builder->n_hazards, n,
                                  sizeof *builder->hazards, "a schedule");
        if (builder->status != QDR_OK) return NULL;
        for (int i = builder->n_hazards; i < n; i++) {
            builder->hazards[i].writer = -1;
            for (int s = 0; s < QDRI_N_STREAMS; s++) builder->hazards[i].readers[s] = -1;
        }
        builder->n_hazards = n;
    }
    return &builder->hazards[ref.buffer];
}

/* Lets `task` wait for an earlier one, unless its stream has done so already. */
static void wait_for(qdri_builder *builder, qdri_task *task, int earlier)
{
    if (earlier < 0) return;
    const int other = builder->schedule->tasks[earlier].stream;
    if (other == task->stream || builder->waited[task->stream][other] >= earlier) return;
    builder->waited[task->stream][other] = earlier;
    builder->schedule->tasks[earlier].signals = 1;
    for (int i = 0; i < task->n_waits; i++)
        if (builder->schedule->tasks[task->waits[i]].stream == other) {
            task->waits[i] = earlier;
            return;
        }
    task->waits[task->n_waits++] = earlier;
}

static void wait_for_operands(qdri_builder *builder, qdri_task *task)
{
    for (int i = 0; i < task->n_reads; i++) {
        if (task->reads[i].buffer < 0) continue;
        const struct qdri_hazard *hazard = hazard_of(builder, task->reads[i]);
        if (!hazard) return;
        wait_for(builder, task, hazard->writer);
    }
    for (int i = 0; i < task->n_writes; i++) {
        if (task->writes[i].buffer < 0) continue;
        const struct qdri_hazard *hazard = hazard_of(builder, task->writes[i]);
        if (!hazard) return;
        wait_for(builder, task, hazard->writer);
        for (int s = 0; s < QDRI_N_STREAMS; s++) wait_for(builder, task, hazard->readers[s]);
    }
}

static void note_operands(qdri_builder *builder, const qdri_task *task, int number)
{
    for (int i = 0; i < task->n_reads; i++)
        if (task->reads[i].buffer >= 0)
            builder->hazards[task->reads[i].buffer].readers[task->stream] = number;
    for (int i = 0; i < task->n_writes; i++) {
        if (task->writes[i].buffer < 0) continue;
        struct qdri_hazard *hazard = &builder->hazards[task->writes[i].buffer];
        hazard->writer = number;
        for (int s = 0; s < QDRI_N_STREAMS; s++) hazard->readers[s] = -1;
    }
}

/* Tasks of a class that may not overlap wait for the task before them, and the one after waits for
 * them. */
static void wait_in_line(qdri_builder *builder, qdri_task *task, int number)
{
    if (number == 0) return;
    const qdri_task *before = &builder->schedule->tasks[number - 1];
    const int alone = (int)task->part & ~builder->overlap,
              before_alone = (int)before->part & ~builder->overlap;
    if (alone || before_alone) wait_for(builder, task, number - 1);
}

void qdri_schedule_add(qdri_builder *builder, const qdri_task *task)
{
    qdri_schedule *schedule = builder->schedule;
    if (builder->status != QDR_OK) return;
    if (schedule->n_tasks == schedule->capacity) {
        const int capacity = schedule->capacity ? 2 * schedule->capacity : 32;
        builder->status = enlarge((void **)&schedule->tasks, schedule->n_tasks, capacity,
                                  sizeof *schedule->tasks, "a schedule");
        if (builder->status != QDR_OK) return;
        schedule->capacity = capacity;
    }
    const int number = schedule->n_tasks;
    qdri_task *added = &schedule->tasks[number];
    *added = *task;
    added->n_waits = added->signals = 0;
    wait_for_operands(builder, added);
    wait_in_line(builder, added, number);
    if (builder->status != QDR_OK) return;
    note_operands(builder, added, number);
    builder->last_on_stream[added->stream] = number;
    schedule->n_tasks++;
}

qdr_status qdri_builder_end(qdri_builder *builder)
{
    free(builder->hazards);
    free(builder->uses);
    free(builder->slots);
    builder->hazards = NULL;
    builder->uses = NULL;
    builder->slots = NULL;
    return builder->status != QDR_OK ? builder->status : builder->buffers->status;
}

void qdri_schedule_free(qdri_schedule *schedule)
{
    free(schedule->tasks);
    *schedule = (qdri_schedule){0};
}

qdr_channel qdri_reduce_channel(qdr_axis axis)
{
    static const qdr_channel channels[QDR_N_AXES] = {QDR_CHANNEL_X_REDUCE, QDR_CHANNEL_Y_REDUCE,
                                                     QDR_CHANNEL_Z_REDUCE, QDR_CHANNEL_D_REDUCE};
    return channels[axis];
}

qdr_channel qdri_gather_channel(qdr_axis axis)
{
    static const qdr_channel channels[QDR_N_AXES] = {QDR_CHANNEL_X_GATHER, QDR_CHANNEL_Y_GATHER,
                                                     QDR_CHANNEL_Z_GATHER, QDR_CHANNEL_D_REDUCE};
    return channels[axis];
}

qdr_axis qdri_channel_axis(qdr_channel channel)
{
    static const qdr_axis axes[QDR_N_CHANNELS] = {QDR_X, QDR_X, QDR_Y, QDR_Y, QDR_Z, QDR_Z,
                                                  QDR_D, QDR_X, QDR_Y, QDR_Z, QDR_D};
    return axes[channel];
}

/* Elements this rank sends: pairwise exchange of parts, all-reduce in two steps. */
static int64_t elems_sent(const qdri_task *task, int g, int rank)
{
    const int whole = task->coll == QDR_ALL_REDUCE || task->split_unit > 0;
    const int64_t total = whole ? task->count : task->count * g;
    int64_t begin, end;
    qdri_split(total, task->split_unit > 0 ? task->split_unit : 1, g, rank, &begin, &end);
    const int64_t own = end - begin, scattered = total - own, gathered = own * (g - 1);
    if (task->coll == QDR_ALL_GATHER) return gathered;
    return task->coll == QDR_REDUCE_SCATTER ? scattered : scattered + gathered;
}

void qdri_add_collective(qdri_builder *builder, const qdri_task *task)
{
    const qdr_axis axis = qdri_channel_axis(task->channel);
    const int g = builder->place.size[axis];
    if (g == 1) return;
    qdri_task added = *task;
    added.kind = QDRI_TASK_COLLECTIVE;
    added.stream = QDRI_STREAM_OF_CHANNEL(task->channel);
    added.bytes_sent = elems_sent(task, g, builder->place.coordinate[axis]) *
                       (int64_t)qdr_dtype_bytes(task->dtype);
    qdri_schedule_add(builder, &added);
}
