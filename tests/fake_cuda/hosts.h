/* SPDX-License-Identifier: Apache-2.0 */
/* What each host thread has waited for, and the fake's own locks. */
#ifndef FAKE_CUDA_HOSTS_H
#define FAKE_CUDA_HOSTS_H

#include <pthread.h>
#include <stdint.h>

/* The locks of the fake itself: they order nothing that the program may rely on. */
void fake_mutex_lock(pthread_mutex_t *mutex);
void fake_mutex_unlock(pthread_mutex_t *mutex);
void fake_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int fake_thread_start(void *(*run)(void *), void *user); /* detached. 0: it could not */

/* For each slot of a stream, how many of its operations are ordered before. */
typedef struct fake_clock {
    uint64_t *times;
    int n;
} fake_clock;

/* Whether threads of the host are told apart: watch.c must have been loaded. Else they have one clock together, as if
 * each always knew what any has waited for. */
int fake_threads_are_watched(void);
/* What the calling thread has waited for; with the lock of the books, as the rest. */
const fake_clock *fake_host_clock(void);
void fake_host_join(const fake_clock *clock);
/* What all threads have waited for that enqueue work; the caller frees it. */
fake_clock fake_hosts_clock(void);

#endif
