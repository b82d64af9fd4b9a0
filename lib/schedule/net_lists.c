/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of layers that run alone: each is made when it is first needed, and kept. */
#include <stdlib.h>

#include "core/size.h"
#include "quadrille/linear.h"
#include "schedule/net_parts.h"

struct qdri_layer_lists {
    qdri_schedule forward[2]; /* 1: adds to Y */
    qdri_schedule backward[3][QDRI_N_BACKWARDS]; /* dX: overwritten, added to, not wanted */
};

void qdri_net_lists_begin(qdri_net_lists *lists)
{
    for (int i = 0; i < lists->n_layers; i++) {
        struct qdri_layer_lists *layer = lists->layers[i];
        if (!layer) continue;
        for (int j = 0; j < 2; j++) qdri_schedule_free(&layer->forward[j]);
        for (int j = 0; j < 3 * QDRI_N_BACKWARDS; j++)
            qdri_schedule_free(&layer->backward[j / QDRI_N_BACKWARDS][j % QDRI_N_BACKWARDS]);
        free(layer);
    }
    free(lists->layers);
    lists->layers = NULL;
    lists->n_layers = 0;
    lists->forward.n_tasks = 0;
    for (int i = 0; i < QDRI_N_BACKWARDS; i++) lists->backward[i].n_tasks = 0;
}

void qdri_net_lists_free(qdri_net_lists *lists)
{
    qdri_net_lists_begin(lists);
    qdri_schedule_free(&lists->forward);
    for (int i = 0; i < QDRI_N_BACKWARDS; i++) qdri_schedule_free(&lists->backward[i]);
}

static qdr_status find_layer(const qdri_net *net, qdri_net_lists *lists, int node, struct qdri_layer_lists **layer)
{
    if (!lists->layers) {
        QDR_TRY(QDRI_NEW(net->n_nodes, "the lists of layers", &lists->layers));
        lists->n_layers = net->n_nodes;
    }
    if (!lists->layers[node]) QDR_TRY(QDRI_NEW(1, "the lists of a layer", &lists->layers[node]));
    *layer = lists->layers[node];
    return QDR_OK;
}

/* A list that could not be made is made at the next call. */
static qdr_status keep(qdr_status status, qdri_schedule *schedule, const qdri_schedule **list)
{
    if (status != QDR_OK) schedule->n_tasks = 0;
    *list = schedule;
    return status;
}

qdr_status qdri_net_list_layer_forward(qdri_net *net, qdri_net_lists *lists, int node, int accumulate_y,
                                       const qdri_schedule **list)
{
    struct qdri_layer_lists *layer;
    QDR_TRY(find_layer(net, lists, node, &layer));
    qdri_schedule *schedule = &layer->forward[accumulate_y != 0];
    return keep(schedule->n_tasks ? QDR_OK : qdri_net_layer_forward(net, node, accumulate_y, schedule), schedule, list);
}

qdr_status qdri_net_list_layer_backward(qdri_net *net, qdri_net_lists *lists, int node, int flags,
                                        qdri_gradient_mode mode, const qdri_schedule **list)
{
    struct qdri_layer_lists *layer;
    const int dx = flags & QDR_NO_DX ? 2 : (flags & QDR_DX_ACCUMULATE) != 0;
    QDR_TRY(find_layer(net, lists, node, &layer));
    qdri_schedule *schedule = &layer->backward[dx][2 * (int)mode + ((flags & QDR_DEFER_SYNC) != 0)];
    return keep(schedule->n_tasks ? QDR_OK : qdri_net_layer_backward(net, node, flags, mode, schedule), schedule, list);
}
