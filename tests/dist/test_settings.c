/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with different settings: qdr_settings_compare() itself; then each option of each table of the command and of
 * the examples, given on one rank with another value than on the others, so that a new option cannot be forgotten.
 * Under mpiexec each process reads a command line of its own.
 *
 *   test_settings [--local P]     mpiexec -n P test_settings */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "common/command.h"
#include "common/process.h"
#include "transformer_layer_table.h"

#define CHECK(condition, ...) ((condition) ? (void)0 : give_up(__LINE__, __VA_ARGS__))
#define CHECK_OK(call) CHECK((call) == QDR_OK, "%s", qdr_last_error())
#define CHECK_FAILS(call, words)                                                                                       \
    CHECK((call) == QDR_ERR_ARGUMENT && strstr(qdr_last_error(), words), "\"%s\", not \"%s\"", qdr_last_error(), words)

/* Ends the process, so that no other rank waits for it. */
static void give_up(int line, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
static void give_up(int line, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "test_settings.c:%d: ", line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(NULL);
    _Exit(1);
}

#define NEXT "; give every rank the same"

/* ---- the call ---- */

/* One rank has `other`, the rest have `usual`; all get `words`, in which A and B are the ranks that are named. */
static void check_lists(qdr_context *ctx, int odd, const qdr_setting *usual, int n_usual, const qdr_setting *other,
                        int n_other, const char *usual_words, const char *other_words)
{
    char words[768];
    const int is_odd = qdr_context_rank(ctx) == odd;
    /* Rank 0 is compared with the lowest that differs from it. */
    snprintf(words, sizeof words, "%s on rank 0 and %s on rank %d" NEXT, odd ? usual_words : other_words,
             odd ? other_words : usual_words, odd ? odd : 1);
    CHECK_FAILS(qdr_settings_compare(ctx, is_odd ? other : usual, is_odd ? n_other : n_usual), words);
    CHECK(strlen(qdr_last_error()) == strlen(words), "\"%s\" is not \"%s\"", qdr_last_error(), words);
    CHECK_OK(qdr_settings_compare(ctx, usual, n_usual)); /* the context stays usable */
}

/* The words of a value on rank 0 have the name, too. */
static void check_values(qdr_context *ctx, const char *a, const char *b, const char *a_words, const char *b_words)
{
    char first[512], second[512];
    for (int odd = 0; odd < qdr_context_size(ctx); odd++) {
        const qdr_setting usual[] = {{"before", "1"}, {"--key", a}, {"after", "1"}};
        const qdr_setting other[] = {{"before", "1"}, {"--key", b}, {"after", "2"}};
        snprintf(first, sizeof first, "%s%s", odd ? "--key is " : "", a_words);
        snprintf(second, sizeof second, "%s%s", odd ? "" : "--key is ", b_words);
        check_lists(ctx, odd, usual, 3, other, 3, first, second);
    }
}

static void check_long(qdr_context *ctx)
{
    char a[10001], b[sizeof a], tail[64];
    memset(a, 'x', sizeof a);
    memset(b, 'x', sizeof b);
    a[sizeof a - 1] = b[sizeof b - 1] = 0;
    b[sizeof b - 2] = 'y';
    memset(tail, 'x', 31);
    tail[31] = 0;
    char a_words[64], b_words[64];
    snprintf(a_words, sizeof a_words, "...%.31s", tail);
    tail[30] = 'y';
    snprintf(b_words, sizeof b_words, "...%.31s", tail);
    check_values(ctx, a, b, a_words, b_words);
    /* Of letters of several bytes none is cut. */
    char many[3 * 50 + 2] = "", more[sizeof many] = "";
    for (int i = 0; i < 50; i++) memcpy(many + 3 * i, "\xe2\x82\xac", 3);
    memcpy(more, many, sizeof more);
    memcpy(many + 3 * 49, "\xe2\x82\xad", 3);
    check_values(ctx, many, more,
                 "..."
                 "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"
                 "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xad",
                 "..."
                 "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"
                 "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac");
}

static void test_call(qdr_context *ctx)
{
    const int p = qdr_context_size(ctx), rank = qdr_context_rank(ctx);
    const qdr_setting one[] = {{"--lr", "0.01"}, {"--steps", "8"}, {"--new", NULL}};
    const qdr_setting renamed[] = {{"--lr", "0.01"}, {"--step", "8"}, {"--new", NULL}};
    CHECK_OK(qdr_settings_compare(ctx, NULL, 0));
    CHECK_OK(qdr_settings_compare(ctx, one, 3));
    CHECK_FAILS(qdr_settings_compare(NULL, one, 3), "NULL");
    if (p == 1) return;
    check_values(ctx, "0.01", "0.001", "0.01", "0.001");
    check_values(ctx, "8", NULL, "8", "not given");
    check_values(ctx, "not given", NULL, "\\x6eot given", "not given");
    check_values(ctx, "a\nb", "a\tb", "a\\x0ab", "a\\x09b");
    check_values(ctx, "a\\x0a", "a\n", "a\\\\x0a", "a\\x0a");
    check_values(ctx, "", "x", "", "x");
    check_long(ctx);
    for (int odd = 0; odd < p; odd++) {
        check_lists(ctx, odd, one, 3, one, 2, odd ? "--new is not given" : "not given",
                    odd ? "nothing" : "--new is nothing");
        check_lists(ctx, odd, one, 3, renamed, 3, "--steps is 8", "--step is 8");
        const int is_odd = rank == odd;
        const qdr_setting nameless[] = {{"--lr", "0.01"}, {is_odd ? "" : "--steps", "8"}};
        CHECK_FAILS(qdr_settings_compare(ctx, is_odd ? NULL : one, 3), "3 settings at NULL");
        CHECK_FAILS(qdr_settings_compare(ctx, one, is_odd ? -1 : 3), "-1 settings");
        CHECK_FAILS(qdr_settings_compare(ctx, nameless, 2), "number 1 of 2 has no name");
        /* Paired with ranks that have failed before. */
        const qdr_status status = is_odd ? qdr_agree(ctx, QDR_ERR_SHAPE) : qdr_settings_compare(ctx, one, 3);
        CHECK(status == QDR_ERR_SHAPE, "gave %s", qdr_status_name(status));
    }
}

/* ---- tables ---- */

enum { STRUCT_BYTES = 1 << 16 };

/* Two values that the option takes. */
static void find_values(const option_spec *spec, const char *values[2])
{
    static const char *const samples[] = {"1",       "2",    "3",     "0.5",  "0.25", "1x1x1x1",
                                          "2x1x1x1", "xyzd", "zyxd",  "int8", "bf16", "a.json",
                                          "b.json",  "1,2",  "zero1", "none", "full", "operations",
                                          "x=2",     "y=2",  "80G",   "64G",  "ctx",  "laptop:inter_bytes_per_sec=1e9"};
    static _Thread_local char words[2][64], scratch[STRUCT_BYTES];
    int n = 0;
    const char *word = spec->words ? spec->words : spec->argument;
    if (!spec->argument) {
        values[0] = "given";
        values[1] = NULL;
        return;
    }
    if (spec->kind == OPTION_CHOICE || spec->kind == OPTION_DTYPE)
        for (; n < 2; n++, word += strcspn(word, "|") + 1) {
            snprintf(words[n], sizeof words[n], "%.*s", (int)strcspn(word, "|"), word);
            values[n] = words[n];
        }
    const option_spec only[] = {*spec, {.name = NULL}};
    for (size_t i = 0; i < sizeof samples / sizeof *samples && n < 2; i++) {
        failure why = {0};
        if (spec->kind == OPTION_OTHER) {
            memset(scratch, 0, sizeof scratch);
            if (spec->take(samples[i], scratch + only->at, &why)) continue;
        } else if (spec->kind == OPTION_INT || spec->kind == OPTION_COUNT || spec->kind == OPTION_REAL) {
            const double number = strtod(samples[i], NULL);
            if (spec->kind != OPTION_REAL && strchr(samples[i], '.')) continue;
            if (number < spec->min || number > spec->max || strspn(samples[i], "0123456789.") != strlen(samples[i]))
                continue;
        } else if ((spec->kind == OPTION_GRID) != (strchr(samples[i], 'x') == samples[i] + 1) ||
                   (spec->kind == OPTION_ORDER) != (strlen(samples[i]) == 4 && strchr(samples[i], 'z') != NULL &&
                                                    strchr(samples[i], 'd') != NULL)) {
            continue;
        }
        values[n++] = samples[i];
    }
    CHECK(n == 2, "--%s takes none of the samples: add two", spec->name);
}

/* What this rank's command line has given for the option of a table. */
static int read_line(const option_spec *specs, const option_spec *spec, const char *value, failure *why)
{
    static char user[STRUCT_BYTES], name[] = "table", option[64], text[64];
    char *argv[4] = {name, option, NULL, NULL};
    snprintf(option, sizeof option, "--%s", spec->name);
    snprintf(text, sizeof text, "%s", value ? value : "");
    if (spec->argument) argv[2] = text;
    memset(user, 0, sizeof user);
    return options_read(value ? (spec->argument ? 3 : 2) : 1, argv, specs, user, NULL, why);
}

/* On threads, which share one command line, by the same list. */
static int compare(qdr_context *ctx, const option_spec *specs, int which, const char *value, int is_local, failure *why)
{
    option_name names[MAX_OPTIONS];
    qdr_setting settings[MAX_OPTIONS];
    const char *values[MAX_OPTIONS] = {NULL};
    if (!is_local) return read_line(specs, &specs[which], value, why) ? why->code : options_agree(ctx, why);
    values[which] = value;
    return fail_status(why, qdr_settings_compare(ctx, settings, options_settings(specs, values, names, settings)));
}

static void check_option(qdr_context *ctx, const char *table, const option_spec *specs, int which, int is_local)
{
    const option_spec *spec = &specs[which];
    const int p = qdr_context_size(ctx), rank = qdr_context_rank(ctx), odd = which % p;
    const char *values[2];
    char words[256];
    failure why = {0};
    find_values(spec, values);
    compare(ctx, specs, which, values[rank == odd], is_local, &why);
    if (spec->may_differ) {
        CHECK(!why.code && *spec->may_differ, "%s --%s: %s", table, spec->name, why.sentence);
        return;
    }
    for (int i = 0; i < 2; i++)
        if (!values[i]) values[i] = "not given";
    snprintf(words, sizeof words, "--%s is %s on rank 0 and %s on rank %d" NEXT, spec->name, values[odd == 0],
             values[odd != 0], odd ? odd : 1);
    CHECK(why.code == EXIT_USAGE && strcmp(why.sentence, words) == 0, "%s --%s: \"%s\", not \"%s\"", table, spec->name,
          why.sentence, words);
    failure none = {0};
    compare(ctx, specs, which, values[0], is_local, &none);
    CHECK(!none.code || !spec->argument, "%s --%s is the same: %s", table, spec->name, none.sentence);
}

static void check_table(qdr_context *ctx, const char *name, const option_spec *specs, int is_local)
{
    int n = 0;
    for (; specs[n].name; n++)
        if (specs[n].kind != OPTION_HEADING && (specs[n].argument || specs[n].kind == OPTION_FLAG))
            check_option(ctx, name, specs, n, is_local);
    CHECK(n < MAX_OPTIONS, "%s has %d entries; %d are read", name, n, MAX_OPTIONS);
}

static int is_local_run; /* before there are ranks */

static void test_tables(qdr_context *ctx)
{
    if (qdr_context_size(ctx) == 1) return;
    check_table(ctx, "train", settings_specs, is_local_run);
    check_table(ctx, "transformer_layer", transformer_layer_table, is_local_run);
    for (int i = 0; i < N_COMMANDS; i++) {
        check_table(ctx, commands[i]->name, commands[i]->options, is_local_run);
        for (const command *const *part = commands[i]->parts; part && *part; part++)
            check_table(ctx, (*part)->name, (*part)->options, is_local_run);
    }
}

static int run_rank(qdr_context *ctx, void *user)
{
    (void)user;
    test_call(ctx);
    test_tables(ctx);
    return 0;
}

int main(int argc, char **argv)
{
    int code = 1;
    process_begin("test_settings");
    is_local_run = argc > 2 && strcmp(argv[1], "--local") == 0;
    const int n_local = is_local_run ? atoi(argv[2]) : 0;
    CHECK_OK(qdr_launch(n_local, NULL, run_rank, NULL, &code));
    return code;
}
