/* SPDX-License-Identifier: Apache-2.0 */
/* Bells based on Linux futexes: the only way to sleep that works across processes, with a time limit, and without a
 * lock that a dying process could keep. */
#define _DEFAULT_SOURCE /* syscall */
#include "dev/bell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000

/* `n_rings` is changed before `n_asleep` is read, and a sleeper is counted before the kernel reads `n_rings`: at least
 * one of the two sees the other, so no ring is lost. */
void qdri_bell_ring(qdri_bell *bell)
{
    atomic_fetch_add(&bell->n_rings, 1);
    if (atomic_load(&bell->n_asleep) == 0) return;
    syscall(SYS_futex, &bell->n_rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void qdri_bell_sleep(qdri_bell *bell, unsigned seen, int64_t until_ns)
{
    const struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
    atomic_fetch_add(&bell->n_asleep, 1);
    if (atomic_load(&bell->n_rings) == seen)
        syscall(SYS_futex, &bell->n_rings, FUTEX_WAIT_BITSET, seen, until_ns ? &until : NULL, NULL,
                FUTEX_BITSET_MATCH_ANY);
    atomic_fetch_sub(&bell->n_asleep, 1);
}
