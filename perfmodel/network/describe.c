/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a transformer, in order of execution. Every product that writes to the residual stream is transposed: it
 * reads what a normal layer wrote. */
#include "network/describe.h"

typedef struct description {
    qdri_net *net;
    const qdr_network *network;
    int64_t context;
    qdr_layout layout;
    int layer; /* being described */
    int *layer_of;
    int n_noted; /* number of nodes whose layer is known */
} description;

static void note(description *d)
{
    for (; d->n_noted < d->net->n_nodes; d->n_noted++) d->layer_of[d->n_noted] = d->layer;
}

static double local_elems(const description *d, qdr_edge edge) { return (double)qdri_edge_elems(&d->net->edges[edge]); }

/* An element-wise operation for which the library has no node: flops and bytes per element of its output. */
static qdr_status add_elementwise(description *d, const char *name, qdr_edge in, const qdr_block *to, double out_elems,
                                  const double flops[2], const double bytes[2], qdr_edge *out)
{
    const double elem_bytes = (double)qdr_dtype_bytes(d->net->opts.dtype);
    qdr_op_desc desc = {QDR_OPTS_INIT, .name = name, .n_in = 1, .in = {in}};
    desc.cost = (qdr_op_cost){flops[0] * out_elems, flops[1] * out_elems, bytes[0] * out_elems * elem_bytes,
                              bytes[1] * out_elems * elem_bytes};
    for (int i = 0; to && i < QDR_MAX_BLOCKS && to[i].width; i++) desc.out[i] = to[i];
    return qdri_net_add_op(d->net, &desc, out);
}

static qdr_status add_norm(description *d, const char *name, qdr_edge in, qdr_edge *out)
{
    return d->network->norm == QDR_NORM_RMS ? qdri_net_add_rms_norm(d->net, name, 0, in, out)
                                            : qdri_net_add_layer_norm(d->net, name, 0, in, out);
}

static qdr_status add_attention_half(description *d, qdr_edge in, qdr_edge *out)
{
    const qdr_network *n = d->network;
    /* Query heads that share a key head stay together if there is a key head for each rank. */
    const int are_together = n->kv_heads >= d->net->position.size[QDR_Y] && n->heads % n->kv_heads == 0;
    const int64_t unit = are_together ? n->head_size * (n->heads / n->kv_heads) : n->head_size;
    const int64_t q = n->heads * n->head_size, kv = n->kv_heads * n->head_size;
    const qdr_linear_desc qkv_desc = {QDR_OPTS_INIT,
                                      .name = "qkv",
                                      .in = {{n->hidden, 1}},
                                      .out = {{q, unit}, {kv, n->head_size}, {kv, n->head_size}},
                                      .bias = n->qkv_bias,
                                      .out_layout = d->layout,
                                      .out_row_unit = d->context};
    const qdr_linear_desc proj_desc = {QDR_OPTS_INIT,           .name = "proj",      .in = {{q, unit}},
                                       .out = {{n->hidden, 1}}, .bias = n->out_bias, .transposed = 1,
                                       .out_layout = d->layout};
    qdr_edge norm, qkv, mixed;
    QDR_TRY(add_norm(d, "norm1", in, &norm));
    QDR_TRY(qdri_net_add_linear(d->net, &qkv_desc, norm, &qkv));
    if (!n->positions) {
        static const double flops[] = {6, 6}, bytes[] = {2, 2};
        QDR_TRY(add_elementwise(d, "rotate", qkv, NULL, local_elems(d, qkv), flops, bytes, &qkv));
    }
    QDR_TRY(qdri_net_add_attention(d->net, "attention", n->head_size, d->context, qkv, &mixed));
    return qdri_net_add_linear(d->net, &proj_desc, mixed, out);
}

static qdr_status add_mlp_half(description *d, qdr_edge in, qdr_edge *out)
{
    const qdr_network *n = d->network;
    qdr_linear_desc up_desc = {QDR_OPTS_INIT,        .name = "up",        .in = {{n->hidden, 1}},
                               .out = {{n->ffn, 1}}, .bias = n->mlp_bias, .out_layout = d->layout};
    if (n->gated) up_desc.out[1] = up_desc.out[0];
    const qdr_linear_desc down_desc = {QDR_OPTS_INIT,           .name = "down",      .in = {{n->ffn, 1}},
                                       .out = {{n->hidden, 1}}, .bias = n->mlp_bias, .transposed = 1,
                                       .out_layout = d->layout};
    qdr_edge norm, wide, bent;
    QDR_TRY(add_norm(d, "norm2", in, &norm));
    QDR_TRY(qdri_net_add_linear(d->net, &up_desc, norm, &wide));
    if (n->gated) {
        static const double flops[] = {12, 20}, bytes[] = {3, 5}; /* gate, up → out; gate, up, dout → both */
        const qdr_block narrow[] = {{n->ffn, 1}, {0, 0}};
        QDR_TRY(add_elementwise(d, "gate", wide, narrow, local_elems(d, wide) / 2, flops, bytes, &bent));
    } else {
        QDR_TRY(qdri_net_add_gelu(d->net, "gelu", wide, &bent));
    }
    return qdri_net_add_linear(d->net, &down_desc, bent, out);
}

static qdr_status add_layer(description *d, qdr_edge *stream)
{
    const qdr_edge before = *stream;
    qdr_edge attended, added, fed;
    QDR_TRY(add_attention_half(d, before, &attended));
    QDR_TRY(qdri_net_add_residual(d->net, "residual1", before, attended, &added));
    QDR_TRY(add_mlp_half(d, d->network->parallel_residual ? before : added, &fed));
    return qdri_net_add_residual(d->net, "residual2", added, fed, stream);
}

qdr_status qdri_describe(qdri_net *net, const qdr_network *network, const qdri_position *position,
                         const qdr_stack_opts *opts, int64_t context, qdr_layout layout, int n_layers, int *layer_of)
{
    description d = {.net = net,
                     .network = network,
                     .context = context,
                     .layout = layout,
                     .layer = QDRI_LAYER_FIRST,
                     .layer_of = layer_of};
    const qdr_embedding_desc embedding = {QDR_OPTS_INIT,
                                          .name = "embedding",
                                          .vocab = {network->vocab, 1},
                                          .features = {network->hidden, 1},
                                          .context = network->positions ? context : 0,
                                          .layout = layout};
    const qdr_linear_desc head = {QDR_OPTS_INIT, .name = "head", .in = {{network->hidden, 1}},
                                  .out = {{network->vocab, 1}}, .out_layout = layout};
    qdr_edge tokens, stream, norm, logits, targets;
    QDR_TRY(qdri_net_begin(net, position, opts));
    QDR_TRY(qdri_net_add_tokens(net, "tokens", &tokens));
    QDR_TRY(qdri_net_add_embedding(net, &embedding, tokens, &stream));
    note(&d);
    for (d.layer = 0; d.layer < n_layers; d.layer++) {
        QDR_TRY(add_layer(&d, &stream));
        note(&d);
    }
    d.layer = QDRI_LAYER_LAST;
    QDR_TRY(add_norm(&d, "norm", stream, &norm));
    QDR_TRY(network->tied ? qdri_net_add_tied_head(net, "head", 0, layout, norm, &logits)
                          : qdri_net_add_linear(net, &head, norm, &logits));
    QDR_TRY(qdri_net_add_cross_entropy(net, "loss", logits, &targets));
    note(&d);
    return QDR_OK;
}

qdr_status qdri_describe_layers(qdri_net *net, const qdr_network *network, const qdri_position *position,
                                const qdr_stack_opts *opts, int64_t context, qdr_layout layout, int n_layers)
{
    description d = {.net = net, .network = network, .context = context, .layout = layout};
    const qdr_edge_desc input = {QDR_OPTS_INIT, .cols = {{network->hidden, 1}}, .col_axis = QDR_X, .layout = layout};
    qdr_edge stream;
    QDR_TRY(qdri_net_begin(net, position, opts));
    QDR_TRY(qdri_net_add_input(net, "x", &input, 1, &stream));
    for (d.layer = 0; d.layer < n_layers; d.layer++) QDR_TRY(add_layer(&d, &stream));
    return QDR_OK;
}
