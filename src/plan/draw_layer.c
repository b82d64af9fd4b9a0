/* SPDX-License-Identifier: Apache-2.0 */
/* One layer of the best plan over time: a lane for the processor and for each channel, with the passes from left to
 * right. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/svg.h"
#include "plan/plan.h"

enum {
    LANE = 22,
    GAP = 4,
    LEFT = 110,
    RIGHT = 30,
    BETWEEN_PASSES = 24,
    TITLE = 64, /* height above the lanes */
    AXIS = 30,
    N_TICKS = 14,
    NARROW = 150, /* a pass too narrow for its name and times */
    LETTER = 7 /* maximum width of a character in pixels */
};
#define LEAST_WIDTH 0.6

/* ---- spans ---- */

static void add_span(const qdr_timeline_span *span, void *user)
{
    layer_picture *picture = user;
    if (picture->n == picture->capacity && !picture->failed) {
        const int more = picture->capacity ? 2 * picture->capacity : 64;
        void *spans = realloc(picture->spans, (size_t)more * sizeof *picture->spans);
        picture->failed = !spans;
        if (!spans) return;
        picture->spans = spans;
        picture->capacity = more;
    }
    if (!picture->failed) picture->spans[picture->n++] = *span;
}

int layer_picture_make(plan_answer *answer, layer_picture *picture, failure *why)
{
    memset(picture, 0, sizeof *picture);
    fail_status(why,
                qdr_model_timeline(answer->model, &answer->rows[0].planned.plan, add_span, picture, picture->secs));
    if (picture->failed) fail(why, EXIT_NOTHING_FITS, "--svg: out of memory for the timeline");
    for (int i = 0; i <= QDR_N_CHANNELS; i++) {
        int is_used = i == 0;
        for (int j = 0; j < picture->n; j++) is_used |= picture->spans[j].channel + 1 == i;
        picture->lane_of[i] = is_used ? picture->n_lanes++ : -1;
    }
    if (why->code) layer_picture_free(picture);
    return why->code;
}

void layer_picture_free(layer_picture *picture)
{
    free(picture->spans);
    picture->spans = NULL;
}

double layer_picture_height(const layer_picture *picture) { return TITLE + picture->n_lanes * (LANE + GAP) + AXIS; }

/* ---- places ---- */

static double scale_of(const layer_picture *picture)
{
    double secs = 0;
    int n_passes = 0;
    for (int pass = 0; pass < QDR_N_PASSES; pass++) {
        secs += picture->secs[pass];
        n_passes += picture->secs[pass] > 0;
    }
    return (PICTURE_WIDTH - LEFT - RIGHT - (n_passes - 1) * BETWEEN_PASSES) / secs;
}

static double x_of(const layer_picture *picture, int pass, double secs)
{
    double x = LEFT;
    for (int i = 0; i < pass; i++)
        if (picture->secs[i] > 0) x += BETWEEN_PASSES + scale_of(picture) * picture->secs[i];
    return x + scale_of(picture) * secs;
}

static double y_of(const layer_picture *picture, int channel, double top)
{
    return top + TITLE + picture->lane_of[channel + 1] * (LANE + GAP);
}

/* ---- boxes ---- */

static void draw_box(FILE *file, const layer_picture *picture, int pass, double begin, double end, double y,
                     const char *colour)
{
    const double x = x_of(picture, pass, begin), width = x_of(picture, pass, end) - x;
    svg_box(file, x, y, fmax(width, LEAST_WIDTH), LANE, colour,
            width > 4 ? "stroke=\"white\" stroke-width=\"0.6\"" : "");
}

/* The name, if there is room for it. */
static void draw_name(FILE *file, const layer_picture *picture, const qdr_timeline_span *span, double y)
{
    const double x = x_of(picture, (int)span->pass, span->begin_secs),
                 end = x_of(picture, (int)span->pass, span->end_secs);
    const int is_dark = span->channel >= 0 || span->is_product;
    if (end - x < LETTER * (double)strlen(span->name) + 4) return;
    svg_text(file, (x + end) / 2, y + LANE - 7,
             is_dark ? SVG_MIDDLE " font-size=\"11\" fill=\"white\"" : SVG_MIDDLE " font-size=\"11\"", "%s",
             span->name);
}

static void draw_span(FILE *file, const layer_picture *picture, const qdr_timeline_span *span, double top)
{
    const double y = y_of(picture, span->channel, top);
    svg_begin_tip(file, "%s: %s, %s", span->name, span->kind, time_in_words(span->end_secs - span->begin_secs).text);
    if (span->channel >= 0) {
        /* The part of a collective that overlaps with computation is drawn again on top. */
        draw_box(file, picture, (int)span->pass, span->begin_secs, span->end_secs, y, SVG_EXPOSED);
        for (int i = 0; i < picture->n; i++) {
            const qdr_timeline_span *work = &picture->spans[i];
            const double begin = fmax(work->begin_secs, span->begin_secs), end = fmin(work->end_secs, span->end_secs);
            if (work->channel >= 0 || work->pass != span->pass || begin >= end) continue;
            const double x = x_of(picture, (int)span->pass, begin);
            svg_box(file, x, y, x_of(picture, (int)span->pass, end) - x + 0.05, LANE, SVG_HIDDEN, "");
        }
    } else {
        draw_box(file, picture, (int)span->pass, span->begin_secs, span->end_secs, y,
                 span->is_product ? SVG_PRODUCT : SVG_WORK);
    }
    draw_name(file, picture, span, y);
    svg_end_tip(file);
}

/* ---- around them ---- */

void layer_picture_draw(FILE *file, const plan_answer *answer, const layer_picture *picture, double top)
{
    const plan_row *best = &answer->rows[0];
    char last[48] = "";
    svg_flow key = svg_flow_begin(PICTURE_WIDTH - 540, top + 20, 540, 0);
    if (best->planned.result.n_micro > 1)
        snprintf(last, sizeof last, "; the last of %.0f micro-batches", (double)best->planned.result.n_micro);
    svg_text(file, PICTURE_MARGIN, top + 20, SVG_HEADING, "One layer of %s", grid_in_words(&best->planned.plan).text);
    svg_text(file, PICTURE_MARGIN + 250, top + 20, SVG_GREY, "of %lld, simulated%s", (long long)answer->network->layers,
             last);
    svg_key_tasks(file, &key);
    for (int channel = -1; channel < QDR_N_CHANNELS; channel++) {
        if (picture->lane_of[channel + 1] < 0) continue;
        const double y = y_of(picture, channel, top);
        svg_text(file, LEFT - 8, y + LANE - 7, SVG_END, "%s",
                 channel < 0 ? "processor" : qdr_channel_name((qdr_channel)channel));
        for (int pass = 0; pass < QDR_N_PASSES; pass++)
            if (picture->secs[pass] > 0)
                svg_box(file, x_of(picture, pass, 0), y, scale_of(picture) * picture->secs[pass], LANE, SVG_LANE);
    }
    for (int pass = 0; pass < QDR_N_PASSES; pass++)
        if (picture->secs[pass] > 0) {
            /* The name of a pass above it, and times below. */
            static const char *const names[] = {"forward", "forward again", "backward"};
            const double all = picture->secs[QDR_PASS_FORWARD] + picture->secs[QDR_PASS_RECOMPUTE] +
                               picture->secs[QDR_PASS_BACKWARD];
            const int is_narrow = scale_of(picture) * picture->secs[pass] < NARROW;
            const svg_axis axis = {.left = x_of(picture, pass, 0),
                                   .width = scale_of(picture) * picture->secs[pass],
                                   .most = picture->secs[pass],
                                   .step = svg_tick(all, N_TICKS),
                                   .unit = svg_unit_of(all),
                                   .top = top + TITLE - 3,
                                   .bottom = top + TITLE + picture->n_lanes * (LANE + GAP)};
            svg_text(file, axis.left, top + TITLE - (is_narrow ? 22 : 8), SVG_STRONG " font-size=\"11\"", "%s, %s",
                     names[pass], time_in_words(picture->secs[pass]).text);
            if (!is_narrow) svg_draw_axis(file, &axis);
        }
    for (int i = 0; i < picture->n; i++) draw_span(file, picture, &picture->spans[i], top);
}
