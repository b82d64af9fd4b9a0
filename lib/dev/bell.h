/* SPDX-License-Identifier: Apache-2.0 */
/* Bells: counters on which threads of one or several processes sleep. A bell is plain zeroed memory, so it may be in
 * shared memory. */
#ifndef QDRI_DEV_BELL_H
#define QDRI_DEV_BELL_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct qdri_bell {
    atomic_uint n_rings;
    atomic_int n_asleep;
    char unused[56]; /* keeps two bells out of one cache line */
} qdri_bell;

/* Wakes all threads that sleep on the bell; they see everything that the ringing thread wrote before. Any thread. */
void qdri_bell_ring(qdri_bell *bell);
/* Sleeps until there is a ring newer than `seen`, or until this time on CLOCK_MONOTONIC (0: no limit). May wake up
 * spuriously. */
void qdri_bell_sleep(qdri_bell *bell, unsigned seen, int64_t until_ns);

#endif
