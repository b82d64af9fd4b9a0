/* SPDX-License-Identifier: Apache-2.0 */
/* Output while a program runs. */
#include "progress.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "src/common/process.h"

#define REDRAW_SECS 0.1

progress progress_begin(int64_t first, int64_t n_steps, double every)
{
    const int terminal = isatty(STDERR_FILENO);
    const double now = process_secs();
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

/* Whether a line is due at this time; it is then the last one drawn. */
static int is_due(progress *line, double now, int milestone)
{
    if (!milestone && (line->every <= 0 || now - line->drawn < line->every)) return 0;
    line->drawn = now;
    return 1;
}

static const char *time_left(const progress *line, double now, int64_t done, char text[24])
{
    const double secs = (now - line->began) / (double)(done - line->first) * (double)(line->n_steps - done);
    return progress_clock(secs, text);
}

void progress_step(progress *line, int64_t step, double loss, double val_loss, double tokens_per_s, int milestone)
{
    const double now = process_secs();
    if (!is_due(line, now, milestone)) return;
    char left[24], validation[40] = "";
    if (!isnan(val_loss)) snprintf(validation, sizeof validation, "  validation %.3f", val_loss);
    fprintf(stderr, "%sstep %lld/%lld  loss %.3f%s  %.0f tokens/s  %s left%s", line->terminal ? "\r" : "",
            (long long)step, (long long)line->n_steps, loss, validation, tokens_per_s, time_left(line, now, step, left),
            line->terminal ? "\033[K" : "\n");
    fflush(stderr);
}

void progress_validation(progress *line, int64_t done)
{
    const double now = process_secs();
    char left[24];
    if (!is_due(line, now, 0)) return;
    fprintf(stderr, "%svalidation, window %lld/%lld  %s left%s", line->terminal ? "\r" : "", (long long)done,
            (long long)line->n_steps, time_left(line, now, done, left), line->terminal ? "\033[K" : "\n");
    fflush(stderr);
}

void progress_end(const progress *line)
{
    if (line->terminal) fputc('\n', stderr);
}

void progress_clear(const progress *line)
{
    if (line->terminal) fputs("\r\033[K", stderr);
}
