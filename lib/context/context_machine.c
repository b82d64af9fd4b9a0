/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that a context runs on, for which panels are chosen and plans are priced, and by which collectives inside
 * a node choose their way. */
#include "context/context.h"
#include "context/internal.h"
#include "core/environment.h"
#include "core/sized.h"

static const char *name_of(const qdr_context *ctx)
{
    const char *named = qdri_environment_text(QDRI_VARIABLE_MACHINE);
    return named ? named : ctx->machine_name;
}

int qdri_context_names_machine(const qdr_context *ctx) { return ctx->has_machine || name_of(ctx); }

static qdr_status load(const qdr_context *ctx, qdr_machine *machine)
{
    const char *name = name_of(ctx);
    *machine = (qdr_machine){QDR_INIT(qdr_machine)};
    if (!ctx->has_machine) return qdr_machine_load(name ? name : "here", machine);
    *machine = ctx->machine;
    return QDR_OK;
}

qdr_status qdri_context_machine(const qdr_context *ctx, qdr_machine *machine)
{
    const int n_node_ranks = qdri_comm_node_size(ctx->world);
    QDR_TRY(load(ctx, machine));
    if (n_node_ranks == qdri_comm_size(ctx->world)) return QDR_OK; /* a node may have room for more */
    return qdr_machine_set_ranks_per_node(machine, n_node_ranks);
}

static qdri_comm_machine comm_machine_of(const qdr_machine *machine)
{
    const qdr_machine_collectives *c = &machine->collectives;
    const qdr_machine_link *network = &machine->links[machine->n_links - 1]; /* there is one; of ranks, if it is all */
    const double adapters_bytes_per_sec = network->n_adapters * network->adapter_bytes_per_sec;
    return (qdri_comm_machine){.direct_bytes = (int64_t)c->direct_bytes,
                               .direct_all_reduce_bytes = (int64_t)c->direct_all_reduce_bytes,
                               .two_round_bytes = (int64_t)c->two_round_bytes,
                               .node_bytes_per_sec = adapters_bytes_per_sec > 0 ? adapters_bytes_per_sec
                                                                                : network->rank_bytes_per_sec};
}

qdr_status qdri_context_tell_machine(const qdr_context *ctx, qdri_comm *world)
{
    qdri_comm_machine known = {.direct_bytes = 0};
    qdr_status status = QDR_OK;
    if (qdri_comm_rank(world) == 0) {
        qdr_machine machine;
        status = load(ctx, &machine);
        if (status == QDR_OK) known = comm_machine_of(&machine);
        if (status != QDR_ERR_MEMORY) status = QDR_OK; /* what needs the machine itself says why it cannot be read */
    }
    QDR_TRY(qdri_comm_agree(world, status));
    QDR_TRY(qdri_comm_broadcast(world, 0, &known, sizeof known));
    qdri_comm_set_machine(world, &known);
    return QDR_OK;
}

qdr_status qdr_context_set_machine(qdr_context *ctx, const qdr_machine *machine)
{
    qdr_machine first = {.size = 0}; /* rank 0's */
    qdr_status status = QDR_OK;
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "context: the context is NULL; it is what gets the machine");
    QDR_TRY(qdri_context_check_runs(ctx, "context"));
    QDR_TRY(qdri_dev_raise(ctx->dev));
    if (qdri_comm_rank(ctx->world) == 0) {
        status = QDRI_TAKE(qdr_machine, machine, &first);
        if (status == QDR_OK) status = qdr_machine_check(&first, "context");
    }
    QDR_TRY(qdri_comm_agree(ctx->world, status));
    QDR_TRY(qdri_comm_broadcast(ctx->world, 0, &first, sizeof first));
    const qdri_comm_machine known = comm_machine_of(&first);
    qdri_comm_set_machine(ctx->world, &known);
    ctx->machine = first;
    ctx->has_machine = 1;
    return QDR_OK;
}
