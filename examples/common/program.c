/* SPDX-License-Identifier: Apache-2.0 */
/* How an example program starts and how it leaves. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

typedef struct launch {
    const usage_text *usage;
    options_result parsed;
    char problem[PROBLEM_BYTES]; /* of the command line */
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

/* The library's sentence, or what the status means where a program found it by itself. */
static const char *why(qdr_status status) { return qdr_last_error()[0] ? qdr_last_error() : qdr_status_text(status); }

/* Help and complaints about the command line come from rank 0 alone: every rank has read the same line. */
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
    qdr_status status = start->fn(ctx, start->settings, sentence);
    if (status >= 0) status = qdr_barrier(ctx); /* rank 0 is to hear of who fails last of all */
    /* who waited too long may have waited for rank 0 */
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
    const int ranks = start.parsed == OPTIONS_OK ? (int)*n_local : 0;
    const qdr_context_opts opts = {QDR_OPTS_INIT, .n_threads = start.parsed == OPTIONS_OK ? (int)*n_threads : 1,
                                   .device = start.parsed != OPTIONS_OK || !usage->device ? "cpu" : *usage->device};
    int exit_code = LEAVE_FAILED;
    qdr_set_log(print_log, NULL);
    const qdr_status status = qdr_launch(ranks, &opts, run_rank, &start, &exit_code);
    if (status == QDR_ERR_ARGUMENT && ranks > 0) { /* in all processes of a launcher, perhaps */
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

int program_start(const usage_text *usage, int argc, char **argv, const int64_t *n_local, const int64_t *n_threads,
                  program_fn fn, const void *settings)
{
    struct rlimit limit;
    const int exit_code = run(usage, argc, argv, n_local, n_threads, fn, settings);
    /* Under a limit on address space (ulimit -v) OpenBLAS's own threads may wait for memory for ever, and exit() for
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
