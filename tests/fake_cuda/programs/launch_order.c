/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL keeps the order of launches from its first communicator on, which a rank that is alone does not need; and the
 * library says when that may be too late, because the program had loaded NCCL before.
 *
 *   launch_order [NCCL]    the file of an NCCL that the program loads first */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quadrille/quadrille.h"

enum { RANKS = 2 };

static char lines[4096];

static void hear(int level, const char *line, void *user)
{
    const size_t length = strlen(lines);
    (void)level;
    (void)user;
    snprintf(lines + length, sizeof lines - length, "%s\n", line);
}

static int is_kept(void)
{
    const char *value = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    return value && strcmp(value, "1") == 0;
}

static int run_rank(qdr_context *ctx, void *user)
{
    int *is_early = user;
    if (qdr_context_size(ctx) == 1) *is_early = is_kept();
    return qdr_barrier(ctx) != QDR_OK;
}

int main(int argc, char **argv)
{
    int exit_code = 1, is_early = 1;
    void *nccl = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (argc > 1 && !nccl) return 2;
    qdr_set_log(hear, NULL);
    qdr_status status = qdr_launch(1, NULL, run_rank, &is_early, &exit_code);
    if (status == QDR_OK && exit_code == 0) status = qdr_launch(RANKS, NULL, run_rank, NULL, &exit_code);
    const int is_warned = strstr(lines, "had loaded NCCL before") != NULL;
    const int has_names = strstr(lines, "NCCL_LAUNCH_ORDER_IMPLICIT=1") && strstr(lines, "NCCL_LAUNCH_RACE_FATAL=0");
    if (status == QDR_OK && exit_code == 0 && !is_early && is_kept() && has_names && is_warned == (nccl != NULL))
        return 0;
    fprintf(stderr, "order kept %s, %s; %s\n", is_early ? "early" : "not early", is_kept() ? "then kept" : "never",
            *lines ? lines : "nothing was said");
    return 1;
}
