/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a network. */
#include "network/keys.h"

static const char *const norms[] = {"layer", "rms"}, *const places[] = {"before", "after", "around"},
                         *const head_norms[] = {"none", "each", "all"}, *const kinds[] = {"default", "linear",
                                                                                          "dynamic", "llama3",
                                                                                          "yarn",    "longrope"};

#define KEY(kind, member)                                                                                              \
    {                                                                                                                  \
#member, kind, offsetof(qdr_network, member), sizeof(((qdr_network *)NULL)->member), NULL, 0                   \
    }
#define WORD(member, words)                                                                                            \
    {                                                                                                                  \
#member, QDRI_NETWORK_WORD, offsetof(qdr_network, member), sizeof(int), words, sizeof words / sizeof *words    \
    }
#define SIZE(member) KEY(QDRI_NETWORK_SIZE, member)
#define COUNT(member) KEY(QDRI_NETWORK_COUNT, member)
#define SWITCH(member) KEY(QDRI_NETWORK_SWITCH, member)
#define REAL(member) KEY(QDRI_NETWORK_REAL, member)
#define ROTARY(set)                                                                                                    \
    WORD(set.kind, kinds), SWITCH(set.interleaved), SWITCH(set.exact_bounds), COUNT(set.columns), COUNT(set.original), \
        REAL(set.theta), REAL(set.factor), REAL(set.magnitude), REAL(set.low), REAL(set.high),                         \
        KEY(QDRI_NETWORK_FACTORS, set.short_factors), KEY(QDRI_NETWORK_FACTORS, set.long_factors)

const qdri_network_key qdri_network_keys[] = {
    KEY(QDRI_NETWORK_TEXT, architecture),
    KEY(QDRI_NETWORK_TEXT, activation),
    SIZE(layers),
    SIZE(hidden),
    SIZE(heads),
    SIZE(kv_heads),
    SIZE(head_size),
    SIZE(ffn),
    SIZE(vocab),
    SIZE(context),
    COUNT(positions),
    COUNT(window),
    COUNT(window_layers),
    SWITCH(gated),
    SWITCH(qkv_bias),
    SWITCH(out_bias),
    SWITCH(mlp_bias),
    WORD(norm, norms),
    KEY(QDRI_NETWORK_NUMBER, norms_per_layer),
    SWITCH(tied),
    SWITCH(parallel_residual),
    WORD(norm_place, places),
    WORD(head_norm, head_norms),
    SWITCH(norm_one_plus),
    SWITCH(norm_no_beta),
    SWITCH(round_embedding_factor),
    REAL(norm_epsilon),
    REAL(attention_scale),
    REAL(attention_cap),
    REAL(logits_cap),
    REAL(embedding_factor),
    REAL(branch_factor),
    REAL(logits_factor),
    ROTARY(rotary),
    ROTARY(local_rotary),
    KEY(QDRI_NETWORK_LAYERS, layer_kinds),
};
const int qdri_n_network_keys = sizeof qdri_network_keys / sizeof *qdri_network_keys;
