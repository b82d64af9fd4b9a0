/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of a network, those of the nodes that a stack has for it on one rank. */
#include <stdio.h>

#include "core/block.h"
#include "core/sized.h"
#include "network/describe.h"

typedef struct sink {
    qdri_net net;
    int64_t n_layers;
    int n_given;
    qdr_network_parameter_fn each;
    void *user;
} sink;

/* Adds a node, and gives the parameters that it brings. */
static qdr_status add_node(void *user, const qdri_node_desc *desc, int64_t layer, qdr_edge *edge)
{
    sink *s = user;
    char node[QDRI_NETWORK_NAME_BYTES], name[2 * QDRI_NETWORK_NAME_BYTES];
    qdri_network_node_name(desc, layer, s->n_layers, node);
    QDR_TRY(qdri_net_add(&s->net, desc, edge));
    for (; s->n_given < s->net.n_parameters; s->n_given++) {
        const qdri_parameter *p = &s->net.parameters[s->n_given];
        snprintf(name, sizeof name, "%s.%s", node, p->what);
        const qdr_network_parameter given = {QDR_INIT(qdr_network_parameter), .name = name, .is_vector = p->is_vector,
                                             .n_rows = qdri_blocks_width(p->rows),
                                             .n_cols = qdri_blocks_width(p->cols)};
        s->each(&given, s->user);
    }
    return QDR_OK;
}

static qdr_status give(sink *s, const qdr_network *network)
{
    const int64_t context = network->positions ? network->positions : network->context ? network->context : 1;
    const qdri_position alone = {.size = {1, 1, 1, 1}};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = context, .row_unit = context};
    const qdri_network_part part = {
        .network = network, .context = context, .n_layers = network->layers, .has_ends = 1, .n_ranks_y = 1};
    qdr_edge tokens, targets;
    QDR_TRY(qdri_net_begin(&s->net, &alone, &opts));
    QDR_TRY(qdri_net_add_tokens(&s->net, "tokens", &tokens));
    return qdri_network_add(&part, add_node, s, tokens, &targets);
}

qdr_status qdr_network_parameters(const qdr_network *network, qdr_network_parameter_fn each, void *user)
{
    qdr_network own;
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    sink s = {.each = each, .user = user};
    if (!each) return QDR_FAIL(QDR_ERR_ARGUMENT, "network: the function to call is NULL");
    QDR_TRY(QDRI_TAKE(qdr_network, network, &own));
    QDR_TRY(qdr_network_params(&own, &counts));
    const char *lacks = qdri_network_lacks(&own);
    if (lacks)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "network '%s': it has %s, which this library has not", own.name, lacks);
    s.n_layers = own.layers;
    const qdr_status status = give(&s, &own);
    qdri_net_free(&s.net);
    return status;
}
