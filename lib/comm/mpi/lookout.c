/* SPDX-License-Identifier: Apache-2.0 */
/* The look-out for calls of MPI that do not return. */
#define _GNU_SOURCE /* pthread_setname_np */
#include "comm/mpi/lookout.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "comm/mates.h"
#include "comm/mpi/internal.h"
#include "core/log.h"
#include "dev/clock.h"

enum { NS_PER_S = 1000000000, LEAST_PAUSE_NS = 10000000, LOOKS_PER_LIMIT = 8, NAME_BYTES = 16, MISSING_BYTES = 224 };
#define NAME_AT_REST "quadrille"

/* The call that this process is in; the number tells one wait from the next. */
static _Atomic(const char *) current;
static _Atomic uint64_t n_calls;

static struct lookout {
    pthread_mutex_t mutex; /* protects is_over */
    pthread_cond_t changed;
    pthread_t thread;
    atomic_int runs;
    int is_over;
    _Atomic int64_t limit_ns;
    qdr_stuck_fn fn;
    void *user;
} lookout = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Linux shows names of threads to other processes, and allows them 15 characters. */
static void thread_name(const char *call, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s", strncmp(call, "MPI_", 4) == 0 ? call + 4 : call);
}

static void show(const char *call)
{
    char name[NAME_BYTES];
    if (!atomic_load(&lookout.runs)) return;
    thread_name(call, name);
    (void)pthread_setname_np(lookout.thread, name);
}

void qdri_mpi_enter(const char *call)
{
    atomic_fetch_add(&n_calls, 1);
    atomic_store(&current, call);
    show(call);
}

int qdri_mpi_left(int code)
{
    atomic_store(&current, NULL);
    show(NAME_AT_REST);
    return code;
}

static void tell(const char *call)
{
    char self[64], name[NAME_BYTES], missing[MISSING_BYTES], sentence[QDRI_ERROR_BYTES];
    const int rank = qdri_mates_rank();
    const double limit_secs = 1e-9 * (double)atomic_load(&lookout.limit_ns);
    thread_name(call, name);
    int n = qdri_mates_missing(NULL, missing, sizeof missing);
    if (n == 0) n = qdri_mates_missing(name, missing, sizeof missing);
    if (rank >= 0)
        snprintf(self, sizeof self, "rank %d", rank);
    else
        snprintf(self, sizeof self, "this process");
    snprintf(sentence, sizeof sentence,
             "MPI: %s has waited %g s in %s for other ranks: %s; find out what they do, or allow more than "
             "QDR_TIMEOUT=%g",
             self, limit_secs, call, n > 0 ? missing : "none is missing on this node", limit_secs);
    lookout.fn(sentence, lookout.user);
}

/* Sleeps for a part of the limit, a second at the most; the mutex must be held. */
static void pause_between_looks(void)
{
    int64_t ns = atomic_load(&lookout.limit_ns) / LOOKS_PER_LIMIT;
    if (ns < LEAST_PAUSE_NS) ns = LEAST_PAUSE_NS;
    if (ns > QDRI_LOOK_NS || atomic_load(&lookout.limit_ns) == 0) ns = QDRI_LOOK_NS;
    const int64_t until_ns = qdri_now_ns() + ns;
    const struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
    while (!lookout.is_over)
        if (pthread_cond_timedwait(&lookout.changed, &lookout.mutex, &until) == ETIMEDOUT) return;
}

static void *look_out(void *unused)
{
    qdri_patience patience = {0};
    uint64_t seen = 0, told = 0;
    (void)unused;
    pthread_mutex_lock(&lookout.mutex);
    while (!lookout.is_over) {
        const uint64_t number = atomic_load(&n_calls);
        const char *call = atomic_load(&current);
        if (!call || number != seen) patience = (qdri_patience){0};
        seen = number;
        const int64_t limit_ns = atomic_load(&lookout.limit_ns);
        if (qdri_waited_ns(&patience) > limit_ns && limit_ns > 0 && call && told != number) {
            told = number;
            pthread_mutex_unlock(&lookout.mutex);
            tell(call);
            pthread_mutex_lock(&lookout.mutex);
        }
        pause_between_looks();
    }
    pthread_mutex_unlock(&lookout.mutex);
    return NULL;
}

void qdri_lookout_set_limit(double secs) { atomic_store(&lookout.limit_ns, (int64_t)(1e9 * secs)); }

void qdri_lookout_begin(double limit_secs, qdr_stuck_fn fn, void *user)
{
    sigset_t all, before;
    pthread_condattr_t attributes;
    if (!fn) return;
    lookout.fn = fn;
    lookout.user = user;
    lookout.is_over = 0;
    qdri_lookout_set_limit(limit_secs);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&lookout.changed, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all); /* signals are the program's threads' */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&lookout.thread, NULL, look_out, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    atomic_store(&lookout.runs, code == 0);
    if (code == 0)
        show(NAME_AT_REST);
    else
        qdri_log(QDRI_LOG_WARNING, "launch: nothing looks out for ranks that stop: no thread can be started (%s)",
                 strerror(code));
}

void qdri_lookout_end(void)
{
    if (!atomic_exchange(&lookout.runs, 0)) return;
    pthread_mutex_lock(&lookout.mutex);
    lookout.is_over = 1;
    pthread_cond_signal(&lookout.changed);
    pthread_mutex_unlock(&lookout.mutex);
    pthread_join(lookout.thread, NULL);
    pthread_cond_destroy(&lookout.changed);
}
