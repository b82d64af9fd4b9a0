/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the examples: one table per program from which the parser (getopt_long), the checks and the help
 * are made. */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#include <stdint.h>
#include <stdio.h>

#define PROBLEM_BYTES 512
#define MAX_OPTIONS 48

/* GXxGYxGZxGD, or "auto"; all zero: not given. */
typedef struct grid_shape {
    int x, y, z, d;
    int is_auto; /* 1: the sizes are 0, to be chosen */
} grid_shape;

typedef enum option_kind {
    OPTION_COUNT, /* int64_t */
    OPTION_REAL, /* double */
    OPTION_TEXT, /* const char * */
    OPTION_INPUT, /* the same, a file that is read */
    OPTION_MACHINE, /* the same, the name of a machine or its file */
    OPTION_OUTPUT, /* the same, a file that is written and replaces an older one */
    OPTION_LOG, /* the same, a file that is appended to (QDR_OUTPUT_LOG) */
    OPTION_FLAG, /* int: 1 if given, no argument */
    OPTION_CHOICE, /* int: index of the word among `argument`, which is "first|second|…" */
    OPTION_TYPE, /* int: the qdr_dtype of that name; one of the words in `argument` */
    OPTION_GRID, /* grid_shape */
    OPTION_GROUP /* only a heading in the help, whose text is `name` */
} option_kind;

typedef struct option_row {
    option_kind kind;
    const char *name; /* without the dashes */
    const char *argument; /* its name in the help */
    void *value; /* its value before parsing is the default */
    double min, max; /* for numbers; both 0: not checked */
    const char *help;
} option_row;

typedef struct usage_text {
    const char *program;
    const char *synopsis; /* after the program's name */
    const char *purpose;
    const option_row *rows;
    int n_rows;
    const char **operand; /* the one operand; NULL: not allowed */
    const char *examples;
    const char *const *device; /* the value of --device; NULL: the program runs on the CPU only */
    const char *const *machine; /* the value of --machine, which is copied to QDR_MACHINE; NULL: none */
} usage_text;

typedef enum options_result { OPTIONS_OK, OPTIONS_HELP, OPTIONS_BAD } options_result;

/* Sets the values; if it returns OPTIONS_BAD, `problem` says what is wrong and what would be right. */
options_result options_parse(const usage_text *usage, int argc, char **argv, char problem[PROBLEM_BYTES]);
void options_help(const usage_text *usage, FILE *out);

#endif
