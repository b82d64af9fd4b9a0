/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that a context runs on, for which panels are chosen and plans are priced, and by which collectives inside
 * a node choose their way. */
#include <stdlib.h>

#include "context/context.h"
#include "context/internal.h"
#include "core/environment.h"
#include "core/size.h"

static const char *name_of(const qdr_context *ctx)
{
    const char *named = qdri_environment_text(QDRI_VARIABLE_MACHINE);
    return named ? named : ctx->machine_name;
}

int qdri_context_names_machine(const qdr_context *ctx) { return ctx->machine || name_of(ctx); }

static qdr_status load(const qdr_context *ctx, qdr_machine *machine)
{
    const char *name = name_of(ctx);
    if (!ctx->machine) return qdr_machine_load(name ? name : "here", machine);
    *machine = *ctx->machine;
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

qdri_comm_machine qdri_context_comm_machine(const qdr_context *ctx)
{
    qdr_machine machine;
    /* What needs the machine itself reports why it cannot be read. */
    return load(ctx, &machine) == QDR_OK ? comm_machine_of(&machine) : (qdri_comm_machine){.direct_bytes = 0};
}

qdr_status qdr_context_set_machine(qdr_context *ctx, const qdr_machine *machine)
{
    qdr_machine *copy = NULL;
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "context: the context is NULL; it is what gets the machine");
    QDR_TRY(qdri_context_check_runs(ctx, "context"));
    qdr_status status = qdri_dev_raise(ctx->dev);
    if (status == QDR_OK && qdri_comm_rank(ctx->world) == 0) status = qdr_machine_check(machine, "context");
    if (status == QDR_OK) status = QDRI_NEW(1, "a machine", &copy);
    if (status == QDR_OK && machine) *copy = *machine;
    QDR_TRY_OUT(status, qdri_comm_agree(ctx->world, status));
    QDR_TRY_OUT(status, qdri_comm_broadcast(ctx->world, 0, copy, sizeof *copy));
    const qdri_comm_machine known = comm_machine_of(copy);
    qdri_comm_set_machine(ctx->world, &known);
    free(ctx->machine);
    ctx->machine = copy;
    return QDR_OK;
out:
    free(copy);
    return status;
}
