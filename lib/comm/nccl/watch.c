/* SPDX-License-Identifier: Apache-2.0 */
/* Detects `nccl` collectives that take too long, with QDR_TIMEOUT: events before and after each one tell whether it is
 * running, and an NCCL kernel that runs that long is waiting for other ranks. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/nccl/internal.h"
#include "core/size.h"
#include "dev/clock.h"

struct nccl_watched {
    nccl_watched *next;
    qdr_event *begin, *end;
    int is_enqueued; /* 0: the host is in NCCL's call, which may also wait for others */
    int64_t since_ns; /* when it was first seen running; 0: not yet */
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

/* ---- the host thread ---- */

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

static nccl_watched *take_spare(nccl_watch *watch)
{
    pthread_mutex_lock(&watch->mutex);
    collect(watch);
    nccl_watched *spare = watch->spare;
    if (spare) watch->spare = spare->next;
    pthread_mutex_unlock(&watch->mutex);
    return spare;
}

static void append(nccl_watch *watch, nccl_watched *watched)
{
    watched->next = NULL;
    watched->since_ns = 0;
    watched->is_enqueued = 0;
    pthread_mutex_lock(&watch->mutex);
    if (watch->last)
        watch->last->next = watched;
    else
        watch->first = watched;
    watch->last = watched;
    pthread_mutex_unlock(&watch->mutex);
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
    nccl_watched *taken = take_spare(&comm->watch);
    if (!taken) QDR_TRY(watched_create(comm->base.dev, &taken));
    qdri_coll_describe(coll, comm->base.size, taken->call);
    const qdr_status status = qdri_event_record(taken->begin, stream);
    if (status != QDR_OK) {
        watched_free(taken);
        return status;
    }
    append(&comm->watch, taken);
    *watched = taken;
    return QDR_OK;
}

qdr_status qdri_nccl_watch_end(nccl_comm *comm, nccl_watched *watched, qdr_stream *stream)
{
    if (!watched) return QDR_OK;
    QDR_TRY(qdri_event_record(watched->end, stream));
    pthread_mutex_lock(&comm->watch.mutex);
    watched->is_enqueued = 1;
    watched->since_ns = 0;
    pthread_mutex_unlock(&comm->watch.mutex);
    return QDR_OK;
}

/* ---- the guard ---- */

static int is_other(const void *user, int member)
{
    (void)user;
    (void)member;
    return 1;
}

/* NCCL does not say which rank is missing, so it may be any of the others. */
static qdr_status fail(const nccl_comm *comm, const char *call)
{
    char others[300], missing[320];
    const int n = qdri_comm_name_missing(&comm->base, is_other, NULL, others, sizeof others);
    snprintf(missing, sizeof missing, "%s%s", n > 1 ? "some of " : "", others);
    return qdri_comm_fail_timeout(&comm->base, call, missing, n);
}

qdr_status qdri_nccl_watch_look(nccl_comm *comm)
{
    const int64_t limit_ns = qdri_comm_timeout_ns(&comm->base), now_ns = qdri_now_ns();
    char call[QDRI_CALL_BYTES] = "";
    if (limit_ns == 0) return QDR_OK;
    pthread_mutex_lock(&comm->watch.mutex);
    collect(&comm->watch);
    nccl_watched *oldest = comm->watch.first;
    if (oldest && (!oldest->is_enqueued || qdri_event_reached(oldest->begin))) {
        if (oldest->since_ns == 0) oldest->since_ns = now_ns;
        if (now_ns - oldest->since_ns > limit_ns) snprintf(call, sizeof call, "%s", oldest->call);
    }
    pthread_mutex_unlock(&comm->watch.mutex);
    return call[0] ? fail(comm, call) : QDR_OK;
}
