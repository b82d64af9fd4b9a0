/* SPDX-License-Identifier: Apache-2.0 */
/* The GPT of examples/common/gpt.c, described as a net: for tests of nets. */
#ifndef TEST_GPT_NET_H
#define TEST_GPT_NET_H

#include "schedule/net.h"

enum { GPT_NET_LAYERS = 2 };

typedef struct gpt_net {
    int64_t hidden, n_heads, context, vocab, n_sequences;
    qdr_layout layout;
    qdr_dtype dtype;
    int tied, overlap, panels, batch_parts;
} gpt_net;

#define GPT_NET_NAMES(block)                                                                                           \
    {                                                                                                                  \
        block ".norm1", block ".qkv", block ".attention", block ".proj", block ".residual1", block ".norm2",           \
            block ".fc", block ".gelu", block ".fc2", block ".residual2"                                               \
    }

static inline qdr_status gpt_net_block(qdri_net *net, const gpt_net *g, const char *const names[10], qdr_edge *stream)
{
    const int64_t h = g->hidden, head = h / g->n_heads;
    const qdr_linear_desc qkv = {QDR_OPTS_INIT,
                                 .name = names[1],
                                 .in = {{h, 1}},
                                 .out = {{h, head}, {h, head}, {h, head}},
                                 .bias = 1,
                                 .out_layout = g->layout,
                                 .out_row_unit = g->context},
                          proj = {QDR_OPTS_INIT, .name = names[3], .in = {{h, head}},      .out = {{h, 1}},
                                  .bias = 1,     .transposed = 1,  .out_layout = g->layout},
                          fc = {QDR_OPTS_INIT,       .name = names[6], .in = {{h, 1}},
                                .out = {{4 * h, 1}}, .bias = 1,        .out_layout = g->layout},
                          fc2 = {QDR_OPTS_INIT, .name = names[8], .in = {{4 * h, 1}},     .out = {{h, 1}},
                                 .bias = 1,     .transposed = 1,  .out_layout = g->layout};
    qdr_edge middle, a, b;
    QDR_TRY(qdri_net_add_layer_norm(net, names[0], 0, *stream, &a));
    QDR_TRY(qdri_net_add_linear(net, &qkv, a, &b));
    QDR_TRY(qdri_net_add_attention(net, names[2], head, g->context, b, &a));
    QDR_TRY(qdri_net_add_linear(net, &proj, a, &b));
    QDR_TRY(qdri_net_add_residual(net, names[4], *stream, b, &middle));
    QDR_TRY(qdri_net_add_layer_norm(net, names[5], 0, middle, &a));
    QDR_TRY(qdri_net_add_linear(net, &fc, a, &b));
    QDR_TRY(qdri_net_add_gelu(net, names[7], b, &a));
    QDR_TRY(qdri_net_add_linear(net, &fc2, a, &b));
    return qdri_net_add_residual(net, names[9], middle, b, stream);
}

static inline qdr_status gpt_net_describe(qdri_net *net, const gpt_net *g, const qdri_position *position)
{
    static const char *const names[GPT_NET_LAYERS][10] = {GPT_NET_NAMES("block0"), GPT_NET_NAMES("block1")};
    const qdr_stack_opts opts = {QDR_OPTS_INIT,
                                 .n_rows = g->n_sequences * g->context,
                                 .row_unit = g->context,
                                 .dtype = g->dtype,
                                 .overlap = g->overlap,
                                 .panels = g->panels,
                                 .batch_parts = g->batch_parts};
    const qdr_embedding_desc embedding = {QDR_OPTS_INIT,          .name = "embedding",
                                          .vocab = {g->vocab, 1}, .features = {g->hidden, 1},
                                          .context = g->context,  .layout = g->layout};
    const qdr_linear_desc head = {QDR_OPTS_INIT, .name = "head", .in = {{g->hidden, 1}}, .out = {{g->vocab, 1}},
                                  .out_layout = g->layout};
    qdr_edge tokens, stream, norm, logits, targets;
    QDR_TRY(qdri_net_begin(net, position, &opts));
    QDR_TRY(qdri_net_add_tokens(net, "tokens", &tokens));
    QDR_TRY(qdri_net_add_embedding(net, &embedding, tokens, &stream));
    const int table = net->n_nodes - 1;
    for (int i = 0; i < GPT_NET_LAYERS; i++) QDR_TRY(gpt_net_block(net, g, names[i], &stream));
    QDR_TRY(qdri_net_add_layer_norm(net, "norm", 0, stream, &norm));
    QDR_TRY(g->tied ? qdri_net_add_tied_head(net, "head", table, g->layout, norm, &logits)
                    : qdri_net_add_linear(net, &head, norm, &logits));
    return qdri_net_add_cross_entropy(net, "loss", logits, &targets);
}

#endif
