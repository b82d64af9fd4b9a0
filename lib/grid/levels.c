/* SPDX-License-Identifier: Apache-2.0 */
/* Levels in words, for the ranks of a context. */
#include "quadrille/levels.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/facts.h"
#include "core/log.h"
#include "core/size.h"
#include "core/sized.h"
#include "grid/internal.h"
#include "grid/shape.h"
#include "quadrille/topo.h"

static qdr_status check(const qdr_context *ctx, const char *words, const qdr_grid_opts *opts, qdri_grid_shape *shape)
{
    qdr_grid_opts plain;
    if (!words) return QDR_FAIL(QDR_ERR_ARGUMENT, "levels: the words are NULL; pass some, such as 8,all");
    QDR_TRY(QDRI_TAKE(qdr_grid_opts, opts, &plain));
    plain.gradient_parts = plain.optimizer_parts = 0;
    return qdri_shape_read(&plain, qdr_context_size(ctx), shape);
}

static qdr_status agree(qdr_context *ctx, const char *words, const qdr_grid_opts *opts, qdri_grid_shape *shape)
{
    qdri_facts facts = {0};
    char grid[96];
    qdr_status status = check(ctx, words, opts, shape);
    if (status == QDR_OK) {
        qdri_shape_words(shape, grid, sizeof grid);
        qdri_facts_add(&facts, "the grid", "", grid);
        qdri_facts_add(&facts, "the call", "words", words);
    }
    status = qdri_comm_agree_same(qdri_context_world(ctx), status, &facts, "levels", "all ranks must ask for the same");
    qdri_facts_free(&facts);
    return status;
}

/* Ranks of a node need no more than its number. */
static int needs_machine(const char *words)
{
    static const char *const within[] = {"module", "cache", "numa", "package"};
    for (int i = 0; i < 4; i++)
        if (strstr(words, within[i])) return 1;
    return 0;
}

/* Where this rank is in its node; on a GPU, where that is. */
static qdr_topo_place find_place(qdr_context *ctx, const qdr_topo *topo)
{
    const char *bus = qdri_dev_bus(qdri_context_dev(ctx));
    qdr_topo_place place = {-1, -1, -1, -1, -1, -1};
    if (!bus) return topo->here;
    for (int i = 0; i < topo->n_gpus; i++) {
        if (strcasecmp(qdr_topo_gpu_at(topo, i)->bus, bus) != 0) continue;
        place.gpu = i;
        place.numa = qdr_topo_gpu_at(topo, i)->numa;
        place.package = qdr_topo_gpu_at(topo, i)->package;
    }
    return place;
}

/* The places of all ranks, on all of them. */
static qdr_status gather(qdr_context *ctx, const qdr_topo *topo, qdr_topo_place *places)
{
    qdri_comm *world = qdri_context_world(ctx);
    const int rank = qdri_comm_rank(world), size = qdri_comm_size(world);
    if (topo) places[rank] = find_place(ctx, topo);
    for (int i = 0; topo && i < size; i++) QDR_TRY(qdri_comm_broadcast(world, i, &places[i], sizeof *places));
    for (int i = 0; i < size; i++) places[i].node = qdri_comm_node_of(world, i);
    return QDR_OK;
}

qdr_status qdr_levels_read(qdr_context *ctx, const char *words, qdr_grid_opts *opts)
{
    qdri_grid_shape shape;
    qdr_topo *topo = NULL;
    qdr_topo_place *places = NULL;
    qdr_topo_levels levels = {QDR_INIT(qdr_topo_levels)};
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "levels: the context is NULL");
    QDR_TRY(qdri_dev_raise(qdri_context_dev(ctx)));
    qdri_comm *world = qdri_context_world(ctx);
    QDR_TRY(agree(ctx, words, opts, &shape));
    qdr_status status = QDRI_NEW(qdri_comm_size(world), "places of ranks", &places);
    if (status == QDR_OK && needs_machine(words)) status = qdr_topo_load(NULL, &topo);
    QDR_TRY_OUT(status, qdri_comm_agree(world, status));
    QDR_TRY_OUT(status, gather(ctx, topo, places));
    /* Nodes may differ, so one rank decides. */
    if (qdri_comm_rank(world) == 0)
        status = qdr_topo_levels_read(topo, shape.sizes, shape.order, places, words, &levels);
    QDR_TRY_OUT(status, qdri_comm_agree(world, status));
    QDR_TRY_OUT(status, qdri_comm_broadcast(world, 0, &levels, sizeof levels));
    if (levels.note[0] && qdri_comm_rank(world) == 0) qdri_log(QDRI_LOG_WARNING, "levels: %s", levels.note);
    opts->gradient_parts = levels.gradient_parts;
    opts->optimizer_parts = levels.optimizer_parts;
out:
    qdr_topo_destroy(&topo);
    free(places);
    return status;
}
