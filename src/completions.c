/* SPDX-License-Identifier: Apache-2.0 */
/* What can follow an option or a command, derived from the tables of --help, as scripts for bash, zsh and fish; the
 * names of machines and models. */
#include "completions.h"

#include <quadrille/machine.h>
#include <quadrille/network.h>
#include <stdio.h>
#include <string.h>

/* How a value is completed. */
typedef enum value_kind { VALUE_ANY, VALUE_WORDS, VALUE_FILE, VALUE_FOLDER, VALUE_MACHINE, VALUE_MODEL } value_kind;

typedef struct completion {
    value_kind kind;
    char words[256]; /* for VALUE_WORDS, separated by spaces */
} completion;

static void add_word(completion *c, const char *word, size_t length)
{
    const size_t used = strlen(c->words);
    snprintf(c->words + used, sizeof c->words - used, "%s%.*s", used ? " " : "", (int)length, word);
    c->kind = VALUE_WORDS;
}

static completion complete_option(const option_spec *option)
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
static completion complete_operand(const command *which)
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

/* 1: the command takes a second file, as in "quadrille ckpt diff FILE FILE2 [OPTION]...". */
static int takes_two_files(const command *which)
{
    const char *at = which->usage ? strstr(which->usage, " FILE ") : NULL;
    return at && !which->parts && at[6] >= 'A' && at[6] <= 'Z';
}

#define HEADER "# SPDX-License-Identifier: Apache-2.0\n# Made by `quadrille completions`.\n"

/* Calls `each` for every command, preceded by its parts. bash takes the first matching pattern, so "bench gemm" must
 * come before "bench". */
static void visit(const command_tables *tables, void (*each)(const command *which))
{
    for (int i = 0; i < tables->n_commands; i++) {
        for (const command *const *part = tables->commands[i]->parts; part && *part; part++) each(*part);
        each(tables->commands[i]);
    }
}

/* The names of all commands that belong to another. */
static void print_parts(const command_tables *tables, const char *separator)
{
    const char *before = "";
    for (int i = 0; i < tables->n_commands; i++)
        for (const command *const *part = tables->commands[i]->parts; part && *part; part++, before = separator)
            printf("%s'%s'", before, (*part)->name);
}

/* Prints text inside single quotes; the characters in `escaped` get a backslash. */
static void print_quoted(const char *text, const char *escaped)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs("'\\''", stdout);
            continue;
        }
        if (strchr(escaped, *text)) putchar('\\');
        putchar(*text);
    }
}

/* How a shell completes each kind of value; the words follow, and then `end`. */
typedef struct value_syntax {
    const char *kinds[6], *end;
} value_syntax;

static void print_value(completion c, const value_syntax *syntax)
{
    fputs(syntax->kinds[c.kind], stdout);
    if (c.kind == VALUE_WORDS) printf("%s%s", c.words, syntax->end);
}

/* ---- bash ---- */

static const value_syntax bash = {{":", "_quadrille_words ", "_quadrille_files -f", "_quadrille_files -d",
                                   "_quadrille_names machines", "_quadrille_names models"},
                                  ""};

static void print_bash_command(const command *which)
{
    for (const option_spec *o = which->options; o->name; o++) {
        if (!o->argument) continue;
        printf("    '%s --%s'", which->name, o->name);
        if (o->letter) printf(" | '%s -%c'", which->name, o->letter);
        fputs(") ", stdout);
        print_value(complete_option(o), &bash);
        fputs(" ;;\n", stdout);
    }
    printf("    '%s '*)\n        case $cur in\n        -*) _quadrille_words", which->name);
    for (const option_spec *o = which->options; o->name; o++) printf(" --%s", o->name);
    fputs(" ;;\n        *) ", stdout);
    print_value(complete_operand(which), &bash);
    fputs(" ;;\n        esac ;;\n", stdout);
}

static void print_commands(const command_tables *tables)
{
    for (int i = 0; i < tables->n_commands; i++) printf("%s ", tables->commands[i]->name);
    fputs("help", stdout);
}

static void print_bash(const command_tables *tables)
{
    fputs(HEADER "_quadrille_words() { COMPREPLY=($(compgen -W \"$*\" -- \"$cur\")); }\n"
                 "_quadrille_files() { compopt -o filenames; mapfile -t COMPREPLY < <(compgen \"$1\" -- \"$cur\"); }\n"
                 "# Names, and files where the word looks like one.\n"
                 "_quadrille_names() {\n"
                 "    case $cur in\n"
                 "    */* | .*) _quadrille_files -f ;;\n"
                 "    *) _quadrille_words $(\"${COMP_WORDS[0]}\" completions \"$1\" 2>/dev/null) ;;\n"
                 "    esac\n"
                 "}\n\n"
                 "_quadrille() {\n"
                 "    local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=\n"
                 "    # bash splits --option=value into three words.\n"
                 "    if [[ $cur == = ]]; then\n"
                 "        cur=\n"
                 "    elif [[ $previous == = ]]; then\n"
                 "        previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
                 "    fi\n"
                 "    [[ ${COMP_WORDS[COMP_CWORD]} != = ]] || previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
                 "    ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}\n"
                 "    ((COMP_CWORD > 2)) && case \"$command ${COMP_WORDS[2]}\" in\n    ",
          stdout);
    print_parts(tables, " | ");
    fputs(") command+=\" ${COMP_WORDS[2]}\" ;;\n    esac\n    COMPREPLY=()\n    case \"$command $previous\" in\n",
          stdout);
    visit(tables, print_bash_command);
    fputs("    'help '*) _quadrille_words ", stdout);
    print_commands(tables);
    fputs(" ;;\n    *)\n        case $cur in\n        -*) _quadrille_words", stdout);
    for (const option_spec *o = tables->options; o->name; o++) printf(" --%s", o->name);
    fputs(" ;;\n        *) _quadrille_words ", stdout);
    print_commands(tables);
    fputs(" ;;\n        esac ;;\n    esac\n}\ncomplete -F _quadrille quadrille\n", stdout);
}

/* ---- zsh ---- */

/* After a space, _arguments adds no words of its own. */
static const value_syntax zsh = {
    {" ", "(", "_files", "_files -/", " _quadrille_names machines", " _quadrille_names models"}, ")"};

static void print_zsh_option(const option_spec *o, const char *left)
{
    printf(" \\\n            '%s[", left);
    print_quoted(o->help, "[]\\");
    putchar(']');
    if (o->argument) {
        putchar(':');
        print_quoted(o->argument, ":\\");
        putchar(':');
        print_value(complete_option(o), &zsh);
    }
    putchar('\'');
}

static void print_zsh_options(const option_spec *specs)
{
    for (const option_spec *o = specs; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "*--%s%s", o->name, o->argument ? "=" : "");
        print_zsh_option(o, left);
        snprintf(left, sizeof left, "*-%c%s", o->letter, o->argument ? "+" : "");
        if (o->letter) print_zsh_option(o, left);
    }
}

static void print_zsh_command(const command *which)
{
    printf("    '%s')\n        _arguments", which->name);
    print_zsh_options(which->options);
    const completion operand = complete_operand(which);
    if (operand.kind != VALUE_ANY) {
        fputs(" \\\n            '1: :", stdout);
        print_value(operand, &zsh);
        putchar('\'');
    }
    if (takes_two_files(which)) fputs(" '2: :_files'", stdout);
    fputs(" ;;\n", stdout);
}

static void print_zsh(const command_tables *tables)
{
    fputs("#compdef quadrille\n" HEADER "_quadrille_names() {\n"
          "    local -a names=(${(f)\"$(${program} completions $1 2>/dev/null)\"})\n"
          "    compadd -a names\n"
          "    _files\n"
          "}\n\n"
          "_quadrille() {\n"
          "    local program=$words[1] command=\n"
          "    if ((CURRENT > 2)); then\n"
          "        command=$words[2]\n"
          "        shift words\n"
          "        ((CURRENT--))\n"
          "    fi\n"
          "    ((CURRENT > 2)) && case \"$command $words[2]\" in\n    (",
          stdout);
    print_parts(tables, "|");
    fputs(")\n        command+=\" $words[2]\"\n        shift words\n        ((CURRENT--)) ;;\n    esac\n    case "
          "$command in\n",
          stdout);
    visit(tables, print_zsh_command);
    fputs("    help)\n        _arguments '1: :(", stdout);
    print_commands(tables);
    fputs(")' ;;\n    '')\n        local -a commands=(", stdout);
    for (int i = 0; i < tables->n_commands; i++) {
        printf("\n            '%s:", tables->commands[i]->name);
        print_quoted(tables->commands[i]->summary, ":\\");
        putchar('\'');
    }
    fputs("\n            'help:a command'\\''s options and examples')\n        _describe command commands\n        "
          "_arguments",
          stdout);
    print_zsh_options(tables->options);
    fputs(" ;;\n    esac\n}\n_quadrille \"$@\"\n", stdout);
}

/* ---- fish ---- */

static const value_syntax fish = {{" -x", " -x -a '", " -r -F", " -x -a '(__fish_complete_directories)'",
                                   " -r -F -a '(quadrille completions machines 2>/dev/null)'",
                                   " -r -F -a '(quadrille completions models 2>/dev/null)'"},
                                  "'"};

static void print_fish_options(const char *words, const option_spec *specs)
{
    for (const option_spec *o = specs; o->name; o++) {
        printf("complete -c quadrille -n '__quadrille_is %s' -l %s", words, o->name);
        if (o->letter) printf(" -s %c", o->letter);
        if (o->argument) print_value(complete_option(o), &fish);
        fputs(" -d '", stdout);
        print_quoted(o->help, "\\");
        fputs("'\n", stdout);
    }
}

static void print_fish_command(const command *which)
{
    const completion operand = complete_operand(which);
    print_fish_options(which->name, which->options);
    for (const command *const *part = which->parts; part && *part; part++) {
        printf("complete -c quadrille -n '__quadrille_is %s' -a %s -d '", which->name, strchr((*part)->name, ' ') + 1);
        print_quoted((*part)->summary, "\\");
        fputs("'\n", stdout);
    }
    if (which->parts || operand.kind == VALUE_ANY) return;
    printf("complete -c quadrille -n '__quadrille_is %s'", which->name);
    print_value(operand, &fish);
    putchar('\n');
}

static void print_fish(const command_tables *tables)
{
    fputs(HEADER "# Whether the words typed so far begin with this command: bench, or bench gemm.\n"
                 "function __quadrille_is\n"
                 "    set -l typed (commandline -opc)[2..-1]\n"
                 "    set -l parts ",
          stdout);
    print_parts(tables, " ");
    fputs("\n    set -l command $typed[1]\n"
          "    if contains -- \"$typed[1..2]\" $parts\n"
          "        set command $typed[1..2]\n"
          "    end\n"
          "    test \"$command\" = \"$argv\"\n"
          "end\n\n"
          "complete -c quadrille -f\n",
          stdout);
    for (int i = 0; i < tables->n_commands; i++) {
        printf("complete -c quadrille -n '__quadrille_is' -a %s -d '", tables->commands[i]->name);
        print_quoted(tables->commands[i]->summary, "\\");
        fputs("'\n", stdout);
    }
    fputs("complete -c quadrille -n '__quadrille_is' -a help -d 'options and examples of a command'\n"
          "complete -c quadrille -n '__quadrille_is help' -a '",
          stdout);
    print_commands(tables);
    fputs("'\n", stdout);
    print_fish_options("", tables->options);
    visit(tables, print_fish_command);
}

/* ---- the command ---- */

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
        print_bash(tables);
    else if (strcmp(what, "zsh") == 0)
        print_zsh(tables);
    else if (strcmp(what, "fish") == 0)
        print_fish(tables);
    else
        return fputs("quadrille: completions takes one word: bash, zsh, fish, machines or models\n", stderr),
               EXIT_USAGE;
    return EXIT_OK;
}
