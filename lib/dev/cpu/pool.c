/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of a CPU device. A job lies on the stack of the thread that owns the pool meanwhile: threads enter it under
 * the lock while it is open, and the owner leaves once it has closed it and nobody is inside. Who comes too late finds
 * no job, and the owner does not wait for it. */
#include <fenv.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "dev/clock.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/pool.h"

/* Threads look for the next job, and owners for the end of theirs, for so long before they sleep: to wake one up takes
 * longer than many kernels. */
#define LOOK_NS 20000

typedef struct job {
    qdri_piece_fn fn;
    const void *user;
    int n_threads;
    int64_t n_pieces;
    _Atomic int64_t next; /* piece; from n_pieces on: all have begun */
    fenv_t arithmetic;
    qdr_status status; /* the three are protected by the pool's lock */
    int64_t failed; /* the first piece that has */
    char sentence[QDRI_ERROR_BYTES];
} job;

typedef struct worker {
    qdri_pool *pool;
    pthread_t thread;
    qdri_address_space space;
    qdri_wake_event call;
} worker;

struct qdri_pool {
    pthread_mutex_t owner; /* held by the thread that has the pool */
    pthread_mutex_t lock;
    job *open; /* protected by `lock` */
    atomic_int n_inside, quit;
    qdri_wake_event done;
    int n_workers;
    worker workers[];
};

static void keep_failure(pthread_mutex_t *lock, job *of, int64_t piece, qdr_status status)
{
    if (lock) pthread_mutex_lock(lock);
    if (of->status == QDR_OK || piece < of->failed) {
        of->status = status;
        of->failed = piece;
        memcpy(of->sentence, qdr_last_error(), strlen(qdr_last_error()) + 1);
    }
    if (lock) pthread_mutex_unlock(lock);
    atomic_store(&of->next, of->n_pieces);
}

static void run_pieces(job *of, pthread_mutex_t *lock, int thread)
{
    for (;;) {
        const int64_t piece = atomic_fetch_add(&of->next, 1);
        if (piece >= of->n_pieces) return;
        const qdr_status status = of->fn(of->user, piece, thread);
        if (status != QDR_OK) keep_failure(lock, of, piece, status);
    }
}

/* Sleeps, if nothing changes soon. */
static void rest(qdri_wake_event *event, unsigned seen)
{
    const int64_t until_ns = qdri_now_ns() + LOOK_NS;
    while (atomic_load(&event->n_signals) == seen)
        if (qdri_now_ns() >= until_ns) qdri_wake_event_wait(event, seen, 0);
}

static void *worker_main(void *argument)
{
    worker *self = argument;
    qdri_pool *pool = self->pool;
    const int number = 1 + (int)(self - pool->workers);
    qdri_address_space_settle();
    qdri_address_space_keep(&self->space);
    for (;;) {
        const unsigned seen = atomic_load(&self->call.n_signals);
        if (atomic_load(&pool->quit)) break;
        pthread_mutex_lock(&pool->lock);
        job *of = pool->open && number < pool->open->n_threads ? pool->open
                                                               : NULL; /* it may be called for an older job */
        if (of) atomic_fetch_add(&pool->n_inside, 1);
        pthread_mutex_unlock(&pool->lock);
        if (of) {
            fesetenv(&of->arithmetic);
            run_pieces(of, &pool->lock, number);
            if (atomic_fetch_sub(&pool->n_inside, 1) == 1) qdri_wake_event_signal(&pool->done);
        }
        rest(&self->call, seen);
    }
    qdri_onednn_forget();
    return NULL;
}

static void set_open(qdri_pool *pool, job *open)
{
    pthread_mutex_lock(&pool->lock);
    pool->open = open;
    pthread_mutex_unlock(&pool->lock);
}

static void share(qdri_pool *pool, job *of)
{
    fegetenv(&of->arithmetic);
    set_open(pool, of);
    for (int i = 0; i < pool->n_workers && i + 1 < of->n_threads && i + 1 < of->n_pieces; i++)
        qdri_wake_event_signal(&pool->workers[i].call);
    run_pieces(of, &pool->lock, 0);
    set_open(pool, NULL);
    for (;;) {
        const unsigned seen = atomic_load(&pool->done.n_signals);
        if (atomic_load(&pool->n_inside) == 0) return;
        rest(&pool->done, seen);
    }
}

qdr_status qdri_pool_run(qdri_pool *pool, int n_threads, int64_t n_pieces, qdri_piece_fn fn, const void *user)
{
    job own = {.fn = fn, .user = user, .n_threads = n_threads, .n_pieces = n_pieces};
    if (pool && n_threads > 1 && n_pieces > 1 && pthread_mutex_trylock(&pool->owner) == 0) {
        share(pool, &own);
        pthread_mutex_unlock(&pool->owner);
    } else {
        run_pieces(&own, NULL, 0);
    }
    if (own.status != QDR_OK) qdri_set_last_error(own.sentence);
    return own.status;
}

void qdri_pool_destroy(qdri_pool **pool)
{
    qdri_pool *self = *pool;
    if (!self) return;
    atomic_store(&self->quit, 1);
    for (int i = 0; i < self->n_workers; i++) {
        qdri_wake_event_signal(&self->workers[i].call);
        pthread_join(self->workers[i].thread, NULL);
        qdri_address_space_give_back(&self->workers[i].space);
    }
    pthread_mutex_destroy(&self->lock);
    pthread_mutex_destroy(&self->owner);
    free(self);
    *pool = NULL;
}

static qdr_status add_worker(qdri_pool *pool)
{
    worker *made = &pool->workers[pool->n_workers];
    made->pool = pool;
    QDR_TRY(qdri_address_space_take(&made->space));
    const int failure = qdri_start_thread(&made->thread, worker_main, made);
    if (failure == 0) {
        pool->n_workers++;
        return QDR_OK;
    }
    qdri_address_space_give_back(&made->space);
    return QDR_FAIL(QDR_ERR_THREAD,
                    "device: thread %d for its kernels could not be started (%s); allow more threads (ulimit -u) and "
                    "address space (ulimit -v), or use fewer threads per rank",
                    pool->n_workers + 2, strerror(failure));
}

qdr_status qdri_pool_create(int n_threads, qdri_pool **pool)
{
    const size_t n_workers = (size_t)n_threads - 1;
    qdr_status status = QDR_OK;
    qdri_pool *made = NULL;
    *pool = NULL;
    if (n_threads == 1) return QDR_OK;
    QDR_TRY(qdri_calloc(sizeof *made + n_workers * sizeof made->workers[0], 1, "the device's threads", (void **)&made));
    pthread_mutex_init(&made->owner, NULL);
    pthread_mutex_init(&made->lock, NULL);
    for (size_t i = 0; i < n_workers && status == QDR_OK; i++) status = add_worker(made);
    if (status != QDR_OK)
        qdri_pool_destroy(&made);
    else
        *pool = made;
    return status;
}
