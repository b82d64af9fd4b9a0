/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and prints option tables. */
#include "common/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <quadrille/environment.h>
#include <quadrille/types.h>
#include <quadrille_private/names.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_SUGGESTED = 3, MAX_OPERANDS = 2 };
#define TIMEOUT_VARIABLE "QDR_TIMEOUT"
#define FIRST_CODE 1000 /* getopt's codes for long options: larger than any character */

const option_spec json_option[] = {{"json", 0, NULL, "print one JSON object", .kind = OPTION_FLAG}, OPTIONS_END};

/* ---- values ---- */

static char option_typed[48]; /* the option whose value is read: "-n" or "--ranks" */

static int take_whole(const option_spec *spec, const char *value, int64_t *number, failure *why)
{
    char *end;
    errno = 0;
    *number = strtoll(value, &end, 10);
    if (end != value && !*end && !errno && (double)*number >= spec->min && (double)*number <= spec->max) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s '%s': a whole number from %.0f to %.0f is needed", option_typed, value, spec->min,
                spec->max);
}

static int take_real(const option_spec *spec, const char *value, double *number, failure *why)
{
    char *end;
    *number = strtod(value, &end);
    if (end != value && !*end && *number >= spec->min && *number <= spec->max) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s '%s': a number from %.15g to %.15g is needed", option_typed, value, spec->min,
                spec->max);
}

static int take_bytes(const option_spec *spec, const char *value, int64_t *bytes, failure *why)
{
    static const char letters[] = "KMG";
    char *end;
    errno = 0;
    const int64_t number = strtoll(value, &end, 10), max = (int64_t)spec->max;
    const char *letter = *end ? strchr(letters, *end) : NULL;
    const int shift = letter ? 10 * (int)(letter - letters + 1) : 0;
    if (end == value || errno || (*end && (!letter || end[1])) || number < 1 || number > max >> shift)
        return fail(why, EXIT_USAGE, "%s '%s': a number of bytes from 1 to %lldG is needed, such as 8, 64K or 16M",
                    option_typed, value, (long long)(max >> 30));
    *bytes = number << shift;
    return EXIT_OK;
}

static int take_choice(const option_spec *spec, const char *value, int *chosen, failure *why)
{
    char text[160] = "";
    const char *word = (spec->words ? spec->words : spec->argument);
    for (int i = 0;; i++) {
        const size_t length = strcspn(word, "|"), used = strlen(text);
        *chosen = i;
        if (strlen(value) == length && strncmp(value, word, length) == 0) return EXIT_OK;
        const int is_last = !word[length];
        snprintf(text + used, sizeof text - used, "%s%.*s", !i ? "" : is_last ? " or " : ", ", (int)length, word);
        if (is_last) return fail(why, EXIT_USAGE, "%s '%s': use %s", option_typed, value, text);
        word += length + 1;
    }
}

static int take_dtype(const option_spec *spec, const char *value, qdr_dtype *dtype, failure *why)
{
    int chosen, type = 0;
    if (take_choice(spec, value, &chosen, why)) return why->code;
    while (strcmp(value, qdr_dtype_name((qdr_dtype)type)) != 0) type++;
    *dtype = (qdr_dtype)type;
    return EXIT_OK;
}

static int take_grid(const option_spec *spec, const char *value, grid_size *size, failure *why)
{
    *size = (grid_size){-1, 0, 0, 0};
    if (spec->words && strcmp(value, spec->words) == 0) return EXIT_OK;
    if (grid_read(value, value + strlen(value), (int64_t)spec->max, size)) return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "%s '%s': a grid is GXxGYxGZxGD, four numbers from 1 whose product is at most %lld, such as "
                "2x2x1x1%s%s",
                option_typed, value, (long long)spec->max, spec->words ? ", or " : "", spec->words ? spec->words : "");
}

static int take_text(const option_spec *spec, const char *value, const char **text, failure *why)
{
    *text = value;
    return *value ? EXIT_OK : fail(why, EXIT_USAGE, "%s: its %s is empty", option_typed, spec->argument);
}

static int take_order(const char *value, const char **order, failure *why)
{
    int is_permutation = strlen(value) == 4;
    for (const char *axis = "xyzd"; *axis; axis++) is_permutation &= strchr(value, *axis) != NULL;
    *order = value;
    if (is_permutation) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s '%s': must be a permutation of xyzd, fastest axis first", option_typed, value);
}

static int take_timeout(const option_spec *spec, const char *value, failure *why)
{
    double secs;
    char text[32];
    if (take_real(spec, value, &secs, why)) return why->code;
    snprintf(text, sizeof text, "%.17g", fabs(secs)); /* "-0" is 0 */
    setenv(TIMEOUT_VARIABLE, text, 1); /* there are no threads yet */
    return EXIT_OK;
}

/* Before the options are read, which take precedence. */
static void limit_waiting(const option_spec *specs)
{
    qdr_variable variable = {QDR_INIT(qdr_variable)};
    int number = 0;
    while (qdr_environment_variable(number, &variable) == QDR_OK && strcmp(variable.name, TIMEOUT_VARIABLE) != 0)
        number++;
    for (; specs->name; specs++)
        if (specs->kind == OPTION_TIMEOUT && !variable.is_set) setenv(TIMEOUT_VARIABLE, "600", 1);
}

/* A name without a suffix, or with one that says nothing, is taken. */
static int check_picture(const char *path, failure *why)
{
    static const char *const others[] = {".png", ".jpg",  ".jpeg", ".gif",  ".pdf", ".eps",
                                         ".ps",  ".webp", ".tif",  ".tiff", ".bmp"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof others / sizeof *others; i++)
        if (strcasecmp(dot, others[i]) == 0)
            return fail(why, EXIT_USAGE, "%s '%s': the picture is SVG; give a name that ends in .svg, and convert it",
                        option_typed, path);
    return EXIT_OK;
}

static int take_value(const option_spec *spec, const char *value, void *user, failure *why)
{
    void *to = (char *)user + spec->at;
    int64_t whole;
    switch (spec->kind) {
    case OPTION_VALUE: *(int *)to = (int)spec->min; break;
    case OPTION_INT:
        if (take_whole(spec, value, &whole, why)) return why->code;
        *(int *)to = (int)whole;
        break;
    case OPTION_COUNT: return take_whole(spec, value, to, why);
    case OPTION_REAL: return take_real(spec, value, to, why);
    case OPTION_BYTES: return take_bytes(spec, value, to, why);
    case OPTION_CHOICE: return take_choice(spec, value, to, why);
    case OPTION_DTYPE: return take_dtype(spec, value, to, why);
    case OPTION_GRID: return take_grid(spec, value, to, why);
    case OPTION_ORDER: return take_order(value, to, why);
    case OPTION_TIMEOUT: return take_timeout(spec, value, why);
    case OPTION_OTHER: return spec->take(value, to, why);
    case OPTION_FLAG: *(int *)to = 1; break;
    case OPTION_HELP:
    case OPTION_HEADING: break;
    default:
        if (spec->kind == OPTION_PICTURE && check_picture(value, why)) return why->code;
        return take_text(spec, value, to, why);
    }
    return EXIT_OK;
}

/* ---- reading ---- */

static const char is_given[] = "given"; /* an option without a value */

void suggest(const char *typed, const char *const names[], int n_names, char *text, size_t bytes)
{
    char nearest[112];
    *text = '\0';
    if (qdr_names_nearest(typed, names, n_names, MAX_SUGGESTED, nearest, sizeof nearest))
        snprintf(text, bytes, " (did you mean %s?)", nearest);
}

/* Fails with "COMMAND: what 'text'...; see PROGRAM COMMAND --help"; a program without commands is not named twice. */
static int refuse(const char *command, const char *what, const char *text, const char *more, failure *why)
{
    const int is_program = strcmp(command, program_name) == 0;
    return fail(why, EXIT_USAGE, "%s%s%s '%s'%s; see %s%s%s --help", is_program ? "" : command, is_program ? "" : ": ",
                what, text, more, program_name, is_program ? "" : " ", is_program ? "" : command);
}

/* Reports what getopt rejected: a missing argument, an unexpected argument, or an unknown option. */
static int refuse_option(char **argv, int code, const option_spec *specs, failure *why)
{
    char meant[SUGGESTION_BYTES];
    const char *text = argv[optind - 1];
    if (code == ':') return refuse(argv[0], "option", text, " needs a value", why);
    if (optopt >= FIRST_CODE) {
        snprintf(meant, sizeof meant, "--%s", specs[optopt - FIRST_CODE].name);
        return refuse(argv[0], "option", meant, " takes no value", why);
    }
    if (optopt) return refuse(argv[0], "unknown option", (char[]){'-', (char)optopt, '\0'}, "", why);
    /* Suggests the long options closest to `typed`, which may include "=VALUE". */
    enum { NAME_BYTES = 40 };
    char dashed[MAX_OPTIONS][NAME_BYTES], word[NAME_BYTES];
    const char *names[MAX_OPTIONS];
    int n = 0;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(text, "="), text);
    for (; specs->name && n < MAX_OPTIONS; specs++) {
        if (specs->kind == OPTION_HEADING) continue;
        snprintf(dashed[n], NAME_BYTES, "--%s", specs->name);
        names[n] = dashed[n];
        n++;
    }
    suggest(word, names, n, meant, (sizeof meant));
    return refuse(argv[0], "unknown or ambiguous option", text, meant, why);
}

int options_want_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return 1;
    return 0;
}

/* What this process's command line has given. */
static struct {
    const char *command;
    const option_spec *specs;
    const char *values[MAX_OPTIONS]; /* NULL: not given */
    const char *operands[MAX_OPERANDS];
    int n_operands;
    int is_whole; /* read to its end */
} line;

int options_read(int argc, char **argv, const option_spec *specs, void *user, const char **operand, failure *why)
{
    return options_read_operands(argc, argv, specs, user, operand, operand != NULL, why);
}

int options_read_operands(int argc, char **argv, const option_spec *specs, void *user, const char **operands,
                          int n_operands, failure *why)
{
    struct option options[MAX_OPTIONS + 1] = {{0}};
    char letters[2 * MAX_OPTIONS + 2] = ":";
    size_t n_options = 0, n_letters = 1;
    for (int i = 0; specs[i].name && i < MAX_OPTIONS; i++) {
        if (specs[i].kind == OPTION_HEADING) continue;
        const int has_argument = specs[i].argument ? required_argument : no_argument;
        options[n_options++] = (struct option){specs[i].name, has_argument, NULL, FIRST_CODE + i};
        if (!specs[i].letter) continue;
        letters[n_letters++] = specs[i].letter;
        if (specs[i].argument) letters[n_letters++] = ':';
    }
    memset(&line, 0, sizeof line);
    line.command = argv[0];
    line.specs = specs;
    limit_waiting(specs);
    opterr = 0;
    optind = 1;
    for (;;) {
        const int code = getopt_long(argc, argv, letters, options, NULL);
        if (code == -1) break;
        if (code == '?' || code == ':') return refuse_option(argv, code, specs, why);
        const option_spec *spec = code >= FIRST_CODE ? &specs[code - FIRST_CODE] : specs;
        while (code < FIRST_CODE && spec->letter != code) spec++;
        const char *text = optarg ? optarg : is_given;
        if (code >= FIRST_CODE)
            snprintf(option_typed, sizeof option_typed, "--%s", spec->name);
        else
            snprintf(option_typed, sizeof option_typed, "-%c", code);
        line.values[spec - specs] = text;
        if (take_value(spec, text, user, why)) return why->code;
    }
    line.n_operands = n_operands < MAX_OPERANDS ? n_operands : MAX_OPERANDS;
    for (int i = 0; i < n_operands && optind < argc; i++) operands[i] = argv[optind++];
    for (int i = 0; i < line.n_operands; i++) line.operands[i] = operands[i];
    line.is_whole = optind == argc;
    return line.is_whole ? EXIT_OK : refuse(argv[0], "unexpected argument", argv[optind], "", why);
}

int options_settings(const option_spec *specs, const char *const values[], option_name names[], qdr_setting settings[])
{
    int n = 0;
    for (int i = 0; specs[i].name && i < MAX_OPTIONS; i++) {
        if (specs[i].kind == OPTION_HEADING || specs[i].may_differ) continue;
        snprintf(names[n].text, sizeof names[n].text, "--%s", specs[i].name);
        settings[n] = (qdr_setting){names[n].text, values[i]};
        n++;
    }
    return n;
}

static int compare(qdr_context *ctx, failure *why)
{
    option_name names[MAX_OPTIONS];
    qdr_setting settings[1 + MAX_OPTIONS + MAX_OPERANDS] = {{"the command", line.command}};
    int n = 1;
    if (line.specs) n += options_settings(line.specs, line.values, names, settings + n);
    for (int i = 0; i < line.n_operands; i++)
        settings[n++] = (qdr_setting){i ? "the second argument" : "the argument", line.operands[i]};
    failure different = {0};
    if (!fail_status(&different, qdr_settings_compare(ctx, settings, n))) return EXIT_OK;
    different.is_shared = different.code == EXIT_USAGE;
    *why = different;
    return why->code;
}

int options_agree(qdr_context *ctx, failure *why)
{
    failure unread = {0};
    if (!line.is_whole) unread = *why; /* what was not read cannot be compared */
    if (fail_together(&unread, ctx)) {
        *why = unread;
        return why->code;
    }
    return compare(ctx, why) ? why->code : fail_together(why, ctx);
}

/* Characters of UTF-8. */
static int columns(const char *text, size_t n_bytes)
{
    int n = 0;
    for (size_t i = 0; i < n_bytes; i++) n += (text[i] & 0xc0) != 0x80;
    return n;
}

/* Broken at blanks; `column` is that of the first word. */
static void print_help(const char *text, int column)
{
    enum { FIRST_COLUMN = 33, LAST_COLUMN = 100 };
    for (int is_first = 1; *text; is_first = 0) {
        const size_t n_bytes = strcspn(text, " ");
        const int width = columns(text, n_bytes), is_full = !is_first && column + 1 + width > LAST_COLUMN;
        if (is_full) {
            printf("\n%*s", FIRST_COLUMN, "");
            column = FIRST_COLUMN;
        } else if (!is_first) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)n_bytes, text);
        column += width;
        text += n_bytes;
        text += strspn(text, " ");
    }
    putchar('\n');
}

void options_print(const option_spec *specs)
{
    if (specs->kind != OPTION_HEADING) puts("\nOptions:");
    for (; specs->name; specs++) {
        char left[64], letter[8] = "    ";
        if (specs->kind == OPTION_HEADING) {
            printf("\n%s:\n", specs->name);
            continue;
        }
        if (specs->letter) snprintf(letter, sizeof letter, "-%c, ", specs->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, specs->name, specs->argument ? " " : "",
                 specs->argument ? specs->argument : "");
        print_help(specs->help, printf("  %-30s ", left));
    }
}

const char *layout_word(qdr_layout layout) { return layout == QDR_SCATTERED ? "scattered" : "replicated"; }

int take_recompute(const char *value, void *recompute, failure *why)
{
    static const qdr_recompute planned[] = {QDR_RECOMPUTE_NONE, QDR_RECOMPUTE_OPERATIONS, QDR_RECOMPUTE_FULL};
    for (size_t i = 0; i < sizeof planned / sizeof *planned; i++) {
        if (strcmp(value, recompute_word(planned[i])) != 0) continue;
        *(int *)recompute = (int)planned[i];
        return EXIT_OK;
    }
    return fail(why, EXIT_USAGE, "%s '%s': use none, operations or full", option_typed, value);
}

const char *recompute_word(qdr_recompute recompute)
{
    static const char *const words[] = {"none", "attention", "full", "operations", "layers"};
    return words[recompute];
}

/* ---- grids ---- */

int grid_ranks(grid_size size) { return size.x * size.y * size.z * size.d; }

int grid_read(const char *text, const char *end, int64_t most, grid_size *size)
{
    int axes[4];
    int64_t n_ranks = 1;
    for (int i = 0; i < 4; i++) {
        char *stop;
        errno = 0;
        const long long number = *text >= '0' && *text <= '9' ? strtoll(text, &stop, 10) : -1;
        if (number < 1 || number > most || errno || (n_ranks *= number) > most) return 0;
        if (i < 3 ? stop >= end || *stop != 'x' : stop != end) return 0;
        axes[i] = (int)number;
        text = stop + 1;
    }
    *size = (grid_size){axes[0], axes[1], axes[2], axes[3]};
    return 1;
}

grid_text grid_words(grid_size size)
{
    grid_text words;
    snprintf(words.text, sizeof words.text, "%dx%dx%dx%d", size.x, size.y, size.z, size.d);
    return words;
}

qdr_status grid_make(qdr_context *ctx, grid_size size, const char *order, qdr_grid **grid)
{
    const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = size.x, .y = size.y, .z = size.z, .d = size.d,
                                .order = order};
    return qdr_grid_create(ctx, &opts, grid);
}

int grid_check_ranks(const char *command, grid_size size, int n_ranks, failure *why)
{
    const int n_needed = grid_ranks(size);
    if (n_ranks == n_needed) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s%sgrid %s has %d ranks, but %d %s started: use mpiexec -n %d, or --local %d",
                command, *command ? ": " : "", grid_words(size).text, n_needed, n_ranks, n_ranks == 1 ? "was" : "were",
                n_needed, n_needed);
}
