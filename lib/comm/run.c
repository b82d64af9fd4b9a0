/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives as host work on a stream: timed, counted, and limited in time. */
#include "comm/internal.h"
#include "dev/clock.h"

static void run_finish(qdri_run *run)
{
    qdri_counter *counter = qdri_counter_of(run->comm, &run->coll);
    const int64_t nanosecs = qdri_now_ns() - run->begin_nanosecs;
    atomic_fetch_add_explicit(&counter->nanosecs, nanosecs, memory_order_relaxed);
    atomic_fetch_add_explicit(&counter->n_calls, 1, memory_order_relaxed);
    qdri_staging_done(run->comm, run->owned);
}

static qdr_status run_work(void *args)
{
    qdri_run *run = args;
    if (run->begin_nanosecs == 0) run->begin_nanosecs = qdri_now_ns();
    const qdr_status stepped = run->step(run);
    if (stepped == QDR_PENDING) {
        qdri_watch_pending(run);
        return stepped;
    }
    const qdr_status status = qdri_watch_end(run, stepped);
    run_finish(run);
    return status;
}

qdr_status qdri_comm_enqueue(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream,
                             qdr_status (*step)(qdri_run *run), size_t staging_bytes)
{
    qdri_run run = {.comm = comm, .step = step, .coll = *coll};
    _Static_assert(sizeof run <= QDRI_WORK_BYTES, "a collective must fit into work of a stream");
    QDR_TRY(qdri_staging_take(comm, staging_bytes, &run.staging, &run.owned));
    const qdr_status status = qdri_work_anywhere(stream, run_work, &run, sizeof run);
    if (status != QDR_OK) qdri_staging_done(comm, run.owned);
    return status;
}
