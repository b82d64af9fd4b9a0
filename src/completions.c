/* SPDX-License-Identifier: Apache-2.0 */
/* What can follow an option or a command, derived from the tables of --help; the names of machines and models. */
#include "completions.h"

#include <quadrille/machine.h>
#include <quadrille/network.h>
#include <stdio.h>
#include <string.h>

static void add_word(completion *c, const char *word, size_t length)
{
    const size_t used = strlen(c->words);
    snprintf(c->words + used, sizeof c->words - used, "%s%.*s", used ? " " : "", (int)length, word);
    c->kind = VALUE_WORDS;
}

completion complete_option(const option_spec *option)
{
    completion c = {VALUE_ANY, ""};
    if (!option->argument) return c;
    const char *words = option->words ? option->words : strchr(option->argument, '|') ? option->argument : NULL;
    if (words && option->kind != OPTION_GRID)
        for (; *words; words += strspn(words, "|")) {
            const size_t length = strcspn(words, "|");
            add_word(&c, words, length);
            words += length;
        }
    else if (option->kind == OPTION_MACHINE)
        c.kind = VALUE_MACHINE;
    else if (strstr(option->argument, "FILE"))
        c.kind = VALUE_FILE;
    else if (strcmp(option->argument, "DIR") == 0)
        c.kind = VALUE_FOLDER;
    return c;
}

/* The completion of the third word in "quadrille COMMAND OPERAND [OPTION]...". */
completion complete_operand(const command *which)
{
    completion c = {VALUE_ANY, ""};
    for (const command *const *part = which->parts; part && *part; part++) {
        const char *name = strchr((*part)->name, ' ') + 1;
        add_word(&c, name, strlen(name));
    }
    if (c.kind == VALUE_WORDS) return c;
    const char *at = which->usage ? strstr(which->usage, which->name) : NULL;
    at = at ? at + strlen(which->name) : "";
    if (strncmp(at, " MODEL", 6) == 0)
        c.kind = VALUE_MODEL;
    else if (strncmp(at, " FILE", 5) == 0 || strncmp(at, " TABLE", 6) == 0)
        c.kind = VALUE_FILE;
    return c;
}

static void print_name(const char *name, void *user)
{
    (void)user;
    puts(name);
}

static int print_names(qdr_status status)
{
    if (status == QDR_OK) return EXIT_OK;
    fprintf(stderr, "quadrille: %s\n", qdr_last_error());
    return EXIT_FAILED;
}

int completions_run(int argc, char **argv, const command_tables *tables)
{
    const char *what = argc == 2 ? argv[1] : "";
    if (strcmp(what, "machines") == 0) return print_names(qdr_machine_list(print_name, NULL));
    if (strcmp(what, "models") == 0) return print_names(qdr_network_list(print_name, NULL));
    if (strcmp(what, "bash") == 0)
        completions_bash(tables);
    else if (strcmp(what, "zsh") == 0)
        completions_zsh(tables);
    else if (strcmp(what, "fish") == 0)
        completions_fish(tables);
    else
        return fputs("quadrille: completions takes one word: bash, zsh, fish, machines or models\n", stderr),
               EXIT_USAGE;
    return EXIT_OK;
}
