/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints in traces. */
#include "schedule/trace.h"

#include <string.h>

#include "checkpoint/save.h"
#include "context/internal.h"
#include "dev/clock.h"

qdri_file_event qdri_file_event_begin(const qdr_context *ctx, const char *kind)
{
    const qdri_trace *trace = qdri_context_trace(ctx);
    return (qdri_file_event){.kind = kind, .run = trace ? qdri_trace_run(trace) : 0, .begin_ns = qdri_now_ns()};
}

void qdri_file_event_end(qdri_file_event *event) { event->end_ns = qdri_now_ns(); }

void qdri_file_event_add(const qdr_context *ctx, const char *path, const qdri_file_event *event, int64_t bytes)
{
    qdri_trace *trace = qdri_context_trace(ctx);
    const char *slash = strrchr(path, '/');
    if (!trace || !event->end_ns) return;
    qdri_trace_add_file(trace, slash ? slash + 1 : path, event->kind, event->run, bytes, event->begin_ns,
                        event->end_ns);
}
