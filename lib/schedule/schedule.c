/* SPDX-License-Identifier: Apache-2.0 */
/* Appending tasks. */
#include "schedule/schedule.h"

#include <limits.h>
#include <stdlib.h>

#include "core/block.h"
#include "core/group.h"
#include "core/size.h"

void qdri_builder_begin(qdri_builder *builder, qdri_schedule *schedule, int n_buffers, const qdri_position *position,
                        int prefetch)
{
    *builder = (qdri_builder){.schedule = schedule, .position = *position, .prefetch = prefetch, .n_parts = 1};
    builder->whole_gradients[0] = builder->whole_gradients[1] = builder->reduced_gradient = QDRI_NO_REF;
    schedule->n_tasks = schedule->n_values = 0;
    schedule->first_value = n_buffers;
    schedule->workspace_bytes = schedule->least_bytes = 0;
}

/* Room for one more item of a list. @return 0: there is none, now or before */
static int grow(qdri_builder *builder, void **items, int n, int *capacity, size_t each)
{
    if (builder->status == QDR_OK) builder->status = qdri_list_grow(items, n, capacity, each, "a schedule");
    return builder->status == QDR_OK;
}

/* ---- values ---- */

qdri_ref qdri_builder_take(qdri_builder *builder, size_t bytes)
{
    qdri_schedule *schedule = builder->schedule;
    if (!grow(builder, (void **)&schedule->values, schedule->n_values, &schedule->value_capacity,
              sizeof *schedule->values))
        return QDRI_NO_REF;
    schedule->values[schedule->n_values] = (qdri_value){.bytes = bytes, .n_users = 1, .end = INT_MAX};
    return (qdri_ref){schedule->first_value + schedule->n_values++, 0, bytes};
}

/* NULL: it is a buffer, or none. */
static qdri_value *value_of(const qdri_builder *builder, qdri_ref ref)
{
    const int number = ref.buffer - builder->schedule->first_value;
    return ref.buffer < 0 || number < 0 ? NULL : &builder->schedule->values[number];
}

void qdri_builder_enlarge(qdri_builder *builder, qdri_ref ref, size_t bytes)
{
    qdri_value *value = value_of(builder, ref);
    if (value && value->bytes < bytes) value->bytes = bytes;
}

void qdri_builder_share(qdri_builder *builder, qdri_ref ref)
{
    qdri_value *value = value_of(builder, ref);
    if (value) value->n_users++;
}

void qdri_builder_give(qdri_builder *builder, qdri_ref ref)
{
    qdri_value *value = value_of(builder, ref);
    if (!value) return;
    value->end = builder->schedule->n_tasks;
    if (!builder->holds) {
        value->n_users--;
        return;
    }
    if (grow(builder, (void **)&builder->given, builder->n_given, &builder->given_capacity, sizeof *builder->given))
        builder->given[builder->n_given++] = ref;
}

int qdri_builder_users(const qdri_builder *builder, qdri_ref ref)
{
    const qdri_value *value = value_of(builder, ref);
    return value ? value->n_users : 0;
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

/* ---- parts ---- */

struct qdri_held_task {
    qdri_task task;
    int part;
};

void qdri_builder_hold(qdri_builder *builder)
{
    builder->holds = builder->n_parts > 1;
    builder->part = QDRI_BEFORE_PARTS;
}

void qdri_builder_release(qdri_builder *builder)
{
    const int again = builder->again; /* of new tasks, not of these */
    builder->holds = builder->again = 0;
    for (int part = QDRI_BEFORE_PARTS; part <= QDRI_AFTER_PARTS; part++)
        for (int i = 0; i < builder->n_held; i++)
            if (builder->held[i].part == part) qdri_schedule_add(builder, &builder->held[i].task);
    for (int i = 0; i < builder->n_given; i++) value_of(builder, builder->given[i])->n_users--;
    builder->n_held = builder->n_given = 0;
    builder->again = again;
}

/* ---- adding ---- */

void qdri_schedule_add(qdri_builder *builder, const qdri_task *task)
{
    qdri_schedule *schedule = builder->schedule;
    qdri_task *added;
    if (builder->holds) {
        if (!grow(builder, (void **)&builder->held, builder->n_held, &builder->held_capacity, sizeof *builder->held))
            return;
        builder->held[builder->n_held].part = builder->part;
        added = &builder->held[builder->n_held++].task;
    } else {
        if (!grow(builder, (void **)&schedule->tasks, schedule->n_tasks, &schedule->capacity, sizeof *schedule->tasks))
            return;
        added = &schedule->tasks[schedule->n_tasks++];
    }
    *added = *task;
    added->again |= builder->again;
    added->kernel.dtype = task->dtype;
    added->kernel.accumulate = task->accumulate;
}

void qdri_set_pass(qdri_task *task, int64_t m, int64_t n, int times)
{
    const double n_elems = (double)m * (double)n;
    task->m = m;
    task->n = n;
    task->work = (qdri_task_work){n_elems * times * (double)qdr_dtype_bytes(task->dtype), n_elems, 1, QDRI_COST_PLAIN};
}

void qdri_set_sum(qdri_task *task, int64_t m, int64_t n, qdri_ref a, qdri_ref b, qdri_ref y)
{
    task->kind = QDRI_TASK_KERNEL;
    task->kernel = (qdri_kernel){.kind = QDRI_K_ADD, .u.binary = {.n = m * n, .dtype2 = task->dtype}};
    task->n_reads = 2;
    task->reads[0] = a;
    task->reads[1] = b;
    task->n_writes = 1;
    task->writes[0] = y;
    qdri_set_pass(task, m, n, 3);
}

void qdri_set_copy(qdri_task *task, int64_t m, int64_t n, qdri_ref from, qdri_ref to)
{
    task->kind = QDRI_TASK_KERNEL;
    task->kernel = (qdri_kernel){.kind = QDRI_K_COPY, .u.block = {.row_bytes = to.bytes}};
    task->n_reads = task->n_writes = 1;
    task->reads[0] = from;
    task->writes[0] = to;
    qdri_set_pass(task, m, n, 2);
}

qdr_status qdri_builder_end(qdri_builder *builder)
{
    free(builder->uses);
    free(builder->gathered);
    free(builder->held);
    free(builder->given);
    builder->uses = NULL;
    builder->gathered = NULL;
    builder->held = NULL;
    builder->given = NULL;
    return builder->status;
}

void qdri_schedule_free(qdri_schedule *schedule)
{
    free(schedule->tasks);
    free(schedule->values);
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

void qdri_task_set_codec(const qdri_position *position, const qdri_coding *coding, qdri_task *task)
{
    const qdri_channel_group group = qdri_channel_group_of(position, task->channel);
    const int64_t unit = task->split_unit > 0 ? task->split_unit : 1;
    const int64_t total = qdri_task_counts_part(task) ? task->count * group.size : task->count;
    const qdr_codec *codec = NULL;
    if (task->traffic && coding)
        codec = qdri_coding_find(coding, task->channel, (qdr_traffic_class)(task->traffic - 1), task->dtype, total);
    task->codec = (qdr_codec){.kind = QDR_CODEC_RAW};
    task->bytes_plain = elems_sent(task, group.size, group.index) * (int64_t)qdr_dtype_bytes(task->dtype);
    task->bytes_sent = task->bytes_plain;
    if (!codec) return;
    const qdri_coded_coll coll = {codec, task->coll, task->dtype, total, unit, task->row_elems};
    task->codec = *codec;
    task->bytes_sent = qdri_coded_sent(&coding->groups[task->channel], &coll);
}

void qdri_add_collective(qdri_builder *builder, qdri_task *task)
{
    if (qdri_channel_group_of(&builder->position, task->channel).size == 1) return;
    task->kind = QDRI_TASK_COLLECTIVE;
    /* Statistics are small, and the next kernel needs them: they run between kernels. */
    task->stream = qdri_is_statistics(task->channel) ? QDRI_STREAM_OF_COMPUTE : QDRI_STREAM_OF_CHANNEL(task->channel);
    qdri_task_set_codec(&builder->position, builder->coding, task);
    qdri_schedule_add(builder, task);
}
