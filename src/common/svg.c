/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of pictures. */
#include "common/svg.h"

#include <math.h>

void svg_begin(FILE *file, int width, double height)
{
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 "
            "%d %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
}

void svg_put_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else
            fputc((unsigned char)*text < ' ' ? ' ' : *text, file);
    }
}

svg_unit svg_unit_of(double secs)
{
    static const svg_unit units[] = {{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}};
    int i = 0;
    while (i < 2 && secs < 2 * units[i].secs) i++;
    return units[i];
}

double svg_tick_secs(double secs, int n_ticks)
{
    const double rough = secs / n_ticks, power = pow(10, floor(log10(rough)));
    return rough / power < 2 ? 2 * power : rough / power < 5 ? 5 * power : 10 * power;
}
