/* SPDX-License-Identifier: Apache-2.0 */
/* The places of the ranks in `quadrille topo`: of running ones, or of those that a grid would have. */
#include <quadrille/coll.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

int topo_gather(qdr_context *ctx, const qdr_topo *topo, topo_rank **ranks, failure *why)
{
    const int n = qdr_context_size(ctx);
    *ranks = calloc((size_t)n, sizeof **ranks);
    if (!*ranks) fail_memory(why, "topo: out of memory for %d ranks", n);
    if (fail_together(why, ctx) || !*ranks) return why->code;
    topo_rank *rank = &(*ranks)[qdr_context_rank(ctx)];
    memcpy(rank->host, topo->host, sizeof rank->host);
    memcpy(rank->cpus, topo->cpus, sizeof rank->cpus);
    memcpy(rank->product, topo->product, sizeof rank->product);
    rank->place = topo->here;
    rank->n_packages = topo->n_packages;
    rank->n_numas = topo->n_numas;
    rank->n_cores = topo->n_cores;
    rank->n_gpus = topo->n_gpus;
    rank->n_nics = topo->n_nics;
    qdr_grid *grid = NULL;
    qdr_status status = grid_make(ctx, (grid_size){1, 1, 1, n}, NULL, &grid);
    if (status == QDR_OK) status = qdr_all_gather(grid, QDR_D, NULL, *ranks, sizeof **ranks, NULL, QDR_U8, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    qdr_grid_destroy(&grid);
    if (fail_status(why, status)) return why->code;
    /* The library identifies a node by the lowest rank on it. */
    int n_nodes = 0;
    for (int i = 0; i < n; i++) {
        const int first = qdr_context_node(ctx, i);
        (*ranks)[i].place.node = first == i ? n_nodes++ : (*ranks)[first].place.node;
    }
    return EXIT_OK;
}

int topo_lay(const qdr_topo *topo, const topo_rank *ranks, int n_ranks, topo_layout *layout, failure *why)
{
    const grid_size size = layout->size;
    const int sizes[QDR_N_AXES] = {size.x, size.y, size.z, size.d};
    layout->n_ranks = grid_ranks(size);
    layout->places = calloc((size_t)layout->n_ranks, sizeof *layout->places);
    if (!layout->places) return fail_memory(why, "topo: out of memory for %d ranks", layout->n_ranks);
    layout->is_live = ranks && n_ranks == layout->n_ranks && !layout->n_on_node;
    if (layout->is_live) {
        for (int rank = 0; rank < n_ranks; rank++) {
            const int node = ranks[rank].place.node;
            int index = 0, n = 0; /* among the ranks of its node */
            for (int other = 0; other < n_ranks; other++) {
                if (ranks[other].place.node != node) continue;
                index += other < rank;
                n++;
            }
            if (n > layout->n_on_node) layout->n_on_node = n;
            if (node >= layout->n_nodes) layout->n_nodes = node + 1;
            /* On GPUs: those that the running ranks would use, in order. */
            layout->places[rank] = ranks[rank].place;
            if (layout->on_gpus) qdr_topo_spread(topo, 1, node, index, n, &layout->places[rank]);
        }
    } else {
        /* Node by node; the last node may have fewer. */
        if (!layout->n_on_node) layout->n_on_node = layout->on_gpus ? topo->n_gpus : topo->n_cores;
        if (layout->n_on_node < 1) layout->n_on_node = 1;
        if (layout->n_on_node > layout->n_ranks) layout->n_on_node = layout->n_ranks;
        layout->n_nodes = (layout->n_ranks + layout->n_on_node - 1) / layout->n_on_node;
        for (int rank = 0; rank < layout->n_ranks; rank++)
            qdr_topo_spread(topo, layout->on_gpus, rank / layout->n_on_node, rank % layout->n_on_node,
                            layout->n_on_node, &layout->places[rank]);
    }
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        qdr_topo_axis *found = &layout->axes[axis];
        found->size = sizeof *found;
        if (fail_status(why, qdr_topo_map(topo, sizes, layout->order, layout->places, (qdr_axis)axis, found))) break;
    }
    return why->code;
}
