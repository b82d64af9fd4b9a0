/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a trace, in chunks that never move. */
#include "schedule/trace.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "core/size.h"

enum { CHUNK_EVENTS = 1024, MAX_CLOCKS = 2 };

typedef struct chunk {
    struct chunk *next;
    int n;
    qdri_trace_event events[CHUNK_EVENTS];
} chunk;

struct qdri_trace {
    int rank, n_ranks, run, n_clocks;
    uint64_t id;
    qdri_clock_offset clocks[MAX_CLOCKS];
    qdri_position position; /* sizes of 0: no schedule ran */
    int64_t n_lost;
    chunk *first, *last;
};

qdr_status qdri_trace_create(int rank, int n_ranks, uint64_t id, qdri_trace **trace)
{
    *trace = NULL;
    QDR_TRY(QDRI_NEW(1, "a trace", trace));
    (*trace)->rank = rank;
    (*trace)->n_ranks = n_ranks;
    (*trace)->id = id;
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

void qdri_trace_add_clock(qdri_trace *trace, const qdri_clock_offset *clock)
{
    if (trace->n_clocks < MAX_CLOCKS) trace->clocks[trace->n_clocks++] = *clock;
}

void qdri_trace_next_run(qdri_trace *trace, const qdri_position *position)
{
    trace->run++;
    trace->position = *position;
}

/* An event with a name; NULL: out of memory. */
static qdri_trace_event *add(qdri_trace *trace, const char *name)
{
    if (!trace->last || trace->last->n == CHUNK_EVENTS) {
        chunk *added = NULL;
        if (QDRI_NEW(1, "events of a trace", &added) != QDR_OK) {
            trace->n_lost++;
            return NULL;
        }
        if (trace->last)
            trace->last->next = added;
        else
            trace->first = added;
        trace->last = added;
    }
    qdri_trace_event *event = &trace->last->events[trace->last->n++];
    snprintf(event->name, sizeof event->name, "%s", name ? name : "");
    return event;
}

qdri_trace_event *qdri_trace_add(qdri_trace *trace, const qdri_task *task, int number)
{
    qdri_trace_event *event = add(trace, task->name);
    if (!event) return NULL;
    event->kind = qdri_task_name(task);
    event->stream = qdri_task_row(task);
    event->task = number;
    event->run = trace->run;
    event->bytes_sent = task->bytes_sent;
    event->bytes_plain = task->bytes_plain;
    event->flops = task->flops;
    return event;
}

int qdri_trace_run(const qdri_trace *trace) { return trace->run < 0 ? 0 : trace->run; }

void qdri_trace_add_file(qdri_trace *trace, const char *name, const char *kind, int run, int64_t bytes,
                         int64_t begin_ns, int64_t end_ns)
{
    qdri_trace_event *event = add(trace, name);
    if (!event) return;
    event->kind = kind;
    event->stream = QDRI_STREAM_OF_FILES;
    event->run = run;
    event->bytes_sent = event->bytes_plain = bytes;
    event->begin_ns = begin_ns;
    event->end_ns = end_ns;
}

const qdri_trace_event *qdri_trace_event_at(const qdri_trace *trace, int index)
{
    for (const chunk *c = trace->first; c; c = c->next) {
        if (index < c->n) return &c->events[index];
        index -= c->n;
    }
    return NULL;
}

/* ---- the file ---- */

static const char *stream_name(int stream)
{
    if (stream == QDRI_STREAM_OF_FILES) return "file";
    return stream == QDRI_STREAM_OF_COMPUTE ? "compute" : qdr_channel_name((qdr_channel)(stream - 1));
}

static const char *axis_name(int stream)
{
    static const char *const axes[QDR_N_AXES] = {"x", "y", "z", "d"};
    if (stream == QDRI_STREAM_OF_COMPUTE || stream == QDRI_STREAM_OF_FILES) return "";
    return axes[qdr_channel_axis((qdr_channel)(stream - 1))];
}

/* The names that a viewer shows for the rank and its streams. */
static int write_names(const qdri_trace *trace, FILE *file)
{
    const int *at = trace->position.coordinate;
    int n = fprintf(file, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":", trace->rank);
    if (n > 0 && trace->position.size[0])
        n = fprintf(file, "\"rank %d (x%d y%d z%d d%d)\"}}", trace->rank, at[QDR_X], at[QDR_Y], at[QDR_Z], at[QDR_D]);
    else if (n > 0)
        n = fprintf(file, "\"rank %d\"}}", trace->rank);
    for (int stream = 0; n > 0 && stream < QDRI_N_TRACE_STREAMS; stream++)
        n = fprintf(file, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                    trace->rank, stream, stream_name(stream));
    return n > 0;
}

static void add_codec(json_t *args, const qdri_trace_event *event)
{
    json_object_set_new(args, "plain_bytes", json_integer(event->bytes_plain));
    json_object_set_new(args, "codec_us", json_real(1e-3 * (double)event->codec_ns));
}

static int write_event(const qdri_trace *trace, const qdri_trace_event *event, FILE *file)
{
    char plain[QDRI_TRACE_NAME_BYTES];
    json_t *name = json_string(event->name);
    if (!name) { /* Names of layers come from the user: in any encoding, and possibly truncated within a character. */
        snprintf(plain, sizeof plain, "%s", event->name);
        for (char *c = plain; *c; c++)
            if ((unsigned char)*c > 0x7f) *c = '?';
        name = json_string(plain);
    }
    json_t *object = json_pack("{s:s,s:o,s:s,s:i,s:i,s:f,s:f,s:{s:s,s:s,s:i,s:i,s:I,s:f}}", "ph", "X", "name", name,
                               "cat", event->kind, "pid", trace->rank, "tid", event->stream, "ts",
                               1e-3 * (double)event->begin_ns, "dur", 1e-3 * (double)(event->end_ns - event->begin_ns),
                               "args", "stream", stream_name(event->stream), "axis", axis_name(event->stream), "task",
                               event->task, "run", event->run, "bytes", (json_int_t)event->bytes_sent, "flops",
                               event->flops);
    if (event->bytes_plain != event->bytes_sent) add_codec(json_object_get(object, "args"), event);
    const int good = fputs(",\n", file) >= 0 && object &&
                     json_dumpf(object, file, JSON_COMPACT | JSON_PRESERVE_ORDER) == 0;
    json_decref(object);
    return good;
}

static json_t *numbers_of(const int numbers[QDR_N_AXES])
{
    return json_pack("[i,i,i,i]", numbers[QDR_X], numbers[QDR_Y], numbers[QDR_Z], numbers[QDR_D]);
}

/* The data that `quadrille trace` needs in addition to the events. */
static int write_header(const qdri_trace *trace, FILE *file)
{
    char id[24];
    snprintf(id, sizeof id, "%016" PRIx64, trace->id);
    json_t *clocks = json_array();
    for (int i = 0; i < trace->n_clocks; i++) {
        const qdri_clock_offset *clock = &trace->clocks[i];
        json_array_append_new(clocks, json_pack("{s:I,s:I,s:I}", "at", (json_int_t)clock->at_ns, "ahead",
                                                (json_int_t)clock->ahead_ns, "bound", (json_int_t)clock->bound_ns));
    }
    const qdri_position *at = &trace->position;
    json_t *header = json_pack("{s:i,s:s,s:i,s:i,s:o,s:[i,i],s:o,s:o,s:I}", "version", QDRI_TRACE_VERSION, "id", id,
                               "rank", trace->rank, "ranks", trace->n_ranks, "grid", numbers_of(at->size), "levels",
                               at->near, at->far, "place", numbers_of(at->coordinate), "clock", clocks, "lost",
                               (json_int_t)trace->n_lost);
    const int good = header && fputs("\n],\"displayTimeUnit\":\"ms\",\"quadrille\":", file) >= 0 &&
                     json_dumpf(header, file, JSON_COMPACT | JSON_PRESERVE_ORDER) == 0 && fputs("}\n", file) >= 0;
    json_decref(header);
    return good;
}

int qdri_trace_write(const qdri_trace *trace, FILE *file)
{
    int good = fputs("{\"traceEvents\":[\n", file) >= 0 && write_names(trace, file);
    for (const chunk *c = trace->first; good && c; c = c->next)
        for (int i = 0; good && i < c->n; i++)
            if (c->events[i].end_ns) good = write_event(trace, &c->events[i], file);
    return good && write_header(trace, file);
}
