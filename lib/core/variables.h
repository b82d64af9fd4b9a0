/* SPDX-License-Identifier: Apache-2.0 */
/* The table of environment variables, for environment.c. */
#ifndef QDRI_CORE_VARIABLES_H
#define QDRI_CORE_VARIABLES_H

#include "core/environment.h"

enum { QDRI_VARIABLE_MOST_WORDS = 4 };

typedef enum qdri_variable_kind {
    QDRI_VARIABLE_IS_TEXT,
    QDRI_VARIABLE_IS_WORD,
    QDRI_VARIABLE_IS_INTEGER,
    QDRI_VARIABLE_IS_NUMBER,
    QDRI_VARIABLE_IS_DEVICE
} qdri_variable_kind;

typedef struct qdri_variable_entry {
    const char *name, *initial, *room, *meaning;
    qdri_variable_kind kind;
    const char *values;
    const char *words[QDRI_VARIABLE_MOST_WORDS + 1]; /* WORD */
    double least, most; /* INTEGER and NUMBER */
} qdri_variable_entry;

extern const qdri_variable_entry qdri_variables[QDRI_N_VARIABLES];

#endif
