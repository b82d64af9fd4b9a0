/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands: each is an entry of a table in commands.c. */
#ifndef QUADRILLE_SRC_COMMON_COMMAND_H
#define QUADRILLE_SRC_COMMON_COMMAND_H

#include "common/options.h"

typedef struct command {
    const char *name;
    const char *summary; /* one line in the list of commands */
    const char *usage; /* one line; NULL: "quadrille NAME [OPTION]..." */
    const char *text; /* what it does */
    const struct command *const *parts; /* subcommands named "NAME PART", ending with NULL; or NULL */
    const option_spec *options;
    const char *examples; /* one per line */
    int is_local; /* makes no context, which would check the environment */
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit code */
} command;

extern const command command_bench;
extern const command command_calibrate;
extern const command command_ckpt;
extern const command command_doctor;
extern const command command_env;
extern const command command_linear;
extern const command command_list;
extern const command command_mem;
extern const command command_plan;
extern const command command_predict;
extern const command command_topo;
extern const command command_trace;
extern const command command_verify;

enum { N_COMMANDS = 13 };
extern const command *const commands[N_COMMANDS];

#endif
