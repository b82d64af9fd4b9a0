/* SPDX-License-Identifier: Apache-2.0 */
/* The loss over the last tenth of the text. */
#include <math.h>

#include "training.h"

#define VALIDATION_WINDOWS 256 /* during training; at the end all windows */

qdr_status training_forward(training *run, int64_t first, int64_t n_all)
{
    const int64_t n = run->model.config.n_sequences;
    TRY(corpus_take(&run->text, (corpus_part){first, n, n, n_all, 0}, run->sentence));
    TRY(gpt_fill_rows(&run->model, &run->text.rows, 0));
    return qdr_stack_forward(run->model.stack);
}

qdr_status training_add_loss(training *run, double *sum, int64_t *n)
{
    double loss_sum;
    int64_t n_valid;
    TRY(qdr_stack_loss(run->model.stack, &loss_sum, &n_valid));
    *sum += loss_sum;
    *n += n_valid;
    return QDR_OK;
}

qdr_status training_validate(training *run, int at_end, double *mean)
{
    const settings *set = run->set;
    const int64_t n_all = run->text.info.n_validation;
    const int64_t n_some = n_all < VALIDATION_WINDOWS ? n_all : VALIDATION_WINDOWS;
    const int64_t n_windows = set->n_windows ? set->n_windows : at_end ? n_all : n_some;
    const int64_t per_forward = run->model.config.n_sequences;
    const int talks = run->talks && at_end;
    progress line = progress_begin(0, n_windows, set->every);
    double sum = 0;
    int64_t n = 0;
    *mean = NAN;
    for (int64_t first = 0; first < n_windows; first += per_forward) {
        TRY(training_look(run));
        if (run->stops) break;
        TRY(training_forward(run, first, n_windows));
        TRY(training_add_loss(run, &sum, &n));
        if (talks && first + per_forward < n_windows) progress_validation(&line, first + per_forward);
    }
    if (talks) progress_clear(&line);
    if (!run->stops && n) *mean = sum / (double)n;
    return QDR_OK;
}
