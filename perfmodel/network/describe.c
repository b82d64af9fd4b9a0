/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer as a net. */
#include "network/describe.h"

typedef struct sink {
    qdri_net *net;
    int n_layers;
    int *layer_of; /* NULL: not wanted */
} sink;

static qdr_status add_node(void *user, const qdri_node_desc *desc, int64_t layer, qdr_edge *edge)
{
    const sink *s = user;
    if (s->layer_of)
        s->layer_of[s->net->n_nodes] = layer < 0              ? QDRI_LAYER_FIRST
                                       : layer >= s->n_layers ? QDRI_LAYER_LAST
                                                              : (int)layer;
    qdri_network_enter(s->net, layer, s->n_layers);
    return qdri_net_add(s->net, desc, edge);
}

qdr_status qdri_describe(qdri_net *net, const qdr_network *network, const qdri_position *position,
                         const qdr_stack_opts *opts, int64_t context, qdr_layout layout, int n_layers, int *layer_of)
{
    const qdri_network_part part = {.network = network,
                                    .context = context,
                                    .layout = layout,
                                    .n_layers = n_layers,
                                    .has_ends = layer_of != NULL,
                                    .n_ranks_y = position->size[QDR_Y]};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{network->hidden, 1}}, .col_axis = QDR_X,
                                 .layout = layout};
    sink s = {net, n_layers, layer_of};
    qdr_edge first, last;
    QDR_TRY(qdri_net_begin(net, position, opts));
    QDR_TRY(layer_of ? qdri_net_add_tokens(net, "tokens", &first) : qdri_net_add_input(net, "x", &input, 1, &first));
    return qdri_network_add(&part, add_node, &s, first, &last);
}
