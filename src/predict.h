/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille predict`: rows of measured runs, what the model says of them, and how well both agree. */
#ifndef QUADRILLE_SRC_PREDICT_H
#define QUADRILLE_SRC_PREDICT_H

#include <quadrille/machine.h>
#include <quadrille/plan.h>

#include "csv.h"
#include "predict_assumed.h"
#include "predict_unknown.h"

/* ---- rows ---- */

enum { SKIPPED_BYTES = 320 };

/* Columns of the table; -1: it has none. */
typedef struct run_columns {
    int source, machine, n_gpus, model, params, layers, hidden, heads, seq, vocab, batch;
    int tp, pp, dp, other, tflops, pct_peak, iter_time, notes;
} run_columns;
/* Fails where a column is missing without which nothing can be predicted. */
int run_columns_find(const csv_table *table, run_columns *columns, failure *why);

/* A row as a question to the model, and the answer. */
typedef struct measured_run {
    const char *source, *model, *machine; /* the source as tables call it; the machine's text */
    qdr_network network;
    qdr_plan plan;
    double n_gpus, params;
    double secs, memory_bytes; /* measured; memory 0: not */
    double tflops; /* measured; 0: not */
    double peak_share; /* the same as a share of the machine's peak; 0: not, or tflops is there */
    int shards_in_node; /* 1: the plan's z is to be what tensor parallelism leaves of a node */
    int flops_recomputed; /* tflops counts the flops of full recomputation */
    double predicted_secs, predicted_tflops, predicted_bytes;
    double machine_bytes; /* of memory that a rank has */
    char why_skipped[SKIPPED_BYTES]; /* "": it is not */
} measured_run;
/* Reads a row; sets why_skipped where it is none that the model can represent. `fit`: what it took from the
 * assumptions, not noted yet. */
void run_read(const csv_table *table, const run_columns *columns, int64_t row, const assumptions *assumed,
              measured_run *run, assumed_row *fit);
/* Says why a row is skipped, where nothing has yet. */
void row_skip(char why_skipped[SKIPPED_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Flops of a step as the row's tflops count them; 0 if its network is not possible. */
double run_flops(const measured_run *run);

/* ---- machines and models ---- */

typedef struct setting {
    const char *key;
    double value;
} setting;

enum { MAX_SETTINGS = 64 };
/* Machines by the rows' texts, and a model for each network on one. */
typedef struct predictor {
    const char *machine_name; /* for all rows; NULL: theirs */
    setting settings[MAX_SETTINGS]; /* for all machines */
    int n_settings;
    struct known_machine *machines;
    struct known_model *models;
    size_t n_machines, n_models;
} predictor;
/* The machine of a row's text, which must stay; NULL where it means none (why_not: a sentence) or after a failure. Good
 * until the next call. */
const qdr_machine *predictor_machine(predictor *all, const char *text, const char **why_not, failure *why);
/* Predicts a row, or sets why_skipped. Fails only with the command. */
int predictor_run(predictor *all, measured_run *run, failure *why);
/* Fails where a setting is for a machine by name, and no row was on it. */
int predictor_check_settings(const predictor *all, failure *why);
void predictor_free(predictor *all);

/* ---- scores ---- */

/* Agreement over the rows of a group, of a source, or of all; NAN: not defined. */
typedef struct score {
    const measured_run *first; /* one of its rows, for names */
    int64_t n, n_skipped; /* predicted; not */
    double mape, median_ratio; /* predicted / measured */
    int64_t n_groups; /* of MIN_GROUP rows or more */
    double spearman, kendall, hit, mean_regret, worst_regret; /* means over those */
    int64_t n_memory; /* rows with measured memory */
    double memory_error; /* median of |predicted - measured| / measured */
    double refused; /* share of the rows that the model does not let fit */
} score;
enum { MIN_GROUP = 4 };
typedef struct scores {
    score all;
    score *sources, *groups; /* groups with fewer than MIN_GROUP rows have no correlations */
    size_t n_sources, n_groups;
} scores;
int scores_make(const measured_run *runs, int64_t n_runs, scores *out, failure *why);
void scores_free(scores *out);

/* ---- output ---- */

typedef struct report {
    const csv_table *table;
    const measured_run *runs; /* one for each row */
    const assumptions *assumed;
    const scores *scores;
    const unknown_words *unknown;
    int with_groups;
} report;
void report_print(const report *r);
int report_print_json(const report *r, failure *why);
/* The table with the columns that were predicted behind it. */
int report_save(const report *r, const char *path, failure *why);

#endif
