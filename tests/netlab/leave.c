/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded before a program that runs on the lab's nodes: lets it exit.
 *
 * In MPI_Finalize of MPICH 4.0 over UCX, each rank closes its connections and then waits for the others in a barrier of
 * the process manager. A rank in that barrier answers no other rank, so that one that is still closing waits for it for
 * ever (pmodels/mpich, pull request 6596, fixes this in later versions). Here the wait for the process manager lets UCX
 * make progress as well. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

typedef unsigned (*progress_fn)(void *worker);
typedef void (*destroy_fn)(void *worker);
typedef ssize_t (*read_fn)(int fd, void *data, size_t bytes);

static void *worker_in_use;

/* The function of that name that this file stands before. */
static void *behind(const char *name) { return dlsym(RTLD_NEXT, name); }

static unsigned drive(void *worker)
{
    static progress_fn progress;
    if (!progress) *(void **)&progress = behind("ucp_worker_progress");
    return progress(worker);
}

unsigned ucp_worker_progress(void *worker)
{
    worker_in_use = worker;
    return drive(worker);
}

void ucp_worker_destroy(void *worker)
{
    destroy_fn destroy;
    *(void **)&destroy = behind("ucp_worker_destroy");
    worker_in_use = NULL;
    destroy(worker);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    static read_fn real_read;
    if (!real_read) *(void **)&real_read = behind("read");
    const char *manager = getenv("PMI_FD");
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (manager && atoi(manager) == fd)
        while (worker_in_use && poll(&ready, 1, 1) == 0) drive(worker_in_use);
    return real_read(fd, data, bytes);
}
