/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille predict` of a table of collectives: its rows, the model's times of them, and how well both agree. */
#ifndef QUADRILLE_SRC_PREDICT_COLL_H
#define QUADRILLE_SRC_PREDICT_COLL_H

#include <quadrille/calibrate.h>

#include "predict.h"

/* Columns of the table; -1: it has none. */
typedef struct coll_columns {
    int machine, gpu, collective, nodes, gpus, bytes, time_us, busbw, algo, source;
} coll_columns;
/* Fails where a column is missing without which nothing can be predicted. */
int coll_columns_find(const csv_table *table, coll_columns *columns, failure *why);

/* A row as a sample, and the model's time of it. Where the row is the mean over several sizes, both times are those of
 * the largest at the mean bus bandwidth. */
typedef struct measured_coll {
    char machine[128]; /* and its GPU, as machines are found by */
    const char *host, *gpu; /* either alone */
    const char *collective, *source;
    qdr_sample work; /* secs: measured; bytes: the largest */
    double least_bytes; /* of sizes that double up to work.bytes; equal to it: one size */
    int n_nodes; /* 0: not said */
    int is_strided, is_group, is_ring; /* of the words in the row */
    double predicted_secs;
    char why_skipped[SKIPPED_BYTES]; /* "": it is not */
} measured_coll;
/* Reads a row; sets why_skipped where the model knows no such collective. `fit`: what it took from the assumptions, not
 * noted yet. */
void coll_read(const csv_table *table, const coll_columns *columns, int64_t row, const assumptions *assumed,
               measured_coll *coll, assumed_row *fit);
/* Predicts a row, or sets why_skipped. Fails only with the command. */
int coll_predict(predictor *all, measured_coll *coll, failure *why);
/* Bus bandwidth as nccl-tests has it: bytes that a rank sends in a ring, a second. */
double coll_busbw(const measured_coll *coll, double secs);

/* Agreement over rows: shares of the measured times. NAN: not defined. */
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
/* The table with the columns that were predicted behind it. */
int coll_report_save(const coll_report *r, const char *path, failure *why);

#endif
