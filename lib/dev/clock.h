/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time: CLOCK_MONOTONIC; how long something has been waited for. */
#ifndef QDRI_DEV_CLOCK_H
#define QDRI_DEV_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t qdri_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A wait, zero at its beginning, that somebody looks at every QDRI_LOOK_NS or more often. If nobody has looked for much
 * longer, this process was stopped (SIGSTOP, a debugger, a suspended job), perhaps with all others: none can be accused
 * of that, and the wait begins again. */
typedef struct qdri_patience {
    int64_t since_ns, looked_ns;
} qdri_patience;
#define QDRI_LOOK_NS INT64_C(1000000000)

/* A look: how long it has lasted. */
static inline int64_t qdri_waited_ns(qdri_patience *wait)
{
    const int64_t now_ns = qdri_now_ns();
    if (wait->looked_ns == 0 || now_ns - wait->looked_ns > 4 * QDRI_LOOK_NS) wait->since_ns = now_ns;
    wait->looked_ns = now_ns;
    return now_ns - wait->since_ns;
}

#endif
