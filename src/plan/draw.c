/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of an answer: a bar for each of the best ten grids, made of the terms of its time, and below them one
 * layer of the first over time. */
#include <math.h>
#include <string.h>

#include "common/svg.h"
#include "plan/plan.h"

enum {
    MAX_BARS = 10,
    TOP = 132, /* top of the first bar */
    ROW = 34,
    BAR = 18,
    BETWEEN_PARTS = 16, /* between the best plans and the known methods */
    LEFT = 290,
    RIGHT = 250,
    PEAK = 150, /* distance from the right edge */
    AXIS = 34,
    N_TICKS = 8
};

/* Computing is blue, waiting is red. */
static const struct {
    qdr_time_term term;
    const char *colour, *text;
} terms[] = {
    {QDR_TIME_PRODUCTS, SVG_PRODUCT, "products"},   {QDR_TIME_ATTENTION, "#5b93cf", "attention"},
    {QDR_TIME_KERNELS, SVG_WORK, "other kernels"},  {QDR_TIME_ENDS, "#c9dff2", "embedding, head, loss"},
    {QDR_TIME_RECOMPUTE, "#7a6bb0", "recomputing"}, {QDR_TIME_OPTIMIZER, "#5a5a5a", "optimizer"},
    {QDR_TIME_X, "#8c2d04", "waiting for x"},       {QDR_TIME_Y, SVG_EXPOSED, "waiting for y"},
    {QDR_TIME_Z, "#f08c42", "waiting for z"},       {QDR_TIME_D, "#f9c48c", "waiting for d"},
    {QDR_TIME_BUBBLE, "#d0d0d0", "bubble"},         {QDR_TIME_HOST, "#a0a0a0", "waiting for the host"},
};
enum { N_TERMS = sizeof terms / sizeof *terms };

/* The rows that are drawn, and their scale. */
typedef struct bars {
    const plan_answer *answer;
    const plan_row *rows[MAX_BARS + MAX_KNOWN_METHODS];
    int n, n_best;
    double most_secs;
} bars;

static bars bars_of(const plan_answer *answer)
{
    bars all = {.answer = answer};
    for (int i = 0; i < answer->n_rows; i++) {
        const plan_row *row = &answer->rows[i];
        if (!row->is_known_method && all.n_best == MAX_BARS) continue;
        all.rows[all.n++] = row;
        all.n_best += !row->is_known_method;
        all.most_secs = fmax(all.most_secs, row->planned.result.secs);
    }
    return all;
}

static double width_of(const bars *all, double secs) { return (PICTURE_WIDTH - LEFT - RIGHT) * secs / all->most_secs; }

static double row_top(const bars *all, int row) { return TOP + ROW * row + (row >= all->n_best ? BETWEEN_PARTS : 0); }

static double bars_bottom(const bars *all) { return row_top(all, all->n - 1) + ROW; }

static int is_used(const bars *all, qdr_time_term term)
{
    for (int i = 0; i < all->n; i++)
        if (all->rows[i]->planned.result.time[term] > 1e-4 * all->most_secs) return 1;
    return 0;
}

/* ---- a bar ---- */

static void draw_hidden(FILE *file, const bars *all, const plan_row *row, double y)
{
    const qdr_plan_result *result = &row->planned.result;
    double secs = 0;
    for (int axis = 0; axis < QDR_N_AXES; axis++) secs += fmax(0, result->busy[axis] - result->time[QDR_TIME_X + axis]);
    if (secs <= 0) return;
    svg_begin_tip(file, "collectives hidden behind computation: %s", time_in_words(secs).text);
    svg_box(file, LEFT, y + BAR + 2, width_of(all, fmin(secs, all->most_secs)), 4, SVG_HIDDEN, "");
    svg_end_tip(file);
}

static void draw_bar(FILE *file, const bars *all, int number)
{
    const plan_row *row = all->rows[number];
    const double y = row_top(all, number);
    const qdr_plan *plan = &row->planned.plan;
    fprintf(file, "<text x=\"%d\" y=\"%.1f\"><tspan font-weight=\"bold\">%s</tspan> %s%s</text>\n", PICTURE_MARGIN,
            y + 10, grid_in_words(plan).text, row->is_known_method ? row->name : "",
            !row->has_enough ? ", batch too small"
            : row->fits      ? ""
                             : ", does not fit");
    svg_text(file, PICTURE_MARGIN, y + 22, SVG_GREY " font-size=\"10\"", "%s, %s, recompute %s, micro-batch %lld",
             plan->order[0] ? plan->order : "xyzd", layout_word(plan->layout), recompute_word(plan->recompute),
             (long long)plan->micro_batch);
    const qdr_plan_result *result = &row->planned.result;
    double x = LEFT;
    svg_box(file, LEFT, y, width_of(all, result->secs), BAR, "white", "");
    for (int i = 0; i < N_TERMS; i++) {
        const double secs = result->time[terms[i].term], width = width_of(all, fmax(0, secs));
        if (width <= 0) continue;
        svg_begin_tip(file, "%s: %s, %.1f %%", terms[i].text, time_in_words(secs).text, 100 * secs / result->secs);
        svg_box(file, x, y, width, BAR, terms[i].colour, row->fits ? "" : "fill-opacity=\"0.45\"");
        svg_end_tip(file);
        x += width;
    }
    draw_hidden(file, all, row, y);
    const double limit = all->answer->machine->memory_bytes;
    svg_text(file, LEFT + width_of(all, result->secs) + 6, y + 13, "", "%s", time_in_words(result->secs).text);
    svg_text(file, PICTURE_WIDTH - PEAK, y + 13, SVG_END, "%.1f %%", 100 * result->peak_share);
    svg_text(file, PICTURE_WIDTH - PICTURE_MARGIN, y + 13,
             result->memory_bytes > limit ? SVG_END " fill=\"#b00000\"" : SVG_END, "%.1f of %.1f GiB",
             result->memory_bytes / GIB, limit / GIB);
}

int plan_draw(FILE *file, plan_answer *answer, failure *why)
{
    const bars all = bars_of(answer);
    const double layer_top = bars_bottom(&all) + AXIS;
    layer_picture picture;
    if (layer_picture_make(answer, &picture, why)) return why->code;
    svg_begin(file, PICTURE_WIDTH, layer_top + layer_picture_height(&picture));
    const qdr_plan *best = &answer->rows[0].planned.plan;
    svg_text(file, PICTURE_MARGIN, 26, SVG_TITLE, "%s on %d ranks of %s", answer->network->name,
             answer->options->search.n_ranks, answer->machine->name);
    svg_text(file, PICTURE_MARGIN, 46, SVG_GREY,
             "A step of %lld sequence%s of %lld tokens in %s; %lld plans on all grids, %lld of them fit in %.4g GiB",
             (long long)best->batch, PLURAL(best->batch), (long long)plan_sequence(answer->network, best),
             qdr_dtype_name(best->dtype), (long long)answer->found.n_candidates, (long long)answer->found.n_fitting,
             answer->machine->memory_bytes / GIB);
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
    layer_picture_free(&picture);
    return EXIT_OK;
}
