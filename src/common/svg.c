/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of pictures. */
#include "common/svg.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

void svg_begin(FILE *file, double width, double height)
{
    if (!file) return;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
}

void svg_end(FILE *file)
{
    if (file) fputs("</svg>\n", file);
}

void svg_box(FILE *file, double x, double y, double width, double height, const char *fill, const char *style)
{
    if (file)
        fprintf(file, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" %s/>\n", x, y, width,
                height, fill, style);
}

void svg_line(FILE *file, double x1, double y1, double x2, double y2, const char *style)
{
    if (file) fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style);
}

/* Of names that are not UTF-8, only the ASCII characters are written. */
static void put_text(FILE *file, const char *format, va_list arguments)
{
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    json_t *whole = json_string(text); /* NULL: not UTF-8 */
    for (const char *at = text; *at; at++) {
        const unsigned char c = (unsigned char)*at;
        if (c == '<')
            fputs("&lt;", file);
        else if (c == '&')
            fputs("&amp;", file);
        else if (c < 0x7f || (c > 0x7f && whole))
            fputc(c < ' ' ? ' ' : c, file);
    }
    json_decref(whole);
}

void svg_text(FILE *file, double x, double y, const char *style, const char *format, ...)
{
    va_list arguments;
    if (!file) return;
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    va_start(arguments, format);
    put_text(file, format, arguments);
    va_end(arguments);
    fputs("</text>\n", file);
}

void svg_begin_tip(FILE *file, const char *format, ...)
{
    va_list arguments;
    if (!file) return;
    fputs("<g><title>", file);
    va_start(arguments, format);
    put_text(file, format, arguments);
    va_end(arguments);
    fputs("</title>\n", file);
}

void svg_end_tip(FILE *file)
{
    if (file) fputs("</g>\n", file);
}

svg_flow svg_flow_begin(double left, double top, double width, double gap)
{
    return (svg_flow){left, top, width, gap, left, top, top};
}

void svg_flow_next(svg_flow *flow, double width, double height, double *x, double *y)
{
    if (flow->x > flow->left && flow->x + width > flow->left + flow->width) {
        flow->x = flow->left;
        flow->row_top = flow->bottom + flow->gap;
    }
    *x = flow->x;
    *y = flow->row_top;
    flow->x += width + flow->gap;
    flow->bottom = fmax(flow->bottom, flow->row_top + height);
}

void svg_key_item(FILE *file, svg_flow *key, const char *colour, double height, const char *text)
{
    double x, y;
    svg_flow_next(key, 34 + 6.5 * (double)strlen(text), 18, &x, &y);
    svg_box(file, x, y - 4 - height / 2, 12, height, colour, "");
    svg_text(file, x + 17, y, "", "%s", text);
}

void svg_key_tasks(FILE *file, svg_flow *key)
{
    svg_key_item(file, key, SVG_PRODUCT, 12, "product");
    svg_key_item(file, key, SVG_WORK, 12, "other computation");
    svg_key_item(file, key, SVG_HIDDEN, 12, "collective, hidden");
    svg_key_item(file, key, SVG_EXPOSED, 12, "collective, exposed");
}

double svg_tick(double range, int n)
{
    const double rough = range / n, power = pow(10, floor(log10(rough))), digit = rough / power;
    return power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
}

svg_unit svg_unit_of(double secs)
{
    static const svg_unit units[] = {{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}};
    int i = 0;
    while (i < 2 && secs < 2 * units[i].size) i++;
    return units[i];
}

/* "12,000", "0.25" */
static const char *number_text(double number, char text[32])
{
    char plain[32];
    const int is_grouped = number >= 1000 && number == floor(number);
    const size_t n = (size_t)snprintf(plain, sizeof plain, is_grouped ? "%.0f" : "%g", number);
    size_t to = 0;
    for (size_t i = 0; i < n && to + 2 < 32; i++) {
        if (is_grouped && i > 0 && (n - i) % 3 == 0) text[to++] = ',';
        text[to++] = plain[i];
    }
    text[to] = '\0';
    return text;
}

void svg_draw_axis(FILE *file, const svg_axis *axis)
{
    char text[32];
    for (int i = 0; i * axis->step <= axis->most * (1 + 1e-9); i++) {
        const double x = axis->left + axis->width * i * axis->step / axis->most;
        const char *space = i || !*axis->unit.name ? "" : " ", *unit = i ? "" : axis->unit.name;
        number_text(i * axis->step / axis->unit.size, text);
        svg_line(file, x, axis->top, x, axis->bottom, "stroke=\"#cccccc\"");
        svg_text(file, x, axis->bottom + 14, SVG_MIDDLE " " SVG_GREY, "%s%s%s", text, space, unit);
        if (axis->is_framed) svg_text(file, x, axis->top - 4, SVG_MIDDLE " " SVG_GREY, "%s%s%s", text, space, unit);
    }
}
