/* SPDX-License-Identifier: Apache-2.0 */
/* Whole networks as parts of a stack, and finding what was added by its name. */
#include "schedule/network.h"

#include <string.h>

#include "core/sized.h"
#include "linear/internal.h"

typedef struct sink {
    qdr_stack *stack;
    int64_t n_layers;
} sink;

static qdr_status add_node(void *user, const qdri_node_desc *desc, int64_t layer, qdr_edge *edge)
{
    const sink *s = user;
    char name[QDRI_NETWORK_NAME_BYTES];
    qdri_node_desc named = *desc;
    qdri_network_node_name(desc, layer, s->n_layers, name);
    named.name = name; /* which is copied */
    qdri_network_enter(&s->stack->net, layer, s->n_layers);
    return qdri_stack_add_node(s->stack, &named, edge);
}

static qdr_status check(const qdr_network *network, const qdr_network_desc *desc)
{
    QDR_TRY(qdri_check_switch("network", "only_layers", desc->only_layers));
    QDR_TRY(qdri_check_switch("network", "stand_ins", desc->stand_ins));
    if (desc->n_layers < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "network: %" PRId64 " layers; use 1 or more, or 0 for all of the network",
                        desc->n_layers);
    QDR_TRY(qdri_network_check(network));
    if (desc->n_layers > network->layers)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "network: %" PRId64 " layers of %.63s, which has %" PRId64, desc->n_layers,
                        network->name, network->layers);
    const char *lacks = qdri_network_lacks(network);
    if (!lacks || desc->stand_ins) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "network '%s': it has %s, which this library has not; stand_ins = 1 replaces them, in runs that "
                    "only measure",
                    network->name, lacks);
}

qdr_status qdr_stack_add_network(qdr_stack *stack, const qdr_network *network, const qdr_network_desc *desc,
                                 qdr_edge in, qdr_edge *out)
{
    if (!out) return QDR_FAIL(QDR_ERR_ARGUMENT, "network: the edge pointer is NULL");
    *out = -1;
    qdr_network own;
    qdr_network_desc how;
    QDR_TRY(qdri_stack_open(stack, "network"));
    QDR_TRY(QDRI_TAKE(qdr_network, network, &own));
    QDR_TRY(QDRI_TAKE(qdr_network_desc, desc, &how));
    QDR_TRY(check(&own, &how));
    if (how.epsilon != 0) own.norm_epsilon = how.epsilon;
    const qdri_network_part part = {.network = &own,
                                    .context = how.context,
                                    .layout = how.layout,
                                    .n_layers = how.n_layers ? how.n_layers : own.layers,
                                    .has_ends = !how.only_layers,
                                    .first_keys = how.first_keys,
                                    .z_loss = how.z_loss,
                                    .n_ranks_y = stack->net.position.size[QDR_Y],
                                    .first_node = stack->net.n_nodes};
    sink s = {stack, part.n_layers};
    const qdr_status status = qdri_network_add(&part, add_node, &s, in, out);
    qdri_net_end_segment(&stack->net);
    return status;
}

qdr_status qdr_stack_begin_segment(qdr_stack *stack)
{
    QDR_TRY(qdri_stack_open(stack, "segment"));
    qdri_net_begin_segment(&stack->net);
    return QDR_OK;
}

qdr_status qdr_stack_end_segment(qdr_stack *stack)
{
    QDR_TRY(qdri_stack_open(stack, "segment"));
    qdri_net_end_segment(&stack->net);
    return QDR_OK;
}

static int find_node(const qdr_stack *stack, const char *name)
{
    for (int i = 0; stack && name && i < stack->net.n_nodes; i++)
        if (strcmp(stack->net.nodes[i].name, name) == 0) return i;
    return -1;
}

qdr_linear *qdr_stack_find_layer(const qdr_stack *stack, const char *name)
{
    const int node = find_node(stack, name);
    return node < 0 ? NULL : stack->attached[node].layer;
}

qdr_edge qdr_stack_find_edge(const qdr_stack *stack, const char *name)
{
    const int node = find_node(stack, name);
    if (node < 0) return -1;
    const qdri_node *found = &stack->net.nodes[node];
    return found->out >= 0 ? found->out : found->in[1];
}
