/* SPDX-License-Identifier: Apache-2.0 */
/* Streams that survive a failed write. */
#define _GNU_SOURCE /* fopencookie */
#include "files/stream.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* ---- signals ---- */

/* The signals with which the system answers a write that fails. */
typedef struct guard {
    sigset_t blocked, mask_before, pending_before;
} guard;

static void guard_begin(guard *g)
{
    sigemptyset(&g->blocked);
    sigaddset(&g->blocked, SIGXFSZ);
    sigaddset(&g->blocked, SIGPIPE);
    sigemptyset(&g->pending_before);
    (void)sigpending(&g->pending_before);
    (void)pthread_sigmask(SIG_BLOCK, &g->blocked, &g->mask_before);
}

/* Takes the signal of our own write, and leaves one that was pending before to the program. */
static void take(const guard *g, int signal)
{
    const struct timespec now = {0};
    sigset_t one;
    if (sigismember(&g->pending_before, signal) == 1) return;
    sigemptyset(&one);
    sigaddset(&one, signal);
    while (sigtimedwait(&one, NULL, &now) < 0 && errno == EINTR) continue;
}

static void guard_end(const guard *g, int error)
{
    if (error == EFBIG) take(g, SIGXFSZ);
    if (error == EPIPE) take(g, SIGPIPE);
    (void)pthread_sigmask(SIG_SETMASK, &g->mask_before, NULL);
}

/* ---- the stream ---- */

/* Returns the number of bytes written; fewer than `bytes` set errno. */
static size_t write_all(int number, const char *text, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        const ssize_t n = write(number, text + done, bytes - done);
        if (n < 0 && errno != EINTR) break;
        if (n > 0) done += (size_t)n;
    }
    return done;
}

static ssize_t on_write(void *cookie, const char *text, size_t bytes)
{
    qdri_stream *stream = cookie;
    guard g;
    guard_begin(&g);
    const size_t done = write_all(stream->number, text, bytes);
    const int error = done < bytes ? errno : 0;
    guard_end(&g, error);
    if (error && !stream->error) stream->error = error;
    if (error) errno = error;
    return (ssize_t)done;
}

static int on_close(void *cookie)
{
    qdri_stream *stream = cookie;
    const int number = stream->number;
    stream->number = -1;
    if (close(number) == 0) return 0;
    if (!stream->error) stream->error = errno;
    return -1;
}

FILE *qdri_stream_open(qdri_stream *stream, int number)
{
    *stream = (qdri_stream){.number = number};
    return fopencookie(stream, "w", (cookie_io_functions_t){.write = on_write, .close = on_close});
}
