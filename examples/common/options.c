/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the examples, from a table. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <quadrille/names.h>
#include <quadrille/types.h>
#include <stdlib.h>
#include <string.h>

#define COMPLAIN(...) (snprintf(problem, PROBLEM_BYTES, __VA_ARGS__), OPTIONS_BAD)

static options_result set_count(const option_row *row, const char *word, char problem[PROBLEM_BYTES])
{
    char *end;
    errno = 0;
    const long long number = strtoll(word, &end, 10);
    if (end == word || *end != '\0' || errno != 0 || (double)number < row->min || (double)number > row->max)
        return COMPLAIN("--%s %s: give a whole number from %.0f to %.0f", row->name, word, row->min, row->max);
    *(int64_t *)row->value = number;
    return OPTIONS_OK;
}

static options_result set_real(const option_row *row, const char *word, char problem[PROBLEM_BYTES])
{
    char *end;
    const double number = strtod(word, &end);
    if (end == word || *end != '\0' || !isfinite(number) || number < row->min || number > row->max)
        return COMPLAIN("--%s %s: give a number from %g to %g", row->name, word, row->min, row->max);
    *(double *)row->value = number;
    return OPTIONS_OK;
}

static options_result set_choice(const option_row *row, const char *word, char problem[PROBLEM_BYTES])
{
    const size_t length = strlen(word);
    const char *choice = row->argument;
    for (int index = 0; choice != NULL; index++) {
        const char *bar = strchr(choice, '|');
        const size_t choice_length = bar ? (size_t)(bar - choice) : strlen(choice);
        if (length == choice_length && strncmp(word, choice, length) == 0) {
            *(int *)row->value = index;
            return OPTIONS_OK;
        }
        choice = bar ? bar + 1 : NULL;
    }
    return COMPLAIN("--%s %s: give one of %s", row->name, word, row->argument);
}

static options_result set_type(const option_row *row, const char *word, char problem[PROBLEM_BYTES])
{
    int type = 0;
    const options_result result = set_choice(row, word, problem);
    if (result != OPTIONS_OK) return result;
    while (strcmp(word, qdr_dtype_name((qdr_dtype)type)) != 0) type++;
    *(int *)row->value = type;
    return OPTIONS_OK;
}

static options_result set_grid(const option_row *row, const char *word, char problem[PROBLEM_BYTES])
{
    grid_shape shape = {0};
    int *const sides[4] = {&shape.x, &shape.y, &shape.z, &shape.d};
    const char *rest = word;
    int good = 1;
    if (strcmp(word, "auto") == 0) {
        *(grid_shape *)row->value = (grid_shape){.is_auto = 1};
        return OPTIONS_OK;
    }
    for (int i = 0; good && i < 4; i++) {
        char *end;
        errno = 0;
        const long side = strtol(rest, &end, 10);
        good = end != rest && errno == 0 && side >= 1 && side <= 1024 && *end == (i < 3 ? 'x' : '\0');
        *sides[i] = (int)side;
        rest = end + 1;
    }
    if (!good)
        return COMPLAIN("--%s %s: give auto, or four numbers from 1 to 1024 as GXxGYxGZxGD, like 2x2x1x1", row->name,
                        word);
    *(grid_shape *)row->value = shape;
    return OPTIONS_OK;
}

static options_result set_value(const option_row *row, const char *word, char problem[PROBLEM_BYTES])
{
    switch (row->kind) {
    case OPTION_COUNT: return set_count(row, word, problem);
    case OPTION_REAL: return set_real(row, word, problem);
    case OPTION_CHOICE: return set_choice(row, word, problem);
    case OPTION_TYPE: return set_type(row, word, problem);
    case OPTION_GRID: return set_grid(row, word, problem);
    case OPTION_TEXT:
    case OPTION_INPUT:
    case OPTION_MACHINE:
    case OPTION_OUTPUT:
    case OPTION_LOG:
        if (word[0] == '\0') return COMPLAIN("--%s: its %s is empty", row->name, row->argument);
        *(const char **)row->value = word;
        return OPTIONS_OK;
    default: *(int *)row->value = 1; return OPTIONS_OK;
    }
}

static options_result set_operand(const usage_text *usage, int argc, char **argv, char problem[PROBLEM_BYTES])
{
    if (optind < argc && usage->operand == NULL) return COMPLAIN("unexpected argument '%s'; see --help", argv[optind]);
    if (optind + 1 < argc) return COMPLAIN("unexpected argument '%s'; see --help", argv[optind + 1]);
    if (optind < argc) *usage->operand = argv[optind];
    return OPTIONS_OK;
}

/* Suggests options that may have been meant. */
static options_result complain_unknown(const struct option *longs, int n, const char *typed,
                                       char problem[PROBLEM_BYTES])
{
    enum { NAME_BYTES = 40, MAX_SUGGESTED = 3 };
    char dashed[MAX_OPTIONS + 2][NAME_BYTES], word[NAME_BYTES], nearest[128];
    const char *names[MAX_OPTIONS + 2];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(typed, "="), typed);
    for (int i = 0; i < n; i++) {
        snprintf(dashed[i], NAME_BYTES, "--%s", longs[i].name);
        names[i] = dashed[i];
    }
    if (qdr_names_nearest(word, names, n, MAX_SUGGESTED, nearest, sizeof nearest))
        return COMPLAIN("unknown or ambiguous option %s (did you mean %s?); see --help", typed, nearest);
    return COMPLAIN("unknown option %s; see --help", typed);
}

options_result options_parse(const usage_text *usage, int argc, char **argv, char problem[PROBLEM_BYTES])
{
    struct option longs[MAX_OPTIONS + 2] = {0};
    const option_row *rows[MAX_OPTIONS + 1] = {0};
    int n = 0;
    for (int i = 0; i < usage->n_rows && n < MAX_OPTIONS; i++) {
        const option_row *row = &usage->rows[i];
        if (row->kind == OPTION_GROUP) continue;
        longs[n] = (struct option){row->name, row->kind == OPTION_FLAG ? no_argument : required_argument, NULL, 0};
        rows[n++] = row;
    }
    longs[n] = (struct option){"help", no_argument, NULL, 'h'};

    opterr = 0;
    optind = 1;
    for (;;) {
        int which = -1;
        const int code = getopt_long(argc, argv, ":h", longs, &which);
        if (code == -1) return set_operand(usage, argc, argv, problem);
        if (code == 'h') return OPTIONS_HELP;
        if (code == ':') return COMPLAIN("%s needs a value; see --help", argv[optind - 1]);
        if (code != 0) return complain_unknown(longs, n, argv[optind - 1], problem);
        const options_result result = set_value(rows[which], optarg, problem);
        if (result != OPTIONS_OK) return result;
    }
}

/* Prints "(default 4)", or nothing if the value before parsing is not a default. */
static void print_default(const option_row *row, FILE *out)
{
    switch (row->kind) {
    case OPTION_COUNT:
        if (*(int64_t *)row->value > 0) fprintf(out, " (default %lld)", (long long)*(int64_t *)row->value);
        break;
    case OPTION_REAL:
        if (!strstr(row->help, "(default ")) fprintf(out, " (default %g)", *(double *)row->value);
        break;
    case OPTION_CHOICE: {
        const char *choice = row->argument;
        if (!choice) break;
        for (int i = *(int *)row->value; i > 0; i--) /* not for negative values, where nothing is chosen */
            choice = strchr(choice, '|') + 1;
        fprintf(out, " (default %.*s)", (int)strcspn(choice, "|"), choice);
        break;
    }
    case OPTION_TYPE: /* if negative (nothing is chosen), the first */
        fprintf(out, " (default %s)", qdr_dtype_name((qdr_dtype)(*(int *)row->value > 0 ? *(int *)row->value : 0)));
        break;
    case OPTION_TEXT:
    case OPTION_INPUT:
    case OPTION_MACHINE:
    case OPTION_OUTPUT:
    case OPTION_LOG:
        if (*(const char **)row->value != NULL) fprintf(out, " (default %s)", *(const char **)row->value);
        break;
    default: break;
    }
}

void options_help(const usage_text *usage, FILE *out)
{
    fprintf(out, "usage: %s %s\n\n%s\n", usage->program, usage->synopsis, usage->purpose);
    for (int i = 0; i < usage->n_rows; i++) {
        const option_row *row = &usage->rows[i];
        if (row->kind == OPTION_GROUP) {
            fprintf(out, "\n%s\n", row->name);
            continue;
        }
        char left[80];
        snprintf(left, sizeof left, "--%s%s%s", row->name, row->argument ? " " : "",
                 row->argument ? row->argument : "");
        fprintf(out, "  %-32s %s", left, row->help);
        print_default(row, out);
        fputc('\n', out);
    }
    fprintf(out, "  %-32s %s\n\nexamples:\n%s", "--help", "print this help", usage->examples);
    fputs("\nexit codes: 0 ok, 1 failed, 2 usage or bad input, 3 nothing fits\n", out);
}
