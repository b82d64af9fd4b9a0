/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded steps. */
#include "quadrille/graph.h"

#include <stdlib.h>

#include "context/context.h"
#include "context/internal.h"
#include "core/size.h"

struct qdr_graph {
    qdr_context *ctx;
    void *record; /* the device's */
    qdri_life **needs; /* grids, stacks and optimizers whose work was recorded */
    int n_needs;
};

static void drop_all(qdri_life **needs, int n)
{
    for (int i = n - 1; i >= 0; i--) qdri_life_drop(needs[i]);
    free(needs);
}

qdr_status qdri_context_record_needs(qdr_context *ctx, qdri_life *life)
{
    if (!ctx->is_recording) return QDR_OK;
    for (int i = 0; i < ctx->n_recorded; i++)
        if (ctx->recorded[i] == life) return QDR_OK;
    QDR_TRY(qdri_list_grow((void **)&ctx->recorded, ctx->n_recorded, &ctx->recorded_capacity, sizeof *ctx->recorded,
                           "what a record needs"));
    ctx->recorded[ctx->n_recorded++] = qdri_life_keep(life);
    return QDR_OK;
}

qdr_status qdr_graph_begin(qdr_context *ctx)
{
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "graph: the context is NULL");
    if (ctx->tracing.trace)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "graph: the context is traced, but a recorded step has no times of its own; unset QDR_TRACE");
    const char *why = qdri_comm_unrecorded(ctx->world);
    if (why && qdri_dev_gpu(ctx->dev) >= 0)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "graph: a step cannot be recorded: %s", why);
    QDR_TRY(qdri_record_begin(ctx->stream));
    ctx->is_recording = 1;
    ctx->n_records++;
    return QDR_OK;
}

int qdri_context_is_recording(const qdr_context *ctx) { return ctx->is_recording; }

int64_t qdri_context_n_records(const qdr_context *ctx) { return ctx->n_records; }

int64_t qdri_context_n_record_runs(const qdr_context *ctx) { return ctx->n_record_runs; }

qdr_status qdr_graph_end(qdr_context *ctx, qdr_graph **graph)
{
    qdr_graph *made = NULL;
    QDR_TRY(QDRI_CLEAR_POINTER("graph", graph));
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "graph: the context is NULL");
    const qdr_status status = QDRI_NEW(1, "a graph", &made);
    void *record = NULL;
    const qdr_status ended = qdri_record_end(ctx->stream, &record); /* ends it in any case */
    qdri_life **needs = ctx->recorded;
    const int n_needs = ctx->n_recorded;
    ctx->is_recording = ctx->n_recorded = ctx->recorded_capacity = 0;
    ctx->recorded = NULL;
    if (status != QDR_OK || ended != QDR_OK) {
        qdri_record_free(ctx->dev, record);
        drop_all(needs, n_needs);
        free(made);
        return status != QDR_OK ? status : ended;
    }
    *made = (qdr_graph){ctx, record, needs, n_needs};
    qdri_life_keep(&ctx->life);
    *graph = made;
    return QDR_OK;
}

qdr_status qdri_context_check_runs(const qdr_context *ctx, const char *who)
{
    if (!ctx->is_recording) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE,
                    "%s: recorded work does not run, so there is no result to wait for; call qdr_graph_end() first",
                    who);
}

void qdri_context_end_record(qdr_context *ctx)
{
    qdr_graph *graph = NULL;
    if (!ctx->is_recording) return;
    const qdr_status status = qdr_graph_end(ctx, &graph);
    (void)status; /* not needed */
    qdr_graph_destroy(&graph);
}

qdr_status qdr_graph_launch(qdr_graph *graph, qdr_stream *stream)
{
    if (!graph) return QDR_FAIL(QDR_ERR_ARGUMENT, "graph: it is NULL");
    graph->ctx->n_record_runs++;
    return qdri_record_run(stream ? stream : graph->ctx->stream, graph->record);
}

void qdr_graph_destroy(qdr_graph **graph)
{
    if (!graph || !*graph) return;
    const qdr_graph old = **graph;
    free(*graph);
    *graph = NULL;
    qdri_record_free(old.ctx->dev, old.record);
    drop_all(old.needs, old.n_needs);
    qdri_life_drop(&old.ctx->life);
}
