/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and text in the picture of a machine. */
#include <math.h>
#include <stdarg.h>

#include "topo/draw.h"

void page_box(const page *p, double x, double y, double width, double height, const char *style)
{
    if (p->file)
        fprintf(p->file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" %s/>\n", x, y, width,
                height, style);
}

/* Names come from files: XML's special characters are escaped, and non-ASCII characters are left out. */
static void put_words(FILE *file, const char *format, va_list arguments)
{
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    for (const char *at = text; *at; at++) {
        if (*at == '<')
            fputs("&lt;", file);
        else if (*at == '&')
            fputs("&amp;", file);
        else if (*at >= ' ' && *at <= '~')
            fputc(*at, file);
    }
}

void page_text(const page *p, double x, double y, const char *style, const char *format, ...)
{
    va_list arguments;
    if (!p->file) return;
    fprintf(p->file, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    va_start(arguments, format);
    put_words(p->file, format, arguments);
    va_end(arguments);
    fputs("</text>\n", p->file);
}

void page_begin_title(const page *p, const char *format, ...)
{
    va_list arguments;
    if (!p->file) return;
    fputs("<g><title>", p->file);
    va_start(arguments, format);
    put_words(p->file, format, arguments);
    va_end(arguments);
    fputs("</title>\n", p->file);
}

void page_end_title(const page *p)
{
    if (p->file) fputs("</g>\n", p->file);
}

flow flow_begin(double left, double top, double width, double gap)
{
    return (flow){left, top, width, gap, left, top, top};
}

void flow_next(flow *f, double width, double height, double *x, double *y)
{
    if (f->x > f->left && f->x + width > f->left + f->width) {
        f->x = f->left;
        f->row_top = f->bottom + f->gap;
    }
    *x = f->x;
    *y = f->row_top;
    f->x += width + f->gap;
    f->bottom = fmax(f->bottom, f->row_top + height);
}

/* From green (near) to red (far). */
const char *link_colour(qdr_link link)
{
    static const char *const colours[QDR_N_LINKS] = {
        "#e4e4e4", "#1b7837", "#2f9247", "#2a9d6f", "#5aae61", "#8cc665",
        "#b3dd8a", "#fee08b", "#fdcf75", "#fdae61", "#ee7a4a", "#cf3b2b",
    };
    return colours[link];
}

const char *link_ink(qdr_link link)
{
    const int is_dark = (link >= QDR_LINK_SAME && link <= QDR_LINK_XGMI_MODULE) || link == QDR_LINK_NETWORK;
    return is_dark ? "#ffffff" : "#222222";
}
