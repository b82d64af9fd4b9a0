/* SPDX-License-Identifier: Apache-2.0 */
/* QDR_CHECK=1: ranks compare each collective before it runs. QDR_TIMEOUT=SECONDS: a rank that waits longer than this
 * for others gives up. Rank 0's environment applies to all ranks, because launchers do not always pass it on; an
 * invalid value on any rank is rejected. */
#include "context/context.h"
#include "context/internal.h"

qdr_status qdri_context_agree_same(const qdr_context *ctx, qdr_status mine, const qdri_facts *facts, const char *what,
                                   const char *rule)
{
    QDR_TRY(qdri_dev_raise(ctx->dev));
    return qdri_comm_agree_same(ctx->world, mine, facts, what, rule);
}

int qdri_context_is_checked(const qdr_context *ctx) { return ctx->watch.check && qdri_comm_size(ctx->world) > 1; }

qdr_status qdri_context_compare_call(const qdr_context *ctx, qdr_status mine, const qdri_facts *facts, const char *what,
                                     const char *rule)
{
    return qdri_context_is_checked(ctx) ? qdri_context_agree_same(ctx, mine, facts, what, rule) : mine;
}

static void name_world(const qdr_context *ctx, qdri_comm *world)
{
    qdri_comm_set_names(world, "world", qdri_describe_rank, NULL);
    qdri_comm_set_timeout(world, ctx->watch.timeout_secs);
}

qdr_status qdri_context_greet(qdr_context *ctx, qdri_comm *world)
{
    const int on_cpu = qdri_dev_runs_work(ctx->dev);
    struct {
        qdri_watch_opts watch;
        int on_cpu;
    } first = {ctx->watch, on_cpu};
    QDR_TRY(qdri_comm_broadcast(world, 0, &first, sizeof first));
    ctx->watch = first.watch;
    name_world(ctx, world);
    qdr_status status = QDR_OK;
    if (on_cpu != first.on_cpu)
        status = QDR_FAIL(QDR_ERR_ARGUMENT,
                          "context: rank %d computes on the %s, rank 0 on the %s; give all ranks the same "
                          "device (QDR_DEVICE, or --device)",
                          qdri_comm_rank(world), on_cpu ? "CPU" : "GPU", first.on_cpu ? "CPU" : "GPU");
    return qdri_comm_agree(world, status);
}

qdr_status qdri_context_watch_begin(qdr_context *ctx)
{
    name_world(ctx, ctx->world);
    if (ctx->watch.check) QDR_TRY(qdri_comm_check(&ctx->world));
    name_world(ctx, ctx->world);
    return QDR_OK;
}
