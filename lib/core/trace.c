/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a trace, in chunks that never move. */
#include "core/trace.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"

enum { CHUNK_EVENTS = 1024 };

typedef struct chunk {
    struct chunk *next;
    int n;
    qdri_trace_event events[CHUNK_EVENTS];
} chunk;

struct qdri_trace {
    int rank, n_ranks, run;
    int64_t n_lost;
    chunk *first, *last;
};

qdr_status qdri_trace_create(int rank, int n_ranks, qdri_trace **trace)
{
    *trace = NULL;
    QDR_TRY(QDRI_NEW(1, "a trace", trace));
    (*trace)->rank = rank;
    (*trace)->n_ranks = n_ranks;
    (*trace)->run = -1;
    return QDR_OK;
}

void qdri_trace_free(qdri_trace **trace)
{
    if (!*trace) return;
    for (chunk *next, *gone = (*trace)->first; gone; gone = next) {
        next = gone->next;
        free(gone);
    }
    free(*trace);
    *trace = NULL;
}

void qdri_trace_next_run(qdri_trace *trace) { trace->run++; }

static qdri_trace_event *next_event(qdri_trace *trace)
{
    chunk *added = NULL;
    if (trace->last && trace->last->n < CHUNK_EVENTS) return &trace->last->events[trace->last->n++];
    if (QDRI_NEW(1, "events of a trace", &added) != QDR_OK) {
        trace->n_lost++;
        return NULL;
    }
    if (trace->last)
        trace->last->next = added;
    else
        trace->first = added;
    trace->last = added;
    return &added->events[added->n++];
}

qdri_trace_event *qdri_trace_add(qdri_trace *trace, const qdri_task *task, int number)
{
    qdri_trace_event *event = next_event(trace);
    if (!event) return NULL;
    snprintf(event->name, sizeof event->name, "%s", task->name ? task->name : "");
    event->kind = qdri_task_name(task);
    event->stream = task->stream;
    event->task = number;
    event->run = trace->run;
    event->bytes_sent = task->bytes_sent;
    event->flops = task->flops;
    return event;
}

/* ---- the file ---- */

static const char *stream_name(int stream)
{
    return stream == QDRI_STREAM_OF_COMPUTE ? "compute"
                                            : qdr_channel_name((qdr_channel)(stream - 1));
}

/* Names that a viewer shows for the rank and its streams. */
static int write_names(const qdri_trace *trace, FILE *file)
{
    int n = fprintf(file,
                    "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank "
                    "%d\"}}",
                    trace->rank, trace->rank);
    for (int stream = 0; n > 0 && stream < QDRI_N_STREAMS; stream++)
        n = fprintf(file,
                    ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{"
                    "\"name\":\"%s\"}}",
                    trace->rank, stream, stream_name(stream));
    return n > 0;
}

/* Names of layers are the user's: jansson knows how to quote them. */
static int write_event(const qdri_trace *trace, const qdri_trace_event *event, FILE *file)
{
    json_t *object = json_pack("{s:s,s:s,s:s,s:i,s:i,s:f,s:f,s:{s:s,s:i,s:i,s:I,s:f}}", "ph", "X",
                               "name", event->name, "cat", event->kind, "pid", trace->rank, "tid",
                               event->stream, "ts", 1e-3 * (double)event->begin_ns, "dur",
                               1e-3 * (double)(event->end_ns - event->begin_ns), "args", "stream",
                               stream_name(event->stream), "task", event->task, "run", event->run,
                               "bytes", (json_int_t)event->bytes_sent, "flops", event->flops);
    const int good = fputs(",\n", file) >= 0 && object &&
                     json_dumpf(object, file, JSON_COMPACT | JSON_PRESERVE_ORDER) == 0;
    json_decref(object);
    return good;
}

int qdri_trace_write(const qdri_trace *trace, FILE *file)
{
    int good = fputs("{\"traceEvents\":[\n", file) >= 0 && write_names(trace, file);
    for (const chunk *c = trace->first; good && c; c = c->next)
        for (int i = 0; good && i < c->n; i++)
            if (c->events[i].end_ns) good = write_event(trace, &c->events[i], file);
    return good &&
           fprintf(file,
                   "\n],\"displayTimeUnit\":\"ms\",\"quadrille\":{\"version\":1,\"rank\":%d,"
                   "\"ranks\":%d,\"lost\":%" PRId64 "}}\n",
                   trace->rank, trace->n_ranks, trace->n_lost) > 0;
}
