/* SPDX-License-Identifier: Apache-2.0 */
#include "stopping.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>

#include "program.h"
#include "src/common/process.h"

/* Launchers and timeout(1) send a signal to a process and once more to its group: what arrives this soon after the
 * first is no second request. */
#define ECHO_MSECS 200

static atomic_int is_asked; /* handlers run on any thread */
static atomic_llong ended_msecs; /* when the first SIGTERM or SIGINT came; 0: none did */

static long long now_msecs(void) { return (long long)(1e3 * process_secs()) + 1; }

static void ask(int number)
{
    const int before = errno;
    long long first = 0;
    atomic_store(&is_asked, 1);
    if (number != SIGUSR1 && !atomic_compare_exchange_strong(&ended_msecs, &first, now_msecs()) &&
        now_msecs() - first > ECHO_MSECS) {
        struct sigaction plain = {.sa_handler = SIG_DFL};
        sigemptyset(&plain.sa_mask);
        (void)sigaction(number, &plain, NULL);
        (void)raise(number); /* is delivered when this returns */
    }
    errno = before;
}

static const int stopping[] = {SIGINT, SIGTERM, SIGUSR1};
enum { N_STOPPING = sizeof stopping / sizeof *stopping };
static struct sigaction before[N_STOPPING];
static atomic_int is_set; /* ranks may be threads of one process */

void stop_on_signals(void)
{
    if (atomic_exchange(&is_set, 1)) return;
    for (int i = 0; i < N_STOPPING; i++) {
        struct sigaction asking = {.sa_handler = ask, .sa_flags = SA_RESTART};
        sigemptyset(&asking.sa_mask);
        (void)sigaction(stopping[i], &asking, &before[i]);
    }
}

void stop_by_default(void)
{
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    if (atomic_exchange(&is_set, 0) == 0) return;
    for (int i = 0; i < N_STOPPING; i++)
        (void)sigaction(stopping[i], stopping[i] == SIGUSR1 ? &ignored : &before[i], NULL);
}

qdr_status stop_is_requested(qdr_context *ctx, int *stops) { return program_any(ctx, is_asked, stops); }
