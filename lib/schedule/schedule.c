/* SPDX-License-Identifier: Apache-2.0 */
/* Appending tasks and finding what they must wait for. */
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/size.h"

void qdri_builder_begin(qdri_builder *builder, qdri_schedule *schedule, qdri_buffers *buffers, qdri_hazards *hazards,
                        const qdri_place *place, int overlap, int prefetch)
{
    *builder = (qdri_builder){.schedule = schedule,
                              .buffers = buffers,
                              .hazards = hazards,
                              .place = *place,
                              .overlap = overlap,
                              .prefetch = prefetch,
                              .n_parts = 1};
    for (int s = 0; s < QDRI_N_STREAMS; s++) {
        builder->last_on_stream[s] = -1;
        for (int t = 0; t < QDRI_N_STREAMS; t++) builder->waited[s][t] = -1;
    }
    builder->gradient_slots[0] = builder->gradient_slots[1] = builder->gradient_temp = QDRI_NO_REF;
    schedule->n_tasks = 0;
    if (hazards) qdri_hazards_begin(hazards);
    qdri_buffers_reset_pool(buffers);
}

void qdri_builder_cut_rows(qdri_builder *builder, int64_t n_rows, int64_t unit, int n_parts)
{
    int64_t most = n_rows / unit, begin;
    if (most > QDRI_MAX_BATCH_PARTS) most = QDRI_MAX_BATCH_PARTS;
    builder->n_parts = n_parts < most ? n_parts : (int)most;
    if (builder->n_parts < 1) builder->n_parts = 1;
    for (int part = 0; part < builder->n_parts; part++)
        qdri_split(n_rows, unit, builder->n_parts, part, &begin, &builder->part_begin[part + 1]);
}

void qdri_part_rows(const qdri_builder *builder, int part, int64_t n_rows, int64_t *begin, int64_t *end)
{
    *begin = builder->n_parts > 1 ? builder->part_begin[part] : 0;
    *end = builder->n_parts > 1 ? builder->part_begin[part + 1] : n_rows;
}

/* Makes `task` wait for an earlier one, unless its stream has already done so. */
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

static void wait_for_operand(qdri_builder *builder, qdri_task *task, qdri_ref ref, int is_written)
{
    qdri_span *spans;
    int n_spans;
    if (ref.buffer < 0 || builder->status != QDR_OK) return;
    builder->status = qdri_hazards_find(builder->hazards, ref, &spans, &n_spans);
    if (builder->status != QDR_OK) return;
    for (int i = 0; i < n_spans; i++) {
        wait_for(builder, task, spans[i].writer);
        for (int s = 0; is_written && s < QDRI_N_STREAMS; s++) wait_for(builder, task, spans[i].readers[s]);
    }
}

static void note_read(qdri_builder *builder, const qdri_task *task, qdri_ref ref, int number)
{
    qdri_span *spans;
    int n_spans;
    if (ref.buffer < 0 || builder->status != QDR_OK) return;
    builder->status = qdri_hazards_find(builder->hazards, ref, &spans, &n_spans);
    for (int i = 0; i < n_spans; i++) spans[i].readers[task->stream] = number;
}

static void wait_for_operands(qdri_builder *builder, qdri_task *task)
{
    for (int i = 0; i < task->n_reads; i++) wait_for_operand(builder, task, task->reads[i], 0);
    for (int i = 0; i < task->n_writes; i++) wait_for_operand(builder, task, task->writes[i], 1);
}

static void note_operands(qdri_builder *builder, const qdri_task *task, int number)
{
    for (int i = 0; i < task->n_reads; i++) note_read(builder, task, task->reads[i], number);
    for (int i = 0; i < task->n_writes; i++)
        if (task->writes[i].buffer >= 0 && builder->status == QDR_OK)
            qdri_hazards_write(builder->hazards, task->writes[i], number);
}

/* A task of a class that may not overlap waits for the previous task, and the next task waits for it. */
static void wait_in_line(qdri_builder *builder, qdri_task *task, int number)
{
    if (number == 0) return;
    const qdri_task *before = &builder->schedule->tasks[number - 1];
    const int alone = (int)task->overlap_class & ~builder->overlap,
              before_alone = (int)before->overlap_class & ~builder->overlap;
    if (alone || before_alone) wait_for(builder, task, number - 1);
}

static void find_waits(qdri_builder *builder, qdri_task *task, int number)
{
    wait_for_operands(builder, task);
    wait_in_line(builder, task, number);
    if (builder->status == QDR_OK) note_operands(builder, task, number);
}

/* ---- parts ---- */

struct qdri_held_task {
    qdri_task task;
    int part;
};

static void keep_back(qdri_builder *builder, const qdri_task *task)
{
    builder->status = qdri_list_grow((void **)&builder->held, builder->n_held, &builder->held_capacity,
                                     sizeof *builder->held, "a schedule");
    if (builder->status == QDR_OK) builder->held[builder->n_held++] = (struct qdri_held_task){*task, builder->part};
}

void qdri_builder_hold(qdri_builder *builder)
{
    builder->holds = builder->n_parts > 1;
    builder->part = QDRI_BEFORE_PARTS;
}

void qdri_builder_give(qdri_builder *builder, qdri_ref slot)
{
    if (!builder->holds) {
        qdri_buffers_give(builder->buffers, slot);
        return;
    }
    if (builder->status == QDR_OK)
        builder->status = qdri_list_grow((void **)&builder->given, builder->n_given, &builder->given_capacity,
                                         sizeof *builder->given, "a schedule");
    if (builder->status == QDR_OK) builder->given[builder->n_given++] = slot;
}

static void append(qdri_builder *builder, const qdri_task *task);

void qdri_builder_release(qdri_builder *builder)
{
    builder->holds = 0;
    for (int part = QDRI_BEFORE_PARTS; part <= QDRI_AFTER_PARTS; part++)
        for (int i = 0; i < builder->n_held; i++)
            if (builder->held[i].part == part) append(builder, &builder->held[i].task);
    for (int i = 0; i < builder->n_given; i++) qdri_buffers_give(builder->buffers, builder->given[i]);
    builder->n_held = builder->n_given = 0;
}

/* ---- adding ---- */

void qdri_schedule_add(qdri_builder *builder, const qdri_task *task)
{
    if (builder->status != QDR_OK) return;
    if (builder->holds)
        keep_back(builder, task);
    else
        append(builder, task);
}

static void append(qdri_builder *builder, const qdri_task *task)
{
    qdri_schedule *schedule = builder->schedule;
    if (builder->status != QDR_OK) return;
    builder->status = qdri_list_grow((void **)&schedule->tasks, schedule->n_tasks, &schedule->capacity,
                                     sizeof *schedule->tasks, "a schedule");
    if (builder->status != QDR_OK) return;
    const int number = schedule->n_tasks;
    qdri_task *added = &schedule->tasks[number];
    *added = *task;
    added->n_waits = added->signals = 0;
    if (builder->hazards) find_waits(builder, added, number);
    if (builder->status != QDR_OK) return;
    builder->last_on_stream[added->stream] = number;
    schedule->n_tasks++;
}

qdr_status qdri_builder_end(qdri_builder *builder)
{
    free(builder->uses);
    free(builder->slots);
    free(builder->held);
    free(builder->given);
    builder->uses = NULL;
    builder->slots = NULL;
    builder->held = NULL;
    builder->given = NULL;
    return builder->status != QDR_OK ? builder->status : builder->buffers->status;
}

void qdri_schedule_free(qdri_schedule *schedule)
{
    free(schedule->tasks);
    *schedule = (qdri_schedule){0};
}

qdr_channel qdri_reduce_channel(qdr_axis axis)
{
    static const qdr_channel channels[QDR_N_AXES] = {QDR_CHANNEL_X_REDUCE, QDR_CHANNEL_Y_REDUCE, QDR_CHANNEL_Z_REDUCE,
                                                     QDR_CHANNEL_D_REDUCE};
    return channels[axis];
}

qdr_channel qdri_gather_channel(qdr_axis axis)
{
    static const qdr_channel channels[QDR_N_AXES] = {QDR_CHANNEL_X_GATHER, QDR_CHANNEL_Y_GATHER, QDR_CHANNEL_Z_GATHER,
                                                     QDR_CHANNEL_D_REDUCE};
    return channels[axis];
}

qdr_channel qdri_statistics_channel(qdr_axis axis) { return (qdr_channel)((int)QDR_CHANNEL_X_STAT + (int)axis); }

/* Statistics are small, and the next kernel needs them: they run between kernels. */
static int stream_of_collective(qdr_channel channel)
{
    return qdri_is_statistics(channel) ? QDRI_STREAM_OF_COMPUTE : QDRI_STREAM_OF_CHANNEL(channel);
}

int qdri_task_row(const qdri_task *task)
{
    return task->kind == QDRI_TASK_COLLECTIVE ? QDRI_STREAM_OF_CHANNEL(task->channel) : task->stream;
}

int qdri_task_counts_part(const qdri_task *task)
{
    return (task->coll == QDR_ALL_GATHER || task->coll == QDR_REDUCE_SCATTER) && task->split_unit == 0;
}

/* Elements that this rank sends: pairwise exchange of parts, all-reduce in two steps. */
static int64_t elems_sent(const qdri_task *task, int g, int rank)
{
    if (task->coll == QDR_SEND_RECV) return task->count;
    const int64_t total = qdri_task_counts_part(task) ? task->count * g : task->count;
    int64_t begin, end;
    qdri_split(total, task->split_unit > 0 ? task->split_unit : 1, g, rank, &begin, &end);
    const int64_t own = end - begin, scattered = total - own, gathered = own * (g - 1);
    if (task->coll == QDR_ALL_GATHER) return gathered;
    return task->coll == QDR_REDUCE_SCATTER ? scattered : scattered + gathered;
}

void qdri_add_collective(qdri_builder *builder, const qdri_task *task)
{
    const qdr_axis axis = qdr_channel_axis(task->channel);
    const int g = builder->place.size[axis];
    if (g == 1) return;
    qdri_task added = *task;
    added.kind = QDRI_TASK_COLLECTIVE;
    added.stream = stream_of_collective(task->channel);
    added.bytes_sent = elems_sent(task, g, builder->place.coordinate[axis]) * (int64_t)qdr_dtype_bytes(task->dtype);
    qdri_schedule_add(builder, &added);
}
