/* SPDX-License-Identifier: Apache-2.0 */
/* Wake events based on Linux futexes: the only way to sleep that works across processes, with a time limit, and without
 * a lock that a dying process could keep. */
#define _DEFAULT_SOURCE /* syscall */
#include "dev/dev.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000

/* `n_signals` is changed before `n_asleep` is read, and a sleeper is counted before the kernel reads `n_signals`: at
 * least one of the two sees the other, so no signal is lost. */
void qdri_wake_event_signal(qdri_wake_event *wake_event)
{
    atomic_fetch_add(&wake_event->n_signals, 1);
    if (atomic_load(&wake_event->n_asleep) == 0) return;
    syscall(SYS_futex, &wake_event->n_signals, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void qdri_wake_event_wait(qdri_wake_event *wake_event, unsigned seen, int64_t until_ns)
{
    const struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
    atomic_fetch_add(&wake_event->n_asleep, 1);
    if (atomic_load(&wake_event->n_signals) == seen)
        syscall(SYS_futex, &wake_event->n_signals, FUTEX_WAIT_BITSET, seen, until_ns ? &until : NULL, NULL,
                FUTEX_BITSET_MATCH_ANY);
    atomic_fetch_sub(&wake_event->n_asleep, 1);
}
