/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a transformer. Every product that writes to the residual stream is transposed: it reads what a normal
 * layer wrote, and writes what the next normal layer reads, so nothing is moved between layers. */
#include "schedule/network.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"

const char *const qdri_activation_names[QDRI_N_ACTIVATION_NAMES] = {"gelu",        "gelu_new",      "gelu_pytorch_tanh",
                                                                    "gelu_fast",   "gelu_accurate", "gelu_python_tanh",
                                                                    "gelu_python", "silu",          "swish",
                                                                    "relu",        "relu2"};

int qdri_activation_named(const char *name, qdr_activation_function *function)
{
    static const qdr_activation_function functions[QDRI_N_ACTIVATION_NAMES] = {
        QDR_GELU_ERF, QDR_GELU_TANH, QDR_GELU_TANH, QDR_GELU_TANH, QDR_GELU_TANH,   QDR_GELU_TANH,
        QDR_GELU_ERF, QDR_SILU,      QDR_SILU,      QDR_RELU,      QDR_RELU_SQUARED};
    for (int i = 0; i < QDRI_N_ACTIVATION_NAMES; i++) {
        if (strcmp(name, qdri_activation_names[i]) != 0) continue;
        *function = functions[i];
        return 1;
    }
    if (!*name) *function = QDR_GELU_TANH;
    return !*name;
}

void qdri_network_node_name(const qdri_node_desc *desc, int64_t layer, int64_t n_layers,
                            char name[QDRI_NETWORK_NAME_BYTES])
{
    if (layer >= 0 && layer < n_layers)
        snprintf(name, QDRI_NETWORK_NAME_BYTES, "block%" PRId64 ".%s", layer, desc->name);
    else
        snprintf(name, QDRI_NETWORK_NAME_BYTES, "%s", desc->name);
}

typedef struct walk {
    const qdri_network_part *part;
    const qdr_network *network;
    qdri_node_fn fn;
    void *user;
    int64_t layer;
    double *frequencies[2]; /* of rotary and of local_rotary; NULL: not needed yet */
} walk;

static qdr_status add(const walk *w, qdri_node_desc desc, qdr_edge *out)
{
    return w->fn(w->user, &desc, w->layer, out);
}

static qdr_status add_norm(const walk *w, const char *name, qdr_norm_desc desc, qdr_edge in, qdr_edge *out)
{
    desc.epsilon = w->network->norm_epsilon;
    desc.one_plus = w->network->norm_one_plus;
    return add(w, (qdri_node_desc){QDRI_NODE_NORM, name, {in}, {.norm = desc}}, out);
}

static qdr_status add_stream_norm(const walk *w, const char *name, qdr_edge in, qdr_edge *out)
{
    const qdr_norm_desc desc = {.kind = w->network->norm, .no_beta = w->network->norm_no_beta};
    return add_norm(w, name, desc, in, out);
}

static qdr_status add_linear(const walk *w, const char *name, qdr_linear_desc desc, qdr_edge in, qdr_edge *out)
{
    desc.out_layout = w->part->layout;
    return add(w, (qdri_node_desc){QDRI_NODE_LINEAR, name, {in}, {.linear = {desc, 0}}}, out);
}

static qdr_status add_residual(const walk *w, const char *name, qdr_edge a, qdr_edge b, qdr_edge *out)
{
    const qdr_residual_desc desc = {.factor = w->network->branch_factor};
    return add(w, (qdri_node_desc){QDRI_NODE_RESIDUAL, name, {a, b}, {.residual = desc}}, out);
}

/* The numbers of a set, which all layers that have it share. */
static qdr_status find_frequencies(walk *w, const qdr_rotary *rotary, int64_t n_pairs, const double **frequencies)
{
    double **set = &w->frequencies[rotary == &w->network->local_rotary];
    const qdr_rotary whole = qdri_rotary_whole(w->network, rotary);
    *frequencies = *set;
    if (*set) return QDR_OK;
    QDR_TRY(QDRI_NEW(n_pairs, "rotary positions", set));
    for (int64_t i = 0; i < n_pairs; i++) (*set)[i] = qdri_rotary_frequency(&whole, i, w->part->context);
    *frequencies = *set;
    return QDR_OK;
}

static qdr_status add_attention(walk *w, qdr_edge qkv, qdr_edge *out)
{
    const qdr_network *n = w->network;
    const qdr_rotary *rotary = qdri_layer_rotary(n, w->layer);
    qdr_attention_desc desc = {.head_size = n->head_size,
                               .context = w->part->context,
                               .scale = n->attention_scale,
                               .cap = n->attention_cap,
                               .head_norm = n->head_norm == QDR_HEAD_NORM_EACH,
                               .one_plus = n->norm_one_plus,
                               .epsilon = n->norm_epsilon,
                               .window = qdri_layer_window(n, w->layer),
                               .first_keys = w->part->first_keys};
    if (rotary) {
        desc.rotary_columns = qdri_rotary_columns(n, rotary);
        desc.interleaved = rotary->interleaved;
        desc.magnitude = rotary->magnitude;
        QDR_TRY(find_frequencies(w, rotary, desc.rotary_columns / 2, &desc.frequencies));
    }
    return add(w, (qdri_node_desc){QDRI_NODE_ATTENTION, "attention", {qkv}, {.attention = desc}}, out);
}

/* From what attention reads to what it adds to the stream. */
static qdr_status add_attention_half(walk *w, qdr_edge in, qdr_edge *out)
{
    const qdr_network *n = w->network;
    const int are_together = n->kv_heads >= w->part->n_ranks_y && n->heads % n->kv_heads == 0;
    const qdr_block queries = {n->heads * n->head_size,
                               are_together ? n->head_size * (n->heads / n->kv_heads) : n->head_size};
    const qdr_block keys = {n->kv_heads * n->head_size, n->head_size};
    qdr_edge qkv, mixed;
    QDR_TRY(add_linear(w, "qkv",
                       (qdr_linear_desc){.in = {{n->hidden, 1}},
                                         .out = {queries, keys, keys},
                                         .bias = n->qkv_bias,
                                         .out_row_unit = w->part->context}, /* attention needs whole sequences */
                       in, &qkv));
    if (n->head_norm == QDR_HEAD_NORM_ALL)
        QDR_TRY(add_norm(w, "qk_norm", (qdr_norm_desc){.kind = QDR_NORM_RMS, .n_blocks = 2}, qkv, &qkv));
    QDR_TRY(add_attention(w, qkv, &mixed));
    return add_linear(w, "proj",
                      (qdr_linear_desc){.in = {queries}, .out = {{n->hidden, 1}}, .bias = n->out_bias, .transposed = 1},
                      mixed, out);
}

/* The same of the MLP. */
static qdr_status add_mlp_half(walk *w, qdr_edge in, qdr_edge *out)
{
    const qdr_network *n = w->network;
    const qdr_block wide = {n->ffn, 1}, none = {0, 0};
    qdr_activation_desc act = {QDR_INIT(qdr_activation_desc), .gated = n->gated};
    qdr_edge fc, bent;
    (void)qdri_activation_named(n->activation, &act.function);
    QDR_TRY(add_linear(
        w, "fc", (qdr_linear_desc){.in = {{n->hidden, 1}}, .out = {wide, n->gated ? wide : none}, .bias = n->mlp_bias},
        in, &fc));
    const char *name = n->gated ? "gate" : act.function <= QDR_GELU_ERF ? "gelu" : "act";
    QDR_TRY(add(w, (qdri_node_desc){QDRI_NODE_ACTIVATION, name, {fc}, {.activation = act}}, &bent));
    return add_linear(w, "fc2",
                      (qdr_linear_desc){.in = {wide}, .out = {{n->hidden, 1}}, .bias = n->mlp_bias, .transposed = 1},
                      bent, out);
}

/* One half with its norms. in: the stream that it reads; shared: NULL, or the norm of the stream that is another half's
 * and this one's. */
static qdr_status add_half(walk *w, int is_mlp, qdr_edge in, const qdr_edge *shared, qdr_edge *normed, qdr_edge *out)
{
    const qdr_norm_place place = w->network->norm_place;
    qdr_edge made;
    *normed = shared ? *shared : in;
    if (!shared && place != QDR_NORM_AFTER) QDR_TRY(add_stream_norm(w, is_mlp ? "norm2" : "norm1", in, normed));
    QDR_TRY((is_mlp ? add_mlp_half : add_attention_half)(w, *normed, &made));
    *out = made;
    return place == QDR_NORM_BEFORE ? QDR_OK : add_stream_norm(w, is_mlp ? "after2" : "after1", made, out);
}

static qdr_status add_layers(walk *w, qdr_edge *stream)
{
    const int is_parallel = w->network->parallel_residual;
    const int shares_norm = is_parallel && w->network->norms_per_layer == 1;
    for (w->layer = 0; w->layer < w->part->n_layers; w->layer++) {
        const qdr_edge before = *stream;
        qdr_edge normed, attended, added, fed;
        QDR_TRY(add_half(w, 0, before, NULL, &normed, &attended));
        const qdr_edge shared = normed;
        QDR_TRY(add_residual(w, "residual1", before, attended, &added));
        QDR_TRY(add_half(w, 1, is_parallel ? before : added, shares_norm ? &shared : NULL, &normed, &fed));
        QDR_TRY(add_residual(w, "residual2", added, fed, stream));
    }
    return QDR_OK;
}

static qdr_status add_all(walk *w, qdr_edge in, qdr_edge *out)
{
    const qdri_network_part *part = w->part;
    const qdr_network *n = w->network;
    const qdr_embedding_desc embedding = {QDR_INIT(qdr_embedding_desc),
                                          .vocab = {n->vocab, 1},
                                          .features = {n->hidden, 1},
                                          .context = n->positions ? part->context : 0,
                                          .layout = part->layout,
                                          .factor = n->embedding_factor,
                                          .round_factor = n->round_embedding_factor};
    const qdr_cross_entropy_desc loss = {.factor = n->logits_factor, .cap = n->logits_cap, .z_loss = w->part->z_loss};
    const qdr_linear_desc tied = {QDR_INIT(qdr_linear_desc), .out_layout = part->layout};
    qdr_edge stream = in, norm, logits;
    if (part->has_ends)
        QDR_TRY(add(w, (qdri_node_desc){QDRI_NODE_EMBEDDING, "embedding", {in}, {.embedding = embedding}}, &stream));
    QDR_TRY(add_layers(w, &stream));
    *out = stream;
    if (!part->has_ends) return QDR_OK;
    QDR_TRY(add_stream_norm(w, "norm", stream, &norm));
    if (n->tied)
        QDR_TRY(add(w, (qdri_node_desc){QDRI_NODE_LINEAR, "head", {norm}, {.linear = {tied, 1 + part->first_node}}},
                    &logits));
    else
        QDR_TRY(
            add_linear(w, "head", (qdr_linear_desc){.in = {{n->hidden, 1}}, .out = {{n->vocab, 1}}}, norm, &logits));
    return add(w, (qdri_node_desc){QDRI_NODE_CROSS_ENTROPY, "loss", {logits}, {.loss = loss}}, out);
}

void qdri_network_enter(qdri_net *net, int64_t layer, int64_t n_layers)
{
    const int every = net->opts.recompute_every > 1 ? net->opts.recompute_every : 1;
    if (layer < 0 || layer >= n_layers) {
        qdri_net_end_segment(net);
        return;
    }
    if (layer != net->segment_layer && layer % every == 0) qdri_net_begin_segment(net);
    net->segment_layer = layer;
}

qdr_status qdri_network_add(const qdri_network_part *part, qdri_node_fn fn, void *user, qdr_edge in, qdr_edge *out)
{
    walk w = {part, part->network, fn, user, -1, {NULL, NULL}};
    const qdr_status status = add_all(&w, in, out);
    free(w.frequencies[0]);
    free(w.frequencies[1]);
    return status;
}

const char *qdri_network_lacks(const qdr_network *network)
{
    qdr_activation_function function;
    return qdri_activation_named(network->activation, &function) ? NULL : network->activation;
}
