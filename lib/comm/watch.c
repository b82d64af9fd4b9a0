/* SPDX-License-Identifier: Apache-2.0 */
/* Waits that last too long: who waits names the members that have not come, gives up, and so lets all others hear of
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

/* The call that waits, and the one before it, in which those who are missing were seen last. */
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

/* Keeps the sentence, which giving up may change, and gives up: the backend's next step fails. */
static void give_up(qdri_run *run, const char *missing)
{
    char where[2 * QDRI_CALL_BYTES + 32];
    describe_call(run, where, sizeof where);
    run->timed_out = qdri_comm_fail_timeout(run->comm, where, missing) != QDR_OK;
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
    else if (qdri_comm_name_missing(run->comm, has_not_come, run, missing, sizeof missing) > 0)
        give_up(run, missing);
    else
        qdri_look_within(LOOK_AGAIN_NS); /* all are here, and at work */
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
