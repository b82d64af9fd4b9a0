/* SPDX-License-Identifier: Apache-2.0 */
/* Events. Each record creates a moment; a wait is for the latest moment at the time when the wait is enqueued, whatever
 * happens to the event later. */
#include <string.h>
#include <time.h>

#include "internal.h"

#define EVENT_MAGIC 0x66616b656576656eu

static cudaEvent_t events; /* all that ever were */
static int n_events;

/* ---- moments ---- */

void fake_moment_release(fake_moment *moment)
{
    fake_mutex_lock(&moment->lock);
    const int n_holders = --moment->n_holders;
    fake_mutex_unlock(&moment->lock);
    if (n_holders) return;
    pthread_mutex_destroy(&moment->lock);
    pthread_cond_destroy(&moment->changed);
    fake_clock_free(&moment->clock);
    free(moment);
}

static void hold(fake_moment *moment)
{
    fake_mutex_lock(&moment->lock);
    moment->n_holders++;
    fake_mutex_unlock(&moment->lock);
}

static void run_moment(void *args)
{
    fake_moment *moment = *(fake_moment **)args;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fake_mutex_lock(&moment->lock);
    moment->is_done = 1;
    moment->nanosecs = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    pthread_cond_broadcast(&moment->changed);
    fake_mutex_unlock(&moment->lock);
    fake_moment_release(moment);
}

static void await(fake_moment *moment)
{
    fake_mutex_lock(&moment->lock);
    while (!moment->is_done) fake_cond_wait(&moment->changed, &moment->lock);
    fake_mutex_unlock(&moment->lock);
}

static void run_wait(void *args)
{
    fake_moment *moment = *(fake_moment **)args;
    await(moment);
    fake_moment_release(moment);
}

fake_moment *fake_moment_record(fake_stream *stream)
{
    fake_moment *moment = fake_new(sizeof *moment);
    pthread_mutex_init(&moment->lock, NULL);
    pthread_cond_init(&moment->changed, NULL);
    moment->n_holders = 2; /* who asked, and the stream */
    fake_follow_host(stream);
    fake_clock_join(&moment->clock, &stream->clock);
    fake_push(stream, run_moment, &moment, sizeof moment);
    return moment;
}

void fake_moment_wait(fake_stream *stream, fake_moment *moment)
{
    hold(moment);
    fake_follow_host(stream);
    fake_clock_join(&stream->clock, &moment->clock);
    fake_push(stream, run_wait, &moment, sizeof moment);
}

/* ---- handles ---- */

int64_t fake_leaked_events(void)
{
    int64_t n = 0;
    for (cudaEvent_t event = events; event; event = event->next) n += !event->is_destroyed;
    return n;
}

static cudaError_t check(cudaEvent_t event, const char *name)
{
    if (event && event->magic == EVENT_MAGIC && !event->is_destroyed) return cudaSuccess;
    fake_report(FAKE_DESTROYED, "\"%s\" of an event %p, which is no more or never was", name, (void *)event);
    return cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned flags)
{
    const cudaError_t error = fake_ready();
    if (error != cudaSuccess) return fake_note(error);
    if (fake_take_failure("create")) return fake_note(cudaErrorMemoryAllocation);
    fake_lock();
    cudaEvent_t event = fake_new(sizeof *event);
    *event = (struct CUevent_st){
        .magic = EVENT_MAGIC, .number = ++n_events, .device = fake_current_device(), .flags = flags, .next = events};
    events = event;
    *made = event;
    fake_unlock();
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

static void forget_moment(cudaEvent_t event)
{
    if (event->moment) fake_moment_release(event->moment);
    event->moment = NULL;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    fake_lock();
    cudaError_t error = cudaErrorInvalidResourceHandle;
    if (event && event->magic == EVENT_MAGIC && event->is_destroyed)
        fake_report(FAKE_DOUBLE_FREE, "event %d is destroyed twice", event->number);
    else
        error = check(event, "cudaEventDestroy");
    if (error == cudaSuccess) {
        forget_moment(event);
        event->is_destroyed = 1;
    }
    fake_unlock();
    return fake_note(error);
}

/* ---- recording ---- */

static cudaError_t check_record(cudaEvent_t event, const fake_stream *stream)
{
    if (!stream) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = check(event, "cudaEventRecord");
    if (error != cudaSuccess) return error;
    if (event->device == stream->device) return fake_capture_check(stream);
    fake_report(FAKE_WRONG_DEVICE, "event %d of GPU %d is recorded on stream %d of GPU %d", event->number,
                event->device, stream->number, stream->device);
    return cudaErrorInvalidResourceHandle;
}

static cudaError_t record(cudaEvent_t event, fake_stream *stream)
{
    const cudaError_t error = check_record(event, stream);
    if (error != cudaSuccess) return error;
    if (fake_take_failure("event")) return cudaErrorLaunchFailure;
    if (!(event->flags & cudaEventDisableTiming)) fake_count("timed event");
    if (stream->capture) {
        fake_capture_record(stream, event);
    } else {
        forget_moment(event);
        event->capture_id = 0;
        event->moment = fake_moment_record(stream);
    }
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    fake_lock();
    const cudaError_t error = record(event, fake_find_stream(stream, "cudaEventRecord"));
    fake_unlock();
    return fake_note(error);
}

/* ---- waiting ---- */

static cudaError_t enqueue_wait(fake_stream *stream, cudaEvent_t event)
{
    if (!stream) return cudaErrorInvalidResourceHandle;
    cudaError_t error = check(event, "cudaStreamWaitEvent");
    if (error == cudaSuccess) error = fake_capture_check(stream);
    if (error != cudaSuccess) return error;
    if (fake_take_failure("event")) return cudaErrorLaunchFailure;
    if (stream->capture || event->capture_id) return fake_capture_wait(stream, event);
    if (event->moment) fake_moment_wait(stream, event->moment);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    if (flags) return fake_note(cudaErrorInvalidValue); /* others are not faked */
    fake_lock();
    const cudaError_t error = enqueue_wait(fake_find_stream(stream, "cudaStreamWaitEvent"), event);
    fake_unlock();
    return fake_note(error);
}

/* The moment to look at, held, or NULL. */
static fake_moment *look_at(cudaEvent_t event, const char *name, cudaError_t *error)
{
    fake_moment *moment = NULL;
    fake_lock();
    *error = check(event, name);
    if (*error == cudaSuccess && event->capture_id) *error = fake_capture_ask(event);
    if (*error == cudaSuccess) *error = fake_unsafe();
    if (*error == cudaSuccess) moment = event->moment;
    if (moment) hold(moment);
    fake_unlock();
    return moment;
}

/* The thread knows now. */
static void join_and_release(fake_moment *moment)
{
    fake_lock();
    fake_host_join(&moment->clock);
    fake_unlock();
    fake_moment_release(moment);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error;
    fake_moment *moment = look_at(event, "cudaEventSynchronize", &error);
    if (!moment) return fake_note(error);
    fake_count("wait of the host");
    await(moment);
    join_and_release(moment);
    return cudaSuccess;
}

static int is_done(fake_moment *moment)
{
    fake_mutex_lock(&moment->lock);
    const int done = moment->is_done;
    fake_mutex_unlock(&moment->lock);
    return done;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error;
    fake_moment *moment = look_at(event, "cudaEventQuery", &error);
    if (!moment) return fake_note(error);
    if (is_done(moment)) {
        join_and_release(moment);
        return cudaSuccess;
    }
    fake_moment_release(moment);
    return fake_note(cudaErrorNotReady);
}

static cudaError_t time_of(cudaEvent_t event, int64_t *nanosecs)
{
    cudaError_t error;
    if (event && event->magic == EVENT_MAGIC && (event->flags & cudaEventDisableTiming))
        return cudaErrorInvalidResourceHandle;
    fake_moment *moment = look_at(event, "cudaEventElapsedTime", &error);
    if (!moment) return error == cudaSuccess ? cudaErrorInvalidResourceHandle : error;
    const int done = is_done(moment);
    *nanosecs = done ? moment->nanosecs : 0;
    fake_moment_release(moment);
    return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float *millisecs, cudaEvent_t begin, cudaEvent_t end)
{
    int64_t from = 0, to = 0;
    cudaError_t error = time_of(begin, &from);
    if (error == cudaSuccess) error = time_of(end, &to);
    if (error == cudaSuccess) *millisecs = (float)((double)(to - from) * 1e-6);
    return fake_note(error);
}
