/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of an answer: a bar for each of the best ten grids, made of the terms of its time, and below them one
 * layer of the first over time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "common/svg.h"
#include "plan/plan.h"

enum { PICTURE_WIDTH = 1280, PICTURE_MARGIN = 14 };

/* ---- one layer of the best plan over time: lanes for the processor and each channel ---- */

typedef struct layer_picture {
    qdr_timeline_span *spans;
    int n, failed;
    int64_t capacity;
    double secs[QDR_N_PASSES];
    int lane_of[1 + QDR_N_CHANNELS]; /* of the processor, and of the channels; -1: not used */
    int n_lanes;
} layer_picture;

enum {
    LAYER_LANE = 22,
    LAYER_GAP = 4,
    LAYER_LEFT = 110,
    LAYER_RIGHT = 30,
    LAYER_BETWEEN_PASSES = 44, /* room for the numbers at both ends of axes */
    LAYER_TITLE = 64, /* height above the lanes */
    LAYER_AXIS = 30,
    LAYER_N_TICKS = 14,
    LAYER_NARROW = 150, /* a pass too narrow for its name and times */
    LAYER_LETTER = 7 /* maximum width of a character in pixels */
};
#define LEAST_WIDTH 0.6
#define COLOUR_AGAIN "#7a6bb0"

static void add_span(const qdr_timeline_span *span, void *user)
{
    layer_picture *picture = user;
    picture->failed |= !grow((void **)&picture->spans, picture->n, &picture->capacity, 64, sizeof *picture->spans);
    if (!picture->failed) picture->spans[picture->n++] = *span;
}

static double scale_of(const layer_picture *picture)
{
    double secs = 0;
    int n_passes = 0;
    for (int pass = 0; pass < QDR_N_PASSES; pass++) {
        secs += picture->secs[pass];
        n_passes += picture->secs[pass] > 0;
    }
    return (PICTURE_WIDTH - LAYER_LEFT - LAYER_RIGHT - (n_passes - 1) * LAYER_BETWEEN_PASSES) / secs;
}

static double x_of(const layer_picture *picture, int pass, double secs)
{
    double x = LAYER_LEFT;
    for (int i = 0; i < pass; i++)
        if (picture->secs[i] > 0) x += LAYER_BETWEEN_PASSES + scale_of(picture) * picture->secs[i];
    return x + scale_of(picture) * secs;
}

static double y_of(const layer_picture *picture, int channel, double top)
{
    return top + LAYER_TITLE + picture->lane_of[channel + 1] * (LAYER_LANE + LAYER_GAP);
}

static void draw_box(FILE *file, const layer_picture *picture, int pass, double begin, double end, double y,
                     const char *colour)
{
    const double x = x_of(picture, pass, begin), width = x_of(picture, pass, end) - x;
    svg_box(file, x, y, fmax(width, LEAST_WIDTH), LAYER_LANE, colour,
            width > 4 ? "stroke=\"white\" stroke-width=\"0.6\"" : "");
}

/* The pass in which it is drawn: what the backward repeats has no pass of its own. */
static int pass_of(const layer_picture *picture, const qdr_timeline_span *span)
{
    return picture->secs[span->pass] > 0 ? (int)span->pass : QDR_PASS_BACKWARD;
}

static int is_again(const layer_picture *picture, const qdr_timeline_span *span)
{
    return (int)span->pass != pass_of(picture, span);
}

static void draw_span(FILE *file, const layer_picture *picture, const qdr_timeline_span *span, double top)
{
    const double y = y_of(picture, span->channel, top);
    svg_begin_tip(file, "%s%s: %s, %s", span->name, is_again(picture, span) ? " again" : "", span->kind,
                  time_in_words(span->end_secs - span->begin_secs).text);
    if (span->channel >= 0) {
        /* The part of a collective that overlaps with computation is drawn again on top. */
        draw_box(file, picture, pass_of(picture, span), span->begin_secs, span->end_secs, y, SVG_EXPOSED);
        for (int i = 0; i < picture->n; i++) {
            const qdr_timeline_span *work = &picture->spans[i];
            const double begin = fmax(work->begin_secs, span->begin_secs), end = fmin(work->end_secs, span->end_secs);
            if (work->channel >= 0 || pass_of(picture, work) != pass_of(picture, span) || begin >= end) continue;
            const double left = x_of(picture, pass_of(picture, span), begin);
            svg_box(file, left, y, x_of(picture, pass_of(picture, span), end) - left + 0.05, LAYER_LANE, SVG_HIDDEN,
                    "");
        }
    } else {
        draw_box(file, picture, pass_of(picture, span), span->begin_secs, span->end_secs, y,
                 is_again(picture, span) ? COLOUR_AGAIN
                 : span->is_product      ? SVG_PRODUCT
                                         : SVG_WORK);
    }
    const double x = x_of(picture, pass_of(picture, span), span->begin_secs);
    const double end = x_of(picture, pass_of(picture, span), span->end_secs);
    const int is_dark = span->channel >= 0 || span->is_product || is_again(picture, span);
    if (end - x >= LAYER_LETTER * (double)strlen(span->name) + 4) /* there is room for the name */
        svg_text(file, (x + end) / 2, y + LAYER_LANE - 7,
                 is_dark ? SVG_MIDDLE " font-size=\"11\" fill=\"white\"" : SVG_MIDDLE " font-size=\"11\"", "%s",
                 span->name);
    svg_end_tip(file);
}

static void layer_picture_draw(FILE *file, const plan_answer *answer, const layer_picture *picture, double top)
{
    const plan_row *best = &answer->rows[0];
    const char *const which = plan_has_levels(&best->planned.plan) ? "first forward, last backward" : "the last";
    char last[80] = "";
    svg_flow key = svg_flow_begin(PICTURE_WIDTH - 540, top + 20, 540, 0);
    if (best->planned.result.n_micro > 1)
        snprintf(last, sizeof last, "; %s of %.0f micro-batches", which, (double)best->planned.result.n_micro);
    svg_text(file, PICTURE_MARGIN, top + 20, SVG_HEADING, "One layer of %s", grid_in_words(&best->planned.plan).text);
    svg_text(file, PICTURE_MARGIN + 250, top + 20, SVG_GREY, "of %lld, simulated%s", (long long)answer->network->layers,
             last);
    svg_key_tasks(file, &key);
    for (int channel = -1; channel < QDR_N_CHANNELS; channel++) {
        if (picture->lane_of[channel + 1] < 0) continue;
        const double y = y_of(picture, channel, top);
        svg_text(file, LAYER_LEFT - 8, y + LAYER_LANE - 7, SVG_END, "%s",
                 channel < 0 ? "processor" : qdr_channel_name((qdr_channel)channel));
        for (int pass = 0; pass < QDR_N_PASSES; pass++)
            if (picture->secs[pass] > 0)
                svg_box(file, x_of(picture, pass, 0), y, scale_of(picture) * picture->secs[pass], LAYER_LANE, SVG_LANE);
    }
    for (int pass = 0; pass < QDR_N_PASSES; pass++)
        if (picture->secs[pass] > 0) {
            /* The name of a pass above it, and times below. */
            static const char *const names[] = {"forward", "forward again", "backward"};
            const double all = picture->secs[QDR_PASS_FORWARD] + picture->secs[QDR_PASS_RECOMPUTE] +
                               picture->secs[QDR_PASS_BACKWARD];
            const int is_narrow = scale_of(picture) * picture->secs[pass] < LAYER_NARROW;
            const svg_axis axis = {.left = x_of(picture, pass, 0),
                                   .width = scale_of(picture) * picture->secs[pass],
                                   .most = picture->secs[pass],
                                   .step = svg_tick(all, LAYER_N_TICKS),
                                   .unit = svg_unit_of(all),
                                   .top = top + LAYER_TITLE - 3,
                                   .bottom = top + LAYER_TITLE + picture->n_lanes * (LAYER_LANE + LAYER_GAP)};
            svg_text(file, axis.left, top + LAYER_TITLE - (is_narrow ? 22 : 8), SVG_STRONG " font-size=\"11\"",
                     "%s, %s", names[pass], time_in_words(picture->secs[pass]).text);
            if (!is_narrow) svg_draw_axis(file, &axis);
        }
    for (int i = 0; i < picture->n; i++) draw_span(file, picture, &picture->spans[i], top);
}

enum {
    MAX_BARS = 10,
    TOP = 132, /* top of the first bar */
    ROW = 34,
    BAR = 18,
    BETWEEN_PARTS = 16, /* between the best plans and the known methods */
    LEFT = 290,
    RIGHT = 270,
    PEAK = 150, /* distance from the right edge */
    AXIS = 34,
    N_TICKS = 8
};

/* Computing is blue, waiting is red. */
static const struct {
    qdr_time_term term;
    const char *colour, *text;
} terms[] = {
    {QDR_TIME_PRODUCTS, SVG_PRODUCT, "products"},
    {QDR_TIME_ATTENTION, "#5b93cf", "attention"},
    {QDR_TIME_KERNELS, SVG_WORK, "other kernels"},
    {QDR_TIME_ENDS, "#c9dff2", "embedding, head, loss"},
    {QDR_TIME_RECOMPUTE, COLOUR_AGAIN, "recomputing"},
    {QDR_TIME_OPTIMIZER, "#5a5a5a", "optimizer"},
    {QDR_TIME_X, "#8c2d04", "waiting for x"},
    {QDR_TIME_Y, SVG_EXPOSED, "waiting for y"},
    {QDR_TIME_Z, "#f08c42", "waiting for z"},
    {QDR_TIME_D, "#f9c48c", "waiting for d"},
    {QDR_TIME_BUBBLE, "#d0d0d0", "bubble"},
    {QDR_TIME_HOST, "#a0a0a0", "waiting for the host"},
};
enum { N_TERMS = sizeof terms / sizeof *terms };

/* The rows that are drawn, and their scale. */
typedef struct bars {
    const plan_answer *answer;
    const plan_row *rows[MAX_BARS + MAX_KNOWN_METHODS];
    int n, n_best;
    double most_secs;
} bars;

static double width_of(const bars *all, double secs) { return (PICTURE_WIDTH - LEFT - RIGHT) * secs / all->most_secs; }

static double row_top(const bars *all, int row) { return TOP + ROW * row + (row >= all->n_best ? BETWEEN_PARTS : 0); }

static double bars_bottom(const bars *all) { return row_top(all, all->n - 1) + ROW; }

static int is_used(const bars *all, qdr_time_term term)
{
    for (int i = 0; i < all->n; i++)
        if (all->rows[i]->planned.result.time[term] > 1e-4 * all->most_secs) return 1;
    return 0;
}

static void draw_bar(FILE *file, const bars *all, int number)
{
    const plan_row *row = all->rows[number];
    const double y = row_top(all, number);
    const qdr_plan *plan = &row->planned.plan;
    const double lacks = plan_lacks_bytes(all->answer, row);
    char split[48] = "", missing[48] = "";
    if (plan_has_levels(plan)) snprintf(split, sizeof split, "levels %s", levels_in_words(plan).text);
    if (lacks > 0) snprintf(missing, sizeof missing, ", lacks %.1f GiB", lacks / GIB);
    fprintf(file, "<text x=\"%d\" y=\"%.1f\"><tspan font-weight=\"bold\">%s</tspan> %s%s</text>\n", PICTURE_MARGIN,
            y + 10, grid_in_words(plan).text, row->is_known_method ? row->name : split,
            row->has_enough ? missing : ", batch too small");
    svg_text(file, PICTURE_MARGIN, y + 22, SVG_GREY " font-size=\"10\"", "%s, %s, recompute %s, micro-batch %lld",
             plan->order, layout_word(plan->layout), recompute_word(plan->recompute), (long long)plan->micro_batch);
    const qdr_plan_result *result = &row->planned.result;
    double x = LEFT;
    svg_box(file, LEFT, y, width_of(all, result->secs), BAR, "white", "");
    for (int i = 0; i < N_TERMS; i++) {
        const double secs = result->time[terms[i].term], width = width_of(all, fmax(0, secs));
        if (width <= 0) continue;
        svg_begin_tip(file, "%s: %s, %.1f %%", terms[i].text, time_in_words(secs).text, 100 * secs / result->secs);
        svg_box(file, x, y, width, BAR, terms[i].colour, lacks > 0 ? "fill-opacity=\"0.45\"" : "");
        svg_end_tip(file);
        x += width;
    }
    double hidden = 0;
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        hidden += fmax(0, result->busy[axis] - result->time[QDR_TIME_X + axis]);
    if (hidden > 0) {
        svg_begin_tip(file, "collectives hidden behind computation: %s", time_in_words(hidden).text);
        svg_box(file, LEFT, y + BAR + 2, width_of(all, fmin(hidden, all->most_secs)), 4, SVG_HIDDEN, "");
        svg_end_tip(file);
    }
    svg_text(file, LEFT + width_of(all, result->secs) + 6, y + 13, "", "%s", time_in_words(result->secs).text);
    svg_text(file, PICTURE_WIDTH - PEAK, y + 13, SVG_END, "%.1f %%", 100 * result->peak_share);
    svg_text(file, PICTURE_WIDTH - PICTURE_MARGIN, y + 13, lacks > 0 ? SVG_END " fill=\"#b00000\"" : SVG_END,
             "%.1f of %.1f GiB", result->memory_bytes / GIB, all->answer->machine->memory_bytes / GIB);
}

void plan_draw(FILE *file, const void *user, failure *why)
{
    const plan_answer *answer = user;
    bars all = {.answer = answer};
    for (int i = 0; i < answer->n_rows; i++) {
        const plan_row *row = &answer->rows[i];
        if (!row->is_known_method && all.n_best == MAX_BARS) continue;
        all.rows[all.n++] = row;
        all.n_best += !row->is_known_method;
        all.most_secs = fmax(all.most_secs, row->planned.result.secs);
    }
    const double layer_top = bars_bottom(&all) + AXIS;
    layer_picture picture = {.n = 0};
    fail_status(why,
                qdr_model_timeline(answer->model, &answer->rows[0].planned.plan, add_span, &picture, picture.secs));
    if (picture.failed) fail_memory(why, "--svg: out of memory for the timeline");
    for (int i = 0; i <= QDR_N_CHANNELS; i++) {
        int is_used = i == 0;
        for (int j = 0; j < picture.n; j++) is_used |= picture.spans[j].channel + 1 == i;
        picture.lane_of[i] = is_used ? picture.n_lanes++ : -1;
    }
    if (why->code) {
        free(picture.spans);
        return;
    }
    svg_begin(file, PICTURE_WIDTH, layer_top + LAYER_TITLE + picture.n_lanes * (LAYER_LANE + LAYER_GAP) + LAYER_AXIS);
    const qdr_plan *best = &answer->rows[0].planned.plan;
    svg_text(file, PICTURE_MARGIN, 26, SVG_TITLE, "%s on %d ranks of %s", answer->network->name,
             answer->options->search.n_ranks, answer->machine->name);
    svg_text(
        file, PICTURE_MARGIN, 46, SVG_GREY,
        "A step of %lld sequence%s of %lld tokens in %s; %lld plans on all grids, at most %lld of them fit in %.4g GiB",
        (long long)best->batch, PLURAL(best->batch), (long long)plan_sequence(answer->network, best),
        qdr_dtype_name(best->dtype), (long long)answer->found.counts.n_candidates,
        (long long)answer->found.counts.n_fitting, answer->machine->memory_bytes / GIB);
    svg_flow key = svg_flow_begin(PICTURE_MARGIN, 72, PICTURE_WIDTH - 2 * PICTURE_MARGIN, 0);
    for (int i = 0; i < N_TERMS; i++)
        if (is_used(&all, terms[i].term)) svg_key_item(file, &key, terms[i].colour, 12, terms[i].text);
    svg_key_item(file, &key, SVG_HIDDEN, 4, "collectives hidden behind computation");
#define HEAD "font-weight=\"bold\" font-size=\"11\" fill=\"#444444\""
    svg_text(file, PICTURE_MARGIN, TOP - 12, HEAD, "grid x, y, z, d");
    svg_text(file, LEFT, TOP - 12, HEAD, "one step");
    svg_text(file, PICTURE_WIDTH - PEAK, TOP - 12, HEAD " " SVG_END, "of peak");
    svg_text(file, PICTURE_WIDTH - PICTURE_MARGIN, TOP - 12, HEAD " " SVG_END, "memory of a rank");
#undef HEAD
    const svg_axis axis = {.left = LEFT,
                           .width = width_of(&all, all.most_secs),
                           .most = all.most_secs,
                           .step = svg_tick(all.most_secs, N_TICKS),
                           .unit = svg_unit_of(all.most_secs),
                           .top = TOP - 6,
                           .bottom = bars_bottom(&all)};
    svg_draw_axis(file, &axis);
    for (int i = 0; i < all.n; i++) draw_bar(file, &all, i);
    layer_picture_draw(file, answer, &picture, layer_top);
    svg_end(file);
    free(picture.spans);
}
