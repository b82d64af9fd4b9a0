/* SPDX-License-Identifier: Apache-2.0 */
/* Command line: one table of options per command, which getopt reads, --help prints and a test compares with the man
 * page. */
#ifndef QUADRILLE_SRC_COMMON_OPTIONS_H
#define QUADRILLE_SRC_COMMON_OPTIONS_H

#include <quadrille/matrix.h>

#include "common/failure.h"

typedef struct option_spec {
    const char *name; /* long name; NULL ends the table */
    char letter; /* short name; 0: none */
    const char *argument; /* "FILE"; NULL: takes none */
    const char *help; /* one line */
} option_spec;

#define MAX_OPTIONS 24

/* Receives one option; index is its position in the table. */
typedef int (*option_taker)(int index, const char *value, void *user, failure *why);

/* Reads all arguments of the command argv[0]. Only options are allowed. Returns 0 or EXIT_USAGE. */
int options_read(int argc, char **argv, const option_spec *specs, option_taker take, void *user, failure *why);
/* The same, but allows one operand in any position; without one, *word stays unchanged. */
int options_read_word(int argc, char **argv, const option_spec *specs, option_taker take, void *user, const char **word,
                      failure *why);
/* " (did you mean a, b?)" with the names closest to what was typed; "" if none is close. */
enum { SUGGESTION_BYTES = 160 };
void suggest(const char *typed, const char *const names[], int n_names, char *text, size_t bytes);
/* Prints the table to standard output. */
void options_print(const option_spec *specs);

/* A whole number from min to max. `name` is the option's name. */
int option_integer(const char *name, const char *value, int64_t min, int64_t max, int64_t *number, failure *why);

/* A number of bytes from 1 to max; the suffixes K, M and G multiply it by 2^10, 2^20 and 2^30. */
int option_bytes(const char *name, const char *value, int64_t max, int64_t *bytes, failure *why);

/* The ranks along x, y, z and d. */
typedef struct grid_size {
    int x, y, z, d;
} grid_size;
/* "2x2x1x1", each from 1 to 1024, and the product too. */
int option_grid(const char *name, const char *value, grid_size *size, failure *why);
/* The same for ranks that need not be started: the product is at most `max`. */
int option_large_grid(const char *name, const char *value, int64_t max, grid_size *size, failure *why);
int grid_ranks(grid_size size);
/* Checks that as many ranks were started as the grid has; the message begins with `command`. */
int grid_check_ranks(const char *command, grid_size size, int n_ranks, failure *why);
/* "replicated" or "scattered". */
int option_layout(const char *name, const char *value, qdr_layout *layout, failure *why);
/* A permutation of xyzd. */
int option_order(const char *name, const char *value, failure *why);

#endif
