/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a run, as SVG. Colours read well in print and for colour-blind eyes. */
#include "chart.h"

#include <math.h>
#include <quadrille/output.h>
#include <string.h>

#define WIDTH 860.0
#define HEIGHT 500.0
#define LEFT 72.0
#define RIGHT 48.0
#define TOP 84.0
#define BOTTOM 62.0
#define MAX_DOTS 1200 /* points of one line; more cannot be distinguished */

static const char raw_colour[] = "#b9cfe6", mean_colour[] = "#1f5f9e", validation_colour[] = "#d1571f";

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

/* 1, 2 or 5 times a power of ten, so that about `n` of them fill the range. */
static double nice_tick(double range, int n)
{
    const double rough = range / n, power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
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
    page_scale scale = {.x_max = (double)chart->n_steps};
    scale.y_tick = nice_tick(high - low, 7);
    scale.y_min = scale.y_tick * floor(low / scale.y_tick);
    scale.y_max = scale.y_tick * ceil(high / scale.y_tick);
    scale.x_tick = fmax(1, nice_tick(scale.x_max, 8));
    return scale;
}

static void put_escaped(const char *text, FILE *file)
{
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", file);
        else if (*text == '<')
            fputs("&lt;", file);
        else
            fputc(*text, file);
    }
}

static void put_text(double x, double y, const char *class, const char *text, FILE *file)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    put_escaped(text, file);
    fputs("</text>\n", file);
}

/* Formats 12000 as "12,000". */
static const char *grouped(double number, char text[32])
{
    char plain[32];
    snprintf(plain, sizeof plain, "%.0f", number);
    size_t n = strlen(plain), to = 0;
    for (size_t i = 0; i < n && to + 2 < 32; i++) {
        if (i > 0 && (n - i) % 3 == 0) text[to++] = ',';
        text[to++] = plain[i];
    }
    text[to] = '\0';
    return text;
}

static void put_axes(const page_scale *scale, FILE *file)
{
    char text[32];
    const double right = WIDTH - RIGHT, floor_y = HEIGHT - BOTTOM;
    const int n_y = (int)lround((scale->y_max - scale->y_min) / scale->y_tick);
    for (int i = 0; i <= n_y; i++) {
        const double value = scale->y_min + i * scale->y_tick, y = page_y(scale, value);
        fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", LEFT, y, right, y,
                i == 0 ? "axis" : "grid");
        snprintf(text, sizeof text, "%.*f", scale->y_tick < 0.1 ? 2 : 1, value);
        put_text(LEFT - 10, y + 4.5, "tick end", text, file);
    }
    const int n_x = (int)floor(scale->x_max / scale->x_tick * (1 + 1e-9));
    for (int i = 0; i <= n_x; i++) {
        const double value = i * scale->x_tick, x = page_x(scale, value);
        fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"axis\"/>\n", x, floor_y, x,
                floor_y + 5);
        put_text(x, floor_y + 21, "tick middle", grouped(value, text), file);
    }
    put_text(0.5 * (LEFT + right), HEIGHT - 16, "label middle", "optimizer step", file);
    fprintf(file,
            "<text transform=\"translate(22 %.1f) rotate(-90)\" class=\"label middle\">loss (nats "
            "per byte)</text>\n",
            0.5 * (TOP + floor_y));
}

/* The raw loss, as at most MAX_DOTS means of adjacent steps. */
static void put_raw(const loss_chart *chart, const page_scale *scale, FILE *file)
{
    const int64_t stride = (chart->n_steps + MAX_DOTS - 1) / MAX_DOTS;
    fprintf(file,
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1\" stroke-linejoin=\"round\" "
            "points=\"",
            raw_colour);
    for (int64_t i = 0; i < chart->n_steps; i += stride) {
        double sum = 0;
        int64_t n = 0;
        for (; n < stride && i + n < chart->n_steps; n++) sum += chart->loss[i + n];
        const double mean = sum / (double)n;
        if (isfinite(mean))
            fprintf(file, "%.1f,%.1f ", page_x(scale, (double)i + 0.5 * (double)(n + 1)), page_y(scale, mean));
    }
    fputs("\"/>\n", file);
}

/* The mean over a window of a fortieth of the run around each step, narrower towards both ends. */
static void put_mean(const loss_chart *chart, const page_scale *scale, FILE *file)
{
    const int64_t stride = (chart->n_steps + MAX_DOTS - 1) / MAX_DOTS;
    const int64_t widest = chart->n_steps / 80 + 1;
    fprintf(file,
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2.2\" stroke-linejoin=\"round\" "
            "points=\"",
            mean_colour);
    for (int64_t i = 0; i < chart->n_steps; i += stride) {
        const int64_t to_end = chart->n_steps - 1 - i;
        const int64_t nearest = i < to_end ? i : to_end, half = nearest < widest ? nearest : widest;
        double sum = 0;
        for (int64_t j = i - half; j <= i + half; j++) sum += chart->loss[j];
        const double mean = sum / (double)(2 * half + 1);
        if (isfinite(mean)) fprintf(file, "%.1f,%.1f ", page_x(scale, (double)(i + 1)), page_y(scale, mean));
    }
    fputs("\"/>\n", file);
}

static void put_validation(const loss_chart *chart, const page_scale *scale, FILE *file)
{
    fprintf(file,
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.4\" stroke-dasharray=\"4 3\" "
            "points=\"",
            validation_colour);
    for (int64_t i = 0; i < chart->n_validation; i++)
        fprintf(file, "%.1f,%.1f ", page_x(scale, (double)chart->validation[i].step),
                page_y(scale, chart->validation[i].loss));
    fputs("\"/>\n", file);
    for (int64_t i = 0; i < chart->n_validation; i++)
        fprintf(file,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"%s\" stroke=\"white\" "
                "stroke-width=\"1.2\"/>\n",
                page_x(scale, (double)chart->validation[i].step), page_y(scale, chart->validation[i].loss),
                validation_colour);
    if (chart->n_validation > 0) {
        const chart_point *last = &chart->validation[chart->n_validation - 1];
        char text[32];
        snprintf(text, sizeof text, "%.2f", last->loss);
        put_text(page_x(scale, (double)last->step) + 2, page_y(scale, last->loss) - 12, "value end", text, file);
    }
}

static void put_legend(int validation, FILE *file)
{
    const double x = WIDTH - RIGHT - 218, y = TOP + 8;
    const char *names[] = {"training, each step", "training, running mean", "validation"};
    const char *colours[] = {raw_colour, mean_colour, validation_colour};
    fprintf(file,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"210\" height=\"%d\" rx=\"4\" fill=\"white\" "
            "fill-opacity=\"0.9\"/>\n",
            x, y, validation ? 76 : 54);
    for (int i = 0; i < 2 + validation; i++) {
        const double line_y = y + 18 + 22 * i;
        fprintf(file,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                "stroke-width=\"%s\"%s/>\n",
                x + 12, line_y, x + 42, line_y, colours[i], i == 1 ? "2.4" : "1.6",
                i == 2 ? " stroke-dasharray=\"4 3\"" : "");
        if (i == 2)
            fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"%s\"/>\n", x + 27, line_y, colours[i]);
        put_text(x + 52, line_y + 4.5, "tick", names[i], file);
    }
}

static void put_picture(const loss_chart *chart, FILE *file)
{
    const page_scale scale = make_scale(chart);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\">\n"
            "<style>\n"
            "text { font-family: 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: "
            "#222 }\n"
            ".title { font-size: 20px; font-weight: bold } .subtitle { font-size: 13px; fill: #555 }\n"
            ".tick { font-size: 12.5px; fill: #444 } .label { font-size: 13.5px }\n"
            ".value { font-size: 14px; font-weight: bold; fill: %s }\n"
            ".middle { text-anchor: middle } .end { text-anchor: end }\n"
            ".axis { stroke: #555; stroke-width: 1.2 } .grid { stroke: #e4e4e4; stroke-width: 1 }\n"
            "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, validation_colour);
    put_text(LEFT, 34, "title", chart->title, file);
    put_text(LEFT, 57, "subtitle", chart->subtitle, file);
    put_axes(&scale, file);
    put_raw(chart, &scale, file);
    put_mean(chart, &scale, file);
    put_validation(chart, &scale, file);
    put_legend(chart->n_validation > 0, file);
    fputs("</svg>\n", file);
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
