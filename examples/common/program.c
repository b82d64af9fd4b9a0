/* SPDX-License-Identifier: Apache-2.0 */
/* How an example program starts and exits. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>

#include "choice.h"
#include "src/common/process.h"
#include "src/common/ranks.h"

typedef struct launch {
    const program *about;
    const choice *given;
} launch;

static int code_of(qdr_status status) { return status == QDR_ERR_UNSUPPORTED ? EXIT_USAGE : exit_code_of(status); }

static int print_help(qdr_context *ctx, void *user)
{
    const program *about = user;
    failure why = {0};
    if (options_agree(ctx, &why)) return fail_print_rank(&why, ctx);
    if (qdr_context_rank(ctx) != 0) return EXIT_OK;
    printf("usage: %s\n\n%s\n", about->usage, about->text);
    options_print(about->options);
    printf("\nexamples:\n%s\nexit codes: 0 ok, 1 failed, 2 usage or bad input, 3 nothing fits\n", about->examples);
    return EXIT_OK;
}

/* The library's sentence, or what can be said of the status alone. */
static const char *sentence_of(qdr_status status)
{
    if (*qdr_last_error()) return qdr_last_error();
    return status == QDR_ERR_MEMORY ? "out of memory; use fewer ranks per node or smaller sizes"
                                    : qdr_status_text(status);
}

static int run_rank(qdr_context *ctx, void *user)
{
    const launch *start = user;
    const int rank = qdr_context_rank(ctx), talks = rank == 0;
    char sentence[PROBLEM_BYTES] = "";
    failure why = {0};
    if (options_agree(ctx, &why)) return fail_print_rank(&why, ctx);
    qdr_status status = start->about->run(ctx, start->given, sentence);
    if (status >= 0) status = qdr_barrier(ctx); /* so that rank 0 also learns of a rank that fails last */
    /* a rank that timed out may have waited for rank 0 */
    const int is_late = status == QDR_ERR_TIMEOUT;
    if (status < 0 && (talks || is_late || fail_is_own(status)))
        fail_say(is_late ? 0 : rank, *sentence ? sentence : sentence_of(status));
    return code_of(status);
}

static int run(const program *about, int argc, char **argv, choice *given)
{
    launch start = {about, given};
    failure why = {0};
    int code = EXIT_FAILED;
    const int is_unread = options_read(argc, argv, about->options, given, about->operand, &why);
    if (options_want_help(argc, argv)) {
        why = (failure){0};
        const qdr_context_opts on_cpu = {QDR_INIT(qdr_context_opts), .device = "cpu"};
        unsetenv("QDR_TRACE"); /* help writes nothing */
        const qdr_status status = qdr_launch(0, &on_cpu, print_help, (void *)about, &code);
        return fail_status(&why, status) ? fail_print(&why) : code;
    }
    if (is_unread) return fail_print_once(&why);
    if (about->begin) about->begin(given);
    if (given->machine) setenv("QDR_MACHINE", given->machine, 1); /* before there are threads; for QDR_REPORT */
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = (int)given->n_threads,
                                   .device = given->device};
    const qdr_status status = qdr_launch((int)given->n_local, &opts, run_rank, &start, &code);
    if (status >= 0) return code;
    fail(&why, code_of(status), "%s", qdr_last_error());
    /* perhaps in all processes of a launcher */
    return status == QDR_ERR_ARGUMENT && given->n_local > 0 ? fail_print_once(&why) : fail_print(&why);
}

int program_start(const program *about, int argc, char **argv, choice *given)
{
    char name[64];
    snprintf(name, sizeof name, "%s", about->name);
    argv[0] = name;
    process_begin(about->name);
    return process_end(run(about, argc, argv, given));
}

void *program_new(qdr_context *ctx, int64_t n_items, size_t item_bytes)
{
    void *items = calloc((size_t)n_items, item_bytes);
    if (qdr_agree(ctx, items ? QDR_OK : QDR_ERR_MEMORY) >= 0) return items;
    free(items);
    return NULL;
}

qdr_status program_any(qdr_context *ctx, int mine, int *any)
{
    /* Any error would do; nobody passes another one here. */
    const qdr_status status = qdr_agree(ctx, mine ? QDR_ERR_STATE : QDR_OK);
    *any = status == QDR_ERR_STATE;
    return *any ? QDR_OK : status;
}
