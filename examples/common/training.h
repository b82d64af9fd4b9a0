/* SPDX-License-Identifier: Apache-2.0 */
/* The state of train on one rank, and the parts of a run. All functions that give a status are collective. */
#ifndef EXAMPLES_TRAINING_H
#define EXAMPLES_TRAINING_H

#include <quadrille_private/output.h>

#include "chart.h"
#include "codec_switch.h"
#include "corpus.h"
#include "progress.h"
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
    qdr_output *log; /* on rank 0, if there is one */
    qdr_status log_status; /* of writing it; `sentence` says why it ended */
    int log_is_stream; /* a pipe, say, whose reader may leave; the same on all ranks */
    int64_t again_to; /* an older log has steps up to this one */
    double began; /* seconds of process.h */
    double loss_scale;
    int64_t n_targets; /* of the last step's batch */
    saved_run saved; /* the checkpoint that it began with */
    saver save;
    int64_t first_step, n_steps; /* the first step of this run, and the one after its last */
    int64_t first_sequence; /* of the first step: its position in the data */
    int stops; /* a signal or --stop-after ends the run */
    int load_failed; /* the checkpoint could not be loaded: it is broken, or something else is missing */
    double *losses; /* of each step of this run */
    codec_switch codecs; /* of --codec-after and --codec-guard */
    chart_point points[MAX_POINTS];
    int64_t n_points;
    double train_secs;
    double token_flops; /* to train one, as papers count them: 3 times the forward, without recomputation */
    double peak_flops; /* per second, of all ranks: of --machine, or as products ran at the start; NAN: not known */
    struct { /* for communication, in the steps of this run: seconds of this rank; and what all ranks said last */
        double own, sum, most, of_secs; /* of_secs: train_secs then */
        int64_t next; /* when they are asked again: how many steps have been run */
    } waited;
    double memory; /* bytes: the most that a rank has had of the library's; NAN: not known yet */
    double exposed; /* share of the steps' time that a rank waited on average; NAN: not known, as on GPUs */
    double memory_before;
    int late_rank;
    double late_secs;
} training;

/* Makes all that the first step needs: the choices, the grid, the text, the model, the files. */
qdr_status training_prepare(training *run);
/* Continues the saved run, or begins with its parameters, if that was asked for. */
qdr_status training_load(training *run);

/* One forward pass over windows `first` and after of `n_all` for validation (0: as many as cover it). */
qdr_status training_forward(training *run, int64_t first, int64_t n_all);
/* Adds the loss of the last forward pass to the sums. Waits for everything that was enqueued. */
qdr_status training_add_loss(training *run, double *sum, int64_t *n);
/* The mean loss over windows spread evenly over the last tenth of the text: during training a fixed sample of it, at
 * the end all of it. NAN, and not all of them, once the run is to stop. */
qdr_status training_validate(training *run, int at_end, double *mean);

/* What --eval prints. */
qdr_status training_eval(training *run);

/* A step that was run; number: 1 for the first one. */
typedef struct training_step {
    int64_t number;
    double loss, lr, tokens_per_s;
    int64_t bytes_sent; /* by this rank, without validations */
    double val_loss; /* NAN: not measured */
    double exposed; /* since this was last asked; NAN: it was not, and run->memory is as it was */
} training_step;

/* Begins the log of --log, if there is to be one: a new file with a line about the run, which can be read while it
 * grows, and which contains whole lines even after Ctrl-C. An older one is kept under another name, which is printed on
 * standard error. */
qdr_status training_open_log(training *run);
/* A line about a step, or about the validation of a run without steps. Local; a failure, which run->sentence states,
 * ends the log. */
qdr_status training_log_step(training *run, const training_step *step);
void training_log_validation(training *run, double loss);
/* What this rank has sent so far, on all channels; secs: for which it has waited for that, and computed nothing, and
 * for the text of training; 0 on GPUs. Local. */
qdr_traffic training_traffic(const training *run);
/* Sets token_flops and peak_flops, which it measures unless --machine states it, or measuring is more work than the
 * run: then it is NAN. Collective, ranks agree. */
qdr_status training_find_peak(training *run);
/* The share of the peak at a speed. */
double training_peak_share(const training *run, double tokens_per_s);
/* After a step: asks all ranks for what each knows of itself, if it is due, or after another eighth of the steps of
 * this run, but at least every 100. Collective. */
qdr_status training_measure(training *run, training_step *step, int is_due);

/* How many sequences have been used before a step; the batch may have been another before this run. */
int64_t training_sequences(const training *run, int64_t step);
/* What its data consist of: "bytes" of a text, or "numbers". */
const char *training_tokens(const training *run);
/* The run's own part of a checkpoint: with the tensors, all that is needed to go on; NULL: out of memory. Local. */
json_t *training_note(const training *run, int64_t n_steps);
qdr_status training_begin_save(training *run, int64_t n_steps);
/* Saves after a step where that was asked for, by an option or by a signal. */
qdr_status training_save_step(training *run, const progress *line, int64_t n_steps);
/* Sets run->stops if a signal has asked some rank to stop, where there is a file to save to. */
qdr_status training_look(training *run);

/* Whether the data has the tokens of the prompt. Local; the same on all ranks. */
qdr_status training_try_prompt(const training *run);
/* The model continues the prompt, on standard output. */
qdr_status training_write_sample(training *run);

/* The grid, the model and the text; over how many ranks its parts are split. */
void training_announce(const training *run);
qdr_status training_announce_levels(const training *run);
/* How the run ended: losses, speed, memory, and the picture of --plot. peak: bytes. */
qdr_status training_report(training *run, size_t peak);

#endif
