/* SPDX-License-Identifier: Apache-2.0 */
/* Values that tables of runs leave out: a data file states, for the rows of a source or of a model, which values to
 * assume and why. The first entry that matches a row and has the value is used. */
#ifndef QUADRILLE_SRC_PREDICT_ASSUMED_H
#define QUADRILLE_SRC_PREDICT_ASSUMED_H

#include <jansson.h>
#include <quadrille/machine.h>
#include <quadrille/network.h>

#include "common/failure.h"

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
    ASSUMED_BYTES, /* of a collective; together with the next field, the mean over sizes that double */
    ASSUMED_BYTES_MOST,
    ASSUMED_ALONE, /* 1: one group at a time */
    ASSUMED_MACHINE,
    ASSUMED_NETWORK,
    ASSUMED_SKIP,
    N_ASSUMED
} assumed_field;
const char *assumed_name(assumed_field field);

typedef struct assumption {
    const char *source, *model; /* source: the beginning of its name; model NULL: any */
    const char *title; /* name of the source in printed tables; NULL: no special name */
    const char *reason;
    const char *machine, *skip; /* text fields */
    int replaces; /* 1: used even if the row has a value */
    unsigned given; /* one bit for each field that is present */
    double numbers[N_ASSUMED];
    qdr_network network; /* version 0: not loaded */
    unsigned used; /* one bit for each field that some row used */
    int64_t n_rows; /* rows that used the entry */
} assumption;

typedef struct assumptions {
    json_t *root; /* owns the texts */
    assumption *entries;
    size_t n;
    /* One for each model that comes with the program; its network is loaded when a row first needs it. */
    assumption *models;
    char (*model_names)[QDR_MAX_NAME];
    size_t n_models;
} assumptions;

/* Reads the data file with this name or path. Returns 0, EXIT_USAGE or EXIT_FAILED. */
int assumed_load(const char *name_or_path, assumptions *all, failure *why);
int assumed_load_models(assumptions *all, failure *why); /* called by assumed_load() */
void assumed_free(assumptions *all);

enum { MAX_FITTING = 32 };
/* The entries that match one row. */
typedef struct assumed_row {
    assumption *fitting[MAX_FITTING + 1]; /* the last place is for assumed_use() */
    unsigned taken[MAX_FITTING + 1]; /* one bit for each field */
    int n;
} assumed_row;
assumed_row assumed_fit(const assumptions *all, const char *source, const char *model);
/* The entry that has a field, or NULL; `has_cell`: the row has a value of its own. */
const assumption *assumed_take(assumed_row *fit, assumed_field field, int has_cell);
/* Marks the values that the row used as used. */
void assumed_note(const assumed_row *fit);
/* The model with this name, including its network, or NULL: none, or unreadable (*status). "Llama 2 13B" and
 * "llama-2-13b" are the same name. Both must stay valid. */
assumption *assumed_model(const assumptions *all, const char *name, qdr_status *status);
/* Records that the row uses a field of an entry. */
void assumed_use(assumed_row *fit, assumption *entry, assumed_field field);
/* The name of the row's source in printed tables. */
const char *assumed_title(const assumed_row *fit, const char *source);
/* The name of an entry's source in printed tables, with the rest of the source's text if that is more specific. */
const char *assumed_place(const assumptions *all, const assumption *entry, char *text, size_t bytes);
/* "vocab 51200, recompute full": the fields that rows used, with or without values. */
const char *assumed_text(const assumption *entry, int with_values, char *text, size_t bytes);

#endif
