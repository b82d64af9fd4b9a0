/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille completions SHELL`: completion scripts for shells, generated from the tables of --help. */
#ifndef QUADRILLE_SRC_COMPLETIONS_H
#define QUADRILLE_SRC_COMPLETIONS_H

#include "common/command.h"

/* Everything that can be completed. */
typedef struct command_tables {
    const command *const *commands;
    int n_commands;
    const option_spec *options; /* options that need no command */
} command_tables;

/* Runs `completions bash|zsh|fish|machines|models`; argv[0] is "completions". Returns the exit code. */
int completions_run(int argc, char **argv, const command_tables *tables);

#endif
