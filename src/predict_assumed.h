/* SPDX-License-Identifier: Apache-2.0 */
/* What tables of runs leave out: a data file says, for the rows of a source or of a model, what to take and why. The
 * first entry that fits a row and has the value counts. */
#ifndef QUADRILLE_SRC_PREDICT_ASSUMED_H
#define QUADRILLE_SRC_PREDICT_ASSUMED_H

#include <jansson.h>
#include <quadrille/machine.h>
#include <quadrille/network.h>

#include "failure.h"

typedef enum assumed_field {
    ASSUMED_LAYERS = 0,
    ASSUMED_HIDDEN,
    ASSUMED_HEADS,
    ASSUMED_KV_HEADS,
    ASSUMED_HEAD_SIZE,
    ASSUMED_FFN,
    ASSUMED_VOCAB,
    ASSUMED_SEQUENCE,
    ASSUMED_GATED,
    ASSUMED_TIED,
    ASSUMED_POSITIONS, /* learned ones: 1, rotary: 0 */
    ASSUMED_BIASES,
    ASSUMED_NORM,
    ASSUMED_MICRO_BATCH,
    ASSUMED_INTERLEAVE,
    ASSUMED_ZERO,
    ASSUMED_RECOMPUTE,
    ASSUMED_LAYOUT,
    ASSUMED_OVERLAP,
    ASSUMED_FLOPS_RECOMPUTED, /* 1: TFLOP/s count the flops of full recomputation */
    ASSUMED_BYTES, /* of a collective; with the next, the mean over sizes that double */
    ASSUMED_BYTES_MOST,
    ASSUMED_ALONE, /* 1: one group at a time */
    ASSUMED_MACHINE,
    ASSUMED_NETWORK,
    ASSUMED_SKIP,
    N_ASSUMED
} assumed_field;
const char *assumed_name(assumed_field field);

typedef struct assumption {
    const char *source, *model; /* beginning of the source; the model, NULL: any */
    const char *title; /* what tables call the source; NULL: nothing special */
    const char *reason;
    const char *machine, *skip; /* texts of these fields */
    int replaces; /* 1: counts even where the row has a value */
    unsigned given; /* a bit for each field that it has */
    double numbers[N_ASSUMED];
    qdr_network network; /* version 0: none */
    unsigned used; /* a bit for each field that some row took */
    int64_t n_rows; /* that took one */
} assumption;

typedef struct assumptions {
    json_t *root; /* has the texts */
    assumption *entries;
    size_t n;
    /* One for each model that comes with the program; its network is there once a row needed it. */
    assumption *models;
    char (*model_names)[QDR_MAX_NAME];
    size_t n_models;
} assumptions;

/* Reads the data file of a name or path. Returns 0, EXIT_USAGE or EXIT_FAILED. */
int assumed_load(const char *name_or_path, assumptions *all, failure *why);
int assumed_load_models(assumptions *all, failure *why); /* of assumed_load() */
void assumed_free(assumptions *all);

enum { MAX_FITTING = 32 };
/* The entries that fit one row. */
typedef struct assumed_row {
    assumption *fitting[MAX_FITTING + 1]; /* the last: of assumed_use() */
    unsigned taken[MAX_FITTING + 1]; /* fields, a bit for each */
    int n;
} assumed_row;
assumed_row assumed_fit(const assumptions *all, const char *source, const char *model);
/* The entry that has a field, or NULL; `has_cell`: the row has a value of its own. */
const assumption *assumed_take(assumed_row *fit, assumed_field field, int has_cell);
/* Counts what the row took as used. */
void assumed_note(const assumed_row *fit);
/* The model of this name with its network, or NULL: none, or one that cannot be read (*status). "Llama 2 13B" and
 * "llama-2-13b" are one name. Both must stay. */
assumption *assumed_model(const assumptions *all, const char *name, qdr_status *status);
/* Lets the row have taken a field of an entry. */
void assumed_use(assumed_row *fit, assumption *entry, assumed_field field);
/* What tables call the row's source. */
const char *assumed_title(const assumed_row *fit, const char *source);
/* What tables call the source of an entry, with the rest of its beginning where that says more. */
const char *assumed_place(const assumptions *all, const assumption *entry, char *text, size_t bytes);
/* "vocab 51200, recompute full": the fields that rows took, with their values or without. */
const char *assumed_text(const assumption *entry, int with_values, char *text, size_t bytes);

#endif
