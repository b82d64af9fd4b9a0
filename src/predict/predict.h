/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille predict`: rows of measured runs, their predictions, and how well they agree. */
#ifndef QUADRILLE_SRC_PREDICT_PREDICT_H
#define QUADRILLE_SRC_PREDICT_PREDICT_H

#include <quadrille/machine.h>
#include <quadrille/plan.h>

#include "common/csv.h"
#include "predict/assumed.h"
#include "predict/unknown.h"

/* ---- rows ---- */

enum { SKIPPED_BYTES = 320 };

/* Columns of the table; -1: absent. */
typedef struct run_columns {
    int source, machine, n_gpus, model, params, layers, hidden, heads, seq, vocab, batch;
    int tp, pp, dp, other, tflops, pct_peak, iter_time, notes;
} run_columns;
/* Fails if a column is missing without which nothing can be predicted. */
int run_columns_find(const csv_table *table, run_columns *columns, failure *why);

/* A row as a query to the model, and the answer. */
typedef struct measured_run {
    const char *source, *model, *machine; /* source: its name in the printed tables; machine: the text of the row */
    qdr_network network;
    qdr_plan plan;
    double n_gpus, params;
    double secs, memory_bytes; /* measured; memory 0: not measured */
    double tflops; /* measured; 0: not measured */
    double peak_share; /* the same as a fraction of the machine's peak; 0: not measured, or tflops is set */
    int shards_in_node; /* 1: the plan's z is the number of ranks of a node divided by tensor parallelism */
    int flops_recomputed; /* tflops counts the flops of full recomputation */
    double predicted_secs, predicted_tflops, predicted_bytes;
    double machine_bytes; /* memory of a rank of the machine */
    char why_skipped[SKIPPED_BYTES]; /* "": not skipped */
} measured_run;
/* Reads a row; sets why_skipped if the model cannot represent it. `fit`: the assumptions used, not yet noted. */
void run_read(const csv_table *table, const run_columns *columns, int64_t row, const assumptions *assumed,
              measured_run *run, assumed_row *fit);
/* Records why a row is skipped, unless a reason has been recorded already. */
void row_skip(char why_skipped[SKIPPED_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Flops of a step, counted as in the row's tflops; 0 if its network is not possible. */
double run_flops(const measured_run *run);

/* ---- machines and models ---- */

typedef struct setting {
    const char *key;
    double value;
} setting;

enum { MAX_SETTINGS = 64 };
/* Machines found for the texts of rows, and a model for each network on a machine. */
typedef struct predictor {
    const char *machine_name; /* for all rows; NULL: each row's own */
    setting settings[MAX_SETTINGS]; /* for all machines */
    int n_settings;
    struct known_machine *machines;
    struct known_model *models;
    size_t n_machines, n_models;
} predictor;
/* The machine for a row's text, which must stay valid; NULL if there is none (why_not: a sentence) or after a failure.
 * Valid until the next call. */
const qdr_machine *predictor_machine(predictor *all, const char *text, const char **why_not, failure *why);
/* Predicts a row, or sets why_skipped. Fails only for reasons that end the command. */
int predictor_run(predictor *all, measured_run *run, failure *why);
/* Fails if a setting names a machine that no row used. */
int predictor_check_settings(const predictor *all, failure *why);
void predictor_free(predictor *all);

/* ---- scores ---- */

/* Agreement over the rows of a group, of a source, or of all; NAN: undefined. */
typedef struct score {
    const measured_run *first; /* one of its rows, for names */
    int64_t n, n_skipped; /* predicted; not */
    double mape, median_ratio; /* predicted / measured */
    int64_t n_groups; /* with at least MIN_GROUP rows */
    double spearman, kendall, hit, mean_regret, worst_regret; /* means over those groups, and the worst */
    int64_t n_memory; /* rows with measured memory */
    double memory_error; /* median of |predicted - measured| / measured */
    double refused; /* fraction of the rows that do not fit according to the model */
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
/* Writes the table, with the predicted columns appended. */
int report_save(const report *r, const char *path, failure *why);

#endif
