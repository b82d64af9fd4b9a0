/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ranks.h"

#include <quadrille/cuda.h>
#include <stdlib.h>

#include "common/options.h"

static int print_on_root(qdr_context *ctx, void *user)
{
    failure *why = user;
    options_agree(ctx, why);
    fail_print_rank(why, ctx);
    return EXIT_OK; /* so that the launcher does not report this rank */
}

int fail_print_once(failure *why)
{
    int code;
    const qdr_context_opts on_cpu = {QDR_INIT(qdr_context_opts), .device = "cpu"};
    unsetenv("QDR_TRACE"); /* a refused run writes nothing */
    if (qdr_launch(0, &on_cpu, print_on_root, why, &code) != QDR_OK) return fail_print(why);
    return why->code;
}

int is_on_gpu(const qdr_context *ctx) { return qdr_context_gpu(ctx) >= 0; }

typedef struct start {
    qdr_main_fn run;
    void *user;
} start;

static int run_rank(qdr_context *ctx, void *user)
{
    const start *wanted = user;
    failure why = {0};
    return options_agree(ctx, &why) ? fail_print_rank(&why, ctx) : wanted->run(ctx, wanted->user);
}

int run_on_ranks(int64_t n_local, int64_t n_threads, const char *device, qdr_main_fn run, void *user)
{
    failure why = {0};
    int code = EXIT_FAILED;
    start wanted = {run, user};
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = (int)n_threads, .device = device};
    fail_say_anew();
    const qdr_status status = qdr_launch((int)n_local, &opts, run_rank, &wanted, &code);
    if (status == QDR_ERR_UNSUPPORTED) fail(&why, EXIT_USAGE, "%s", qdr_last_error()); /* a GPU that is not there */
    if (!fail_status(&why, status)) return code;
    return why.code == EXIT_USAGE ? fail_print_once(&why) : fail_print(&why);
}
