/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that take too long: the waiting rank names the missing members and gives up, by which all other ranks learn of
 * it. */
#include <stdio.h>
#include <string.h>

#include "comm/internal.h"
#include "dev/clock.h"

enum { LOOK_AGAIN_NS = 50000000, MISSING_BYTES = 300 };

static int has_not_come(const void *user, int member)
{
    const qdri_run *run = user;
    return !run->comm->table->has_come || !run->comm->table->has_come(run, member);
}

/* The waiting call, and the one before it, where the missing members were last seen. */
static void describe_call(const qdri_run *run, char *text, size_t capacity)
{
    char call[QDRI_CALL_BYTES];
    const char *before = run->comm->last_call;
    if (run->coll.is_check)
        snprintf(call, sizeof call, "%s", run->coll.label);
    else
        qdri_coll_describe(&run->coll, run->comm->size, call);
    snprintf(text, capacity, "%s%s%s%s", call, before[0] ? " (the call before was " : "", before, before[0] ? ")" : "");
}

/* Gives up, keeping the message, which giving up may change: the backend's next step fails. */
static void give_up(qdri_run *run, const char *missing, int n_missing)
{
    char where[2 * QDRI_CALL_BYTES + 32];
    describe_call(run, where, sizeof where);
    run->timed_out = qdri_comm_fail_timeout(run->comm, where, missing, n_missing) != QDR_OK;
    snprintf(run->comm->verdict, sizeof run->comm->verdict, "%s", qdr_last_error());
    qdri_comm_abort(run->comm);
    qdri_poll_again();
}

void qdri_watch_pending(qdri_run *run)
{
    char missing[MISSING_BYTES];
    const int64_t limit_ns = qdri_comm_timeout_ns(run->comm);
    const int64_t later_ns = run->is_later_stage ? QDRI_LATER_NS : 0;
    if (limit_ns == 0 || run->timed_out) return;
    const int64_t left_ns = limit_ns + later_ns - (qdri_now_ns() - run->begin_nanosecs);
    if (left_ns > 0)
        qdri_look_within(left_ns);
    else {
        const int n = qdri_comm_name_missing(run->comm, has_not_come, run, missing, sizeof missing);
        if (n > 0)
            give_up(run, missing, n);
        else
            qdri_look_within(LOOK_AGAIN_NS); /* all members have arrived and are working */
    }
}

qdr_status qdri_watch_end(qdri_run *run, qdr_status status)
{
    if (run->timed_out) {
        qdri_set_last_error(run->comm->verdict);
        return QDR_ERR_TIMEOUT;
    }
    if (qdri_comm_timeout_ns(run->comm) > 0 && !run->coll.is_check)
        qdri_coll_describe(&run->coll, run->comm->size, run->comm->last_call);
    return status;
}
