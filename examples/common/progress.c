/* SPDX-License-Identifier: Apache-2.0 */
/* Output while a program runs. */
#include "progress.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

const char *progress_bytes(double bytes, char text[24])
{
    snprintf(text, 24, bytes < 1e9 ? "%.1f MB" : "%.2f GB", bytes < 1e9 ? 1e-6 * bytes : 1e-9 * bytes);
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

/* The columns of the terminal. */
static int n_columns(void)
{
    struct winsize size = {0};
    const char *given = getenv("COLUMNS");
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return given && atoi(given) > 0 ? atoi(given) : 80;
}

/* Parts of a line, as they follow one another. */
enum { STEP, LOSS, VALIDATION, SPEED, LEFT, PEAK, EXPOSED, MEMORY, N_PARTS, PART_BYTES = 40 };

static int width_of(char parts[N_PARTS][PART_BYTES])
{
    int n = -2;
    for (int i = 0; i < N_PARTS; i++) n += *parts[i] ? (int)strlen(parts[i]) + 2 : 0;
    return n;
}

/* Without the least important parts where the terminal has too few columns: "\r" does not remove a line that has
 * wrapped. */
static void draw(const progress *line, char parts[N_PARTS][PART_BYTES])
{
    static const int least_first[] = {MEMORY, VALIDATION, LEFT, PEAK, EXPOSED, SPEED, LOSS};
    const int n_most = line->terminal ? n_columns() - 1 : INT_MAX;
    for (size_t i = 0; i < sizeof least_first / sizeof *least_first && width_of(parts) > n_most; i++)
        *parts[least_first[i]] = '\0';
    fputs(line->terminal ? "\r" : "", stderr);
    for (int i = 0; i < N_PARTS; i++)
        if (*parts[i]) fprintf(stderr, "%s%s", i ? "  " : "", parts[i]);
    fputs(line->terminal ? "\033[K" : "\n", stderr);
    fflush(stderr);
}

void progress_step(progress *line, int64_t step, const progress_numbers *numbers, int milestone)
{
    const double now = process_secs(), peak = 100 * numbers->peak_share, exposed = 100 * numbers->exposed;
    char parts[N_PARTS][PART_BYTES] = {""}, text[24];
    if (!is_due(line, now, milestone)) return;
    snprintf(parts[STEP], PART_BYTES, "step %lld/%lld", (long long)step, (long long)line->n_steps);
    if (!isnan(numbers->loss)) snprintf(parts[LOSS], PART_BYTES, "loss %.3f", numbers->loss);
    if (!isnan(numbers->val_loss)) snprintf(parts[VALIDATION], PART_BYTES, "val %.3f", numbers->val_loss);
    snprintf(parts[SPEED], PART_BYTES, "%.0f tokens/s", numbers->tokens_per_s);
    snprintf(parts[LEFT], PART_BYTES, "%s left", time_left(line, now, step, text));
    if (!isnan(peak)) snprintf(parts[PEAK], PART_BYTES, "peak %.0f%%", peak);
    if (!isnan(exposed)) snprintf(parts[EXPOSED], PART_BYTES, "exposed %.0f%%", exposed);
    if (!isnan(numbers->memory)) snprintf(parts[MEMORY], PART_BYTES, "%s", progress_bytes(numbers->memory, text));
    draw(line, parts);
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
