/* SPDX-License-Identifier: Apache-2.0 */
/* QDR_CHECK=1: ranks compare each collective before it runs. QDR_TIMEOUT=SECONDS: a rank that waits
 * longer for others gives up. Rank 0's environment holds for all ranks, since launchers do not
 * always pass it on; a wrong value anywhere is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grid/context.h"

#define MOST_SECS 1e6

static qdr_status read_check(const char *text, int *check)
{
    *check = text && strcmp(text, "1") == 0;
    if (!text || !*text || *check || strcmp(text, "0") == 0) return QDR_OK;
    return QDR_FAIL(
        QDR_ERR_ARGUMENT,
        "context: QDR_CHECK is \"%.40s\"; use 1 to compare the calls of all ranks, or 0", text);
}

static qdr_status read_timeout(const char *text, double *secs)
{
    char *end = NULL;
    *secs = text && *text ? strtod(text, &end) : 0;
    if (!end || (end != text && !*end && *secs >= 0 && *secs <= MOST_SECS)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "context: QDR_TIMEOUT is \"%.40s\"; use seconds, up to %.0f, or 0 for no limit",
                    text, MOST_SECS);
}

qdr_status qdri_watch_opts_read(qdri_watch_opts *opts)
{
    QDR_TRY(read_check(getenv("QDR_CHECK"), &opts->check));
    return read_timeout(getenv("QDR_TIMEOUT"), &opts->timeout_secs);
}

static void describe_rank(const void *user, int member, char *text, size_t capacity)
{
    (void)user;
    snprintf(text, capacity, "rank %d", member);
}

qdr_status qdri_context_watch_begin(qdr_context *ctx)
{
    qdri_watch_opts opts = ctx->watch;
    qdri_comm_set_names(ctx->world, "world", describe_rank, NULL);
    QDR_TRY(qdri_comm_broadcast(ctx->world, 0, &opts, sizeof opts));
    if (opts.check) QDR_TRY(qdri_comm_check(&ctx->world));
    qdri_comm_set_names(ctx->world, "world", describe_rank, NULL);
    qdri_comm_set_timeout(ctx->world, opts.timeout_secs);
    return QDR_OK;
}
