/* SPDX-License-Identifier: Apache-2.0 */
/* The GPT of examples/common/gpt.c, described as a net: for tests of nets. */
#ifndef TEST_GPT_NET_H
#define TEST_GPT_NET_H

#include <stdio.h>

#include "schedule/network.h"

enum { GPT_NET_LAYERS = 2 };

typedef struct gpt_net {
    int64_t hidden, n_heads, context, vocab, n_sequences;
    qdr_layout layout;
    qdr_dtype dtype;
    int tied, overlap, panels, batch_parts;
} gpt_net;

/* Names live as long as the thread. */
static inline qdr_status gpt_net_add(void *user, const qdri_node_desc *desc, int64_t layer, qdr_edge *edge)
{
    static _Thread_local char names[GPT_NET_LAYERS][QDRI_NETWORK_NODES_OF_LAYER][32];
    qdri_net *net = user;
    qdri_node_desc named = *desc;
    if (layer >= 0 && layer < GPT_NET_LAYERS) {
        char *name = names[layer][net->n_nodes % QDRI_NETWORK_NODES_OF_LAYER];
        snprintf(name, sizeof names[0][0], "block%d.%s", (int)layer, desc->name);
        named.name = name;
    }
    return qdri_net_add(net, &named, edge);
}

static inline qdr_status gpt_net_describe(qdri_net *net, const gpt_net *g, const qdri_position *position)
{
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts),     .n_rows = g->n_sequences * g->context,
                                 .row_unit = g->context,       .dtype = g->dtype,
                                 .overlap = g->overlap,        .panels = g->panels,
                                 .batch_parts = g->batch_parts};
    const qdr_network network = {QDR_INIT(qdr_network),
                                 .hidden = g->hidden,
                                 .heads = g->n_heads,
                                 .kv_heads = g->n_heads,
                                 .head_size = g->hidden / g->n_heads,
                                 .ffn = 4 * g->hidden,
                                 .vocab = g->vocab,
                                 .positions = g->context,
                                 .qkv_bias = 1,
                                 .out_bias = 1,
                                 .mlp_bias = 1,
                                 .norm = QDR_NORM_LAYER,
                                 .tied = g->tied};
    const qdri_network_part part = {.network = &network,
                                    .context = g->context,
                                    .layout = g->layout,
                                    .n_layers = GPT_NET_LAYERS,
                                    .has_ends = 1,
                                    .n_ranks_y = position->size[QDR_Y]};
    qdr_edge tokens, targets;
    QDR_TRY(qdri_net_begin(net, position, &opts));
    QDR_TRY(qdri_net_add_tokens(net, "tokens", &tokens));
    return qdri_network_add(&part, gpt_net_add, net, tokens, &targets);
}

#endif
