/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the commands that query the model: networks and machines by name, the vocabulary of plans. None of them
 * starts ranks. */
#ifndef QUADRILLE_SRC_COMMON_PLANNING_H
#define QUADRILLE_SRC_COMMON_PLANNING_H

#include <jansson.h>
#include <quadrille/plan.h>

#include "common/levels.h"
#include "common/options.h"

enum { MAX_SETTINGS = 64 };

/* The subject of a query, as given on the command line. */
typedef struct subject {
    const char *network, *machine; /* names or paths; NULL: not given */
    const char *software; /* a name or path; NULL: that of the machine's file */
    int64_t ranks_per_node; /* 0: the machine's */
    int n_adapters, n_adapters_before; /* of a node, that subject_machine() found for them, and of the machine's file */
    double memory_bytes; /* of a rank; 0: the machine's */
    const char *settings[MAX_SETTINGS]; /* "KEY=VALUE" of the machine */
    int n_settings;
} subject;

/* Takers of options. --set, for a subject; it is checked once the machine is known. --mem, for a double: "80G" or
 * "79.15G", where K, M, G and T are 2^10 to 2^40. */
int subject_set(const char *setting, void *asked, failure *why);
int take_memory(const char *value, void *bytes, failure *why);
/* Loads the network; error messages begin with `command`. */
int subject_network(const subject *asked, const char *command, qdr_network *network, failure *why);
/* A network of layers like those of GPT-2, without a vocabulary. */
qdr_network planning_network(const char *name, int64_t layers, int64_t hidden, int64_t heads, int64_t context);
/* Makes the machine one that runs a software. */
int machine_run(const char *software, qdr_machine *machine, failure *why);
#define SOFTWARE_HELP "what runs on the machine: a name (see quadrille list software) or file"
/* Applies one setting. */
int machine_set(const char *setting, const char *command, qdr_machine *machine, failure *why);
/* Loads the machine and applies the requested changes; sets the numbers of adapters. */
int subject_machine(subject *asked, const char *command, qdr_machine *machine, failure *why);

/* A plan and its prediction. */
typedef struct planned_grid {
    qdr_plan plan;
    qdr_plan_result result;
} planned_grid;

/* For a function that fills it. */
void planning_begin(planned_grid *planned);

/* Codecs of plans; is_auto ("auto:hybrid"): those of them that make a plan's step shorter. */
typedef struct codec_choice {
    int is_given, is_auto;
    qdr_codecs codecs;
} codec_choice;
enum { CODECS_BYTES = 768 };
#define CODEC_HELP "codecs of messages between nodes, as in train --codec"
/* --threads of plans, as programs have it. */
enum { MOST_THREADS = 1024 };
#define THREADS_HELP "threads of a rank that computes on the CPU, which need memory; default: 1"
int take_codecs(const char *value, void *choice, failure *why);
int take_codecs_or_auto(const char *value, void *choice, failure *why);

/* ---- words ---- */

/* The types that layers compute in: "f32", "f64", "bf16" or "f16". */
enum { N_COMPUTE_DTYPES = 4 };
extern const qdr_dtype compute_dtypes[N_COMPUTE_DTYPES];

/* ---- results ---- */

/* The unit in which a time is at least 1, and a sensible number of digits. */
typedef struct time_unit {
    const char *name;
    double secs;
    int n_digits; /* after the decimal point */
} time_unit;
time_unit time_unit_of(double secs);
/* "12.3 ms" */
typedef struct time_text {
    char text[32];
} time_text;
time_text time_in_words(double secs);
grid_text grid_in_words(const qdr_plan *plan);
/* "hybrid"; "": none */
typedef struct codecs_text {
    char text[CODECS_BYTES];
} codecs_text;
codecs_text codecs_in_words(const qdr_plan *plan);
/* Sequence length of a plan. */
int64_t plan_sequence(const qdr_network *network, const qdr_plan *plan);

/* A plan's checkpoint as a JSON object; without seconds where the machine's file system is not known. */
json_t *checkpoint_json(const qdr_plan_checkpoint *checkpoint);

/* A sentence for each size that the grid does not divide, with the padded size, and for key heads that not every rank
 * has. */
typedef void (*note_fn)(const char *sentence, void *user);
void note_print(const char *sentence, void *unused); /* to standard output */
void note_append(const char *sentence, void *list); /* to a json_t */
void plan_padding(const qdr_network *network, const qdr_plan *plan, note_fn each, void *user);
/* A sentence for each choice that differs from the request or from the network: the micro-batch (asked: 0, none),
 * learned positions, heads. */
void plan_notes(const qdr_network *network, const qdr_plan *plan, int64_t asked_micro_batch, note_fn each, void *user);
/* A sentence if codecs were asked for, and all ranks are on one node of the machine, between which nothing is coded. */
void plan_codecs_note(const codec_choice *codec, const qdr_machine *machine, int n_ranks, note_fn each, void *user);
/* Sentences if ranks of several nodes are priced as if they were on one, or have fewer adapters than the machine's. */
void plan_machine_notes(const subject *asked, const qdr_machine *machine, int n_ranks, note_fn each, void *user);

#define GIB 1073741824.0

#endif
