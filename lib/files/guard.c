/* SPDX-License-Identifier: Apache-2.0 */
#include "files/guard.h"

#include <errno.h>
#include <time.h>

void qdri_guard_begin(qdri_guard *guard)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGXFSZ);
    sigaddset(&blocked, SIGPIPE);
    sigemptyset(&guard->pending_before);
    (void)sigpending(&guard->pending_before);
    (void)pthread_sigmask(SIG_BLOCK, &blocked, &guard->mask_before);
}

/* Takes the signal of our own write, and leaves one that was pending before to the program. */
static void take(const qdri_guard *guard, int signal)
{
    const struct timespec now = {0};
    sigset_t one;
    if (sigismember(&guard->pending_before, signal) == 1) return;
    sigemptyset(&one);
    sigaddset(&one, signal);
    while (sigtimedwait(&one, NULL, &now) < 0 && errno == EINTR) continue;
}

void qdri_guard_end(const qdri_guard *guard, int error)
{
    const int kept = errno;
    if (error == EFBIG) take(guard, SIGXFSZ);
    if (error == EPIPE) take(guard, SIGPIPE);
    (void)pthread_sigmask(SIG_SETMASK, &guard->mask_before, NULL);
    errno = kept;
}
