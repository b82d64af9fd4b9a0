/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of a family of `nccl` communicators: a thread that detects what the host would not notice while it waits
 * for the GPU (errors of NCCL, ranks that gave up, collectives that take too long), poisons the device, and aborts
 * communicators. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "comm/nccl/internal.h"
#include "core/log.h"
#include "core/size.h"
#include "dev/clock.h"

#define LOOK_NS INT64_C(20000000)
#define CALLS_NS INT64_C(500000000) /* a launch gets this long to return before it is aborted */
/* When a kernel is aborted, its stream continues with the next collective, using data that never arrived: by then the
 * other ranks should know of the failure and discard their results. */
#define GRACE_NS (5 * LOOK_NS)
#define HANG_NS INT64_C(10000000000) /* NCCL is considered to hang */
enum { MOST_AT_ONCE = 64, NS_PER_S = 1000000000 };

struct nccl_guard {
    nccl_comm *root;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* on CLOCK_MONOTONIC */
    int wants_stop, wants_abort, has_aborted, has_ended, hangs, is_left;
};

static struct timespec after(int64_t now_ns, int64_t ns)
{
    return (struct timespec){.tv_sec = (now_ns + ns) / NS_PER_S, .tv_nsec = (now_ns + ns) % NS_PER_S};
}

/* ---- watching, with QDR_TIMEOUT: events before and after each collective tell whether it is running, and an NCCL
 * kernel that runs that long is waiting for other ranks ---- */

struct nccl_watched {
    nccl_watched *next;
    qdr_event *begin, *end;
    int is_enqueued; /* 0: the host is in NCCL's call, which may also wait for others */
    qdri_patience patience; /* since it was first seen running */
    char call[QDRI_CALL_BYTES];
};

void qdri_nccl_watch_init(nccl_watch *watch)
{
    *watch = (nccl_watch){0};
    pthread_mutex_init(&watch->mutex, NULL);
}

static void watched_free(nccl_watched *watched)
{
    while (watched) {
        nccl_watched *next = watched->next;
        qdri_event_destroy(&watched->begin);
        qdri_event_destroy(&watched->end);
        free(watched);
        watched = next;
    }
}

void qdri_nccl_watch_free(nccl_watch *watch)
{
    watched_free(watch->first);
    watched_free(watch->spare);
    pthread_mutex_destroy(&watch->mutex);
}

static qdr_status watched_create(qdri_dev *dev, nccl_watched **watched)
{
    nccl_watched *made = NULL;
    qdr_status status = QDRI_NEW(1, "a collective's events", &made);
    QDR_TRY_OUT(status, status);
    QDR_TRY_OUT(status, qdri_event_create(dev, &made->begin));
    QDR_TRY_OUT(status, qdri_event_create(dev, &made->end));
    *watched = made;
    return QDR_OK;
out:
    watched_free(made);
    return status;
}

/* Moves completed entries to the spare list. The mutex must be held. */
static void collect(nccl_watch *watch)
{
    while (watch->first && watch->first->is_enqueued && qdri_event_reached(watch->first->end)) {
        nccl_watched *done = watch->first;
        watch->first = done->next;
        if (!watch->first) watch->last = NULL;
        done->next = watch->spare;
        watch->spare = done;
    }
}

/* During a capture nothing runs yet, and its events mean nothing outside. */
int qdri_nccl_is_captured(qdr_stream *stream)
{
    enum cudaStreamCaptureStatus is = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(qdri_cuda_handle(stream), &is) == cudaSuccess && is != cudaStreamCaptureStatusNone;
}

qdr_status qdri_nccl_watch_begin(nccl_comm *comm, const qdri_coll *coll, qdr_stream *stream, nccl_watched **watched)
{
    *watched = NULL;
    if (qdri_comm_timeout_ns(&comm->base) == 0 || qdri_nccl_is_captured(stream)) return QDR_OK;
    nccl_watch *watch = &comm->watch;
    pthread_mutex_lock(&watch->mutex);
    collect(watch);
    nccl_watched *taken = watch->spare;
    if (taken) watch->spare = taken->next;
    pthread_mutex_unlock(&watch->mutex);
    if (!taken) QDR_TRY(watched_create(comm->base.dev, &taken));
    taken->next = NULL; /* the other spare ones stay */
    qdri_coll_describe(coll, comm->base.size, taken->call);
    const qdr_status status = qdri_event_record(taken->begin, stream);
    if (status != QDR_OK) {
        watched_free(taken);
        return status;
    }
    taken->patience = (qdri_patience){0};
    taken->is_enqueued = 0;
    pthread_mutex_lock(&watch->mutex);
    if (watch->last)
        watch->last->next = taken;
    else
        watch->first = taken;
    watch->last = taken;
    pthread_mutex_unlock(&watch->mutex);
    *watched = taken;
    return QDR_OK;
}

qdr_status qdri_nccl_watch_end(nccl_comm *comm, nccl_watched *watched, qdr_stream *stream)
{
    if (!watched) return QDR_OK;
    QDR_TRY(qdri_event_record(watched->end, stream));
    pthread_mutex_lock(&comm->watch.mutex);
    watched->is_enqueued = 1;
    watched->patience = (qdri_patience){0};
    pthread_mutex_unlock(&comm->watch.mutex);
    return QDR_OK;
}

static int is_other(const void *user, int member)
{
    (void)user;
    (void)member;
    return 1;
}

/* @retval QDR_ERR_TIMEOUT  a collective has waited too long */
static qdr_status look_at_watch(nccl_comm *comm)
{
    const int64_t limit_ns = qdri_comm_timeout_ns(&comm->base);
    char call[QDRI_CALL_BYTES] = "", others[300], missing[320];
    if (limit_ns == 0) return QDR_OK;
    pthread_mutex_lock(&comm->watch.mutex);
    collect(&comm->watch);
    nccl_watched *oldest = comm->watch.first;
    if (oldest && (!oldest->is_enqueued || qdri_event_reached(oldest->begin))) {
        if (qdri_waited_ns(&oldest->patience) > limit_ns) snprintf(call, sizeof call, "%s", oldest->call);
    }
    pthread_mutex_unlock(&comm->watch.mutex);
    if (!call[0]) return QDR_OK;
    /* NCCL does not say which rank is missing, so it may be any of the others. */
    const int n = qdri_comm_name_missing(&comm->base, is_other, NULL, others, sizeof others);
    snprintf(missing, sizeof missing, "%s%s", n > 1 ? "some of " : "", others);
    return qdri_comm_fail_timeout(&comm->base, call, missing, n);
}

/* From NCCL 2.28 on. */
extern ncclResult_t ncclCommRevoke(ncclComm_t handle, int flags) __attribute__((weak));

static int lock_calls(nccl_comm *comm)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until = after((int64_t)until.tv_sec * NS_PER_S + until.tv_nsec, CALLS_NS);
    return pthread_mutex_timedlock(&comm->calls, &until) == 0;
}

/* A launch that has not returned by now is waiting for other ranks. An abort would end that wait, but also free what
 * the launching thread is still using; so NCCL is told to end the waits alone first, where it can: all as a group,
 * since each call returns only when the kernels in front of the communicator's own have ended. */
static void end_waits(nccl_comm *root)
{
    ncclComm_t handles[MOST_AT_ONCE];
    int n = 0, is_waiting = 0;
    if (!ncclCommRevoke) return;
    pthread_mutex_lock(&root->base.family_mutex);
    for (qdri_comm *each = &root->base; each && n < MOST_AT_ONCE; each = each->next) {
        nccl_comm *comm = qdri_nccl_of(each);
        ncclComm_t handle = comm ? atomic_load(&comm->handle) : NULL;
        if (!handle) continue;
        handles[n++] = handle;
        if (is_waiting) continue;
        is_waiting = !lock_calls(comm);
        if (!is_waiting) pthread_mutex_unlock(&comm->calls);
    }
    pthread_mutex_unlock(&root->base.family_mutex);
    if (!is_waiting) return;
    (void)ncclGroupStart();
    for (int i = 0; i < n; i++) (void)ncclCommRevoke(handles[i], 0);
    (void)ncclGroupEnd();
}

/* Takes the communicator's NCCL handles. */
static void take_from(nccl_comm *comm, ncclComm_t *handles, int *n)
{
    const int is_held = lock_calls(comm);
    ncclComm_t handle = atomic_exchange(&comm->handle, NULL);
    if (handle) handles[(*n)++] = handle;
    if (comm->stem) handles[(*n)++] = comm->stem;
    comm->stem = NULL;
    if (is_held) pthread_mutex_unlock(&comm->calls);
}

static int is_left(nccl_guard *guard)
{
    pthread_mutex_lock(&guard->mutex);
    const int left = guard->is_left;
    pthread_mutex_unlock(&guard->mutex);
    return left;
}

/* Aborts them as a group: a kernel that waits behind another communicator's kernel ends only after that one. */
static void abort_family(nccl_guard *guard)
{
    nccl_comm *root = guard->root;
    ncclComm_t handles[MOST_AT_ONCE];
    end_waits(root);
    for (int n = 1; n > 0 && !is_left(guard);) {
        n = 0;
        pthread_mutex_lock(&root->base.family_mutex);
        for (qdri_comm *each = &root->base; each && n <= MOST_AT_ONCE - 2; each = each->next) {
            nccl_comm *comm = qdri_nccl_of(each);
            if (comm && (atomic_load(&comm->handle) || comm->stem)) take_from(comm, handles, &n);
        }
        pthread_mutex_unlock(&root->base.family_mutex);
        (void)ncclGroupStart();
        for (int i = 0; i < n; i++) (void)ncclCommAbort(handles[i]);
        (void)ncclGroupEnd();
    }
}

/* Poisons the device after a failure. Its hook aborts the world, including this family; the explicit abort is for a
 * device without a hook. */
static void look(nccl_comm *root)
{
    qdr_status status = QDR_OK;
    if (qdri_dev_status(root->base.dev) != QDR_OK) return;
    pthread_mutex_lock(&root->base.family_mutex);
    for (qdri_comm *each = &root->base; each && status == QDR_OK; each = each->next) {
        nccl_comm *comm = qdri_nccl_of(each);
        ncclComm_t handle = comm ? atomic_load(&comm->handle) : NULL;
        ncclResult_t state = ncclSuccess;
        if (!handle) continue;
        if (ncclCommGetAsyncError(handle, &state) == ncclSuccess && state != ncclInProgress)
            status = qdri_nccl_status(handle, state, "a collective");
        if (status == QDR_OK) status = look_at_watch(comm);
    }
    pthread_mutex_unlock(&root->base.family_mutex);
    if (status == QDR_OK && root->host->table->look) status = root->host->table->look(root->host);
    if (status == QDR_OK) return;
    qdri_dev_poison(root->base.dev, status, qdr_last_error());
    qdri_comm_abort(&root->base);
}

/* Returns whether it slept for the whole time. The mutex must be held. */
static int sleep_for(nccl_guard *guard, int64_t ns)
{
    const struct timespec until = after(qdri_now_ns(), ns);
    return pthread_cond_timedwait(&guard->changed, &guard->mutex, &until) == ETIMEDOUT;
}

/* The mutex must be held. */
static void turn(nccl_guard *guard)
{
    const int aborts = guard->wants_abort && !guard->has_aborted;
    if (!aborts && (!sleep_for(guard, LOOK_NS) || guard->has_aborted)) return;
    for (const int64_t begin_ns = qdri_now_ns(); aborts && qdri_now_ns() - begin_ns < GRACE_NS;)
        (void)sleep_for(guard, GRACE_NS - (qdri_now_ns() - begin_ns));
    pthread_mutex_unlock(&guard->mutex);
    if (aborts)
        abort_family(guard);
    else
        look(guard->root);
    pthread_mutex_lock(&guard->mutex);
    guard->has_aborted |= aborts;
    pthread_cond_broadcast(&guard->changed);
}

static void *run(void *user)
{
    nccl_guard *guard = user;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    qdri_cuda_stay(((const qdri_cuda_dev *)guard->root->base.dev)->opts.number);
    (void)cudaThreadExchangeStreamCaptureMode(&mode); /* querying events must not invalidate captures */
    pthread_mutex_lock(&guard->mutex);
    while (!guard->wants_stop || (guard->wants_abort && !guard->has_aborted)) turn(guard);
    guard->has_ended = 1;
    pthread_cond_broadcast(&guard->changed);
    pthread_mutex_unlock(&guard->mutex);
    return NULL;
}

static void guard_free(nccl_guard *guard)
{
    pthread_cond_destroy(&guard->changed);
    pthread_mutex_destroy(&guard->mutex);
    free(guard);
}

qdr_status qdri_nccl_guard_start(nccl_comm *root)
{
    nccl_guard *made = NULL;
    pthread_condattr_t monotonic;
    QDR_TRY(QDRI_NEW(1, "the guard of NCCL's communicators", &made));
    made->root = root;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&made->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    root->guard = made;
    if (pthread_create(&made->thread, NULL, run, made) == 0) return QDR_OK;
    root->guard = NULL;
    guard_free(made);
    return QDR_FAIL(QDR_ERR_THREAD, "nccl: the guard's thread could not be started; raise the "
                                    "limit on threads (ulimit -u)");
}

void qdri_nccl_guard_abort(nccl_guard *guard)
{
    if (!guard) return;
    pthread_mutex_lock(&guard->mutex);
    guard->wants_abort = 1;
    pthread_cond_broadcast(&guard->changed);
    pthread_mutex_unlock(&guard->mutex);
}

/* The mutex must be held. */
static int wait_until(nccl_guard *guard, const int *is_done)
{
    const int64_t until_ns = qdri_now_ns() + HANG_NS;
    while (!*is_done && !guard->hangs) guard->hangs = sleep_for(guard, until_ns - qdri_now_ns()) && !*is_done;
    return *is_done;
}

int qdri_nccl_guard_wait(nccl_guard *guard)
{
    pthread_mutex_lock(&guard->mutex);
    const int done = !guard->wants_abort || wait_until(guard, &guard->has_aborted);
    pthread_mutex_unlock(&guard->mutex);
    return done;
}

int qdri_nccl_guard_stop(nccl_guard *guard)
{
    if (!guard) return 1;
    pthread_mutex_lock(&guard->mutex);
    guard->wants_stop = 1;
    pthread_cond_broadcast(&guard->changed);
    const int ended = wait_until(guard, &guard->has_ended);
    guard->is_left = !ended;
    pthread_mutex_unlock(&guard->mutex);
    if (ended) {
        pthread_join(guard->thread, NULL);
        guard_free(guard);
        return 1;
    }
    pthread_detach(guard->thread);
    qdri_log(QDRI_LOG_WARNING, "nccl: ncclCommAbort hangs; its thread is abandoned");
    return 0;
}
