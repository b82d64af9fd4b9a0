/* SPDX-License-Identifier: Apache-2.0 */
/* Destroys NCCL communicators, which may take forever: on a thread that is then abandoned. */
#include <stdlib.h>
#include <time.h>

#include "comm/nccl/internal.h"
#include "core/log.h"
#include "core/size.h"

enum { CLOSE_SECS = 30, PAUSE_NS = 1000000 };

typedef struct closing {
    ncclComm_t handle;
    int aborts;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int has_ended, is_left;
} closing;

static void closing_free(closing *self)
{
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->mutex);
    free(self);
}

static void close_now(ncclComm_t handle, int aborts)
{
    if (aborts) {
        (void)ncclCommAbort(handle);
        return;
    }
    const ncclResult_t result = ncclCommFinalize(handle);
    ncclResult_t state = result;
    while (state == ncclInProgress && ncclCommGetAsyncError(handle, &state) == ncclSuccess)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    (void)ncclCommDestroy(handle);
}

/* Freed by whichever thread finishes second: this one, or the one that waits. */
static void *run_closing(void *user)
{
    closing *self = user;
    close_now(self->handle, self->aborts);
    pthread_mutex_lock(&self->mutex);
    const int is_left = self->is_left;
    self->has_ended = 1;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    if (is_left) closing_free(self);
    return NULL;
}

static void wait_for_closing(closing *self, pthread_t thread)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CLOSE_SECS;
    pthread_mutex_lock(&self->mutex);
    while (!self->has_ended && !self->is_left)
        self->is_left = pthread_cond_timedwait(&self->changed, &self->mutex, &until) != 0 && !self->has_ended;
    const int is_left = self->is_left;
    pthread_mutex_unlock(&self->mutex);
    if (is_left) {
        pthread_detach(thread);
        qdri_log(QDRI_LOG_WARNING, "nccl: a communicator has not ended within %d s and is abandoned", CLOSE_SECS);
        return;
    }
    pthread_join(thread, NULL);
    closing_free(self);
}

void qdri_nccl_close(ncclComm_t handle, int aborts)
{
    closing *self = NULL;
    pthread_t thread;
    if (QDRI_NEW(1, "the end of a communicator", &self) != QDR_OK) {
        close_now(handle, aborts);
        return;
    }
    self->handle = handle;
    self->aborts = aborts;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->changed, NULL);
    if (pthread_create(&thread, NULL, run_closing, self) == 0) {
        wait_for_closing(self, thread);
        return;
    }
    close_now(handle, aborts);
    closing_free(self);
}
