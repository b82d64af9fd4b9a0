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

/* How a value is completed. */
typedef enum value_kind { VALUE_ANY, VALUE_WORDS, VALUE_FILE, VALUE_FOLDER, VALUE_MACHINE, VALUE_MODEL } value_kind;

typedef struct completion {
    value_kind kind;
    char words[256]; /* for VALUE_WORDS, separated by spaces */
} completion;

/* Completion of an option's value, and of a command's operand. */
completion complete_option(const option_spec *option);
completion complete_operand(const command *which);

void completions_bash(const command_tables *tables);
void completions_zsh(const command_tables *tables);
void completions_fish(const command_tables *tables);

/* Runs `completions bash|zsh|fish|machines|models`; argv[0] is "completions". Returns the exit code. */
int completions_run(int argc, char **argv, const command_tables *tables);

#endif
