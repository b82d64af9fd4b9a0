/* SPDX-License-Identifier: Apache-2.0 */
/* The state of train_gpt on one rank, and what it says of a run. */
#ifndef EXAMPLES_TRAINING_H
#define EXAMPLES_TRAINING_H

#include "chart.h"
#include "codec_switch.h"
#include "corpus.h"
#include "train_settings.h"

#define MAX_POINTS 4096

/* The state of one rank during training. */
typedef struct training {
    const settings *set; /* `own`: the given settings, completed */
    settings own;
    qdr_context *ctx;
    int talks; /* rank 0: writes files and prints */
    char *sentence;
    qdr_grid *grid;
    gpt model;
    qdr_adamw *optimizer;
    gpt_step step;
    corpus text;
    uint32_t text_crc;
    int64_t *starts; /* where each sequence of a forward pass begins in the text */
    qdr_output *log;
    double loss_scale;
    saver save;
    int64_t first_step, n_steps; /* the first step of this run, and the one after its last */
    int64_t first_sequence; /* of the first step: its position in the data */
    int load_failed; /* the checkpoint could not be loaded: it is broken, or something else is missing */
    double *losses; /* of each step of this run */
    codec_switch codecs; /* of --codec-after and --codec-guard */
    chart_point points[MAX_POINTS];
    int64_t n_points;
    double train_secs;
    double memory_before;
    int late_rank;
    double late_secs;
} training;

/* The grid, the model and the text; over how many ranks its parts are split. */
void training_announce(const training *run);
qdr_status training_announce_levels(const training *run);
/* How the run ended: losses, speed, memory, and the picture of --plot. peak: bytes. Collective. */
qdr_status training_report(training *run, size_t peak);

#endif
