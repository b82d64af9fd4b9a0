/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille trace`: what collectives cost in a traced run, and how much of that was hidden. */
#include "trace/trace.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/command.h"
#include "common/files.h"

/* Writes what comes before the object, and the object. */
static void put(FILE *file, failure *why, const char *before, json_t *object)
{
    if (!object) fail_memory(why, "--merge: out of memory for an event");
    fputs(before, file);
    if (object) json_dumpf(object, file, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15));
    json_decref(object);
}

/* Name and order of a process, or of one of its threads. */
static void put_name(FILE *file, failure *why, const char *before, const char *what, int pid, int tid, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, "%s_name", what);
    put(file, why, before,
        json_pack("{s:s,s:s,s:i,s:i,s:{s:s}}", "ph", "M", "name", key, "pid", pid, "tid", tid, "args", "name", name));
    snprintf(key, sizeof key, "%s_sort_index", what);
    put(file, why, ",\n",
        json_pack("{s:s,s:s,s:i,s:i,s:{s:i}}", "ph", "M", "name", key, "pid", pid, "tid", tid, "args", "sort_index",
                  tid ? tid : pid));
}

static void put_event(FILE *file, failure *why, const trace_file *trace, int number, const trace_event *event)
{
    static const char *const axes[] = {"", "x", "y", "z", "d"}; /* -1 is no channel */
    const char *stream = trace_stream_name(event->stream);
    const char *axis = axes[1 + trace_stream_axis(event->stream)];
    json_t *args = json_pack("{s:s,s:s,s:i,s:i,s:I,s:f,s:f}", "stream", stream, "axis", axis, "task", event->task,
                             "run", event->run, "bytes", (json_int_t)event->bytes, "flops", event->flops, "late_us",
                             1e6 * event->late);
    if (event->plain_bytes != event->bytes) {
        json_object_set_new(args, "plain_bytes", json_integer((json_int_t)event->plain_bytes));
        json_object_set_new(args, "codec_us", json_real(1e6 * event->codec_secs));
    }
    put(file, why, ",\n",
        json_pack("{s:s,s:s,s:s,s:i,s:i,s:f,s:f,s:o}", "ph", "X", "name", event->name, "cat", event->kind, "pid",
                  number, "tid", event->stream, "ts", 1e6 * (event->begin - trace->begin), "dur",
                  1e6 * (event->end - event->begin), "args", args));
}

/* One Chrome trace of all ranks: a process per rank, a thread per stream; the first event is at 0. */
static void merge(FILE *file, const void *user, failure *why)
{
    const trace_file *trace = user;
    fputs("{\"traceEvents\":[\n", file);
    for (int r = 0; r < trace->n_ranks; r++) {
        const trace_rank *rank = &trace->ranks[r];
        char position[64], name[96];
        trace_position(rank, position, sizeof position);
        snprintf(name, sizeof name, *position ? "rank %d (%s)" : "rank %d%s", r, position);
        put_name(file, why, r ? ",\n" : "", "process", r, 0, name);
        for (int stream = 0; stream < N_TRACE_STREAMS; stream++)
            if (trace->is_used[stream]) put_name(file, why, ",\n", "thread", r, stream, trace_stream_name(stream));
        for (int64_t i = 0; i < rank->n_events; i++) put_event(file, why, trace, r, &rank->events[i]);
    }
    put(file, why, "\n],\"displayTimeUnit\":\"ms\",\"otherData\":",
        json_pack("{s:s,s:i,s:f}", "run", trace->id, "ranks", trace->n_ranks, "clock_bound_us",
                  1e6 * trace_clock_bound(trace)));
    fputs("}\n", file);
}

enum {
    DRAWN_RUNS = 2, /* one forward and one backward pass */
    SHOWN_WAITS = 4
};

typedef struct trace_options {
    const char *path;
    int64_t n_runs;
    const char *merge, *svg;
} trace_options;
#define AT(member) .at = offsetof(trace_options, member)

static const option_spec specs[] = {
    {"last", 0, "N",
     "use only the last N passes of each rank (a forward, a backward with what ends the step, or "
     "the sum of a loss each), to the end of the last step: not what validates after it; default: all",
     OPTION_COUNT, AT(n_runs), 1, 1 << 30},
    {"merge", 0, "FILE", "write one trace of all ranks, on a common clock, for Perfetto", OPTION_TEXT, AT(merge)},
    {"svg", 0, "FILE", "draw the first eight ranks; without --last, their last two passes", OPTION_PICTURE, AT(svg)},
    OPTIONS_END,
};

/* ---- the table ---- */

/* coded: with what codecs did. */
static void print_sum(const char *name, const trace_sum *sum, int n_ranks, int coded)
{
    const double busy_secs = sum->secs - sum->late_secs; /* while data could move */
    printf("%-10s %9.1f %11.3f %11.3f %11.3f %12.3f %7.1f%% %11.3f %9.3f", name, (double)sum->n_events / n_ranks,
           1e-6 * sum->bytes, 1e3 * sum->secs, 1e3 * sum->hidden_secs, 1e3 * (sum->secs - sum->hidden_secs),
           sum->secs > 0 ? 100 * sum->hidden_secs / sum->secs : 0, 1e3 * sum->late_secs,
           busy_secs > 0 ? 1e-9 * sum->bytes / busy_secs : 0);
    if (coded) printf(" %11.3f %11.3f", 1e-6 * sum->plain_bytes, 1e3 * sum->codec_secs);
    putchar('\n');
}

static int is_coded(const trace_file *trace)
{
    trace_sum sum = {0};
    for (int stream = 1; stream < TRACE_FILES; stream++) trace_add_stream(trace, stream, NULL, &sum);
    return sum.plain_bytes > sum.bytes || sum.codec_secs > 0;
}

/* A row for the streams of one axis (-1: of all), if there are at least n_least. */
static void print_axis(const trace_file *trace, int axis, int n_least, const char *name, int coded)
{
    trace_sum sum = {0};
    int n = 0;
    for (int stream = 1; stream < TRACE_FILES; stream++) {
        if (!trace->is_used[stream]) continue;
        if (axis >= 0 && trace_stream_axis(stream) != axis) continue;
        trace_add_stream(trace, stream, NULL, &sum);
        n++;
    }
    if (n >= n_least) print_sum(name, &sum, trace->n_ranks, coded);
}

/* A row for everything that happened to files, which "all" does not contain: "file write". */
static void print_files(const trace_file *trace, int coded)
{
    for (const char *const *kind = trace_file_kinds; *kind; kind++) {
        trace_sum sum = {0};
        char name[32];
        trace_add_stream(trace, TRACE_FILES, *kind, &sum);
        snprintf(name, sizeof name, "file %.*s", (int)strcspn(*kind, " "), *kind);
        if (sum.n_events) print_sum(name, &sum, trace->n_ranks, coded);
    }
}

static void print_last(const trace_file *trace)
{
    const trace_last last = trace_find_last(trace);
    char position[64];
    if (last.rank < 0) return;
    trace_position(&trace->ranks[last.rank], position, sizeof position);
    printf("# most often the last: rank %d (%s), in %lld of %lld collectives, %.3f ms after all others on average\n",
           last.rank, position, (long long)last.n, (long long)last.n_all, 1e3 * last.secs / (double)last.n);
}

static void print_idle(const trace_file *trace)
{
    const trace_idle idle = trace_find_idle(trace);
    const double *secs = idle.secs;
    const double all = secs[TRACE_IDLE_COLLECTIVES] + secs[TRACE_IDLE_FILES] + secs[TRACE_IDLE_TASKS] +
                       secs[TRACE_IDLE_PASSES];
    printf("# idle: %.3f ms; during collectives %.3f, ", 1e3 * all, 1e3 * secs[TRACE_IDLE_COLLECTIVES]);
    if (trace->is_used[TRACE_FILES]) printf("during work on files %.3f, ", 1e3 * secs[TRACE_IDLE_FILES]);
    printf("between tasks of a pass %.3f, between passes %.3f\n", 1e3 * secs[TRACE_IDLE_TASKS],
           1e3 * secs[TRACE_IDLE_PASSES]);
    for (int i = 0; i < idle.n_before && i < SHOWN_WAITS; i++)
        printf("%s %s %.3f ms", i ? "," : "# idle most before:", idle.before[i].kind, 1e3 * idle.before[i].secs);
    if (idle.n_before) putchar('\n');
}

static void print_table(const trace_file *trace)
{
    static const char *const axes[] = {"x", "y", "z", "d"};
    trace_sum compute = {0};
    const double secs = trace->end - trace->begin, bound = trace_clock_bound(trace);
    char grid[128];
    int64_t n_lost = 0;
    int n_unknown = 0;
    const int coded = is_coded(trace);
    trace_add_stream(trace, 0, NULL, &compute);
    for (int r = 0; r < trace->n_ranks; r++) {
        n_lost += trace->ranks[r].n_lost;
        n_unknown += trace->ranks[r].n_clocks == 0;
    }
    trace_grid(&trace->ranks[0], grid, sizeof grid);
    printf("# %d rank%s%s; numbers are the mean over all of them\n"
           "# %.3f ms from the first task to the last; computing: %.3f ms (%.1f%%)\n"
           "# hidden: while the rank computed; exposed: while it did not; late: until the last rank began\n",
           trace->n_ranks, PLURAL(trace->n_ranks), grid, 1e3 * secs, 1e3 * compute.secs, 100 * compute.secs / secs);
    print_idle(trace);
    print_last(trace);
    if (bound > 0)
        printf("# the ranks' clocks differ and are aligned: times of two ranks are off by %.1f us at most\n",
               1e6 * bound);
    if (n_unknown)
        printf("# %d clock%s could not be compared with that of rank 0: do not compare times of different ranks\n",
               n_unknown, PLURAL(n_unknown));
    if (n_lost) printf("# %lld events were lost because memory ran out\n", (long long)n_lost);
    if (trace->is_used[TRACE_FILES])
        printf("# file: checkpoints, not part of all; sent: the bytes that a rank copied, wrote and read\n");
    if (coded)
        printf("# plain: that would have been sent without codecs; codec: encoding and decoding, part of the total\n");
    printf("%-10s %9s %11s %11s %11s %12s %8s %11s %9s%s\n", "stream", "calls", "sent (MB)", "total (ms)",
           "hidden (ms)", "exposed (ms)", "hidden", "late (ms)", "(GB/s)", coded ? "  plain (MB)  codec (ms)" : "");
    for (int stream = 1; stream < TRACE_FILES; stream++) {
        trace_sum sum = {0};
        trace_add_stream(trace, stream, NULL, &sum);
        if (trace->is_used[stream]) print_sum(trace_stream_name(stream), &sum, trace->n_ranks, coded);
    }
    for (int i = 0; i < QDR_N_AXES; i++) print_axis(trace, i, 2, axes[i], coded);
    print_axis(trace, -1, 0, "all", coded);
    print_files(trace, coded);
}

static int run(int argc, char **argv)
{
    trace_options options = {0};
    trace_file trace = {0};
    failure why = {0};
    options_read(argc, argv, specs, &options, &options.path, &why);
    if (!options.path)
        fail(&why, EXIT_USAGE, "trace: FILE, the value of QDR_TRACE, is missing; see quadrille trace --help");
    if (!why.code && !trace_read(options.path, &trace, &why)) {
        trace_keep_last(&trace, options.n_runs);
        print_table(&trace);
        if (options.merge) files_write("--merge", options.merge, merge, &trace, &why);
        if (options.svg && !options.n_runs) trace_keep_last(&trace, DRAWN_RUNS);
        if (options.svg) files_write("--svg", options.svg, trace_draw, &trace, &why);
    }
    trace_free(&trace);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command command_trace = {
    .name = "trace",
    .summary = "show how much of a run's communication was hidden",
    .usage = "quadrille trace FILE [OPTION]...",
    .text = "Reads FILE.0, FILE.1, …, written by the ranks of a program that runs with QDR_TRACE=FILE, and prints\n"
            "for each axis the time of its gathers, of its reductions, of the levels of d (near, far, copies)\n"
            "and of statistics (the sums inside norms, attention and the loss), and how much of it overlapped\n"
            "with computation; and likewise for saving and loading checkpoints. Perfetto and\n"
            "chrome://tracing open FILE.0 …, and the file of all ranks that --merge writes.",
    .options = specs,
    .examples = "  QDR_TRACE=run.json build/examples/transformer_layer --local 4 --grid 2x2x1x1\n"
                "  quadrille trace run.json --last 2 --svg run.svg\n"
                "  quadrille trace run.json --merge all.json\n",
    .is_local = 1,
    .run = run,
};
