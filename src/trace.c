/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille trace`: what collectives cost in a run that was traced, and what of it was hidden. */
#include "trace.h"

#include <stdio.h>
#include <string.h>

#include "command.h"

enum { OPTION_LAST, OPTION_SVG, OPTION_HELP };

static const option_spec specs[] = {
    {"last", 0, "N", "of each rank, the last N schedules (a forward, a backward …); default: all"},
    {"svg", 0, "FILE", "draw the timeline of the first ranks"},
    {"help", 'h', NULL, "print this"},
    {NULL, 0, NULL, NULL},
};

typedef struct trace_options {
    int64_t n_runs;
    const char *svg;
} trace_options;

static int take_option(int index, const char *value, void *user, failure *why)
{
    trace_options *options = user;
    if (index == OPTION_LAST)
        return option_integer("last", value, 1, 1 << 30, &options->n_runs, why);
    if (index == OPTION_SVG) options->svg = value;
    return EXIT_OK;
}

static void print_stream(const char *name, const trace_sum *sum, int n_ranks)
{
    printf("%-10s %9.1f %11.3f %11.3f %11.3f %11.3f %7.1f%% %9.3f\n", name,
           (double)sum->n_events / n_ranks, 1e-6 * sum->bytes, 1e3 * sum->secs,
           1e3 * sum->hidden_secs, 1e3 * (sum->secs - sum->hidden_secs),
           sum->secs > 0 ? 100 * sum->hidden_secs / sum->secs : 0,
           sum->secs > 0 ? 1e-9 * sum->bytes / sum->secs : 0);
}

static void print_table(const trace_file *trace)
{
    const trace_sum compute = trace_sum_of(trace, 0);
    const double secs = trace->end - trace->begin;
    int64_t n_lost = 0;
    for (int r = 0; r < trace->n_ranks; r++) n_lost += trace->ranks[r].n_lost;
    printf("# %d rank%s; numbers of each are the mean over all of them\n"
           "# %.3f ms from the first task to the last; computing: %.3f ms (%.1f%%)\n"
           "# hidden: while the rank computed; exposed: while it did not\n"
           "%-10s %9s %11s %11s %11s %11s %8s %9s\n",
           trace->n_ranks, trace->n_ranks == 1 ? "" : "s", 1e3 * secs, 1e3 * compute.secs,
           100 * compute.secs / secs, "stream", "calls", "sent (MB)", "total (ms)", "hidden (ms)",
           "exposed (ms)", "hidden", "(GB/s)");
    if (n_lost) printf("# %lld events were lost for want of memory\n", (long long)n_lost);
    trace_sum all = {0};
    for (int stream = 1; stream < MAX_TRACE_STREAMS; stream++) {
        if (!trace->streams[stream][0]) continue;
        const trace_sum sum = trace_sum_of(trace, stream);
        print_stream(trace->streams[stream], &sum, trace->n_ranks);
        all.n_events += sum.n_events;
        all.bytes += sum.bytes;
        all.secs += sum.secs;
        all.hidden_secs += sum.hidden_secs;
    }
    print_stream("all", &all, trace->n_ranks);
}

static int run(int argc, char **argv)
{
    trace_options options = {0};
    trace_file trace = {0};
    failure why = {0};
    if (argc < 2 || argv[1][0] == '-') {
        fail(&why, EXIT_USAGE,
             "trace: the name that QDR_TRACE had is missing; see quadrille trace --help");
        return fail_print(&why);
    }
    const char *path = argv[1];
    argv[1] = argv[0];
    if (!options_read(argc - 1, argv + 1, specs, take_option, &options, &why) &&
        !trace_read(path, options.n_runs, &trace, &why)) {
        print_table(&trace);
        if (options.svg) trace_draw(&trace, options.svg, &why);
    }
    trace_free(&trace);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command command_trace = {
    .name = "trace",
    .summary = "what of a run's collectives was hidden behind products",
    .usage = "quadrille trace FILE [OPTION]...",
    .text = "Reads FILE.0, FILE.1, …, which the ranks of a program write when it runs with "
            "QDR_TRACE=FILE, and\n"
            "prints for each axis and direction of use the time of its collectives, and how much "
            "of it lay\n"
            "beside computation. The files themselves can be opened in Perfetto or "
            "chrome://tracing.",
    .options = specs,
    .examples = "  QDR_TRACE=run.json build/examples/transformer_layer --local 4 --grid 2x2x1x1\n"
                "  quadrille trace run.json --last 2 --svg run.svg\n",
    .run = run,
};
