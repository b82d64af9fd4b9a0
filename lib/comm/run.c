/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives as host work on a stream: timed, counted, and limited in time. A rank that waits too long names the
 * missing members and gives up, by which all other ranks learn of it. */
#include <stdio.h>

#include "comm/internal.h"
#include "dev/clock.h"

enum { LOOK_AGAIN_NS = 50000000, MISSING_BYTES = 300 };

static int has_not_come(const void *user, int member)
{
    const qdri_coll_run *run = user;
    return !run->comm->table->has_come || !run->comm->table->has_come(run, member);
}

static void watch_pending(qdri_coll_run *run)
{
    char missing[MISSING_BYTES], call[QDRI_CALL_BYTES], where[2 * QDRI_CALL_BYTES + 32];
    const int64_t limit_ns = qdri_comm_timeout_ns(run->comm);
    const int64_t later_ns = run->is_later_stage ? QDRI_LATER_NS : 0;
    if (limit_ns == 0 || run->timed_out) return;
    const int64_t left_ns = limit_ns + later_ns - qdri_waited_ns(&run->patience);
    const int n = left_ns > 0 ? 0 : qdri_comm_name_missing(run->comm, has_not_come, run, missing, sizeof missing);
    if (n == 0) { /* in time; or all members have arrived and are working */
        qdri_look_within(left_ns <= 0 ? LOOK_AGAIN_NS : left_ns < QDRI_LOOK_NS ? left_ns : QDRI_LOOK_NS);
        return;
    }
    const char *before = run->comm->last_call; /* where the missing members were last seen */
    if (run->coll.is_check)
        snprintf(call, sizeof call, "%s", run->coll.label);
    else
        qdri_coll_describe(&run->coll, run->comm->size, call);
    snprintf(where, sizeof where, "%s%s%s%s", call, before[0] ? " (the call before was " : "", before,
             before[0] ? ")" : "");
    run->timed_out = qdri_comm_fail_timeout(run->comm, where, missing, n) != QDR_OK;
    /* The backend's next step fails, with a message of its own. */
    snprintf(run->comm->verdict, sizeof run->comm->verdict, "%s", qdr_last_error());
    qdri_comm_abort(run->comm);
    qdri_poll_again();
}

static qdr_status run_work(void *args)
{
    qdri_coll_run *run = args;
    if (run->begin_nanosecs == 0) run->begin_nanosecs = qdri_now_ns();
    qdr_status status = run->step(run);
    if (status == QDR_PENDING) {
        watch_pending(run);
        return status;
    }
    if (run->timed_out) {
        qdri_set_last_error(run->comm->verdict);
        status = QDR_ERR_TIMEOUT;
    } else if (qdri_comm_timeout_ns(run->comm) > 0 && !run->coll.is_check) {
        qdri_coll_describe(&run->coll, run->comm->size, run->comm->last_call);
    }
    qdri_counter *counter = qdri_counter_of(run->comm, &run->coll);
    const int64_t nanosecs = qdri_now_ns() - run->begin_nanosecs;
    atomic_fetch_add_explicit(&counter->nanosecs, nanosecs, memory_order_relaxed);
    qdri_count_call(run->comm, &run->coll);
    qdri_staging_done(run->comm, run->owned);
    return status;
}

qdr_status qdri_comm_enqueue(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream,
                             qdr_status (*step)(qdri_coll_run *run), size_t staging_bytes)
{
    qdri_coll_run run = {.comm = comm, .step = step, .coll = *coll};
    _Static_assert(sizeof run <= QDRI_WORK_BYTES, "a collective must fit into work of a stream");
    QDR_TRY(qdri_staging_take(comm, staging_bytes, &run.staging, &run.owned));
    const qdr_status status = qdri_work_anywhere(stream, run_work, &run, sizeof run);
    if (status != QDR_OK) qdri_staging_done(comm, run.owned);
    return status;
}
