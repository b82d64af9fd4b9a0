/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a transformer. Every product that writes to the residual stream is transposed: it reads what a normal
 * layer wrote, and writes what the next normal layer reads, so nothing is moved between layers. */
#include "schedule/network.h"

typedef struct walk {
    const qdri_network_part *part;
    const qdr_network *network;
    qdri_node_fn fn;
    void *user;
    int64_t layer;
} walk;

static qdr_status add(const walk *w, qdri_node_desc desc, qdr_edge *out)
{
    return w->fn(w->user, &desc, w->layer, out);
}

static qdr_status add_norm(const walk *w, const char *name, qdr_edge in, qdr_edge *out)
{
    const qdr_norm_desc desc = {.epsilon = w->network->norm_epsilon,
                                .kind = w->network->norm,
                                .no_beta = w->network->norm_no_beta,
                                .one_plus = w->network->norm_one_plus};
    return add(w, (qdri_node_desc){QDRI_NODE_NORM, name, {in}, {.norm = desc}}, out);
}

static qdr_status add_linear(const walk *w, const char *name, qdr_linear_desc desc, qdr_edge in, qdr_edge *out)
{
    desc.out_layout = w->part->layout;
    return add(w, (qdri_node_desc){QDRI_NODE_LINEAR, name, {in}, {.linear = {desc, 0}}}, out);
}

static qdr_status add_residual(const walk *w, const char *name, qdr_edge a, qdr_edge b, qdr_edge *out)
{
    return add(w, (qdri_node_desc){.kind = QDRI_NODE_RESIDUAL, .name = name, .in = {a, b}}, out);
}

static qdr_status add_attention_half(const walk *w, qdr_edge in, qdr_edge *out)
{
    static const qdri_stand_in rotate = {.flops = {6, 6}, .bytes = {2, 2}};
    const qdr_network *n = w->network;
    const int are_together = n->kv_heads >= w->part->n_ranks_y && n->heads % n->kv_heads == 0;
    const qdr_block queries = {n->heads * n->head_size,
                               are_together ? n->head_size * (n->heads / n->kv_heads) : n->head_size};
    const qdr_block keys = {n->kv_heads * n->head_size, n->head_size};
    qdr_edge norm, qkv, mixed;
    QDR_TRY(add_norm(w, "norm1", in, &norm));
    QDR_TRY(add_linear(w, "qkv",
                       (qdr_linear_desc){.in = {{n->hidden, 1}},
                                         .out = {queries, keys, keys},
                                         .bias = n->qkv_bias,
                                         .out_row_unit = w->part->context}, /* attention needs whole sequences */
                       norm, &qkv));
    if (!n->positions)
        QDR_TRY(add(w, (qdri_node_desc){QDRI_NODE_STAND_IN, "rotate", {qkv}, {.stand_in = rotate}}, &qkv));
    QDR_TRY(add(w,
                (qdri_node_desc){QDRI_NODE_ATTENTION,
                                 "attention",
                                 {qkv},
                                 {.attention = {.head_size = n->head_size, .context = w->part->context}}},
                &mixed));
    return add_linear(w, "proj",
                      (qdr_linear_desc){.in = {queries}, .out = {{n->hidden, 1}}, .bias = n->out_bias, .transposed = 1},
                      mixed, out);
}

static qdr_status add_mlp_half(const walk *w, qdr_edge in, qdr_edge *out)
{
    const qdr_network *n = w->network;
    const qdr_block wide = {n->ffn, 1}, none = {0, 0};
    qdr_edge norm, fc, bent;
    QDR_TRY(add_norm(w, "norm2", in, &norm));
    QDR_TRY(add_linear(
        w, "fc", (qdr_linear_desc){.in = {{n->hidden, 1}}, .out = {wide, n->gated ? wide : none}, .bias = n->mlp_bias},
        norm, &fc));
    if (n->gated) {
        /* gate, up → out; gate, up, dout → both */
        const qdri_stand_in gate = {.out = {wide}, .flops = {12, 20}, .bytes = {3, 5}};
        QDR_TRY(add(w, (qdri_node_desc){QDRI_NODE_STAND_IN, "gate", {fc}, {.stand_in = gate}}, &bent));
    } else {
        QDR_TRY(add(w, (qdri_node_desc){.kind = QDRI_NODE_GELU, .name = "gelu", .in = {fc}}, &bent));
    }
    return add_linear(w, "fc2",
                      (qdr_linear_desc){.in = {wide}, .out = {{n->hidden, 1}}, .bias = n->mlp_bias, .transposed = 1},
                      bent, out);
}

static qdr_status add_layers(walk *w, qdr_edge *stream)
{
    for (w->layer = 0; w->layer < w->part->n_layers; w->layer++) {
        const qdr_edge before = *stream;
        qdr_edge attended, added, fed;
        QDR_TRY(add_attention_half(w, before, &attended));
        QDR_TRY(add_residual(w, "residual1", before, attended, &added));
        QDR_TRY(add_mlp_half(w, w->network->parallel_residual ? before : added, &fed));
        QDR_TRY(add_residual(w, "residual2", added, fed, stream));
    }
    return QDR_OK;
}

qdr_status qdri_network_add(const qdri_network_part *part, qdri_node_fn fn, void *user, qdr_edge in, qdr_edge *out)
{
    const qdr_network *n = part->network;
    walk w = {part, n, fn, user, -1};
    const qdr_embedding_desc embedding = {QDR_INIT(qdr_embedding_desc), .vocab = {n->vocab, 1},
                                          .features = {n->hidden, 1}, .context = n->positions ? part->context : 0,
                                          .layout = part->layout};
    const qdr_linear_desc tied = {QDR_INIT(qdr_linear_desc), .out_layout = part->layout};
    qdr_edge stream = in, norm, logits;
    if (part->has_ends)
        QDR_TRY(add(&w, (qdri_node_desc){QDRI_NODE_EMBEDDING, "embedding", {in}, {.embedding = embedding}}, &stream));
    QDR_TRY(add_layers(&w, &stream));
    *out = stream;
    if (!part->has_ends) return QDR_OK;
    QDR_TRY(add_norm(&w, "norm", stream, &norm));
    if (n->tied)
        QDR_TRY(add(&w, (qdri_node_desc){QDRI_NODE_LINEAR, "head", {norm}, {.linear = {tied, 1 + part->first_node}}},
                    &logits));
    else
        QDR_TRY(
            add_linear(&w, "head", (qdr_linear_desc){.in = {{n->hidden, 1}}, .out = {{n->vocab, 1}}}, norm, &logits));
    return add(&w, (qdri_node_desc){.kind = QDRI_NODE_CROSS_ENTROPY, .name = "loss", .in = {logits}}, out);
}

const char *qdri_network_lacks(const qdr_network *network)
{
    if (!network->positions) return "rotary positions";
    return network->gated ? "gated activations" : NULL;
}
