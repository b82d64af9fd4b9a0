/* SPDX-License-Identifier: Apache-2.0 */
/* Capturing streams: what would be enqueued becomes a script of lanes, marks and waits, in the order of the calls, in
 * which it can be enqueued again. */
#include <string.h>

#include "capture.h"

static fake_capture *captures; /* that go on */
static uint64_t n_captures;
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* ---- scripts ---- */

static fake_command *add_command(fake_stream *stream, fake_command_kind kind)
{
    fake_script *script = stream->capture->script;
    script->commands = fake_grow(script->commands, (size_t)script->n_commands + 1, sizeof *script->commands);
    fake_command *command = &script->commands[script->n_commands++];
    *command = (fake_command){.kind = kind, .lane = stream->lane};
    return command;
}

static void *copy_of(const void *data, size_t bytes)
{
    void *made = fake_new(bytes);
    if (bytes) memcpy(made, data, bytes);
    return made;
}

/* NCCL's only. */
static struct {
    void (*run)(void *args), (*forget)(void *args);
} forgets;

void fake_on_forget(void (*run)(void *args), void (*forget)(void *args))
{
    fake_lock();
    forgets.run = run;
    forgets.forget = forget;
    fake_unlock();
}

static void forget(fake_command *command)
{
    if (command->run && command->run == forgets.run) forgets.forget(command->data);
    free(command->data);
}

void fake_script_release(fake_script *script)
{
    if (--script->n_holders) return;
    for (int i = 0; i < script->n_commands; i++) forget(&script->commands[i]);
    free(script->commands);
    free(script->lanes);
    free(script);
}

/* Work that must be joined before the capture ends. */
static void tick(const fake_stream *stream) { fake_clock_tick(&stream->capture->clocks[stream->lane], stream->lane); }

void fake_capture_work(fake_stream *stream, void (*run)(void *), const void *args, size_t bytes)
{
    fake_command *command = add_command(stream, FAKE_COMMAND_WORK);
    command->run = run;
    command->data = copy_of(args, bytes);
    command->bytes = bytes;
    tick(stream);
}

void fake_capture_use(fake_stream *stream, const fake_use_list *uses)
{
    fake_command *command = add_command(stream, FAKE_COMMAND_USE);
    command->data = copy_of(uses->accesses, (size_t)uses->n * sizeof(fake_access));
    command->uses = *uses;
    command->uses.accesses = command->data;
    tick(stream);
}

/* ---- lanes ---- */

static void add_lane(fake_capture *capture, fake_stream *stream)
{
    fake_script *script = capture->script;
    const size_t n = (size_t)++script->n_lanes;
    capture->lanes = fake_grow(capture->lanes, n, sizeof *capture->lanes);
    capture->clocks = fake_grow(capture->clocks, n, sizeof *capture->clocks);
    script->lanes = fake_grow(script->lanes, n, sizeof *script->lanes);
    stream->capture = capture;
    stream->lane = (int)n - 1;
    capture->lanes[n - 1] = stream;
    capture->clocks[n - 1] = (fake_clock){0};
    script->lanes[n - 1] = (fake_lane){stream->device, stream->priority};
}

static fake_capture *begin(fake_stream *origin, enum cudaStreamCaptureMode mode)
{
    fake_capture *capture = fake_new(sizeof *capture);
    capture->script = fake_new(sizeof *capture->script);
    capture->script->n_holders = 1;
    capture->id = ++n_captures;
    capture->mode = mode;
    capture->owner = pthread_self();
    capture->next = captures;
    captures = capture;
    add_lane(capture, origin);
    return capture;
}

/* The streams are free again; the script stays. */
static void finish(fake_capture *capture)
{
    fake_capture **link = &captures;
    while (*link != capture) link = &(*link)->next;
    *link = capture->next;
    for (int i = 0; i < capture->script->n_lanes; i++) {
        capture->lanes[i]->capture = NULL;
        fake_clock_free(&capture->clocks[i]);
    }
    for (int i = 0; i < capture->script->n_marks; i++) fake_clock_free(&capture->marks[i]);
    free(capture->lanes);
    free(capture->clocks);
    free(capture->marks);
    free(capture);
}

static int is_joined(const fake_capture *capture)
{
    for (int i = 1; i < capture->script->n_lanes; i++) {
        if (!fake_clock_covers(&capture->clocks[0], &capture->clocks[i])) return 0;
    }
    return 1;
}

/* ---- what may be done meanwhile ---- */

cudaError_t fake_capture_check(const fake_stream *stream)
{
    return stream->capture && stream->capture->is_broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

void fake_capture_break(fake_stream *stream)
{
    if (stream->capture) stream->capture->is_broken = 1;
}

static int forbids(const fake_capture *capture)
{
    if (thread_mode == cudaStreamCaptureModeRelaxed) return 0;
    if (pthread_equal(capture->owner, pthread_self())) return capture->mode != cudaStreamCaptureModeRelaxed;
    return thread_mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
}

cudaError_t fake_unsafe(void)
{
    cudaError_t error = cudaSuccess;
    for (fake_capture *capture = captures; capture; capture = capture->next) {
        if (!forbids(capture)) continue;
        capture->is_broken = 1;
        error = cudaErrorStreamCaptureUnsupported;
    }
    return error;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    const enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

/* ---- events ---- */

void fake_capture_record(fake_stream *stream, cudaEvent_t event)
{
    fake_capture *capture = stream->capture;
    const int mark = capture->script->n_marks++;
    capture->marks = fake_grow(capture->marks, (size_t)mark + 1, sizeof *capture->marks);
    capture->marks[mark] = (fake_clock){0};
    fake_clock_join(&capture->marks[mark], &capture->clocks[stream->lane]);
    add_command(stream, FAKE_COMMAND_MARK)->mark = mark;
    if (event->moment) fake_moment_release(event->moment);
    event->moment = NULL;
    event->capture_id = capture->id;
    event->mark = mark;
}

static fake_capture *find_capture(uint64_t id)
{
    fake_capture *capture = captures;
    while (capture && capture->id != id) capture = capture->next;
    return capture;
}

static cudaError_t break_with(fake_stream *stream, cudaError_t error)
{
    fake_capture_break(stream);
    return error;
}

cudaError_t fake_capture_ask(cudaEvent_t event)
{
    fake_capture *capture = find_capture(event->capture_id);
    if (capture) capture->is_broken = 1;
    return cudaErrorCapturedEvent;
}

cudaError_t fake_capture_wait(fake_stream *stream, cudaEvent_t event)
{
    fake_capture *capture = event->capture_id ? find_capture(event->capture_id) : NULL;
    if (!event->capture_id && !event->moment) return cudaSuccess; /* never recorded */
    if (!event->capture_id) return break_with(stream, cudaErrorStreamCaptureIsolation);
    if (!capture) return break_with(stream, cudaErrorCapturedEvent); /* that capture has ended */
    if (stream->capture && stream->capture != capture) {
        capture->is_broken = 1;
        return break_with(stream, cudaErrorStreamCaptureMerge);
    }
    if (capture->is_broken) return cudaErrorStreamCaptureInvalidated;
    if (!stream->capture) add_lane(capture, stream);
    fake_clock_join(&capture->clocks[stream->lane], &capture->marks[event->mark]);
    add_command(stream, FAKE_COMMAND_WAIT)->mark = event->mark;
    return cudaSuccess;
}

/* ---- the calls ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    fake_lock();
    fake_stream *stream = fake_find_stream(handle, "cudaStreamBeginCapture");
    const cudaError_t error = !stream           ? cudaErrorInvalidResourceHandle
                              : stream->capture ? cudaErrorIllegalState
                                                : cudaSuccess;
    if (error == cudaSuccess) begin(stream, mode);
    fake_unlock();
    return fake_note(error);
}

static cudaError_t check_end(const fake_stream *stream)
{
    if (!stream) return cudaErrorInvalidResourceHandle;
    const fake_capture *capture = stream->capture;
    if (!capture) return cudaErrorIllegalState;
    if (capture->lanes[0] != stream) return cudaErrorStreamCaptureUnmatched;
    if (capture->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(capture->owner, pthread_self()))
        return cudaErrorStreamCaptureWrongThread;
    return cudaSuccess;
}

static cudaError_t end(fake_stream *stream, cudaGraph_t *graph)
{
    cudaError_t error = check_end(stream);
    if (error != cudaSuccess) return error;
    fake_capture *capture = stream->capture;
    fake_script *script = capture->script;
    if (capture->is_broken)
        error = cudaErrorStreamCaptureInvalidated;
    else if (!is_joined(capture))
        error = cudaErrorStreamCaptureUnjoined;
    finish(capture);
    if (error == cudaSuccess)
        *graph = fake_graph_make(script);
    else
        fake_script_release(script);
    return error;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    fake_lock();
    *graph = NULL;
    const cudaError_t error = end(fake_find_stream(stream, "cudaStreamEndCapture"), graph);
    fake_unlock();
    return fake_note(error);
}

static enum cudaStreamCaptureStatus status_of(const fake_stream *stream)
{
    if (!stream || !stream->capture) return cudaStreamCaptureStatusNone;
    return stream->capture->is_broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

int fake_is_captured(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus is = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &is) == cudaSuccess && is != cudaStreamCaptureStatusNone;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    fake_lock();
    const fake_stream *stream = fake_find_stream(handle, "cudaStreamIsCapturing");
    *status = status_of(stream);
    fake_unlock();
    return fake_note(stream ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
