/* SPDX-License-Identifier: Apache-2.0 */
#include "network/keys.h"
#include "core/sized.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KEY(kind, member)                                                                                              \
    {                                                                                                                  \
#member, kind, offsetof(qdr_network, member), sizeof(((qdr_network *)NULL)->member)                            \
    }
#define COUNT(member) KEY(QDRI_NETWORK_COUNT, member)
#define SWITCH(member) KEY(QDRI_NETWORK_SWITCH, member)

const qdri_network_key qdri_network_keys[QDRI_N_NETWORK_KEYS] = {
    KEY(QDRI_NETWORK_TEXT, architecture),
    KEY(QDRI_NETWORK_TEXT, activation),
    COUNT(layers),
    COUNT(hidden),
    COUNT(heads),
    COUNT(kv_heads),
    COUNT(head_size),
    COUNT(ffn),
    COUNT(vocab),
    COUNT(context),
    COUNT(positions),
    COUNT(window),
    COUNT(window_layers),
    SWITCH(gated),
    SWITCH(qkv_bias),
    SWITCH(out_bias),
    SWITCH(mlp_bias),
    KEY(QDRI_NETWORK_NORM, norm),
    KEY(QDRI_NETWORK_NUMBER, norms_per_layer),
    SWITCH(tied),
    SWITCH(parallel_residual),
};

const char *const qdri_norm_words[2] = {"layer", "rms"};

int64_t qdri_network_get(const qdr_network *network, const qdri_network_key *key)
{
    const void *at = (const char *)network + key->at;
    switch (key->kind) {
    case QDRI_NETWORK_COUNT: return *(const int64_t *)at;
    case QDRI_NETWORK_NUMBER:
    case QDRI_NETWORK_SWITCH: return *(const int *)at;
    case QDRI_NETWORK_NORM: return (int64_t) * (const qdr_norm_kind *)at;
    default: return 0;
    }
}

void qdri_network_set(qdr_network *network, const qdri_network_key *key, int64_t value)
{
    void *at = (char *)network + key->at;
    if (key->kind == QDRI_NETWORK_COUNT) *(int64_t *)at = value;
    if (key->kind == QDRI_NETWORK_NUMBER || key->kind == QDRI_NETWORK_SWITCH) *(int *)at = (int)value;
    if (key->kind == QDRI_NETWORK_NORM) *(qdr_norm_kind *)at = (qdr_norm_kind)value;
}

static const char *text_of(const qdr_network *network, const qdri_network_key *key)
{
    return (const char *)network + key->at;
}

static int is_tanh_gelu(const char *activation)
{
    static const char *const names[] = {"gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python_tanh",
                                        "gelu_accurate"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(activation, names[i]) == 0) return 1;
    return 0;
}

static int is_same(const qdr_network *a, const qdr_network *b, const qdri_network_key *key)
{
    if (key->kind != QDRI_NETWORK_TEXT) return qdri_network_get(a, key) == qdri_network_get(b, key);
    const char *one = text_of(a, key), *two = text_of(b, key);
    return strcmp(one, two) == 0 || (is_tanh_gelu(one) && is_tanh_gelu(two));
}

static void show(const qdr_network *network, const qdri_network_key *key, char text[40])
{
    const int64_t value = qdri_network_get(network, key);
    if (key->kind == QDRI_NETWORK_TEXT)
        snprintf(text, 40, "%.39s", text_of(network, key));
    else if (key->kind == QDRI_NETWORK_SWITCH)
        snprintf(text, 40, "%s", value ? "true" : "false");
    else if (key->kind == QDRI_NETWORK_NORM)
        snprintf(text, 40, "%s", qdri_norm_words[value == QDR_NORM_RMS]);
    else
        snprintf(text, 40, "%" PRId64, value);
}

int qdr_network_differ(const qdr_network *first, const qdr_network *second, qdr_network_difference *difference)
{
    qdr_network a, b;
    qdr_network_difference found;
    if (!first || !second) return first != second;
    if (QDRI_TAKE(qdr_network, first, &a) != QDR_OK || QDRI_TAKE(qdr_network, second, &b) != QDR_OK) return 1;
    for (const qdri_network_key *key = qdri_network_keys; key < qdri_network_keys + QDRI_N_NETWORK_KEYS; key++) {
        if (is_same(&a, &b, key)) continue;
        found.key = key->name;
        show(&a, key, found.first);
        show(&b, key, found.second);
        if (difference) QDRI_GIVE(qdr_network_difference, difference, &found);
        return 1;
    }
    return 0;
}
