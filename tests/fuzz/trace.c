/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as the trace of rank 0: refused with one message, or accepted; then its times are in order and sums
 * are finite. */
#include "trace/trace.h"

#include <float.h>
#include <math.h>

#include "fuzz.h"

/* What rounding may do to a sum: each event's part is a difference of times, and of sums of such over all events. */
static double rounding_of(const trace_file *trace)
{
    int64_t n_events = 0;
    for (int i = 0; i < trace->n_ranks; i++) n_events += trace->ranks[i].n_events;
    const double largest = fmax(fabs(trace->begin), fabs(trace->end));
    return 4 * DBL_EPSILON * (double)(n_events * n_events + 1) * largest;
}

static void check_trace(const trace_file *trace)
{
    const double rounding = rounding_of(trace);
    require(trace->end > trace->begin && isfinite(trace->begin) && isfinite(trace->end));
    for (int stream = 0; stream < N_TRACE_STREAMS; stream++) {
        trace_sum sum = {0};
        trace_add_stream(trace, stream, NULL, &sum);
        require(sum.n_events >= 0 && isfinite(sum.secs) && sum.secs >= 0 && isfinite(sum.bytes));
        require(sum.hidden_secs >= -rounding && sum.hidden_secs <= sum.secs + rounding);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    char path[sizeof fuzz_path];
    trace_file trace;
    failure why = {0};
    snprintf(path, sizeof path, "%s", fuzz_file(bytes, n_bytes, ".0"));
    path[strlen(path) - 2] = '\0';
    const int code = trace_read(path, &trace, &why);
    require(code == why.code && (code != 0) == (why.sentence[0] != 0));
    if (!code) check_trace(&trace);
    trace_free(&trace);
    return 0;
}
