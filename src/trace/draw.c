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

static void draw_box(FILE *file, const trace_file *trace, double begin, double end, double y, const char *colour)
{
    const double x = x_of(trace, begin);
    svg_box(file, x, y, fmax(x_of(trace, end) - x, LEAST_WIDTH), LANE, colour, "");
}

static void draw_event(FILE *file, const trace_file *trace, const trace_rank *rank, const trace_event *event, double y)
{
    const svg_unit u = svg_unit_of(event->end - event->begin);
    char sent[48] = "", task[64] = "";
    if (event->stream > 0)
        snprintf(sent, sizeof sent, ", %.4g MB%s", 1e-6 * event->bytes, event->stream == TRACE_FILES ? "" : " sent");
    if (event->stream < TRACE_FILES) snprintf(task, sizeof task, " (task %d of pass %d)", event->task, event->run);
    svg_begin_tip(file, "%s%s%s, %.4g %s%s%s", event->name, *event->name ? ": " : "", event->kind,
                  (event->end - event->begin) / u.size, u.name, sent, task);
    if (event->stream == TRACE_FILES) {
        draw_box(file, trace, event->begin, event->end, y,
                 strcmp(event->kind, trace_file_kinds[0]) == 0 ? SVG_COPY : SVG_FILE);
    } else if (event->stream > 0) {
        /* A collective in pieces: overlapping with computation, exposed, and waiting for late ranks. */
        draw_box(file, trace, event->begin, event->end, y, SVG_EXPOSED);
        if (event->late > 0) draw_box(file, trace, event->begin, event->begin + event->late, y, SVG_LATE);
        int64_t i = trace_find_work(rank, event->begin);
        for (; i < rank->n_work && rank->work[i].begin < event->end; i++)
            draw_box(file, trace, fmax(event->begin, rank->work[i].begin), fmin(event->end, rank->work[i].end), y,
                     SVG_HIDDEN);
    } else {
        draw_box(file, trace, event->begin, event->end, y,
                 strcmp(event->kind, "product") == 0 ? SVG_PRODUCT : SVG_WORK);
    }
    svg_end_tip(file);
}

static void draw_rank(FILE *file, const trace_file *trace, int number, double y)
{
    const trace_rank *rank = &trace->ranks[number];
    char position[64];
    trace_position(rank, position, sizeof position);
    svg_text(file, 12, y + LANE - 4, SVG_STRONG, "rank %d", number);
    svg_text(file, 12, y + 2 * LANE - 1, SVG_SMALL, "%s", position);
    for (int stream = 0; stream < N_TRACE_STREAMS; stream++) {
        if (!trace->is_used[stream]) continue;
        svg_box(file, LEFT, y, WIDTH - LEFT - RIGHT, LANE, SVG_LANE);
        svg_text(file, LEFT - 8, y + LANE - 4, SVG_END, "%s", trace_stream_name(stream));
        for (int64_t i = 0; i < rank->n_events; i++)
            if (rank->events[i].stream == stream) draw_event(file, trace, rank, &rank->events[i], y);
        y += LANE + GAP;
    }
}

void trace_draw(FILE *file, const void *user, failure *why)
{
    const trace_file *trace = user;
    const int n_ranks = trace->n_ranks < MAX_DRAWN_RANKS ? trace->n_ranks : MAX_DRAWN_RANKS;
    svg_flow key = svg_flow_begin(LEFT, 48, WIDTH - LEFT, 0);
    int n_streams = 0;
    (void)why;
    for (int stream = 0; stream < N_TRACE_STREAMS; stream++) n_streams += trace->is_used[stream];
    if (n_streams < 2) n_streams = 2; /* room for the rank's coordinates */
    const double rank_height = n_streams * (LANE + GAP) + BETWEEN_RANKS;
    const double bottom = TOP + n_ranks * rank_height - BETWEEN_RANKS + GAP;
    svg_begin(file, WIDTH, bottom + 26);
    const double secs = trace->end - trace->begin;
    const svg_unit u = svg_unit_of(secs);
    int first = trace->n_runs;
    for (int64_t i = 0; i < trace->ranks[0].n_events; i++)
        if (trace->ranks[0].events[i].run < first) first = trace->ranks[0].events[i].run;
    char ranks[48], on[128], last[64] = "";
    if (n_ranks < trace->n_ranks)
        snprintf(ranks, sizeof ranks, "Ranks 0 to %d of %d", n_ranks - 1, trace->n_ranks);
    else
        snprintf(ranks, sizeof ranks, "%d rank%s", n_ranks, PLURAL(n_ranks));
    trace_grid(&trace->ranks[0], on, sizeof on);
    if (first > 0 && first < trace->n_runs)
        snprintf(last, sizeof last, ", the last %d of %d passes", trace->n_runs - first, trace->n_runs);
    svg_text(file, 12, 22, SVG_TITLE, "%s%s%s: %.4g %s", ranks, on, last, secs / u.size, u.name);
    svg_key_tasks(file, &key);
    svg_key_item(file, &key, SVG_LATE, 12, "exposed, and waiting for a late rank");
    if (trace->is_used[TRACE_FILES]) {
        svg_key_item(file, &key, SVG_COPY, 12, "copied to host");
        svg_key_item(file, &key, SVG_FILE, 12, "written, read");
    }
    const svg_axis axis = {.left = LEFT,
                           .width = WIDTH - LEFT - RIGHT,
                           .most = secs,
                           .step = svg_tick(secs, N_TICKS),
                           .unit = svg_unit_of(secs),
                           .top = TOP - 10,
                           .bottom = bottom,
                           .is_framed = 1};
    svg_draw_axis(file, &axis);
    for (int r = 0; r < n_ranks; r++) draw_rank(file, trace, r, TOP + r * rank_height);
    svg_end(file);
}
