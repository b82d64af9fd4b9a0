/* SPDX-License-Identifier: Apache-2.0 */
#include "model_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const llama_norms[][2] = {{"norm1", "input_layernorm"}, {"norm2", "post_attention_layernorm"}};
static const char *const gemma_norms[][2] = {{"norm1", "input_layernorm"},
                                             {"after1", "post_attention_layernorm"},
                                             {"norm2", "pre_feedforward_layernorm"},
                                             {"after2", "post_feedforward_layernorm"}};
static const char *const olmo_norms[][2] = {{"after1", "post_attention_layernorm"},
                                            {"after2", "post_feedforward_layernorm"}};
static const char *const glm_norms[][2] = {{"norm1", "input_layernorm"},
                                           {"after1", "post_self_attn_layernorm"},
                                           {"norm2", "post_attention_layernorm"},
                                           {"after2", "post_mlp_layernorm"}};
static const char *const gpt2_norms[][2] = {{"norm1", "ln_1"}, {"norm2", "ln_2"}};

static int is(const qdr_network *network, const char *type) { return strcmp(network->architecture, type) == 0; }

static int begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* The name of a layer's norm; NULL: it has no such norm. */
static const char *norm_of(const qdr_network *n, const char *part)
{
    const char *const(*norms)[2] = llama_norms;
    int n_norms = 2;
    if (begins(n->architecture, "gemma") && n->norms_per_layer == 4) norms = gemma_norms, n_norms = 4;
    if (begins(n->architecture, "olmo")) norms = olmo_norms;
    if (is(n, "glm4")) norms = glm_norms, n_norms = 4;
    if (is(n, "gpt2")) norms = gpt2_norms;
    for (int i = 0; i < n_norms; i++)
        if (strcmp(part, norms[i][0]) == 0) return norms[i][1];
    return NULL;
}

static void add(tensor_list *list, const char *layer, const char *name, const char *ending, int64_t n_rows,
                int64_t n_cols)
{
    tensor *t = &list->of[list->n++];
    const tensor *last = list->n > 1 ? t - 1 : NULL;
    *t = (tensor){.n_rows = n_rows, .n_cols = n_cols, .is_matrix = 1};
    if (last) t->first = last->first + last->n_rows * last->n_cols;
    snprintf(t->name, sizeof t->name, "%s%s%s", layer, name, ending);
}

/* A vector; norms that multiply by gamma begin as 1. */
static void add_vector(tensor_list *list, const char *layer, const char *name, const char *ending, int64_t n,
                       double base)
{
    add(list, layer, name, ending, 1, n);
    list->of[list->n - 1].is_matrix = 0;
    list->of[list->n - 1].base = base;
}

/* Rows of a weight, or elements of its bias. */
static void add_rows(tensor_list *list, const char *layer, const char *name, int is_bias, int64_t n_rows,
                     int64_t n_cols)
{
    if (is_bias)
        add_vector(list, layer, name, ".bias", n_rows, 0);
    else
        add(list, layer, name, ".weight", n_rows, n_cols);
}

static void add_queries(const qdr_network *n, const char *layer, int is_bias, tensor_list *list)
{
    const int64_t q = n->heads * n->head_size, k = n->kv_heads * n->head_size;
    if (is(n, "gpt2")) {
        add_rows(list, layer, "attn.c_attn", is_bias, q + 2 * k, n->hidden);
    } else if (is(n, "phi3")) {
        add_rows(list, layer, "self_attn.qkv_proj", is_bias, q + 2 * k, n->hidden);
    } else if (is(n, "gpt_neox")) {
        add_rows(list, layer, "attention.query_key_value", is_bias, q + 2 * k, n->hidden);
        list->of[0].heads = n->heads;
    } else {
        add_rows(list, layer, "self_attn.q_proj", is_bias, q, n->hidden);
        add_rows(list, layer, "self_attn.k_proj", is_bias, k, n->hidden);
        add_rows(list, layer, "self_attn.v_proj", is_bias, k, n->hidden);
    }
}

static void add_wide(const qdr_network *n, const char *layer, int is_bias, tensor_list *list)
{
    if (is(n, "phi3") || is(n, "glm4")) {
        add_rows(list, layer, "mlp.gate_up_proj", is_bias, 2 * n->ffn, n->hidden);
    } else if (n->gated) {
        add_rows(list, layer, "mlp.gate_proj", is_bias, n->ffn, n->hidden);
        add_rows(list, layer, "mlp.up_proj", is_bias, n->ffn, n->hidden);
    } else {
        add_rows(list, layer, is(n, "gpt_neox") ? "mlp.dense_h_to_4h" : "mlp.c_fc", is_bias, n->ffn, n->hidden);
    }
}

static const char *down_of(const qdr_network *n)
{
    return is(n, "gpt_neox") ? "mlp.dense_4h_to_h" : n->gated ? "mlp.down_proj" : "mlp.c_proj";
}

static const char *proj_of(const qdr_network *n)
{
    return is(n, "gpt2") ? "attn.c_proj" : is(n, "gpt_neox") ? "attention.dense" : "self_attn.o_proj";
}

/* part: "qkv", ending: "weight". */
static void add_of_layer(const qdr_network *n, const char *layer, const char *part, const char *ending,
                         tensor_list *list)
{
    const int64_t q = n->heads * n->head_size, k = n->kv_heads * n->head_size;
    const int is_bias = strcmp(ending, "bias") == 0 || strcmp(ending, "beta") == 0;
    const double base = n->norm_one_plus ? 0 : 1;
    if (norm_of(n, part)) {
        add_vector(list, layer, norm_of(n, part), is_bias ? ".bias" : ".weight", n->hidden, is_bias ? 0 : base);
    } else if (strcmp(part, "qkv") == 0) {
        add_queries(n, layer, is_bias, list);
    } else if (strcmp(part, "qk_norm") == 0) {
        add_vector(list, layer, "self_attn.q_norm", ".weight", q, base);
        add_vector(list, layer, "self_attn.k_norm", ".weight", k, base);
    } else if (strcmp(part, "attention") == 0) {
        add_vector(list, layer, *ending == 'q' ? "self_attn.q_norm" : "self_attn.k_norm", ".weight", n->head_size,
                   base);
    } else if (strcmp(part, "proj") == 0) {
        add_rows(list, layer, proj_of(n), is_bias, n->hidden, q);
    } else if (strcmp(part, "fc") == 0) {
        add_wide(n, layer, is_bias, list);
    } else if (strcmp(part, "fc2") == 0) {
        add_rows(list, layer, down_of(n), is_bias, n->hidden, n->ffn);
    }
    for (int i = 0; is(n, "gpt2") && i < list->n; i++)
        if (list->of[i].is_matrix) { /* stored [in, out] */
            const int64_t n_rows = list->of[i].n_rows;
            list->of[i].n_rows = list->of[i].n_cols;
            list->of[i].n_cols = n_rows;
            list->of[i].is_transposed = 1;
        }
}

static void add_of_ends(const qdr_network *n, const char *parameter, tensor_list *list)
{
    const int is_gpt2 = is(n, "gpt2"), is_neox = is(n, "gpt_neox");
    const char *norm = is_gpt2 ? "transformer.ln_f" : is_neox ? "gpt_neox.final_layer_norm" : "model.norm";
    if (strcmp(parameter, "embedding.weight") == 0)
        add(list, "",
            is_gpt2   ? "transformer.wte"
            : is_neox ? "gpt_neox.embed_in"
                      : "model.embed_tokens",
            ".weight", n->vocab, n->hidden);
    if (strcmp(parameter, "embedding.positions") == 0)
        add(list, "", "transformer.wpe", ".weight", n->positions, n->hidden);
    if (strcmp(parameter, "norm.gamma") == 0)
        add_vector(list, "", norm, ".weight", n->hidden, n->norm_one_plus ? 0 : 1);
    if (strcmp(parameter, "norm.beta") == 0) add_vector(list, "", norm, ".bias", n->hidden, 0);
    if (strcmp(parameter, "head.weight") == 0) add(list, "", "lm_head", ".weight", n->vocab, n->hidden);
}

int tensors_of(const qdr_network *network, const char *parameter, tensor_list *list)
{
    char layer[40], part[40], ending[40];
    int number;
    list->n = 0;
    if (sscanf(parameter, "block%d.%39[^.].%39s", &number, part, ending) == 3) {
        const char *layers = is(network, "gpt2")       ? "transformer.h"
                             : is(network, "gpt_neox") ? "gpt_neox.layers"
                                                       : "model.layers";
        snprintf(layer, sizeof layer, "%s.%d.", layers, number);
        add_of_layer(network, layer, part, ending, list);
    } else {
        add_of_ends(network, parameter, list);
    }
    return list->n > 0;
}

int64_t tensor_place(const tensor *t, int64_t i)
{
    int64_t row = i / t->n_cols;
    const int64_t col = i % t->n_cols;
    if (t->is_transposed) return t->first + col * t->n_rows + row;
    if (!t->heads) return t->first + i;
    const int is_vector = !t->is_matrix;
    const int64_t n = is_vector ? t->n_cols : t->n_rows, size = n / (3 * t->heads), at = is_vector ? col : row;
    const int64_t head = at / (3 * size), block = at / size % 3;
    row = block * t->heads * size + head * size + at % size;
    return t->first + (is_vector ? row : row * t->n_cols + col);
}

double tensor_value(const tensor *t, int64_t i) { return t->base + 0.2 * tensor_number(t->name, i); }

/* ---- numbers ---- */

/* Of zlib and PNG. */
static uint32_t crc32_of(const char *text)
{
    uint32_t crc = ~(uint32_t)0;
    for (; *text; text++) {
        crc ^= (unsigned char)*text;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

double tensor_number(const char *name, int64_t i)
{
    static _Thread_local char last[96];
    static _Thread_local uint32_t crc;
    if (strcmp(last, name) != 0) {
        snprintf(last, sizeof last, "%s", name);
        crc = crc32_of(name);
    }
    uint64_t z = ((uint64_t)crc << 32) + (uint64_t)i;
    z = z * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (double)((z ^ z >> 31) >> 11) / 4503599627370496.0 - 1;
}
