/* SPDX-License-Identifier: Apache-2.0 */
/* How far a long command is. */
#include <stdio.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "common/process.h"

ckpt_progress ckpt_progress_begin(const char *what, int64_t total)
{
    return (ckpt_progress){
        .what = what, .total = total, .next_secs = process_secs() + 0.5, .is_terminal = isatty(STDERR_FILENO)};
}

void ckpt_progress_add(ckpt_progress *progress, int64_t bytes)
{
    progress->done += bytes;
    if (!progress->is_terminal || process_secs() < progress->next_secs) return;
    progress->next_secs = process_secs() + 0.2;
    progress->is_shown = 1;
    fprintf(stderr, "\r\033[K%.0f %% of %.1f GB %s", 100 * (double)progress->done / (double)progress->total,
            1e-9 * (double)progress->total, progress->what);
    fflush(stderr);
}

void ckpt_progress_end(ckpt_progress *progress)
{
    if (progress->is_shown) fputs("\r\033[K", stderr);
    progress->is_shown = 0;
}
