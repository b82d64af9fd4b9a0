/* SPDX-License-Identifier: Apache-2.0 */
/* Output while a program runs. */
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "meter.h"

#define REDRAW_SECS 0.1

progress progress_begin(int64_t first, int64_t n_steps, double every)
{
    const int terminal = isatty(STDERR_FILENO);
    const double now = meter_secs();
    return (progress){.first = first,
                      .n_steps = n_steps,
                      .terminal = terminal,
                      .every = terminal ? REDRAW_SECS : every,
                      .began = now,
                      .drawn = terminal ? -1 : now};
}

const char *progress_clock(double secs, char text[24])
{
    const long all = lround(fmax(0, fmin(secs, 1e9)));
    if (all >= 3600)
        snprintf(text, 24, "%ld:%02ld:%02ld", all / 3600, all / 60 % 60, all % 60);
    else
        snprintf(text, 24, "%ld:%02ld", all / 60, all % 60);
    return text;
}

const char *progress_count(double n, char text[24])
{
    snprintf(text, 24, n < 1e5 ? "%.0f" : "%.2f M", n < 1e5 ? n : 1e-6 * n);
    return text;
}

void progress_step(progress *line, int64_t step, double loss, double val_loss, double tokens_per_s, int milestone)
{
    const double now = meter_secs();
    if (!milestone && (line->every <= 0 || now - line->drawn < line->every)) return;
    line->drawn = now;
    char left[24], validation[40] = "";
    const double secs_left = (now - line->began) / (double)(step - line->first) * (double)(line->n_steps - step);
    if (!isnan(val_loss)) snprintf(validation, sizeof validation, "  validation %.3f", val_loss);
    fprintf(stderr, "%sstep %lld/%lld  loss %.3f%s  %.0f tokens/s  %s left%s", line->terminal ? "\r" : "",
            (long long)step, (long long)line->n_steps, loss, validation, tokens_per_s, progress_clock(secs_left, left),
            line->terminal ? "\033[K" : "\n");
    fflush(stderr);
}

void progress_end(const progress *line)
{
    if (line->terminal) fputc('\n', stderr);
}
