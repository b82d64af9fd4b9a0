/* SPDX-License-Identifier: Apache-2.0 */
/* Wake events: counters on which threads of one or several processes sleep. One is plain zeroed memory, so it may be in
 * shared memory. */
#ifndef QDRI_DEV_WAKE_EVENT_H
#define QDRI_DEV_WAKE_EVENT_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct qdri_wake_event {
    atomic_uint n_signals;
    atomic_int n_asleep;
    char unused[56]; /* keeps two of them out of one cache line */
} qdri_wake_event;

/* Wakes all threads that sleep on it; they see everything that the signalling thread wrote before. Any thread. */
void qdri_wake_event_signal(qdri_wake_event *wake_event);
/* Sleeps until there is a signal newer than `seen`, or until this time on CLOCK_MONOTONIC (0: no limit). May wake up
 * spuriously. */
void qdri_wake_event_wait(qdri_wake_event *wake_event, unsigned seen, int64_t until_ns);

#endif
