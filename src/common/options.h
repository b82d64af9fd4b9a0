/* SPDX-License-Identifier: Apache-2.0 */
/* Command line: one table of options per command, which getopt reads, --help prints and a test compares with the man
 * page. The examples use it, too. */
#ifndef QUADRILLE_SRC_COMMON_OPTIONS_H
#define QUADRILLE_SRC_COMMON_OPTIONS_H

#include <quadrille/context.h>
#include <quadrille/matrix.h>
#include <quadrille/stack.h>
#include <stddef.h>

#include "common/failure.h"

/* How a value is read, and the type of the member that takes it. */
typedef enum option_kind {
    OPTION_HELP, /* nothing: main() looks for it first */
    OPTION_FLAG, /* int: 1 if given */
    OPTION_VALUE, /* int: `min` if given */
    OPTION_INT, /* int from min to max */
    OPTION_COUNT, /* int64_t from min to max */
    OPTION_REAL, /* double from min to max */
    OPTION_BYTES, /* int64_t from 1 to max; the suffixes K, M and G multiply it by 2^10, 2^20 and 2^30 */
    OPTION_CHOICE, /* int, or an enum from 0: the position among `words` */
    OPTION_DTYPE, /* qdr_dtype: its name, one of `words` */
    OPTION_GRID, /* grid_size with at most `max` ranks; or `words`, a single one: x is -1 */
    OPTION_ORDER, /* const char *: a permutation of xyzd */
    OPTION_TEXT, /* const char * */
    OPTION_PICTURE, /* const char *: a file that is written, in SVG */
    OPTION_TIMEOUT, /* nothing: sets QDR_TIMEOUT; a table with it limits waiting to ten minutes unless that is set */
    OPTION_OTHER, /* what `take` stores */
    OPTION_HEADING /* no option: `name` is printed above the options that follow */
} option_kind;

typedef struct option_spec {
    const char *name; /* long name; NULL ends the table */
    char letter; /* short name; 0: none */
    const char *argument; /* "FILE"; NULL: takes none */
    const char *help; /* one line */
    option_kind kind;
    size_t at; /* offset of the member in the options' struct */
    double min, max;
    const char *words; /* "first|second"; NULL: those of `argument` */
    int (*take)(const char *value, void *member, failure *why);
    const char *may_differ; /* why ranks may have other values; NULL: they may not */
} option_spec;

/* The last entries of a table. */
#define OPTIONS_END                                                                                                    \
    {"help", 'h', NULL, "print this help", .kind = OPTION_HELP}, { .name = NULL }

/* The table of a command whose only option is --json; its struct is an int. */
extern const option_spec json_option[];

/* For commands whose ranks wait for each other. */
#define OPTIONS_TIMEOUT                                                                                                \
    {                                                                                                                  \
        "timeout", 0, "SECS",                                                                                          \
            "end if a rank waits longer than this for others; 0: no limit (default: $QDR_TIMEOUT, else 600)",          \
            .kind = OPTION_TIMEOUT, .max = 1e6                                                                         \
    }

/* For programs that compute on devices; the member is a const char *, NULL if it is not given. */
#define OPTIONS_DEVICE(type, member)                                                                                   \
    {                                                                                                                  \
        "device", 0, "cpu|cuda|cuda:N", "device to compute on (default: $QDR_DEVICE, else cpu)",                       \
            .kind = OPTION_TEXT, .at = offsetof(type, member),                                                         \
            .may_differ = "each rank has a GPU of its own; kinds are compared"                                         \
    }

#define MAX_OPTIONS 128
/* Words of a qdr_layout, and of the types that layers compute in. */
#define LAYOUT_WORDS "replicated|scattered"
const char *layout_word(qdr_layout layout);
/* Words of a qdr_recompute, of those that are planned; takes one as an option, an int. */
#define RECOMPUTE_WORDS "none|operations|full"
int take_recompute(const char *value, void *recompute, failure *why);
const char *recompute_word(qdr_recompute recompute);
#define DTYPE_WORDS "f32|f64|bf16|f16"

/* Whether --help or -h is among the arguments. */
int options_want_help(int argc, char **argv);
/* Reads all arguments of the command argv[0] into the struct `user`. One operand is allowed in any position, unless
 * `operand` is NULL; without one, *operand stays unchanged. Returns 0 or EXIT_USAGE. */
int options_read(int argc, char **argv, const option_spec *specs, void *user, const char **operand, failure *why);
/* The same with up to n_operands of them; those that are missing stay unchanged. */
int options_read_operands(int argc, char **argv, const option_spec *specs, void *user, const char **operands,
                          int n_operands, failure *why);
/* Compares what the command lines of all ranks have given, if a table was read: the command, its whole table, but for
 * options that may differ, and its operands. To be called before any other collective, also by ranks that have failed
 * (`why`), whose failure all ranks get: that of reading options first. Collective; returns the code. */
int options_agree(qdr_context *ctx, failure *why);
/* The same settings, of the values with which each option of the table was given (NULL: it was not), with "--" before
 * the names, for which there is room. Returns their number. */
typedef struct option_name {
    char text[48];
} option_name;
int options_settings(const option_spec *specs, const char *const values[], option_name names[], qdr_setting settings[]);
/* Prints the table to standard output. */
void options_print(const option_spec *specs);
/* " (did you mean a, b?)" with the names closest to what was typed; "" if none is close. */
enum { SUGGESTION_BYTES = 160 };
void suggest(const char *typed, const char *const names[], int n_names, char *text, size_t bytes);

/* The ranks along x, y, z and d. */
typedef struct grid_size {
    int x, y, z, d;
} grid_size;
int grid_ranks(grid_size size);
/* Reads "2x2x4x1" up to `end`, of at most `most` ranks. Returns whether it is a grid. */
int grid_read(const char *text, const char *end, int64_t most, grid_size *size);
/* "2x2x4x1" */
typedef struct grid_text {
    char text[64];
} grid_text;
grid_text grid_words(grid_size size);
/* Creates a grid of this size. order: fastest axis first; NULL: "xyzd". */
qdr_status grid_make(qdr_context *ctx, grid_size size, const char *order, qdr_grid **grid);
/* Checks that as many ranks were started as the grid has; the message begins with `command`, unless that is empty. */
int grid_check_ranks(const char *command, grid_size size, int n_ranks, failure *why);

#endif
