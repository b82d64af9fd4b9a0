/* SPDX-License-Identifier: Apache-2.0 */
/* One Chrome trace of all ranks: a process per rank, a thread per stream. */
#include <jansson.h>

#include "trace/trace.h"

/* Writes one more line of the list. @return 0: not written, or out of memory */
static int put(FILE *file, json_t *object)
{
    static const size_t flags = JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15);
    const int good = object && json_dumpf(object, file, flags) == 0;
    json_decref(object);
    return good;
}

/* Name and order of a process, or of one of its threads. */
static int put_name(FILE *file, const char *what, int pid, int tid, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, "%s_name", what);
    int good = put(file, json_pack("{s:s,s:s,s:i,s:i,s:{s:s}}", "ph", "M", "name", key, "pid", pid, "tid", tid, "args",
                                   "name", name)) &&
               fputs(",\n", file) >= 0;
    snprintf(key, sizeof key, "%s_sort_index", what);
    return good && put(file, json_pack("{s:s,s:s,s:i,s:i,s:{s:i}}", "ph", "M", "name", key, "pid", pid, "tid", tid,
                                       "args", "sort_index", tid ? tid : pid));
}

static int put_names(FILE *file, const trace_file *trace, int number)
{
    char place[64], name[96];
    trace_place(&trace->ranks[number], place, sizeof place);
    snprintf(name, sizeof name, *place ? "rank %d (%s)" : "rank %d%s", number, place);
    int good = put_name(file, "process", number, 0, name);
    for (int stream = 0; good && stream < N_TRACE_STREAMS; stream++)
        if (trace->is_used[stream])
            good = fputs(",\n", file) >= 0 && put_name(file, "thread", number, stream, trace_stream_name(stream));
    return good;
}

static int put_event(FILE *file, const trace_file *trace, int number, const trace_event *event)
{
    static const char *const axes[] = {"", "x", "y", "z", "d"}; /* -1 computes */
    const char *stream = trace_stream_name(event->stream);
    const char *axis = axes[1 + trace_stream_axis(event->stream)];
    return put(file, json_pack("{s:s,s:s,s:s,s:i,s:i,s:f,s:f,s:{s:s,s:s,s:i,s:i,s:I,s:f,s:f}}", "ph", "X", "name",
                               event->name, "cat", event->kind, "pid", number, "tid", event->stream, "ts",
                               1e6 * (event->begin - trace->begin), "dur", 1e6 * (event->end - event->begin), "args",
                               "stream", stream, "axis", axis, "task", event->task, "run", event->run, "bytes",
                               (json_int_t)event->bytes, "flops", event->flops, "late_us", 1e6 * event->late));
}

int trace_merge(FILE *file, const void *user)
{
    const trace_file *trace = user;
    int good = fputs("{\"traceEvents\":[\n", file) >= 0;
    for (int r = 0; good && r < trace->n_ranks; r++) {
        const trace_rank *rank = &trace->ranks[r];
        good = (r == 0 || fputs(",\n", file) >= 0) && put_names(file, trace, r);
        for (int64_t i = 0; good && i < rank->n_events; i++)
            good = fputs(",\n", file) >= 0 && put_event(file, trace, r, &rank->events[i]);
    }
    return good && fputs("\n],\"displayTimeUnit\":\"ms\",\"otherData\":", file) >= 0 &&
           put(file, json_pack("{s:s,s:i,s:f}", "run", trace->id, "ranks", trace->n_ranks, "clock_bound_us",
                               1e6 * trace_clock_bound(trace))) &&
           fputs("}\n", file) >= 0;
}
