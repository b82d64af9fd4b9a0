/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and prints option tables; numbers, grids and orders as text. */
#include "common/options.h"

#include <errno.h>
#include <getopt.h>
#include <quadrille/names.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SUGGESTED = 3 };
#define FIRST_CODE 1000 /* getopt's codes for long options: larger than any character */

/* The two tables for getopt_long. */
typedef struct getopt_tables {
    struct option options[MAX_OPTIONS + 1];
    char letters[2 * MAX_OPTIONS + 2];
} getopt_tables;

static void make_tables(const option_spec *specs, getopt_tables *tables)
{
    size_t n_letters = 0;
    memset(tables, 0, sizeof *tables);
    tables->letters[n_letters++] = ':';
    for (int i = 0; specs[i].name && i < MAX_OPTIONS; i++) {
        const int has_argument = specs[i].argument ? required_argument : no_argument;
        tables->options[i] = (struct option){specs[i].name, has_argument, NULL, FIRST_CODE + i};
        if (!specs[i].letter) continue;
        tables->letters[n_letters++] = specs[i].letter;
        if (specs[i].argument) tables->letters[n_letters++] = ':';
    }
}

static int index_of(const option_spec *specs, int code)
{
    if (code >= FIRST_CODE) return code - FIRST_CODE;
    int index = 0;
    while (specs[index].letter != code) index++;
    return index;
}

/* The command line that prints this command's help. */
static const char *help_words(const char *command, char words[64])
{
    const int is_main = strcmp(command, "quadrille") == 0;
    snprintf(words, 64, "quadrille %s%s--help", is_main ? "" : command, is_main ? "" : " ");
    return words;
}

void suggest(const char *typed, const char *const names[], int n_names, char *text, size_t bytes)
{
    char nearest[112];
    *text = '\0';
    if (qdr_names_nearest(typed, names, n_names, MAX_SUGGESTED, nearest, sizeof nearest))
        snprintf(text, bytes, " (did you mean %s?)", nearest);
}

/* Suggests the long options closest to `typed`, which may include "=VALUE". */
static void suggest_option(const option_spec *specs, const char *typed, char *text, size_t bytes)
{
    enum { NAME_BYTES = 40 };
    char dashed[MAX_OPTIONS][NAME_BYTES], word[NAME_BYTES];
    const char *names[MAX_OPTIONS];
    int n = 0;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(typed, "="), typed);
    for (; specs[n].name && n < MAX_OPTIONS; n++) {
        snprintf(dashed[n], NAME_BYTES, "--%s", specs[n].name);
        names[n] = dashed[n];
    }
    suggest(word, names, n, text, bytes);
}

/* Reports what getopt rejected: a missing argument, an unexpected argument, or an unknown option. */
static int fail_option(char **argv, int code, const option_spec *specs, failure *why)
{
    char words[64];
    const char *text = argv[optind - 1];
    help_words(argv[0], words);
    if (code == ':') return fail(why, EXIT_USAGE, "%s: option '%s' needs a value; see %s", argv[0], text, words);
    if (optopt >= FIRST_CODE)
        return fail(why, EXIT_USAGE, "%s: option '--%s' takes no value; see %s", argv[0],
                    specs[optopt - FIRST_CODE].name, words);
    if (optopt) return fail(why, EXIT_USAGE, "%s: unknown option '-%c'; see %s", argv[0], optopt, words);
    char meant[SUGGESTION_BYTES];
    suggest_option(specs, text, meant, sizeof meant);
    return fail(why, EXIT_USAGE, "%s: unknown or ambiguous option '%s'%s; see %s", argv[0], text, meant, words);
}

int options_read_word(int argc, char **argv, const option_spec *specs, option_taker take, void *user, const char **word,
                      failure *why)
{
    getopt_tables tables;
    make_tables(specs, &tables);
    opterr = 0;
    optind = 1;
    for (;;) {
        const int code = getopt_long(argc, argv, tables.letters, tables.options, NULL);
        if (code == -1) break;
        if (code == '?' || code == ':') return fail_option(argv, code, specs, why);
        if (take(index_of(specs, code), optarg, user, why)) return why->code;
    }
    if (word && optind < argc) *word = argv[optind++];
    if (optind == argc) return EXIT_OK;
    char words[64];
    return fail(why, EXIT_USAGE, "%s: unexpected argument '%s'; see %s", argv[0], argv[optind],
                help_words(argv[0], words));
}

int options_read(int argc, char **argv, const option_spec *specs, option_taker take, void *user, failure *why)
{
    return options_read_word(argc, argv, specs, take, user, NULL, why);
}

void options_print(const option_spec *specs)
{
    puts("\nOptions:");
    for (; specs->name; specs++) {
        char left[64], letter[8] = "    ";
        if (specs->letter) snprintf(letter, sizeof letter, "-%c, ", specs->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, specs->name, specs->argument ? " " : "",
                 specs->argument ? specs->argument : "");
        printf("  %-30s %s\n", left, specs->help);
    }
}

int option_integer(const char *name, const char *value, int64_t min, int64_t max, int64_t *number, failure *why)
{
    char *end;
    errno = 0;
    const long long parsed = strtoll(value, &end, 10);
    if (end == value || *end || errno || parsed < min || parsed > max)
        return fail(why, EXIT_USAGE, "--%s '%s': a whole number from %lld to %lld is needed", name, value,
                    (long long)min, (long long)max);
    *number = parsed;
    return EXIT_OK;
}

int option_bytes(const char *name, const char *value, int64_t max, int64_t *bytes, failure *why)
{
    static const char letters[] = "KMG";
    char *end;
    errno = 0;
    const long long parsed = strtoll(value, &end, 10);
    const char *letter = *end ? strchr(letters, *end) : NULL;
    const int shift = letter ? 10 * (int)(letter - letters + 1) : 0;
    if (end == value || errno || (*end && (!letter || end[1])) || parsed < 1 || parsed > max >> shift)
        return fail(why, EXIT_USAGE, "--%s '%s': a number of bytes from 1 to %lldG is needed, such as 8, 64K or 16M",
                    name, value, (long long)(max >> 30));
    *bytes = parsed << shift;
    return EXIT_OK;
}

int option_grid(const char *name, const char *value, grid_size *size, failure *why)
{
    return option_large_grid(name, value, 1024, size, why);
}

int option_large_grid(const char *name, const char *value, int64_t max, grid_size *size, failure *why)
{
    int axes[4];
    const char *at = value;
    int64_t n_ranks = 1;
    for (int i = 0; i < 4; i++) {
        char *end;
        errno = 0;
        const long long number = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        if (number < 1 || number > max || errno || *end != (i < 3 ? 'x' : 0) || (n_ranks *= number) > max)
            return fail(why, EXIT_USAGE,
                        "--%s '%s': a grid is GXxGYxGZxGD, four numbers from 1 whose product is at "
                        "most %lld, such as 2x2x1x1",
                        name, value, (long long)max);
        axes[i] = (int)number;
        at = end + 1;
    }
    *size = (grid_size){axes[0], axes[1], axes[2], axes[3]};
    return EXIT_OK;
}

int grid_ranks(grid_size size) { return size.x * size.y * size.z * size.d; }

int option_order(const char *name, const char *value, failure *why)
{
    int is_permutation = strlen(value) == 4;
    for (const char *axis = "xyzd"; *axis; axis++) is_permutation &= strchr(value, *axis) != NULL;
    if (is_permutation) return EXIT_OK;
    return fail(why, EXIT_USAGE, "--%s '%s': must be a permutation of xyzd, fastest axis first", name, value);
}

int grid_check_ranks(const char *command, grid_size size, int n_ranks, failure *why)
{
    const int n_needed = grid_ranks(size);
    if (n_ranks == n_needed) return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "%s: grid %dx%dx%dx%d has %d ranks, but %d %s started: use mpiexec -n %d, or "
                "--local %d",
                command, size.x, size.y, size.z, size.d, n_needed, n_ranks, n_ranks == 1 ? "was" : "were", n_needed,
                n_needed);
}

int option_layout(const char *name, const char *value, qdr_layout *layout, failure *why)
{
    *layout = strcmp(value, "scattered") == 0 ? QDR_SCATTERED : QDR_REPLICATED;
    if (*layout == QDR_SCATTERED || strcmp(value, "replicated") == 0) return EXIT_OK;
    return fail(why, EXIT_USAGE, "--%s '%s': a layout is replicated or scattered", name, value);
}
