/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: each has a thread that runs the queued work in order, occasionally after a delay. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "internal.h"

#define STREAM_MAGIC 0x66616b6573747265u

static fake_stream *streams; /* all that ever were: a handle that is no more is known */
static int n_streams;

/* ---- the thread ---- */

static void delay(fake_stream *stream)
{
    const int64_t most = fake_get_settings()->delay_us;
    const uint64_t dice = fake_random(&stream->random);
    if (most <= 0 || dice % 4) return; /* three of four go on at once */
    const int64_t us = (int64_t)(dice / 4 % (uint64_t)(most + 1));
    const struct timespec pause = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

static fake_task *next_task(fake_stream *stream)
{
    fake_mutex_lock(&stream->lock);
    while (!stream->first && !stream->ends) fake_cond_wait(&stream->changed, &stream->lock);
    fake_task *task = stream->first;
    if (task) stream->first = task->next;
    if (!stream->first) stream->last = &stream->first;
    fake_mutex_unlock(&stream->lock);
    return task;
}

static _Thread_local const fake_stream *own_stream;

const fake_stream *fake_own_stream(void) { return own_stream; }

static void *run_stream(void *user)
{
    fake_stream *stream = user;
    own_stream = stream;
    for (fake_task *task; (task = next_task(stream));) {
        delay(stream);
        task->run(task->args);
        free(task);
        fake_mutex_lock(&stream->lock);
        stream->n_done++;
        pthread_cond_broadcast(&stream->changed);
        fake_mutex_unlock(&stream->lock);
    }
    return NULL;
}

static fake_clock copy(const fake_clock *clock)
{
    fake_clock made = {0};
    fake_clock_join(&made, clock);
    return made;
}

/* The stream's thread knows what was enqueued before. */
static void run_learn(void *args)
{
    fake_host_join(args);
    fake_clock_free(args);
}

static void push(fake_stream *stream, void (*run)(void *), const void *args, size_t bytes)
{
    fake_task *task = fake_new(sizeof *task + bytes);
    task->run = run;
    if (bytes) memcpy(task->args, args, bytes);
    fake_mutex_lock(&stream->lock);
    *stream->last = task;
    stream->last = &task->next;
    stream->n_pushed++;
    pthread_cond_broadcast(&stream->changed);
    fake_mutex_unlock(&stream->lock);
}

/* A function of the host may tell other threads what its stream has done; of what it hears there itself, the stream's
 * later work makes no use. */
void fake_push(fake_stream *stream, void (*run)(void *), const void *args, size_t bytes)
{
    if (run == fake_run_host_call && fake_threads_are_watched()) {
        fake_follow_host(stream);
        const fake_clock known = copy(&stream->clock);
        push(stream, run_learn, &known, sizeof known);
    }
    push(stream, run, args, bytes);
}

void fake_submit(fake_stream *stream, void (*run)(void *), const void *args, size_t bytes)
{
    if (stream->capture)
        fake_capture_work(stream, run, args, bytes);
    else
        fake_push(stream, run, args, bytes);
}

void fake_enqueue(cudaStream_t handle, void (*run)(void *args), const void *args, size_t bytes)
{
    fake_lock();
    fake_stream *stream = fake_find_stream(handle, "a launch");
    if (stream && fake_capture_check(stream) == cudaSuccess) fake_submit(stream, run, args, bytes);
    fake_unlock();
}

void fake_wait_for(fake_stream *stream, uint64_t n_done)
{
    fake_mutex_lock(&stream->lock);
    while (stream->n_done < n_done) fake_cond_wait(&stream->changed, &stream->lock);
    fake_mutex_unlock(&stream->lock);
}

static uint64_t n_pushed(fake_stream *stream)
{
    fake_mutex_lock(&stream->lock);
    const uint64_t n = stream->n_pushed;
    fake_mutex_unlock(&stream->lock);
    return n;
}

static int is_idle(fake_stream *stream)
{
    fake_mutex_lock(&stream->lock);
    const int idle = stream->n_done == stream->n_pushed;
    fake_mutex_unlock(&stream->lock);
    return idle;
}

/* Streams are never freed, and new ones come first: the list can be walked without the lock. */
void fake_wait_for_device(int device)
{
    fake_lock();
    fake_stream *stream = streams;
    fake_unlock();
    for (; stream; stream = stream->next) {
        if (stream->device == device) fake_wait_for(stream, n_pushed(stream));
    }
}

/* ---- making and ending ---- */

void fake_follow_host(fake_stream *stream) { fake_clock_join(&stream->clock, fake_host_clock()); }

cudaError_t fake_stream_make(int device, unsigned flags, int priority, fake_stream **made)
{
    fake_stream *stream = fake_new(sizeof *stream);
    *stream = (fake_stream){
        .magic = STREAM_MAGIC, .number = ++n_streams, .device = device, .priority = priority, .flags = flags};
    stream->last = &stream->first;
    stream->random = fake_seed() + (uint64_t)stream->number * 0x9e3779b97f4a7c15u;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    if (!fake_thread_start(run_stream, stream)) {
        free(stream);
        return cudaErrorMemoryAllocation;
    }
    stream->slot = fake_slot_take();
    fake_follow_host(stream);
    stream->next = streams;
    streams = stream;
    *made = stream;
    return cudaSuccess;
}

void fake_stream_end(fake_stream *stream)
{
    stream->is_destroyed = 1;
    fake_slot_give(stream->slot, fake_clock_at(&stream->clock, stream->slot));
    fake_mutex_lock(&stream->lock);
    stream->ends = 1;
    pthread_cond_broadcast(&stream->changed);
    fake_mutex_unlock(&stream->lock);
}

int64_t fake_leaked_streams(void)
{
    int64_t n = 0;
    for (const fake_stream *s = streams; s; s = s->next) n += !s->is_destroyed && !s->is_internal;
    return n;
}

static int is_default(cudaStream_t handle)
{
    return !handle || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
}

fake_stream *fake_find_stream(cudaStream_t handle, const char *name)
{
    if (is_default(handle)) {
        fake_report(FAKE_DEFAULT_STREAM, "\"%s\"", name);
        return NULL;
    }
    if (handle->magic == STREAM_MAGIC && !handle->is_destroyed) return handle;
    fake_report(FAKE_DESTROYED, "\"%s\" on stream %d, which was destroyed", name, handle->number);
    return NULL;
}

int fake_stream_device(cudaStream_t handle, const char *name)
{
    fake_lock();
    const fake_stream *stream = fake_find_stream(handle, name);
    const int device = stream ? stream->device : -1;
    fake_unlock();
    return device;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaError_t error = fake_ready();
    if (error != cudaSuccess) return fake_note(error);
    if (fake_take_failure("create")) return fake_note(cudaErrorMemoryAllocation);
    if (!(flags & cudaStreamNonBlocking)) fake_count("blocking stream");
    fake_lock();
    error = fake_stream_make(fake_current_device(), flags, priority, stream);
    fake_unlock();
    return fake_note(error);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    fake_lock();
    cudaError_t error = cudaErrorInvalidResourceHandle;
    fake_stream *stream = NULL;
    if (!is_default(handle) && handle->magic == STREAM_MAGIC && handle->is_destroyed)
        fake_report(FAKE_DOUBLE_FREE, "stream %d is destroyed twice", handle->number);
    else
        stream = fake_find_stream(handle, "cudaStreamDestroy");
    if (stream && stream->capture) {
        fake_capture_break(stream);
        error = cudaErrorStreamCaptureUnsupported;
    } else if (stream) {
        fake_stream_end(stream);
        error = cudaSuccess;
    }
    fake_unlock();
    return fake_note(error);
}

/* ---- asking and waiting ---- */

static cudaError_t may_wait(fake_stream *stream)
{
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!stream->capture) return fake_unsafe();
    fake_capture_break(stream);
    return cudaErrorStreamCaptureUnsupported;
}

static void join(const fake_clock *clock)
{
    fake_lock();
    fake_host_join(clock);
    fake_unlock();
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    fake_lock();
    fake_stream *stream = fake_find_stream(handle, "cudaStreamSynchronize");
    fake_count("wait of the host");
    const cudaError_t error = may_wait(stream);
    const uint64_t n = error == cudaSuccess ? n_pushed(stream) : 0;
    fake_clock clock = error == cudaSuccess ? copy(&stream->clock) : (fake_clock){0};
    fake_unlock();
    if (error != cudaSuccess) return fake_note(error);
    fake_wait_for(stream, n);
    join(&clock);
    fake_clock_free(&clock);
    const int64_t late_us = fake_get_settings()->host_us;
    nanosleep(&(struct timespec){.tv_sec = late_us / 1000000, .tv_nsec = late_us % 1000000 * 1000}, NULL);
    return fake_take_failure("sync") ? fake_note(cudaErrorLaunchFailure) : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    fake_lock();
    fake_stream *stream = fake_find_stream(handle, "cudaStreamQuery");
    cudaError_t error = may_wait(stream);
    if (error == cudaSuccess && !is_idle(stream)) error = cudaErrorNotReady;
    if (error == cudaSuccess) fake_host_join(&stream->clock);
    fake_unlock();
    return fake_note(error);
}

void fake_join_device(int device)
{
    for (const fake_stream *s = streams; s; s = s->next) {
        if (s->device == device) fake_host_join(&s->clock);
    }
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = fake_ready();
    if (error != cudaSuccess) return fake_note(error);
    fake_lock();
    error = fake_unsafe();
    fake_count("wait of the host");
    fake_unlock();
    if (error != cudaSuccess) return fake_note(error);
    fake_wait_for_device(fake_current_device());
    fake_lock();
    fake_join_device(fake_current_device());
    fake_unlock();
    return cudaSuccess;
}
