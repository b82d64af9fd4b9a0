/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a run, as SVG. */
#include "chart.h"

#include <math.h>
#include <quadrille_private/output.h>

#include "src/common/svg.h"

#define WIDTH 860.0
#define HEIGHT 520.0
#define LEFT 72.0
#define RIGHT 48.0
#define TOP 108.0
#define BOTTOM 62.0
#define MAX_DOTS 1200 /* points of one line; more cannot be distinguished */

#define RAW "stroke=\"" SVG_WORK "\""
#define MEAN "stroke-width=\"2.2\" stroke=\"" SVG_PRODUCT "\""
#define VALIDATION "stroke-width=\"1.4\" stroke-dasharray=\"4 3\" stroke=\"" SVG_EXPOSED "\""

/* Converts data to page coordinates. */
typedef struct page_scale {
    double x_max, y_min, y_max, x_tick, y_tick;
} page_scale;

static double page_x(const page_scale *scale, double step)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * step / scale->x_max;
}

static double page_y(const page_scale *scale, double loss)
{
    const double share = (loss - scale->y_min) / (scale->y_max - scale->y_min);
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * fmax(0, fmin(1, share));
}

static page_scale make_scale(const loss_chart *chart)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < chart->n_steps; i++)
        if (isfinite(chart->loss[i])) {
            low = fmin(low, chart->loss[i]);
            high = fmax(high, chart->loss[i]);
        }
    for (int64_t i = 0; i < chart->n_validation; i++)
        if (isfinite(chart->validation[i].loss)) {
            low = fmin(low, chart->validation[i].loss);
            high = fmax(high, chart->validation[i].loss);
        }
    if (!(low <= high)) low = 0, high = 1;
    if (high - low < 1e-3) low -= 0.5, high += 0.5;
    page_scale scale = {.x_max = (double)(chart->first_step + chart->n_steps)};
    scale.y_tick = svg_tick(high - low, 7);
    scale.y_min = scale.y_tick * floor(low / scale.y_tick);
    scale.y_max = scale.y_tick * ceil(high / scale.y_tick);
    scale.x_tick = fmax(1, svg_tick(scale.x_max, 8));
    return scale;
}

static void put_axes(const page_scale *scale, FILE *file)
{
    const double right = WIDTH - RIGHT, floor_y = HEIGHT - BOTTOM;
    const svg_axis steps = {.left = LEFT,
                            .width = right - LEFT,
                            .most = scale->x_max,
                            .step = scale->x_tick,
                            .unit = {"", 1},
                            .top = floor_y,
                            .bottom = floor_y + 5};
    const int n_y = (int)lround((scale->y_max - scale->y_min) / scale->y_tick);
    for (int i = 0; i <= n_y; i++) {
        const double value = scale->y_min + i * scale->y_tick, y = page_y(scale, value);
        svg_line(file, LEFT, y, right, y, i == 0 ? "stroke=\"#555555\" stroke-width=\"1.2\"" : "stroke=\"#e4e4e4\"");
        svg_text(file, LEFT - 10, y + 4.5, SVG_END " " SVG_GREY, "%.*f", scale->y_tick < 0.1 ? 2 : 1, value);
    }
    svg_draw_axis(file, &steps);
    svg_text(file, 0.5 * (LEFT + right), HEIGHT - 16, SVG_MIDDLE, "optimizer step");
    fputs("<g transform=\"rotate(-90)\">\n", file);
    svg_text(file, -0.5 * (TOP + floor_y), 22, SVG_MIDDLE, "loss (nats per byte)");
    fputs("</g>\n", file);
}

static void begin_curve(const char *style, FILE *file)
{
    fprintf(file, "<polyline fill=\"none\" stroke-linejoin=\"round\" %s points=\"", style);
}

static void put_point(const page_scale *scale, double step, double loss, FILE *file)
{
    if (isfinite(loss)) fprintf(file, "%.1f,%.1f ", page_x(scale, step), page_y(scale, loss));
}

static void end_curve(FILE *file) { fputs("\"/>\n", file); }

/* The raw loss, as at most MAX_DOTS means of adjacent steps. */
static void put_raw(const loss_chart *chart, const page_scale *scale, FILE *file)
{
    const int64_t stride = (chart->n_steps + MAX_DOTS - 1) / MAX_DOTS;
    begin_curve(RAW, file);
    for (int64_t i = 0; i < chart->n_steps; i += stride) {
        double sum = 0;
        int64_t n = 0;
        for (; n < stride && i + n < chart->n_steps; n++) sum += chart->loss[i + n];
        put_point(scale, (double)(chart->first_step + i) + 0.5 * (double)(n + 1), sum / (double)n, file);
    }
    end_curve(file);
}

/* The mean over a window of a fortieth of the run around each step, narrower towards both ends. */
static void put_mean(const loss_chart *chart, const page_scale *scale, FILE *file)
{
    const int64_t stride = (chart->n_steps + MAX_DOTS - 1) / MAX_DOTS;
    const int64_t widest = chart->n_steps / 80 + 1;
    begin_curve(MEAN, file);
    for (int64_t i = 0; i < chart->n_steps; i += stride) {
        const int64_t to_end = chart->n_steps - 1 - i;
        const int64_t nearest = i < to_end ? i : to_end, half = nearest < widest ? nearest : widest;
        double sum = 0;
        for (int64_t j = i - half; j <= i + half; j++) sum += chart->loss[j];
        put_point(scale, (double)(chart->first_step + i + 1), sum / (double)(2 * half + 1), file);
    }
    end_curve(file);
}

static void put_dot(double x, double y, FILE *file)
{
    fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"%s\" stroke=\"white\" stroke-width=\"1.2\"/>\n", x,
            y, SVG_EXPOSED);
}

static void put_validation(const loss_chart *chart, const page_scale *scale, FILE *file)
{
    const chart_point *points = chart->validation, *last = points + chart->n_validation - 1;
    begin_curve(VALIDATION, file);
    for (int64_t i = 0; i < chart->n_validation; i++) put_point(scale, (double)points[i].step, points[i].loss, file);
    end_curve(file);
    for (int64_t i = 0; i < chart->n_validation; i++)
        put_dot(page_x(scale, (double)points[i].step), page_y(scale, points[i].loss), file);
    if (chart->n_validation > 0)
        svg_text(file, page_x(scale, (double)last->step) + 2, page_y(scale, last->loss) - 12,
                 SVG_END " " SVG_STRONG " font-size=\"14\" fill=\"" SVG_EXPOSED "\"", "%.2f", last->loss);
}

/* Above the plot, where it covers nothing. */
static void put_legend(int validation, FILE *file)
{
    const char *names[] = {"training, each step", "training, running mean", "validation"};
    const char *styles[] = {RAW, MEAN, VALIDATION};
    svg_flow legend = svg_flow_begin(LEFT, TOP - 24, WIDTH - LEFT - RIGHT, 24);
    for (int i = 0; i < 2 + validation; i++) {
        double x, y;
        svg_flow_next(&legend, 176, 18, &x, &y);
        svg_line(file, x, y - 4.5, x + 30, y - 4.5, styles[i]);
        if (i == 2) put_dot(x + 15, y - 4.5, file);
        svg_text(file, x + 38, y, "", "%s", names[i]);
    }
}

static void put_picture(const loss_chart *chart, FILE *file)
{
    const page_scale scale = make_scale(chart);
    svg_begin(file, WIDTH, HEIGHT);
    svg_text(file, LEFT, 34, SVG_TITLE, "%s", chart->title);
    svg_text(file, LEFT, 57, SVG_GREY, "%s", chart->subtitle);
    put_axes(&scale, file);
    put_raw(chart, &scale, file);
    put_mean(chart, &scale, file);
    put_validation(chart, &scale, file);
    put_legend(chart->n_validation > 0, file);
    svg_end(file);
}

static int is_done(qdr_status status, char sentence[PROBLEM_BYTES])
{
    if (status != QDR_OK) snprintf(sentence, PROBLEM_BYTES, "%s", qdr_last_error());
    return status == QDR_OK;
}

int chart_try(const char *path, char sentence[PROBLEM_BYTES])
{
    return is_done(qdr_output_try("--plot", path), sentence);
}

int chart_write(const loss_chart *chart, const char *path, char sentence[PROBLEM_BYTES])
{
    qdr_output *output;
    if (!is_done(qdr_output_open("--plot", path, QDR_OUTPUT_REPLACE, &output), sentence)) return 0;
    put_picture(chart, qdr_output_file(output));
    return is_done(qdr_output_commit(&output), sentence);
}
