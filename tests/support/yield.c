/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded before the ranks of tests (tests/run.sh), of which there are more than cores: MPICH over UCX waits by polling,
 * and so keeps the rank that it waits for from running; here a poll that found nothing lets others run, and several in
 * a row sleep, for a yield costs time as well. A test with four ranks on two cores then takes a twentieth of the time.
 */
#define _GNU_SOURCE 1 /* RTLD_NEXT */
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

enum { MAX_YIELDS = 8, SLEEP_US = 50 };

unsigned ucp_worker_progress(void *worker);

__attribute__((visibility("default"))) unsigned ucp_worker_progress(void *worker)
{
    static _Atomic(void *) found;
    static _Thread_local unsigned n_empty;
    unsigned (*progress)(void *);
    if (!found) found = dlsym(RTLD_NEXT, "ucp_worker_progress");
    *(void **)&progress = found;
    const unsigned n_events = progress(worker);
    n_empty = n_events == 0 ? n_empty + 1 : 0;
    if (n_empty > MAX_YIELDS)
        usleep(SLEEP_US);
    else if (n_empty > 0)
        sched_yield();
    return n_events;
}
