/* SPDX-License-Identifier: Apache-2.0 */
/* A trace as a picture: a lane for each stream of the first ranks, time from left to right. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trace.h"

enum { MAX_DRAWN_RANKS = 4, LANE = 16, GAP = 3, LEFT = 130, WIDTH = 1200, RIGHT = 20, TOP = 64 };
#define PRODUCT "#1f5fa8"
#define WORK "#9cc3e6"
#define HIDDEN "#4a9a4a"
#define EXPOSED "#d9541e"

static double x_of(const trace_file *trace, double secs)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (secs - trace->begin) / (trace->end - trace->begin);
}

static void draw_box(FILE *file, const trace_file *trace, double begin, double end, double y,
                     const char *colour)
{
    const double x = x_of(trace, begin);
    fprintf(file, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n", x, y,
            fmax(x_of(trace, end) - x, 0.15), LANE, colour);
}

/* A collective in pieces: beside computation, and not. */
static void draw_collective(FILE *file, const trace_file *trace, const trace_rank *rank,
                            const trace_event *event, double y)
{
    draw_box(file, trace, event->begin, event->end, y, EXPOSED);
    for (int64_t i = 0; i < rank->n_events && rank->events[i].begin < event->end; i++) {
        const trace_event *work = &rank->events[i];
        const double from = fmax(event->begin, work->begin), to = fmin(event->end, work->end);
        if (work->stream == 0 && to > from) draw_box(file, trace, from, to, y, HIDDEN);
    }
}

static void draw_lane(FILE *file, const trace_file *trace, int number, int stream, double y)
{
    const trace_rank *rank = &trace->ranks[number];
    fprintf(file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8,
            y + LANE - 4, trace->streams[stream]);
    for (int64_t i = 0; i < rank->n_events; i++) {
        const trace_event *event = &rank->events[i];
        if (event->stream != stream) continue;
        if (stream == 0)
            draw_box(file, trace, event->begin, event->end, y,
                     strcmp(event->kind, "product") == 0 ? PRODUCT : WORK);
        else
            draw_collective(file, trace, rank, event, y);
    }
}

static void draw_key(FILE *file)
{
    static const struct {
        const char *colour, *text;
    } keys[] = {{PRODUCT, "product"},
                {WORK, "other computation"},
                {HIDDEN, "collective beside computation"},
                {EXPOSED, "collective that is waited for"}};
    double x = LEFT;
    for (int i = 0; i < 4; i++) {
        fprintf(file,
                "<rect x=\"%.0f\" y=\"36\" width=\"12\" height=\"12\" fill=\"%s\"/>\n"
                "<text x=\"%.0f\" y=\"46\">%s</text>\n",
                x, keys[i].colour, x + 18, keys[i].text);
        x += 40 + 7.0 * (double)strlen(keys[i].text);
    }
}

/* Lines at 1, 2 or 5 times a power of ten, about ten of them. */
static void draw_axis(FILE *file, const trace_file *trace, double bottom)
{
    const double rough = (trace->end - trace->begin) / 10, power = pow(10, floor(log10(rough)));
    const double step = rough / power < 2 ? 2 * power : rough / power < 5 ? 5 * power : 10 * power;
    for (int i = 0; i * step <= trace->end - trace->begin; i++) {
        const double t = i * step;
        const double x = x_of(trace, trace->begin + t);
        fprintf(file,
                "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#dddddd\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g ms</text>\n",
                x, TOP - 8, x, bottom, x, bottom + 16, 1e3 * t);
    }
}

static int count_streams(const trace_file *trace)
{
    int n = 0;
    for (int stream = 0; stream < MAX_TRACE_STREAMS; stream++) n += trace->streams[stream][0] != 0;
    return n;
}

static void draw(FILE *file, const trace_file *trace)
{
    const int n_ranks = trace->n_ranks < MAX_DRAWN_RANKS ? trace->n_ranks : MAX_DRAWN_RANKS;
    const double rank_height = count_streams(trace) * (LANE + GAP) + 24.0;
    const double bottom = TOP + n_ranks * rank_height;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 "
            "%d %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"22\" font-size=\"16\" font-weight=\"bold\">Tasks of %d of %d "
            "rank%s, %.3g ms</text>\n",
            WIDTH, bottom + 30, WIDTH, bottom + 30, LEFT, n_ranks, trace->n_ranks,
            trace->n_ranks == 1 ? "" : "s", 1e3 * (trace->end - trace->begin));
    draw_key(file);
    draw_axis(file, trace, bottom);
    for (int r = 0; r < n_ranks; r++) {
        double y = TOP + r * rank_height + 14;
        fprintf(file, "<text x=\"%d\" y=\"%.1f\" font-weight=\"bold\">rank %d</text>\n", 8,
                y + LANE - 4, r);
        for (int stream = 0; stream < MAX_TRACE_STREAMS; stream++) {
            if (!trace->streams[stream][0]) continue;
            draw_lane(file, trace, r, stream, y);
            y += LANE + GAP;
        }
    }
    fputs("</svg>\n", file);
}

int trace_draw(const trace_file *trace, const char *path, failure *why)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return fail(why, EXIT_USAGE, "--svg %.300s: %s; name a file in a folder that exists", path,
                    strerror(errno));
    draw(file, trace);
    const int bad = ferror(file);
    if (fclose(file) != 0 || bad)
        return fail(why, EXIT_FAILED, "--svg %.300s: it could not be written; make room", path);
    return EXIT_OK;
}
