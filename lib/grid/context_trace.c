/* SPDX-License-Identifier: Apache-2.0 */
/* QDR_TRACE=FILE: each rank of a context writes what its schedules did to FILE.RANK, when the
 * context is destroyed. A trace that cannot be kept is said in the log, and fails nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/trace.h"
#include "grid/context.h"

static const char *path_asked_for(void)
{
    const char *path = getenv("QDR_TRACE");
    return path && *path ? path : NULL;
}

void qdri_context_trace_begin(qdr_context *ctx)
{
    if (!path_asked_for()) return;
    const qdr_status status = qdri_trace_create(qdri_comm_rank(ctx->world),
                                                qdri_comm_size(ctx->world), &ctx->trace);
    if (status != QDR_OK) qdri_log(QDRI_LOG_WARNING, "trace: no memory; nothing is traced");
}

static void write_file(const qdr_context *ctx, const char *path)
{
    char name[4096];
    const int length = snprintf(name, sizeof name, "%s.%d", path, qdri_comm_rank(ctx->world));
    FILE *file = length < (int)sizeof name ? fopen(name, "w") : NULL;
    int good = file && qdri_trace_write(ctx->trace, file);
    const int error = errno;
    if (file && fclose(file) != 0) good = 0;
    if (!good)
        qdri_log(QDRI_LOG_WARNING,
                 "trace: %.300s could not be written (%s); set QDR_TRACE to a file in a folder "
                 "that exists and has room",
                 name, strerror(error));
}

void qdri_context_trace_end(qdr_context *ctx)
{
    const char *path = path_asked_for();
    if (ctx->trace && path) write_file(ctx, path);
    qdri_trace_free(&ctx->trace);
}

struct qdri_trace *qdri_context_trace(const qdr_context *ctx) { return ctx->trace; }
