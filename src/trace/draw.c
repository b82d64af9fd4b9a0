/* SPDX-License-Identifier: Apache-2.0 */
/* A trace as a picture: a lane for each stream of the first ranks, time from left to right. */
#include <math.h>
#include <string.h>

#include "common/svg.h"
#include "trace/trace.h"

enum {
    MAX_DRAWN_RANKS = 8,
    LANE = 16,
    GAP = 3,
    BETWEEN_RANKS = 14,
    LEFT = 170,
    WIDTH = 1280,
    RIGHT = 30,
    TOP = 84,
    N_TICKS = 12
};
#define LEAST_WIDTH 1.0 /* so that a short collective is still visible */

static double x_of(const trace_file *trace, double secs)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (secs - trace->begin) / (trace->end - trace->begin);
}

/* ---- boxes ---- */

static void draw_box(FILE *file, const trace_file *trace, double begin, double end, double y, const char *colour)
{
    const double x = x_of(trace, begin);
    fprintf(file, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n", x, y,
            fmax(x_of(trace, end) - x, LEAST_WIDTH), LANE, colour);
}

/* A collective in pieces: overlapping with computation, exposed, and waiting for late ranks. */
static void draw_collective(FILE *file, const trace_file *trace, const trace_rank *rank, const trace_event *event,
                            double y)
{
    draw_box(file, trace, event->begin, event->end, y, SVG_EXPOSED);
    if (event->late > 0) draw_box(file, trace, event->begin, event->begin + event->late, y, SVG_LATE);
    int64_t i = trace_find_work(rank, event->begin);
    for (; i < rank->n_work && rank->work[i].begin < event->end; i++)
        draw_box(file, trace, fmax(event->begin, rank->work[i].begin), fmin(event->end, rank->work[i].end), y,
                 SVG_HIDDEN);
}

/* A box with a tooltip. */
static void draw_event(FILE *file, const trace_file *trace, const trace_rank *rank, const trace_event *event, double y)
{
    const svg_unit u = svg_unit_of(event->end - event->begin);
    fputs("<g><title>", file);
    svg_put_text(file, event->name);
    fputs(*event->name ? ": " : "", file);
    svg_put_text(file, event->kind);
    fprintf(file, ", %.4g %s", (event->end - event->begin) / u.secs, u.name);
    if (event->stream > 0) fprintf(file, ", %.4g MB sent", 1e-6 * event->bytes);
    fprintf(file, " (task %d of schedule %d)</title>\n", event->task, event->run);
    if (event->stream > 0)
        draw_collective(file, trace, rank, event, y);
    else
        draw_box(file, trace, event->begin, event->end, y,
                 strcmp(event->kind, "product") == 0 ? SVG_PRODUCT : SVG_WORK);
    fputs("</g>\n", file);
}

static void draw_lane(FILE *file, const trace_file *trace, const trace_rank *rank, int stream, double y)
{
    fprintf(file,
            "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill-opacity=\"0.05\"/>\n"
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
            LEFT, y, WIDTH - LEFT - RIGHT, LANE, LEFT - 8, y + LANE - 4, trace_stream_name(stream));
    for (int64_t i = 0; i < rank->n_events; i++)
        if (rank->events[i].stream == stream) draw_event(file, trace, rank, &rank->events[i], y);
}

static void draw_rank(FILE *file, const trace_file *trace, int number, double y)
{
    char place[64];
    trace_place(&trace->ranks[number], place, sizeof place);
    fprintf(file,
            "<text x=\"12\" y=\"%.1f\" font-weight=\"bold\">rank %d</text>\n"
            "<text x=\"12\" y=\"%.1f\" fill=\"#666666\" font-size=\"11\">%s</text>\n",
            y + LANE - 4, number, y + 2 * LANE - 1, place);
    for (int stream = 0; stream < N_TRACE_STREAMS; stream++) {
        if (!trace->is_used[stream]) continue;
        draw_lane(file, trace, &trace->ranks[number], stream, y);
        y += LANE + GAP;
    }
}

/* ---- around them ---- */

static void draw_key(FILE *file)
{
    static const struct {
        const char *colour, *text;
    } keys[] = {{SVG_PRODUCT, "product"},
                {SVG_WORK, "other computation"},
                {SVG_HIDDEN, "collective, hidden behind computation"},
                {SVG_EXPOSED, "collective, exposed"},
                {SVG_LATE, "exposed, and waiting for a late rank"}};
    double x = LEFT;
    for (int i = 0; i < 5; i++) {
        fprintf(file,
                "<rect x=\"%.0f\" y=\"38\" width=\"12\" height=\"12\" fill=\"%s\"/>\n"
                "<text x=\"%.0f\" y=\"48\">%s</text>\n",
                x, keys[i].colour, x + 18, keys[i].text);
        x += 42 + 6.6 * (double)strlen(keys[i].text);
    }
}

/* Lines at 1, 2 or 5 times a power of ten; times above and below. */
static void draw_axis(FILE *file, const trace_file *trace, double bottom)
{
    const double secs = trace->end - trace->begin;
    const svg_unit u = svg_unit_of(secs);
    const double step = svg_tick_secs(secs, N_TICKS);
    for (int i = 0; i * step <= secs; i++) {
        const double x = x_of(trace, trace->begin + i * step);
        fprintf(file, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#cccccc\"/>\n", x, TOP - 10, x,
                bottom);
        for (int below = 0; below < 2; below++)
            fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g%s%s</text>\n", x,
                    below ? bottom + 15 : TOP - 14.0, i * step / u.secs, i == 0 ? " " : "", i == 0 ? u.name : "");
    }
}

static void draw_title(FILE *file, const trace_file *trace, int n_ranks)
{
    const svg_unit u = svg_unit_of(trace->end - trace->begin);
    const int *grid = trace->ranks[0].grid;
    int first = trace->n_runs;
    for (int64_t i = 0; i < trace->ranks[0].n_events; i++)
        if (trace->ranks[0].events[i].run < first) first = trace->ranks[0].events[i].run;
    fprintf(file, "<text x=\"12\" y=\"22\" font-size=\"16\" font-weight=\"bold\">");
    if (n_ranks < trace->n_ranks)
        fprintf(file, "Ranks 0 to %d of %d", n_ranks - 1, trace->n_ranks);
    else
        fprintf(file, "%d rank%s", n_ranks, n_ranks == 1 ? "" : "s");
    if (grid[0]) fprintf(file, ", grid %dx%dx%dx%d", grid[QDR_X], grid[QDR_Y], grid[QDR_Z], grid[QDR_D]);
    if (first > 0 && first < trace->n_runs)
        fprintf(file, ", the last %d of %d schedules", trace->n_runs - first, trace->n_runs);
    fprintf(file, ": %.4g %s</text>\n", (trace->end - trace->begin) / u.secs, u.name);
}

int trace_draw(FILE *file, const trace_file *trace)
{
    const int n_ranks = trace->n_ranks < MAX_DRAWN_RANKS ? trace->n_ranks : MAX_DRAWN_RANKS;
    int n_streams = 0;
    for (int stream = 0; stream < N_TRACE_STREAMS; stream++) n_streams += trace->is_used[stream];
    if (n_streams < 2) n_streams = 2; /* room for the rank's coordinates */
    const double rank_height = n_streams * (LANE + GAP) + BETWEEN_RANKS;
    const double bottom = TOP + n_ranks * rank_height - BETWEEN_RANKS + GAP;
    svg_begin(file, WIDTH, bottom + 26);
    draw_title(file, trace, n_ranks);
    draw_key(file);
    draw_axis(file, trace, bottom);
    for (int r = 0; r < n_ranks; r++) draw_rank(file, trace, r, TOP + r * rank_height);
    fputs("</svg>\n", file);
    return !ferror(file);
}
