/* SPDX-License-Identifier: Apache-2.0 */
/* QDR_TRACE=FILE: each rank of a context writes what its schedules did to FILE.RANK, when the context is destroyed. A
 * trace that cannot be written is reported in the log, and is not an error. */
#include <quadrille_private/output.h>
#include <string.h>
#include <time.h>

#include "context/context.h"
#include "core/environment.h"
#include "core/log.h"
#include "schedule/trace.h"

static void look_up(qdri_tracing *tracing)
{
    const char *path = qdri_environment_text(QDRI_VARIABLE_TRACE);
    if (!path) return;
    if (strlen(path) < sizeof tracing->path) {
        /* The time is unique enough: no other program writes the same files at the same nanosecond. */
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        tracing->id = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
        strcpy(tracing->path, path); /* NOLINT: its length is checked */
    } else {
        qdri_log(QDRI_LOG_WARNING,
                 "trace: nothing is traced because QDR_TRACE has %zu characters; name a file with fewer than %zu",
                 strlen(path), sizeof tracing->path);
    }
}

/* Called by all ranks, including those without memory for a trace. */
static void note_clock(qdr_context *ctx, int leaving)
{
    qdri_clock_offset clock;
    const qdr_status status = qdri_comm_compare_clocks(ctx->world, leaving, &clock);
    if (status == QDR_OK && ctx->tracing.trace) qdri_trace_add_clock(ctx->tracing.trace, &clock);
}

void qdri_context_trace_begin(qdr_context *ctx)
{
    qdri_tracing *tracing = &ctx->tracing;
    /* A launcher may not pass its environment to ranks on other nodes. */
    if (qdri_comm_rank(ctx->world) == 0) look_up(tracing);
    if (qdri_comm_broadcast(ctx->world, 0, &tracing->id, sizeof tracing->id) != QDR_OK) tracing->id = 0;
    if (tracing->id && qdri_comm_broadcast(ctx->world, 0, tracing->path, sizeof tracing->path) != QDR_OK)
        tracing->id = 0;
    if (!tracing->id) return;
    const qdr_status status = qdri_trace_create(qdri_comm_rank(ctx->world), qdri_comm_size(ctx->world), tracing->id,
                                                &tracing->trace);
    if (status != QDR_OK) qdri_log(QDRI_LOG_WARNING, "trace: out of memory; nothing is traced");
    note_clock(ctx, 0);
}

/* Of regular files, only an older trace, or an empty file, is replaced: the name may be that of any file. */
static int may_replace(const char *name)
{
    static const char start[] = {'{', '"', 't', 'r', 'a', 'c', 'e', 'E', 'v', 'e', 'n', 't', 's', '"'};
    char found[sizeof start];
    if (!qdr_output_replaces(name)) return 1;
    FILE *file = fopen(name, "r");
    const size_t n = file ? fread(found, 1, sizeof found, file) : 0;
    const int is_empty = file && n == 0 && !ferror(file);
    if (file) (void)fclose(file);
    return is_empty || (n == sizeof found && memcmp(found, start, sizeof found) == 0);
}

static void write_file(const qdr_context *ctx)
{
    char name[sizeof ctx->tracing.path + 16];
    snprintf(name, sizeof name, "%s.%d", ctx->tracing.path, qdri_comm_rank(ctx->world));
    if (!may_replace(name)) {
        qdri_log(QDRI_LOG_WARNING,
                 "trace: %.300s exists and is not a trace; not overwritten: set QDR_TRACE to another name", name);
        return;
    }
    qdr_output *output;
    if (qdr_output_open("QDR_TRACE", name, QDR_OUTPUT_REPLACE, &output) == QDR_OK) {
        (void)qdri_trace_write(ctx->tracing.trace, qdr_output_file(output)); /* the commit reports errors */
        if (qdr_output_commit(&output) == QDR_OK) return;
    }
    qdri_log(QDRI_LOG_WARNING, "trace: %s", qdr_last_error());
}

void qdri_context_trace_end(qdr_context *ctx)
{
    qdri_kept_error kept;
    if (!ctx->tracing.id) return;
    qdri_keep_last_error(&kept);
    note_clock(ctx, 1);
    if (ctx->tracing.trace) write_file(ctx);
    qdri_restore_last_error(&kept); /* the caller may still need it */
    qdri_trace_free(&ctx->tracing.trace);
}

struct qdri_trace *qdri_context_trace(const qdr_context *ctx) { return ctx->tracing.trace; }
