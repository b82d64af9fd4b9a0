/* SPDX-License-Identifier: Apache-2.0 */
/* How well the model's times of collectives agree with measured ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/statistics.h"
#include "predict/coll.h"

static int is_of_group(const measured_coll *coll, const measured_coll *first)
{
    return !first || (coll->work.coll == first->work.coll && strcmp(coll->machine, first->machine) == 0);
}

/* Scores the rows of the same kind as `first`; NULL: all rows. `numbers` has room for all rows. */
static coll_score score_rows(const measured_coll *colls, int64_t n, const measured_coll *first, double *numbers)
{
    coll_score s = {.first = first ? first : colls, .mean = 0};
    size_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!is_of_group(&colls[i], first)) continue;
        if (colls[i].why_skipped[0])
            s.n_skipped++;
        else
            numbers[found++] = colls[i].predicted_secs / colls[i].work.secs;
    }
    s.n = (int64_t)found;
    s.median_ratio = statistics_median(numbers, found);
    for (size_t i = 0; i < found; i++) {
        numbers[i] = fabs(numbers[i] - 1);
        s.mean += numbers[i] / (double)found;
    }
    s.median = statistics_median(numbers, found); /* also sorts them */
    if (!found) s.mean = NAN;
    s.ninetieth = found ? numbers[(size_t)(0.9 * (double)(found - 1) + 0.5)] : NAN;
    s.worst = found ? numbers[found - 1] : NAN;
    return s;
}

int coll_scores_make(const measured_coll *colls, int64_t n, coll_scores *out, failure *why)
{
    double *numbers = calloc((size_t)n, sizeof *numbers);
    *out = (coll_scores){.groups = calloc((size_t)n, sizeof *out->groups)};
    if (!numbers || !out->groups) {
        fail(why, EXIT_NOTHING_FITS, "predict: out of memory for the scores of %lld rows", (long long)n);
    } else {
        out->all = score_rows(colls, n, NULL, numbers);
        for (int64_t i = 0; i < n; i++) {
            size_t at = 0;
            while (at < out->n_groups && !is_of_group(&colls[i], out->groups[at].first)) at++;
            if (at == out->n_groups) out->groups[out->n_groups++] = score_rows(colls, n, &colls[i], numbers);
        }
    }
    free(numbers);
    if (why->code) coll_scores_free(out);
    return why->code;
}

void coll_scores_free(coll_scores *out)
{
    free(out->groups);
    *out = (coll_scores){.n_groups = 0};
}
