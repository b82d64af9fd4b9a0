/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the table of codec_loss.sh: how much higher the loss is with each preset, against the time of a step on four
 * nodes. usage: codec_picture TABLE.md >PICTURE.svg */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/svg.h"

enum { MAX_POINTS = 64, MAX_GRIDS = 2, N_CELLS = 6, WIDTH = 980, HEIGHT = 510, TOP = 112, BOTTOM = 102, LEFT = 76 };
enum { PANEL = 400, BETWEEN = 76, LETTER = 7, LINE = 15, STRICT_STEPS = 8 };
static const char header[] = "| codecs | grid | bytes | by seed | mean | step, ms |"; /* of the script's table */
static const double y_step = 0.05, first_ms = 25; /* times on the axis are this, doubled and doubled again */

typedef struct grid_name {
    char text[32];
} grid_name;

typedef struct point {
    char preset[32];
    grid_name grid;
    double bytes, loss, step_ms; /* bytes: share of those without codecs; loss: above that without codecs */
} point;

typedef struct picture {
    point points[MAX_POINTS];
    int n, has_table;
    double spread; /* of losses between seeds without codecs */
    grid_name grids[MAX_GRIDS];
    int n_grids;
    double least_ms, most_ms, most_loss, least_loss;
} picture;

/* ---- the table ---- */

/* The cells of a row, without the blanks around them; returns their number. */
static int split(char *line, char *cells[N_CELLS])
{
    int n = 0;
    for (char *at = strchr(line, '|'); at && n < N_CELLS; n++) {
        char *end = strchr(++at, '|');
        if (!end) break;
        *end = '\0';
        cells[n] = at + strspn(at, " ");
        for (char *last = end; last > cells[n] && last[-1] == ' ';) *--last = '\0';
        at = end;
    }
    return n;
}

static void add_grid(picture *p, grid_name grid)
{
    for (int i = 0; i < p->n_grids; i++)
        if (strcmp(p->grids[i].text, grid.text) == 0) return;
    if (p->n_grids < MAX_GRIDS) p->grids[p->n_grids++] = grid;
}

static void read_table(FILE *file, picture *p)
{
    char line[1024], *cells[N_CELLS];
    while (fgets(line, sizeof line, file)) {
        const char *comma = strchr(line, ',');
        if (strncmp(line, "Without codecs:", 15) == 0 && comma) p->spread = strtod(comma + 1, NULL);
        if (strncmp(line, header, strlen(header)) == 0) p->has_table = 1;
        if (!p->has_table || line[0] != '|' || split(line, cells) < N_CELLS || p->n == MAX_POINTS ||
            !strtod(cells[5], NULL))
            continue;
        point *q = &p->points[p->n++];
        snprintf(q->preset, sizeof q->preset, "%s", cells[0]);
        snprintf(q->grid.text, sizeof q->grid.text, "%s", cells[1]);
        q->bytes = strtod(cells[2], NULL), q->loss = strtod(cells[4], NULL), q->step_ms = strtod(cells[5], NULL);
        add_grid(p, q->grid);
        p->least_ms = p->n == 1 ? q->step_ms : fmin(p->least_ms, q->step_ms);
        p->most_ms = fmax(p->most_ms, q->step_ms);
        p->most_loss = fmax(p->most_loss, q->loss);
    }
    p->most_loss = y_step * ceil(1.02 * p->most_loss / y_step);
    p->least_loss = -2 * y_step; /* room for names */
    p->least_ms = first_ms * exp2(floor(log2(p->least_ms / first_ms)));
    p->most_ms = first_ms * exp2(ceil(log2(p->most_ms / first_ms)));
}

/* ---- the picture ---- */

static double left_of(int panel) { return LEFT + panel * (PANEL + BETWEEN); }

static double x_of(const picture *p, int panel, double ms)
{
    return left_of(panel) + PANEL * log(ms / p->least_ms) / log(p->most_ms / p->least_ms);
}

static double y_of(const picture *p, double loss)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (loss - p->least_loss) / (p->most_loss - p->least_loss);
}

static void draw_frame(FILE *file, const picture *p, int panel)
{
    const double left = left_of(panel), high = y_of(p, p->spread / 2), low = y_of(p, -p->spread / 2);
    svg_box(file, left, high, PANEL, low - high, "#eeeeee", "");
    svg_text(file, left + PANEL - 8, TOP + 14, SVG_END " " SVG_SMALL, "grey: the spread between seeds");
    for (double ms = p->least_ms; ms < 1.001 * p->most_ms; ms *= 2) {
        const double x = x_of(p, panel, ms);
        svg_line(file, x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 5, "stroke=\"#dddddd\"");
        svg_text(file, x, HEIGHT - BOTTOM + 20, SVG_MIDDLE " " SVG_GREY, "%.0f ms", ms);
    }
    for (int i = 0; p->least_loss + i * y_step <= p->most_loss + 1e-9; i++) {
        const double loss = p->least_loss + i * y_step, y = y_of(p, loss);
        svg_line(file, left, y, left + PANEL, y, i ? "stroke=\"#dddddd\"" : "stroke=\"#555555\"");
        svg_text(file, left - 8, y + 4.5, SVG_END " " SVG_GREY, "%.2f", fabs(loss) < 1e-9 ? 0.0 : loss);
    }
    svg_text(file, left, TOP - 14, SVG_HEADING, "Grid %s", p->grids[panel].text);
    svg_text(file, left + PANEL / 2.0, HEIGHT - BOTTOM + 36, SVG_MIDDLE, "time of a step");
}

typedef struct area {
    double left, right, top, bottom;
} area;

static int is_free(area wanted, const area *taken, int n)
{
    for (int i = 0; i < n; i++)
        if (wanted.left < taken[i].right && taken[i].left < wanted.right && wanted.top < taken[i].bottom &&
            taken[i].top < wanted.bottom)
            return 0;
    return 1;
}

/* Where the name of a point stands: as near as possible above or below it, where it covers nothing and, if there is
 * such a place, the line to it crosses no other name. */
static double find_place(double x, double y, double left, double right, area taken[], int *n)
{
    for (int step = 0;; step++) {
        const int is_below = step % 2, is_strict = step < STRICT_STEPS;
        const double away = (step % STRICT_STEPS) / 2 * LINE, base = is_below ? y + 19 + away : y - 9 - away;
        const area name = {left, right, base - 11, base + 3};
        const area line = {x - 2, x + 2, is_below ? y + 6 : name.bottom, is_below ? name.top : y - 6};
        if (step < 2 * STRICT_STEPS && !is_free(name, taken, *n)) continue;
        if (is_strict && away > 0 && !is_free(line, taken, *n)) continue;
        taken[(*n)++] = name;
        if (away > 0) taken[(*n)++] = line;
        return base;
    }
}

static void draw_point(FILE *file, const picture *p, const point *q, double x, double y, double middle, double base)
{
    if (base < y - LINE) svg_line(file, x, y - 4, x, base + 3, "stroke=\"#888888\"");
    if (base > y + 2 * LINE) svg_line(file, x, y + 4, x, base - 11, "stroke=\"#888888\"");
    svg_begin_tip(file, "%s: %+.4f nats per byte, %.0f ms, %.2f of the bytes", q->preset, q->loss, q->step_ms,
                  q->bytes);
    const char *colour = strcmp(q->preset, "none") == 0 ? SVG_PRODUCT : SVG_HIDDEN;
    if (q->loss > p->spread / 2) colour = SVG_EXPOSED;
    svg_box(file, x - 4, y - 4, 8, 8, colour, "rx=\"4\"");
    svg_text(file, middle, base, SVG_MIDDLE, "%s", q->preset);
    svg_end_tip(file);
}

static void draw_points(FILE *file, const picture *p, int panel)
{
    area taken[3 * MAX_POINTS];
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const double x = x_of(p, panel, p->points[i].step_ms), y = y_of(p, p->points[i].loss);
        if (strcmp(p->points[i].grid.text, p->grids[panel].text) == 0) taken[n++] = (area){x - 5, x + 5, y - 5, y + 5};
    }
    for (int i = 0; i < p->n; i++) {
        const point *q = &p->points[i];
        if (strcmp(q->grid.text, p->grids[panel].text) != 0) continue;
        const double x = x_of(p, panel, q->step_ms), y = y_of(p, q->loss);
        const double half = 0.5 * LETTER * (double)strlen(q->preset), middle = fmax(x, left_of(panel) + half);
        draw_point(file, p, q, x, y, middle, find_place(x, y, middle - half, middle + half, taken, &n));
    }
}

static void draw(FILE *file, const picture *p)
{
    svg_begin(file, WIDTH, HEIGHT);
    svg_text(file, LEFT, 30, SVG_TITLE, "What compressed messages cost, and what they save");
    svg_text(file, LEFT, 52, SVG_GREY,
             "A GPT of two layers on four ranks. Loss: nats per byte above the loss without codecs, after 400 steps "
             "with all messages coded.");
    svg_text(file, LEFT, 69, SVG_GREY,
             "Time: four nodes with links of 200 Mbit/s. Blue: no codecs. Red: the loss is above the grey band.");
    svg_text(
        file, LEFT, HEIGHT - 32, SVG_SMALL,
        "none: f32.  safe: bf16.  hybrid: 16-bit integers, gradients over d in 8 bits.  aggressive: 8 bits, gradients "
        "over d in 4 with error feedback.  int4/128: 4 bits.");
    svg_text(file, LEFT, HEIGHT - 16, SVG_SMALL,
             "mzhybrid: lossless, gradients over d in 8 bits of zfp.  zhybrid: 16 bits of zfp, gradients over d in 8.  "
             "naive: 8 bits of zfp.");
    for (int panel = 0; panel < p->n_grids; panel++) {
        draw_frame(file, p, panel);
        draw_points(file, p, panel);
    }
    svg_end(file);
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
    picture p = {.n = 0};
    if (!file) {
        fputs("usage: codec_picture TABLE.md >PICTURE.svg; TABLE.md is what codec_loss.sh prints, run as root\n",
              stderr);
        return 2;
    }
    read_table(file, &p);
    fclose(file);
    if (!p.has_table || p.spread <= 0) {
        fprintf(stderr, "%s has no line \"Without codecs: ...\" and table \"%s\": give what codec_loss.sh prints\n",
                argv[1], header);
        return 2;
    }
    if (!p.n) {
        fprintf(stderr, "%s has no rows with the time of a step: run codec_loss.sh as root\n", argv[1]);
        return 2;
    }
    draw(stdout, &p);
    return 0;
}
