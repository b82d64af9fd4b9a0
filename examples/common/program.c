/* SPDX-License-Identifier: Apache-2.0 */
/* How an example program starts and exits. */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define MAX_FILES 8 /* in one program's options */

typedef struct launch {
    const usage_text *usage;
    options_result parsed;
    char problem[PROBLEM_BYTES]; /* with the command line */
    program_fn fn;
    const void *settings;
} launch;

static int exit_code_of(qdr_status status)
{
    switch (status) {
    case QDR_ERR_ARGUMENT:
    case QDR_ERR_SHAPE:
    case QDR_ERR_DTYPE:
    case QDR_ERR_UNSUPPORTED: return LEAVE_BAD_INPUT;
    case QDR_ERR_MEMORY: return LEAVE_NOTHING_FITS;
    default: return status < 0 ? LEAVE_FAILED : LEAVE_OK;
    }
}

static void print_log(int level, const char *line, void *user)
{
    (void)user;
    fprintf(stderr, "%s%s\n", level == 1 ? "warning: " : "", line);
}

/* The library's message, or the meaning of the status if the program itself found the error. */
static const char *why(qdr_status status) { return qdr_last_error()[0] ? qdr_last_error() : qdr_status_text(status); }

/* A file named on the command line. */
typedef struct named_file {
    char option[64], path[PATH_BYTES];
} named_file;

/* The file named by a row of the table, and its use. 0: it names none. */
static int file_use(const option_row *row, named_file *file, qdr_file_use *use)
{
    const int names_file = row->kind == OPTION_INPUT || row->kind == OPTION_MACHINE || row->kind == OPTION_OUTPUT ||
                           row->kind == OPTION_LOG;
    const char *value = names_file ? *(const char **)row->value : NULL;
    if (!value) return 0;
    snprintf(file->option, sizeof file->option, "--%s", row->name);
    if (row->kind == OPTION_MACHINE && qdr_data_find("machines", value, file->path, PATH_BYTES) != QDR_OK) return 0;
    use->path = row->kind == OPTION_MACHINE ? file->path : value;
    use->option = file->option;
    use->access = row->kind == OPTION_OUTPUT ? QDR_FILE_WRITTEN
                  : row->kind == OPTION_LOG  ? QDR_FILE_LOG
                                             : QDR_FILE_READ;
    return 1;
}

/* Checks that no file of a run replaces another one. */
static qdr_status check_files(qdr_context *ctx, const usage_text *usage)
{
    qdr_file_use uses[MAX_FILES + 1];
    named_file files[MAX_FILES];
    int n = 0;
    for (int i = 0; i < usage->n_rows && n < MAX_FILES; i++) n += file_use(&usage->rows[i], &files[n], &uses[n]);
    if (usage->operand && *usage->operand) uses[n++] = (qdr_file_use){"the text", *usage->operand, QDR_FILE_READ};
    return qdr_files_check(uses, n, qdr_context_size(ctx));
}

/* Help, and messages about the command line, are printed by rank 0 only: every rank has read the same line. */
static int run_rank(qdr_context *ctx, void *user)
{
    const launch *start = user;
    const int talks = qdr_context_rank(ctx) == 0;
    if (start->parsed == OPTIONS_HELP) {
        if (talks) options_help(start->usage, stdout);
        return LEAVE_OK;
    }
    if (start->parsed == OPTIONS_BAD) {
        if (talks) fprintf(stderr, "%s: %s\n", start->usage->program, start->problem);
        return LEAVE_BAD_INPUT;
    }
    char sentence[PROBLEM_BYTES] = "";
    /* rank 0's result applies; in the other processes the check also stops their traces */
    const qdr_status checked = check_files(ctx, start->usage);
    qdr_status status = qdr_agree(ctx, talks ? checked : QDR_OK);
    if (status >= 0) status = start->fn(ctx, start->settings, sentence);
    if (status >= 0) status = qdr_barrier(ctx); /* so that rank 0 also learns of a rank that fails last */
    /* a rank that timed out may have waited for rank 0 */
    if (status < 0 && (talks || status == QDR_ERR_TIMEOUT))
        fprintf(stderr, "%s: %s\n", start->usage->program, sentence[0] ? sentence : why(status));
    return exit_code_of(status);
}

static int run(const usage_text *usage, int argc, char **argv, const int64_t *n_local, const int64_t *n_threads,
               program_fn fn, const void *settings)
{
    launch start = {.usage = usage, .fn = fn, .settings = settings};
    start.parsed = options_parse(usage, argc, argv, start.problem);
    if (start.parsed == OPTIONS_OK && usage->machine && *usage->machine)
        setenv("QDR_MACHINE", *usage->machine, 1); /* before there are threads; for QDR_REPORT */
    if (start.parsed != OPTIONS_OK) unsetenv("QDR_TRACE"); /* help and refused runs write nothing */
    const int ranks = start.parsed == OPTIONS_OK ? (int)*n_local : 0;
    const qdr_context_opts opts = {QDR_OPTS_INIT, .n_threads = start.parsed == OPTIONS_OK ? (int)*n_threads : 1,
                                   .device = start.parsed != OPTIONS_OK || !usage->device ? "cpu" : *usage->device};
    int exit_code = LEAVE_FAILED;
    qdr_set_log(print_log, NULL);
    const qdr_status status = qdr_launch(ranks, &opts, run_rank, &start, &exit_code);
    if (status == QDR_ERR_ARGUMENT && ranks > 0) { /* perhaps in all processes of a launcher */
        start.parsed = OPTIONS_BAD;
        snprintf(start.problem, sizeof start.problem, "%s", qdr_last_error());
        const qdr_context_opts on_cpu = {QDR_OPTS_INIT, .device = "cpu"};
        if (qdr_launch(0, &on_cpu, run_rank, &start, &exit_code) == QDR_OK) return exit_code;
    }
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", usage->program, qdr_last_error());
        return exit_code_of(status);
    }
    return exit_code;
}

static void take_no_notice(int number) { (void)number; }

/* A file at its size limit (ulimit -f) and a closed pipe are reported as write errors; by default their signals end the
 * process. A handler is used because programs started from here then have the default action again. */
static void keep_running(int number)
{
    struct sigaction old, handler = {.sa_handler = take_no_notice, .sa_flags = SA_RESTART};
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_DFL) (void)sigaction(number, &handler, NULL);
}

/* Opens standard streams that are closed, so that no file, pipe or socket takes their numbers. Reading from standard
 * input and writing to the others still fails. */
static void occupy_standard(void)
{
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++)
        if (fcntl(number, F_GETFD) < 0) (void)open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* Checks that everything printed was written. Where the first failure was inside a printf(), stdio has forgotten its
 * cause; another write fails for the same one. The text is incomplete already, so that an end of line does no harm if
 * it does not fail. */
static int end_output(const char *program, int exit_code)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return exit_code;
    int error = errno;
    if (!error && write(STDOUT_FILENO, "\n", 1) < 0) error = errno;
    fprintf(stderr, "%s: standard output cannot be written%s%s%s\n", program, error ? " (" : "",
            error ? strerror(error) : "", error ? ")" : "");
    return exit_code ? exit_code : LEAVE_FAILED;
}

int program_start(const usage_text *usage, int argc, char **argv, const int64_t *n_local, const int64_t *n_threads,
                  program_fn fn, const void *settings)
{
    struct rlimit limit;
    occupy_standard();
    keep_running(SIGPIPE);
    keep_running(SIGXFSZ);
    const int exit_code = end_output(usage->program, run(usage, argc, argv, n_local, n_threads, fn, settings));
    /* With a limit on address space (ulimit -v), OpenBLAS's own threads may wait for memory forever, and exit() for
     * them. */
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        fflush(NULL);
        _Exit(exit_code);
    }
    return exit_code;
}

void *program_new(qdr_context *ctx, int64_t n_items, size_t item_bytes)
{
    void *items = calloc((size_t)n_items, item_bytes);
    if (qdr_agree(ctx, items ? QDR_OK : QDR_ERR_MEMORY) >= 0) return items;
    free(items);
    return NULL;
}

qdr_status program_make_grid(qdr_context *ctx, const grid_shape *shape, const char *order, char sentence[PROBLEM_BYTES],
                             qdr_grid **grid)
{
    const int p = qdr_context_size(ctx);
    qdr_grid_opts opts = {QDR_OPTS_INIT, .x = 1, .y = 1, .z = 1, .d = p, .order = order};
    if (shape->x > 0) {
        const int64_t wanted = (int64_t)shape->x * shape->y * shape->z * shape->d;
        if (wanted != p) {
            snprintf(sentence, PROBLEM_BYTES,
                     "grid %dx%dx%dx%d has %lld ranks, but %d %s started; add --local %lld, or "
                     "start with mpiexec.mpich -n %lld",
                     shape->x, shape->y, shape->z, shape->d, (long long)wanted, p, p == 1 ? "was" : "were",
                     (long long)wanted, (long long)wanted);
            return QDR_ERR_ARGUMENT;
        }
        opts.x = shape->x, opts.y = shape->y, opts.z = shape->z, opts.d = shape->d;
    }
    return qdr_grid_create(ctx, &opts, grid);
}
