/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille predict` for a table of collectives: its rows, the model's times for them, and how well they agree. */
#ifndef QUADRILLE_SRC_PREDICT_COLL_H
#define QUADRILLE_SRC_PREDICT_COLL_H

#include <quadrille/calibrate.h>

#include "predict/predict.h"

/* Columns of the table; -1: absent. */
typedef struct coll_columns {
    int machine, gpu, collective, nodes, gpus, bytes, time_us, busbw, algo, source;
} coll_columns;
/* Fails if a column is missing without which nothing can be predicted. */
int coll_columns_find(const csv_table *table, coll_columns *columns, failure *why);

/* A row as a sample, and the model's time for it. If the row is a mean over several sizes, both times are those of the
 * largest size at the mean bus bandwidth. */
typedef struct measured_coll {
    char machine[128]; /* machine and GPU, by which the machine is found */
    const char *host, *gpu; /* each alone */
    const char *collective, *source;
    qdr_sample work; /* secs: measured; bytes: the largest */
    double least_bytes; /* of sizes that double up to work.bytes; equal to it: one size */
    int n_nodes; /* 0: not stated */
    int is_strided, is_group, is_ring; /* according to the words of the row */
    double predicted_secs;
    char why_skipped[SKIPPED_BYTES]; /* "": not skipped */
} measured_coll;
/* Reads a row; sets why_skipped if the model does not know the collective. `fit`: the assumptions used, not yet
 * noted. */
void coll_read(const csv_table *table, const coll_columns *columns, int64_t row, const assumptions *assumed,
               measured_coll *coll, assumed_row *fit);
/* Predicts a row, or sets why_skipped. Fails only for reasons that end the command. */
int coll_predict(predictor *all, measured_coll *coll, failure *why);
/* Bus bandwidth as defined by nccl-tests: bytes per second that a rank sends in a ring. */
double coll_busbw(const measured_coll *coll, double secs);

/* Agreement over rows, relative to the measured times. NAN: undefined. */
typedef struct coll_score {
    const measured_coll *first; /* one of its rows, for names */
    int64_t n, n_skipped;
    double median, mean, ninetieth, worst; /* of |predicted / measured - 1| */
    double median_ratio; /* predicted / measured */
} coll_score;
typedef struct coll_scores {
    coll_score all, *groups; /* a group: a machine and a kind of collective */
    size_t n_groups;
} coll_scores;
int coll_scores_make(const measured_coll *colls, int64_t n, coll_scores *out, failure *why);
void coll_scores_free(coll_scores *out);

typedef struct coll_report {
    const csv_table *table;
    const measured_coll *colls; /* one for each row */
    const assumptions *assumed;
    const coll_scores *scores;
    int with_rows;
} coll_report;
void coll_report_print(const coll_report *r);
int coll_report_print_json(const coll_report *r, failure *why);
/* Writes the table, with the predicted columns appended. */
int coll_report_save(const coll_report *r, const char *path, failure *why);

#endif
