/* SPDX-License-Identifier: Apache-2.0 */
/* qdr_launch() under mpiexec.
 *
 *   fault_launch WORD N_THREADS    the settings of some rank are invalid: all ranks fail with a sentence about WORD
 *   fault_launch codes             main functions return what is no exit code */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quadrille/quadrille.h"

static int return_no_code(qdr_context *ctx, void *user)
{
    (void)user;
    return qdr_context_rank(ctx) == 0 ? 256 : -1;
}

static int expect_code_1(void)
{
    int code = 0;
    const qdr_status status = qdr_launch(0, NULL, return_no_code, NULL, &code);
    if (status == QDR_OK && code == 1) return 0;
    fprintf(stderr, "got %s and exit code %d, not 1\n", qdr_status_name(status), code);
    return 1;
}

static int run_anyway(qdr_context *ctx, void *user)
{
    (void)user;
    fprintf(stderr, "rank %d runs\n", qdr_context_rank(ctx));
    return 0;
}

static int expect_failure(const char *word, int n_threads)
{
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = n_threads};
    int code = 0;
    const qdr_status status = qdr_launch(0, &opts, run_anyway, NULL, &code);
    if (status == QDR_ERR_ARGUMENT && strstr(qdr_last_error(), word) && code == 1) return 0;
    fprintf(stderr, "got %s and exit code %d: \"%s\"\n", qdr_status_name(status), code, qdr_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "codes") == 0) return expect_code_1();
    return argc == 3 ? expect_failure(argv[1], atoi(argv[2])) : 2;
}
