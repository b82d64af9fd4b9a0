/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of train: what is given, what a checkpoint says, and what is usual. */
#ifndef EXAMPLES_TRAIN_SETTINGS_H
#define EXAMPLES_TRAIN_SETTINGS_H

#include "choice.h"
#include "saved_run.h"

typedef struct settings {
    choice how; /* must be first; grid, order, layout, overlap, type; context, batch, micro-batch */
    const char *file, *data, *documents, *log, *plot, *prompt, *late;
    const char *save, *resume, *load, *eval;
    const char *model; /* a name or a file; NULL: not given */
    int tied, in_foreground;
    int tokens; /* a qdr_token_format */
    int64_t recompute_every;
    /* -1: not given; sizes are of a GPT-2, or those of another network */
    int64_t n_layers, hidden, ffn, n_heads, vocab;
    double epsilon;
    int64_t n_steps, warmup, seed;
    double lr, weight_decay, clip, loss_scale, stddev;
    /* 0: not given, or none */
    int64_t validate_every, n_windows, n_sample, codec_after;
    int64_t save_every, keep, stop_after;
    double temperature, codec_guard, every;
    qdr_network network; /* made; that of `model` before */
    const char *source; /* made: the file or name that says the network; NULL: options alone */
} settings;

enum { N_BYTES = 256, USUAL_CONTEXT = 128 }; /* a token of text is a byte */

/* Before the command line is read. */
extern const settings settings_begin;
extern const option_spec settings_specs[];

/* Checks options that only make sense together. */
qdr_status settings_check(const settings *set, char sentence[PROBLEM_BYTES]);
/* Takes what was not given from a checkpoint (NULL: there is none; --load: only the network), else what is usual. The
 * network is that of the checkpoint, else of --model, else of the plan of `how`, else a GPT-2; all that say something
 * of it must say the same. The context, the batch and the type stay open if they were not given and the checkpoint does
 * not say them: a plan may. */
qdr_status settings_complete(settings *set, const saved_run *saved, char sentence[PROBLEM_BYTES]);
/* What settings_complete() takes from a note, but for the network; NULL: out of memory. */
json_t *settings_note(const settings *set);

#endif
