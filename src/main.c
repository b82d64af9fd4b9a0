/* SPDX-License-Identifier: Apache-2.0 */
/* The `quadrille` command: finds the subcommand and runs it; help and versions-> */
#include <quadrille/environment.h>
#include <quadrille/launch.h>
#include <quadrille/version.h>
#include <stdio.h>
#include <string.h>

#include "common/command.h"
#include "common/json.h"
#include "common/process.h"

typedef struct main_given {
    int help, version, json;
} main_given;
#define AT(member) OPTION_FLAG, .at = offsetof(main_given, member)

static const option_spec main_options[] = {
    {"help", 'h', NULL, "print this help", AT(help)},
    {"version", 'V', NULL, "print the versions of Quadrille and its components", AT(version)},
    {"json", 0, NULL, "with --version: print JSON", AT(json)},
    {.name = NULL},
};

static int print_help(void)
{
    puts("usage: quadrille COMMAND [OPTION]...\n"
         "Matrix products of neural-network training on a 4D grid of processes.\n\n"
         "Commands:");
    for (int i = 0; i < N_COMMANDS; i++) printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf("  %-10s %s\n", "help", "print this help, or the help of a command");
    options_print(main_options);
    puts("\nExit codes: 0 ok, 1 failed, 2 usage or bad input, 3 nothing fits, 4 verification failed.\n"
         "See 'quadrille COMMAND --help' for a command's options and examples.");
    return EXIT_OK;
}

/* The name without that of the command to which it belongs. */
static const char *part_name(const command *part) { return strchr(part->name, ' ') + 1; }

static int print_command_help(const command *which)
{
    if (which->usage)
        printf("usage: %s\n%s\n", which->usage, which->text);
    else
        printf("usage: quadrille %s [OPTION]...\n%s\n", which->name, which->text);
    for (const command *const *part = which->parts; part && *part; part++)
        printf("%s  %-10s %s\n", part == which->parts ? "\n" : "", part_name(*part), (*part)->summary);
    options_print(which->options);
    printf("\nExamples:\n%s", which->examples);
    return EXIT_OK;
}

static int fail_unknown(const char *name)
{
    const char *names[N_COMMANDS];
    char meant[SUGGESTION_BYTES];
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i]->name;
    suggest(name, names, N_COMMANDS, meant, sizeof meant);
    fprintf(stderr, "quadrille: unknown command '%s'%s; the commands are", name, meant);
    for (int i = 0; i < N_COMMANDS; i++) fprintf(stderr, " %s,", names[i]);
    fputs(" help (see quadrille --help)\n", stderr);
    return EXIT_USAGE;
}

static int print_versions(int as_json)
{
    const qdr_versions *versions = qdr_get_versions();
    const struct {
        const char *name, *version;
    } parts[] = {{"quadrille", versions->quadrille}, {"mpi", versions->mpi},     {"blas", versions->blas},
                 {"onednn", versions->onednn},       {"hwloc", versions->hwloc}, {"zfp", versions->zfp},
                 {"compiler", versions->compiler}};
    failure why = {0};
    json_t *object = as_json ? json_object() : NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!as_json)
            printf("%-10s %s\n", parts[i].name, parts[i].version);
        else if (json_object_set_new(object, parts[i].name, json_string(parts[i].version)) != 0)
            fail(&why, EXIT_FAILED, "%s: its version is not UTF-8, or memory ran out", parts[i].name);
    return as_json && write_json(object, JSON_INDENT(2), "--version", &why) ? fail_print(&why) : EXIT_OK;
}

/* quadrille --help, --version [--json] */
static int run_options(int argc, char **argv)
{
    main_given given = {0};
    failure why = {0};
    if (options_read(argc, argv, main_options, &given, NULL, &why)) return fail_print(&why);
    if (given.help) return print_help();
    if (given.version) return print_versions(given.json);
    fputs("quadrille: --json needs --version; see quadrille --help\n", stderr);
    return EXIT_USAGE;
}

/* The command named by argv[0], or by argv[0] and argv[1]; in that case drops argv[0], and the next becomes both. */
static const command *find_words(int *argc, char ***argv)
{
    static char both[64];
    const command *which = NULL;
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, **argv) == 0) which = commands[i];
    for (const command *const *part = which && *argc > 1 ? which->parts : NULL; part && *part; part++)
        if (strcmp((*argv)[1], part_name(*part)) == 0) {
            --*argc;
            ++*argv;
            snprintf(both, sizeof both, "%s", (*part)->name);
            **argv = both;
            return *part;
        }
    return which;
}

static int dispatch(int argc, char **argv)
{
    static char name[] = "quadrille";
    argv[0] = name;
    if (argc < 2) {
        fputs("quadrille: no command given; see quadrille --help\n", stderr);
        return EXIT_USAGE;
    }
    if (argv[1][0] == '-') return run_options(argc, argv);
    const int is_help = strcmp(argv[1], "help") == 0;
    if (is_help && (argc < 3 || strcmp(argv[2], "--help") == 0)) return print_help();
    argc -= 1 + is_help;
    argv += 1 + is_help;
    const command *which = find_words(&argc, &argv);
    if (!which) return fail_unknown(argv[0]);
    if (is_help || options_want_help(argc, argv)) return print_command_help(which);
    if (which->is_local && qdr_launched() == 1) {
        char sentence[512];
        failure why = {0};
        if (fail_status(&why, qdr_environment_check())) return fail_print(&why);
        for (int i = 0; qdr_environment_unknown(i, sentence, sizeof sentence) > 0; i++)
            fprintf(stderr, "warning: %s\n", sentence);
    }
    return which->run(argc, argv);
}

int main(int argc, char **argv)
{
    process_begin("quadrille");
    return process_end(dispatch(argc, argv));
}
