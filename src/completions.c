/* SPDX-License-Identifier: Apache-2.0 */
/* What can follow an option or a command, derived from the tables of --help; the names of machines and models. */
#include "completions.h"

#include <ctype.h>
#include <quadrille/machine.h>
#include <quadrille/network.h>
#include <stdio.h>
#include <string.h>

/* The words that an option may accept; a command offers those that its help text names. */
typedef struct vocabulary {
    const char *option, *words;
} vocabulary;

static const vocabulary vocabularies[] = {
    {"axis", "x y z d"},
    {"dtype", "f32 f64 bf16 f16 all"},
    {"kind", "all-reduce all-gather reduce-scatter broadcast all-to-all send-recv all"},
    {"layout", "replicated scattered"},
    {"levels", "zero1 zero2 zero3"},
    {"memory", "library caller"},
    {"on", "gpus cores"},
    {"recompute", "none attention full"},
    {NULL, NULL},
};

static int is_word_letter(char c) { return isalnum((unsigned char)c) || c == '-' || c == '_'; }

/* Whether the text contains `word` as a whole word. */
static int names_word(const char *text, const char *word, size_t length)
{
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        if ((at == text || !is_word_letter(at[-1])) && !is_word_letter(at[length])) return 1;
    }
    return 0;
}

static void add_word(completion *c, const char *word)
{
    const size_t used = strlen(c->words);
    snprintf(c->words + used, sizeof c->words - used, "%s%s", used ? " " : "", word);
    c->kind = VALUE_WORDS;
}

/* Splits `text` at any of `separators`; adds the words that occur in `help`, or all if it is NULL. */
static void add_words(completion *c, const char *text, const char *separators, const char *help)
{
    while (*text) {
        char word[32];
        const size_t length = strcspn(text, separators);
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        if (!help || names_word(help, word, length)) add_word(c, word);
        text += length + (text[length] != '\0');
    }
}

completion complete_option(const option_spec *option)
{
    completion c = {VALUE_ANY, ""};
    if (!option->argument) return c;
    if (strchr(option->argument, '|')) add_words(&c, option->argument, "|", NULL);
    for (const vocabulary *v = vocabularies; v->option; v++)
        if (strcmp(v->option, option->name) == 0) add_words(&c, v->words, " ", option->help);
    if (c.kind == VALUE_WORDS) return c;
    if (strcmp(option->name, "machine") == 0)
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
    for (const command *const *part = which->parts; part && *part; part++) add_word(&c, strchr((*part)->name, ' ') + 1);
    if (c.kind == VALUE_WORDS) return c;
    const char *at = strstr(which->usage, which->name);
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
