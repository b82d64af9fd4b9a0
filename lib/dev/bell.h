/* SPDX-License-Identifier: Apache-2.0 */
/* Bells: counters that threads of one process, or of several, sleep on. A bell is plain zeroed memory, so it may lie in
 * memory that processes share. */
#ifndef QDRI_DEV_BELL_H
#define QDRI_DEV_BELL_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct qdri_bell {
    atomic_uint n_rings;
    atomic_int n_asleep;
    char unused[56]; /* no two bells in one cache line */
} qdri_bell;

/* Wakes all who sleep there. What the ringer wrote before, the woken see. Any thread. */
void qdri_bell_ring(qdri_bell *bell);
/* Sleeps until a ring that is newer than `seen`, or until this time of CLOCK_MONOTONIC (0: no limit). May wake for
 * nothing. */
void qdri_bell_sleep(qdri_bell *bell, unsigned seen, int64_t until_ns);

#endif
