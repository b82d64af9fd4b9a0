/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille predict`: rows of measured runs or collectives, their predictions, and how well they agree. */
#ifndef QUADRILLE_SRC_PREDICT_PREDICT_H
#define QUADRILLE_SRC_PREDICT_PREDICT_H

#include <quadrille/plan.h>
#include <stdio.h>

#include "common/planning.h"
#include "predict/table.h"

/* ---- rows ---- */

enum { SKIPPED_BYTES = 320 };

typedef struct measured {
    const char *title, *part; /* rows with the same two are scored together: a source; a machine and a collective */
    char group[200]; /* rows of one title and part with the same group differ only in how they were run */
    double secs, memory_bytes; /* memory 0: not measured */
    double predicted_secs, predicted_bytes; /* secs: of the state that is nearest to what was measured */
    double expected_secs; /* the mean over states */
    int state; /* 0: the normal one */
    double state_share; /* of such runs; 1: there are no others */
    double machine_bytes; /* memory of a rank */
    char why_skipped[SKIPPED_BYTES]; /* "": not skipped */
} measured;
/* Records why a row is skipped, unless a reason is known. */
void skip(measured *row, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- machines and models ---- */

typedef struct predictor {
    subject asked; /* the machine of all rows, or NULL; settings, "MACHINE:KEY=VALUE" or "KEY=VALUE" */
    int is_used[MAX_SETTINGS]; /* by some row */
    const char *machine_text, *software_text; /* of the row before; NULL: none */
    qdr_machine machine;
    qdr_network network;
    qdr_model *model; /* of both; NULL: none yet */
} predictor;
/* Where a row names its machine, and what runs on it; -1: it does not say. */
typedef struct machine_columns {
    int machine, software;
} machine_columns;
/* The machine of a row, with its software; NULL after a failure. Valid until the next call. */
const qdr_machine *predictor_machine(predictor *all, const table *t, int64_t row, machine_columns in, failure *why);
/* The model of a network on the machine found last. */
qdr_status predictor_model(predictor *all, const qdr_network *network, qdr_model **model);

/* ---- kinds of tables ---- */

typedef struct table_kind {
    const column_spec *columns;
    /* Predicts a row, or skips it; fails for rows that make no sense. */
    int (*predict)(const table *t, int64_t row, predictor *all, measured *run, failure *why);
    const char *rows; /* "runs" */
    const char *list; /* JSON's name of the scores of each title and part, which it calls: */
    const char *title, *part; /* part NULL: none */
} table_kind;
extern const table_kind kind_runs, kind_collectives;

/* ---- scores ---- */

/* Agreement of some rows; NAN: undefined. */
typedef struct score {
    const measured *first; /* one of the rows, for names */
    double n, n_skipped; /* predicted; not */
    double mean, median, ninetieth, worst; /* of |predicted / measured - 1| */
    double ratio; /* median of predicted / measured */
    double n_groups; /* with at least MIN_GROUP rows */
    double spearman, kendall, hit, regret, worst_regret; /* means over those groups, and the worst */
    double n_memory; /* rows with measured memory */
    double memory; /* median of |predicted / measured - 1| */
    double refused; /* fraction of the rows that do not fit according to the model */
    double n_slow; /* rows nearest to another than the normal state */
    double log_loss; /* of the shares of the states of rows that may be in several: the mean of -log(share) */
} score;
enum { MIN_GROUP = 4 };
typedef struct scores {
    score all;
    score *parts, *groups; /* of each title and part; of rows that are compared, if they are at least MIN_GROUP */
    size_t n_parts, n_groups;
} scores;
int scores_make(const measured *rows, int64_t n_rows, scores *out, failure *why);
void scores_free(scores *out);

/* ---- output ---- */

typedef struct report {
    const table_kind *kind;
    const table *t;
    const measured *rows;
    const scores *scores;
} report;
void report_print(const report *r);
int report_print_json(const report *r, failure *why);
/* Writes the table with the results of its rows; for files_write(). */
void report_write(FILE *file, const void *user, failure *why);

#endif
