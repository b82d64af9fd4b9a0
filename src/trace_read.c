/* SPDX-License-Identifier: Apache-2.0 */
/* Reads traces, and adds up how much of each stream lies beside computation. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"

static int fail_content(failure *why, const char *path, const char *what)
{
    return fail(
        why, EXIT_USAGE,
        "%.300s: %s; take a file that a program wrote with QDR_TRACE set, once it has ended", path,
        what);
}

static void take_text(char *text, size_t capacity, const json_t *value)
{
    snprintf(text, capacity, "%s", json_string_value(value) ? json_string_value(value) : "");
}

/* 0: no event that was timed. -1: no event. */
static int take_event(const json_t *object, trace_event *event)
{
    const json_t *args = json_object_get(object, "args");
    const json_t *ts = json_object_get(object, "ts"), *dur = json_object_get(object, "dur");
    const json_t *tid = json_object_get(object, "tid");
    const char *ph = json_string_value(json_object_get(object, "ph"));
    if (!ph) return -1;
    if (strcmp(ph, "X") != 0) return 0;
    if (!json_is_number(ts) || !json_is_number(dur) || !json_is_integer(tid) ||
        json_number_value(dur) < 0)
        return -1;
    *event = (trace_event){.stream = (int)json_integer_value(tid),
                           .run = (int)json_integer_value(json_object_get(args, "run")),
                           .begin = 1e-6 * json_number_value(ts),
                           .bytes = json_number_value(json_object_get(args, "bytes"))};
    event->end = event->begin + 1e-6 * json_number_value(dur);
    take_text(event->name, sizeof event->name, json_object_get(object, "name"));
    take_text(event->kind, sizeof event->kind, json_object_get(object, "cat"));
    return event->stream >= 0 && event->stream < MAX_TRACE_STREAMS ? 1 : -1;
}

static int by_begin(const void *a, const void *b)
{
    const double x = ((const trace_event *)a)->begin, y = ((const trace_event *)b)->begin;
    return (x > y) - (x < y);
}

static void keep_last_runs(trace_rank *rank, int64_t n_runs)
{
    int last = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < rank->n_events; i++)
        if (rank->events[i].run > last) last = rank->events[i].run;
    for (int64_t i = 0; i < rank->n_events; i++)
        if (rank->events[i].run > last - n_runs) rank->events[n++] = rank->events[i];
    rank->n_events = n;
}

static int take_events(const json_t *list, const char *path, trace_file *trace, trace_rank *rank,
                       failure *why)
{
    const size_t n = json_array_size(list);
    rank->events = calloc(n + 1, sizeof *rank->events);
    if (!rank->events)
        return fail(why, EXIT_NOTHING_FITS, "%.300s: no memory for %zu events", path, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *object = json_array_get(list, i);
        trace_event *event = &rank->events[rank->n_events];
        const int taken = take_event(object, event);
        if (taken < 0) return fail_content(why, path, "an event has no time, or no known stream");
        rank->n_events += taken;
        if (taken)
            take_text(trace->streams[event->stream], MAX_STREAM_NAME,
                      json_object_get(json_object_get(object, "args"), "stream"));
    }
    qsort(rank->events, (size_t)rank->n_events, sizeof *rank->events, by_begin);
    return EXIT_OK;
}

/* The object that says whose trace it is. */
static int take_header(const json_t *root, const char *path, int number, trace_file *trace,
                       trace_rank *rank, failure *why)
{
    const json_t *header = json_object_get(root, "quadrille");
    const int n_ranks = (int)json_integer_value(json_object_get(header, "ranks"));
    const int its_rank = (int)json_integer_value(json_object_get(header, "rank"));
    if (!json_is_object(header) || n_ranks < 1)
        return fail_content(why, path, "it is no trace of Quadrille");
    rank->n_lost = json_integer_value(json_object_get(header, "lost"));
    if (trace->n_ranks == n_ranks && its_rank == number) return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "%.300s: it is of rank %d of %d, not of rank %d of %d; files of different runs are "
                "mixed: trace again into another folder",
                path, its_rank, n_ranks, number, trace->n_ranks);
}

static json_t *load(const char *path, failure *why)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail(why, EXIT_USAGE,
             "%.300s: %s; run the program with QDR_TRACE set to this name without its number, and "
             "let it end",
             path, error.text);
    return root;
}

static int count_ranks(const char *path, failure *why)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.0", path);
    json_t *root = load(name, why);
    if (!root) return 0;
    const json_int_t n = json_integer_value(
        json_object_get(json_object_get(root, "quadrille"), "ranks"));
    json_decref(root);
    if (n >= 1 && n <= 1 << 20) return (int)n;
    fail_content(why, name, "it is no trace of Quadrille");
    return 0;
}

static int read_rank(const char *path, int number, int64_t n_runs, trace_file *trace, failure *why)
{
    char name[4096];
    trace_rank *rank = &trace->ranks[number];
    snprintf(name, sizeof name, "%s.%d", path, number);
    json_t *root = load(name, why);
    if (!root) return why->code;
    if (!take_header(root, name, number, trace, rank, why))
        take_events(json_object_get(root, "traceEvents"), name, trace, rank, why);
    json_decref(root);
    if (!why->code && n_runs) keep_last_runs(rank, n_runs);
    for (int64_t i = 0; i < rank->n_events; i++) {
        trace->begin = fmin(trace->begin, rank->events[i].begin);
        trace->end = fmax(trace->end, rank->events[i].end);
    }
    return why->code;
}

int trace_read(const char *path, int64_t n_runs, trace_file *trace, failure *why)
{
    *trace = (trace_file){.begin = INFINITY, .end = -INFINITY};
    trace->n_ranks = count_ranks(path, why);
    if (trace->n_ranks == 0) return why->code;
    trace->ranks = calloc((size_t)trace->n_ranks, sizeof *trace->ranks);
    if (!trace->ranks) return fail(why, EXIT_NOTHING_FITS, "trace: no memory");
    for (int i = 0; i < trace->n_ranks && !why->code; i++) read_rank(path, i, n_runs, trace, why);
    if (!why->code && !(trace->end >= trace->begin)) fail_content(why, path, "nothing ran in it");
    return why->code;
}

void trace_free(trace_file *trace)
{
    for (int i = 0; trace->ranks && i < trace->n_ranks; i++) free(trace->ranks[i].events);
    free(trace->ranks);
    *trace = (trace_file){0};
}

double trace_hidden(const trace_rank *rank, double begin, double end)
{
    double secs = 0;
    for (int64_t i = 0; i < rank->n_events && rank->events[i].begin < end; i++) {
        const trace_event *event = &rank->events[i]; /* those of one stream do not overlap */
        const double from = fmax(begin, event->begin), to = fmin(end, event->end);
        if (event->stream == 0 && to > from) secs += to - from;
    }
    return secs;
}

trace_sum trace_sum_of(const trace_file *trace, int stream)
{
    trace_sum sum = {0};
    for (int r = 0; r < trace->n_ranks; r++)
        for (int64_t i = 0; i < trace->ranks[r].n_events; i++) {
            const trace_event *event = &trace->ranks[r].events[i];
            if (event->stream != stream) continue;
            sum.n_events++;
            sum.bytes += event->bytes / trace->n_ranks;
            sum.secs += (event->end - event->begin) / trace->n_ranks;
            sum.hidden_secs += trace_hidden(&trace->ranks[r], event->begin, event->end) /
                               trace->n_ranks;
        }
    return sum;
}
