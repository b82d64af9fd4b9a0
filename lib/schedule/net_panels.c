/* SPDX-License-Identifier: Apache-2.0 */
/* Row panels of layers, and parts of the batch. */
#include "schedule/net_parts.h"

int qdri_net_batch_parts(const qdri_net *net)
{
    return net->opts.batch_parts > 1 && qdri_net_sums(net) && !qdri_net_scatters(net) ? net->opts.batch_parts : 1;
}

int qdri_net_sums(const qdri_net *net) { return net->place.size[QDR_X] > 1 || net->place.size[QDR_Y] > 1; }

int qdri_net_scatters(const qdri_net *net)
{
    for (int i = 0; i < net->n_edges; i++)
        if (qdri_edge_scattered(net, &net->edges[i])) return 1;
    return 0;
}

/* The layer's own number, else the net's. */
static void set_layer_panels(const qdri_net *net, qdri_layer *layer)
{
    qdri_layer_shape *shape = &layer->shape;
    int n = layer->panels ? layer->panels : net->opts.panels;
    if (n > shape->m) n = (int)shape->m;
    shape->forward_panels = shape->backward_panels = n < 1 ? 1 : n;
}

void qdri_net_set_panels(qdri_net *net, int panels, int batch_parts)
{
    net->opts.panels = panels;
    net->opts.batch_parts = batch_parts;
    for (int i = 0; i < net->n_nodes; i++)
        if (net->nodes[i].kind == QDRI_NODE_LINEAR) set_layer_panels(net, &net->nodes[i].u.layer);
}
