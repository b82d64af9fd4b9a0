/* SPDX-License-Identifier: Apache-2.0 */
/* What the measurements of `quadrille calibrate` share. All of them are made by all ranks at once, as in training, and
 * all ranks have the same samples. */
#ifndef QUADRILLE_SRC_CALIBRATE_H
#define QUADRILLE_SRC_CALIBRATE_H

#include <quadrille/calibrate.h>

#include "bench.h"

enum { MAX_SAMPLES = 1024, MAX_WORST = 10 };

typedef struct calibration {
    qdr_context *ctx;
    qdr_context *alone; /* of this rank only, with as many threads */
    qdr_grid *self; /* of alone */
    int is_quick;
    int n_nodes, ranks_per_node;
    int n_samples;
    qdr_sample samples[MAX_SAMPLES];
    /* progress */
    int shows; /* rank 0's standard error is a terminal */
    const char *stage;
} calibration;

/* ---- calibrate_measure.c ---- */

/* Seconds of one call, of the slowest rank: the median of several rounds, each of as many calls as have a length that
 * can be measured (n_most at most; 1: single calls). call() enqueues, end() waits for what was enqueued. Collective,
 * the same result on all ranks. */
typedef struct calibrate_work {
    qdr_status (*call)(void *user);
    qdr_status (*end)(void *user);
    void *user;
    int n_most;
    double round_secs; /* wanted; 0: as a processor's clock wants it */
} calibrate_work;
int calibrate_time(calibration *c, const calibrate_work *work, double *secs, failure *why);
/* Adds a sample; collective only in that all ranks add the same. */
void calibrate_add(calibration *c, const qdr_sample *sample);
void calibrate_show(calibration *c, const char *stage);
/* Takes back what calibrate_show() wrote. */
void calibrate_show_end(const calibration *c);

/* ---- what is measured; collective, the same result on all ranks ---- */

int calibrate_kernels(calibration *c, failure *why); /* launches, memory, kernels, attention */
int calibrate_products(calibration *c, failure *why);
int calibrate_collectives(calibration *c, failure *why);
int calibrate_together(calibration *c, failure *why);

/* ---- calibrate_report.c ---- */

/* Errors of the samples of a group: |model / measured - 1|. */
typedef struct group_error {
    const char *group;
    int n_samples;
    double median, most;
} group_error;
typedef struct calibrate_errors {
    int n_groups;
    group_error groups[64];
    int n_worst;
    int worst[MAX_WORST]; /* samples, the worst first */
    double secs[MAX_SAMPLES]; /* the model's */
} calibrate_errors;
int calibrate_compare(const calibration *c, const qdr_machine *machine, calibrate_errors *errors, failure *why);
/* What a sample was, in words. */
void calibrate_words(const qdr_sample *sample, char words[96]);
void calibrate_print(const calibration *c, const qdr_machine *machine, const calibrate_errors *errors,
                     bench_format format);
/* The "calibration" member of the machine's file, to be freed. NULL: no memory. */
char *calibrate_notes(const calibration *c, const calibrate_errors *errors);

/* ---- calibrate_file.c ---- */

#endif
