/* SPDX-License-Identifier: Apache-2.0 */
/* Executing a schedule: every task is enqueued on its stream, after the tasks it waits for. */
#include <stdio.h>
#include <string.h>

#include "core/operands.h"
#include "linear/internal.h"
#include "schedule/trace.h"

qdri_coll qdri_task_coll(const qdri_task *task)
{
    return (qdri_coll){.kind = task->coll,
                       .dtype = task->dtype,
                       .op = task->reduce,
                       .count = task->count,
                       .recv_count = task->recv_count,
                       .split_unit = task->split_unit,
                       .peer = task->peer,
                       .peer2 = task->peer2,
                       .label = task->name,
                       .codec = task->codec.kind != QDR_CODEC_RAW ? &task->codec : NULL,
                       .traffic = task->traffic,
                       .row_elems = task->row_elems};
}

qdri_gemm qdri_task_gemm(const qdri_task *task)
{
    return (qdri_gemm){.m = task->m,
                       .n = task->n,
                       .k = task->k,
                       .lda = task->trans_a ? task->m : task->k,
                       .ldb = task->trans_b ? task->k : task->n,
                       .ldc = task->n,
                       .trans_a = task->trans_a,
                       .trans_b = task->trans_b,
                       .alpha = 1,
                       .beta = task->accumulate ? 1 : 0,
                       .round_a = task->round_a,
                       .round_b = task->round_b,
                       .algorithm = task->algorithm,
                       .dtype = task->dtype,
                       .c_dtype = task->out_dtype};
}

typedef struct run {
    qdr_stack *stack;
    const qdri_task *task;
    qdri_gemm gemm; /* of a product, with the fused operations on its result */
    int is_done; /* fused with an earlier product */
    qdr_stream *stream;
    qdri_stamps *stamps; /* NULL: not measured */
    uint64_t seed; /* of this task, this time */
} run;

/* The padding at the end of a whole dW is communicated as zeros. */
static qdr_status zero_tail(const run *r)
{
    const qdri_ref whole = r->task->writes[0];
    char *memory = qdri_stack_pointer(r->stack, whole);
    if (!r->task->zero_tail) return QDR_OK;
    return qdri_fill_zero(r->stream, memory + whole.bytes - r->task->zero_tail, r->task->zero_tail);
}

/* ---- the caller's own operations ---- */

/* Calls the caller's function, and separates its error message, if it leaves one, from an earlier one. Any status but
 * QDR_OK fails the pass, because other ranks may be waiting for what this one would have done next. */
static qdr_status call(const qdr_stack *stack, const qdri_task *task, const qdr_op_call *what)
{
    const qdri_attached *attached = &stack->attached[task->node];
    const int backward = task->kind == QDRI_TASK_CALLER_BACKWARD;
    const int rank = qdr_context_rank(qdr_grid_context(stack->grid));
    const char *pass = backward ? "backward" : "forward";
    char sentence[QDRI_ERROR_BYTES];
    qdri_kept_error before;
    qdri_keep_last_error(&before);
    qdri_set_last_error("");
    const qdr_status returned = (backward ? attached->backward : attached->forward)(what, attached->user);
    snprintf(sentence, sizeof sentence, "%s", qdr_last_error());
    qdri_restore_last_error(&before);
    if (returned == QDR_OK) return QDR_OK;
    if (returned < QDR_OK && strcmp(qdr_status_name(returned), "QDR_UNKNOWN") != 0)
        return qdri_fail(returned, __FILE__, __LINE__, "operation '%.100s': its %s failed on rank %d with %s%s%.300s",
                         task->name, pass, rank, qdr_status_name(returned), *sentence ? ": " : "", sentence);
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "operation '%.100s': its %s returned %d (%s) on rank %d, which is neither QDR_OK nor an error; "
                    "enqueue the work and return QDR_OK%s%.200s",
                    task->name, pass, (int)returned, qdr_status_name(returned), rank, *sentence ? ": " : "", sentence);
}

static qdr_status run_caller(const qdr_stack *stack, const qdri_task *task, qdr_stream *stream)
{
    const qdri_node *node = &stack->net.nodes[task->node];
    const int backward = task->kind == QDRI_TASK_CALLER_BACKWARD, n_in = node->n_in;
    const void *in[QDR_MAX_OP_INPUTS] = {0};
    void *d_in[QDR_MAX_OP_INPUTS] = {0};
    int64_t in_cols[QDR_MAX_OP_INPUTS] = {0};
    int accumulate[QDR_MAX_OP_INPUTS] = {0};
    for (int i = 0; i < n_in; i++) {
        in[i] = qdri_stack_pointer(stack, task->reads[backward + i]);
        in_cols[i] = stack->net.edges[node->in[i]].owned.n_cols;
        if (backward) d_in[i] = qdri_stack_pointer(stack, task->writes[i]);
        accumulate[i] = (task->accumulate >> i) & 1;
    }
    const qdri_ref *out = backward ? &task->reads[1 + n_in] : &task->writes[0]; /* and then the saved state */
    const qdr_owned *owned = &stack->net.edges[node->out].owned;
    const qdr_op_call what = {.ctx = qdr_grid_context(stack->grid),
                              .stream = stream,
                              .n_in = n_in,
                              .in = in,
                              .in_cols = in_cols,
                              .n_rows = owned->n_rows,
                              .out = qdri_stack_pointer(stack, out[0]),
                              .out_cols = owned->n_cols,
                              .saved = qdri_stack_pointer(stack, out[1]),
                              .d_out = backward ? qdri_stack_pointer(stack, task->reads[0]) : NULL,
                              .d_in = backward ? d_in : NULL,
                              .accumulate = accumulate};
    qdri_grid_set_label(stack->grid, task->name);
    const qdr_status status = call(stack, task, &what);
    qdri_grid_set_label(stack->grid, NULL);
    return status;
}

/* ---- tasks ---- */

static qdr_status run_kernel(const run *r)
{
    const qdri_task *task = r->task;
    void *reads[QDRI_MAX_READS], *writes[QDRI_MAX_WRITES];
    qdri_kernel kernel = task->kernel;
    for (int i = 0; i < task->n_reads; i++) reads[i] = qdri_stack_pointer(r->stack, task->reads[i]);
    for (int i = 0; i < task->n_writes; i++) writes[i] = qdri_stack_pointer(r->stack, task->writes[i]);
    qdri_kernel_bind(&kernel, reads, task->n_reads, writes, task->n_writes);
    if (kernel.kind == QDRI_K_CE_BACKWARD) kernel.u.ce.scale = r->stack->loss_scale; /* another one in each step */
    return qdri_kernel_run(r->stream, &kernel);
}

static qdr_status run_by_kind(const run *r)
{
    switch (r->task->kind) {
    case QDRI_TASK_PRODUCT: QDR_TRY(qdri_gemm_run(r->stream, &r->gemm)); return zero_tail(r);
    case QDRI_TASK_KERNEL: QDR_TRY(run_kernel(r)); return zero_tail(r);
    case QDRI_TASK_COLLECTIVE: {
        qdri_coll coll = qdri_task_coll(r->task);
        coll.send = r->task->n_reads ? qdri_stack_pointer(r->stack, r->task->reads[0]) : NULL;
        coll.recv = qdri_stack_pointer(r->stack, r->task->writes[0]);
        coll.seed = r->seed;
        if (r->task->codec.flags & QDR_CODEC_FEEDBACK)
            coll.feedback = qdri_stack_pointer(r->stack, r->task->writes[r->task->n_writes - 1]);
        return qdri_comm_launch(qdri_grid_comm(r->stack->grid, r->task->channel), &coll, r->stream);
    }
    default: return run_caller(r->stack, r->task, r->stream);
    }
}

static qdr_stream *stream_of(const qdr_stack *stack, int stream, qdr_stream *compute)
{
    return stream == QDRI_STREAM_OF_COMPUTE ? compute : qdri_grid_stream(stack->grid, (qdr_channel)(stream - 1));
}

/* Records the time when the stream reaches this point. NULL: not needed. */
static qdr_status add_stamp(qdr_stream *stream, int64_t *place) { return place ? qdri_stamp(stream, place) : QDR_OK; }

static qdr_status run_named(const run *r, int number)
{
    qdri_dev *dev = qdri_stream_dev(r->stream);
    char name[128];
    if (!qdri_dev_wants_ranges(dev)) return run_by_kind(r);
    snprintf(name, sizeof name, "%s: %s #%d", r->task->name ? r->task->name : "", qdri_task_name(r->task), number);
    qdri_range_begin(dev, name);
    const qdr_status status = run_by_kind(r);
    qdri_range_end(dev);
    return status;
}

/* Adds the time that a communicator's codecs have spent so far to an event, or takes it away. */
typedef struct codec_note {
    const qdri_comm *comm;
    qdr_coll_kind kind;
    int sign;
    int64_t *nanosecs;
} codec_note;

static qdr_status note_codec(void *args)
{
    const codec_note *note = args;
    *note->nanosecs += note->sign * (int64_t)(1e9 * qdri_comm_traffic(note->comm, note->kind).codec_secs);
    return QDR_OK;
}

static qdr_status add_codec_secs(const run *r, qdri_trace_event *event, int sign)
{
    if (!event || r->task->codec.kind == QDR_CODEC_RAW || !qdri_dev_runs_work(qdri_stream_dev(r->stream)))
        return QDR_OK;
    const codec_note note = {qdri_grid_comm(r->stack->grid, r->task->channel), r->task->coll, sign, &event->codec_ns};
    return qdri_work_anywhere(r->stream, note_codec, &note, sizeof note);
}

/* Runs a task, between two timestamps if the context is traced or the stack measured. */
static qdr_status run_task(const run *r, int number)
{
    qdri_trace *trace = qdri_context_trace(qdr_grid_context(r->stack->grid));
    qdri_trace_event *event = trace ? qdri_trace_add(trace, r->task, number) : NULL;
    QDR_TRY(add_stamp(r->stream, event ? &event->begin_ns : NULL));
    QDR_TRY(add_stamp(r->stream, r->stamps ? &r->stamps->begin_ns : NULL));
    QDR_TRY(add_codec_secs(r, event, -1));
    if (!r->is_done) QDR_TRY(run_named(r, number));
    QDR_TRY(add_codec_secs(r, event, 1));
    QDR_TRY(add_stamp(r->stream, r->stamps ? &r->stamps->end_ns : NULL));
    return add_stamp(r->stream, event ? &event->end_ns : NULL);
}

/* *done: in: the last task fused with an earlier product; out: with this one. The waits of a fused task precede its
 * product, since nothing runs between the two. */
static qdr_status enqueue(qdr_stack *stack, const qdri_schedule *schedule, int number, int *done, uint64_t seed,
                          qdri_stamps *stamps, qdr_stream *compute)
{
    const qdri_task *task = &schedule->tasks[number];
    run r = {.stack = stack,
             .task = task,
             .is_done = number <= *done,
             .stream = stream_of(stack, task->stream, compute),
             .stamps = stamps,
             .seed = seed};
    if (!r.is_done) {
        *done = number;
        if (task->kind == QDRI_TASK_PRODUCT) {
            r.gemm = qdri_task_gemm(task);
            r.gemm.a = qdri_stack_pointer(stack, task->reads[0]);
            r.gemm.b = qdri_stack_pointer(stack, task->reads[1]);
            r.gemm.c = qdri_stack_pointer(stack, task->writes[0]);
            *done = qdri_fuse(stack, schedule, number, &r.gemm);
        }
        for (int i = number; i <= *done; i++)
            for (int w = 0; w < schedule->tasks[i].n_waits; w++)
                QDR_TRY(qdri_stream_wait(r.stream, stack->events[schedule->tasks[i].waits[w]]));
    }
    QDR_TRY(run_task(&r, number));
    return task->signals ? qdri_event_record(stack->events[number], r.stream) : QDR_OK;
}

/* The other streams of a schedule start after what was enqueued on the compute stream before, and end before what
 * follows on it. */
static qdr_status enqueue_all(qdr_stack *stack, const qdri_schedule *schedule, const qdri_schedule *pass,
                              qdr_stream *compute)
{
    int used[QDRI_N_STREAMS] = {0};
    const qdr_context *ctx = qdr_grid_context(stack->grid);
    qdri_trace *trace = qdri_context_trace(ctx);
    /* Recorded work has no times of its own. */
    qdri_stamps *stamps = pass && !qdri_context_is_recording(ctx) ? qdri_measures_next(stack->measures, pass) : NULL;
    const int n_pass = pass ? pass->n_tasks : 0;
    int done = -1;
    stack->n_executed += pass != NULL;
    const uint64_t seed = stack->n_executed * (uint64_t)n_pass;
    if (trace) qdri_trace_next_run(trace, &stack->net.position);
    QDR_TRY(qdri_event_record(stack->start, compute));
    for (int i = 0; i < schedule->n_tasks; i++) {
        const int stream = schedule->tasks[i].stream;
        if (stream != QDRI_STREAM_OF_COMPUTE && !used[stream])
            QDR_TRY(qdri_stream_wait(stream_of(stack, stream, compute), stack->start));
        used[stream] = 1;
        QDR_TRY(
            enqueue(stack, schedule, i, &done, seed + (uint64_t)i, stamps && i < n_pass ? &stamps[i] : NULL, compute));
    }
    for (int s = 1; s < QDRI_N_STREAMS; s++) {
        if (!used[s]) continue;
        QDR_TRY(qdri_event_record(stack->done[s], stream_of(stack, s, compute)));
        QDR_TRY(qdri_stream_wait(compute, stack->done[s]));
    }
    return QDR_OK;
}

qdr_status qdri_give_up(const qdr_stack *stack, qdr_status status)
{
    qdr_context *ctx = qdr_grid_context(stack->grid);
    if (status != QDR_OK && !qdri_record_is_lost(qdr_context_stream(ctx)))
        qdri_dev_poison(qdri_context_dev(ctx), status, qdr_last_error());
    return status;
}

/* Whether a task rounds at random. */
static int is_random(const qdri_schedule *schedule)
{
    for (int i = 0; i < schedule->n_tasks; i++)
        if (schedule->tasks[i].kind == QDRI_TASK_COLLECTIVE && schedule->tasks[i].codec.flags & QDR_CODEC_STOCHASTIC)
            return 1;
    return 0;
}

static qdr_status execute(qdr_stack *stack, const qdri_schedule *schedule, const qdri_schedule *pass,
                          qdr_stream *compute)
{
    QDR_TRY(qdri_record_check(compute));
    QDR_TRY(qdri_context_record_needs(qdr_grid_context(stack->grid), &stack->life));
    if (qdri_context_is_recording(qdr_grid_context(stack->grid)) && is_random(schedule))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "codec: a recorded step would round with the same random numbers each "
                                             "time; leave +stochastic out");
    return qdri_give_up(stack, enqueue_all(stack, schedule, pass, compute));
}

qdr_status qdri_execute(qdr_stack *stack, const qdri_schedule *schedule, qdr_stream *compute)
{
    return execute(stack, schedule, schedule, compute);
}

qdr_status qdri_execute_step(qdr_stack *stack, const qdri_schedule *schedule, const qdri_schedule *pass)
{
    return execute(stack, schedule, pass, qdr_context_stream(qdr_grid_context(stack->grid)));
}
