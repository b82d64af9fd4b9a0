/* SPDX-License-Identifier: Apache-2.0 */
/* What the class of each model_type computes, and the keys and defaults of its config.json: those of the configuration
 * classes of transformers 5. */
#ifndef QDRI_PERFMODEL_NETWORK_TYPES_H
#define QDRI_PERFMODEL_NETWORK_TYPES_H

#include "core/json.h"
#include "quadrille/network.h"

/* The sizes that have a key. */
enum { QDRI_LAYERS, QDRI_HIDDEN, QDRI_HEADS, QDRI_VOCAB, QDRI_CONTEXT, QDRI_FFN, QDRI_N_TYPE_SIZES };

/* Which layers have windows and rotary positions. */
typedef enum qdri_layer_rule {
    QDRI_ALIKE, /* all have the window, if the class knows one */
    QDRI_FROM_LAYER, /* from max_window_layers on, with use_sliding_window */
    QDRI_BY_PERIOD, /* all but each period-th */
    QDRI_BY_PERIOD_ROTATED, /* the same; those without a window have no rotary positions */
    QDRI_BY_PERIOD_LOCAL, /* the same; those with a window have rotary positions of their own */
    QDRI_BY_ROTATION /* each period-th has no rotary positions, and a window with use_sliding_window */
} qdri_layer_rule;

typedef struct qdri_type {
    qdr_network shape; /* properties without a key */
    int64_t sizes[QDRI_N_TYPE_SIZES]; /* defaults; 0: 4·hidden */
    int64_t kv_heads; /* default if the key is absent; 0: same as heads; -1: there is no such key */
    int64_t head_size; /* 0: hidden / heads */
    int divides; /* 1: the class refuses heads that do not divide the hidden columns */
    const char *activation; /* default */
    const char *activation_key, *epsilon_key; /* NULL: hidden_act, rms_norm_eps */
    const char *bias_keys[3]; /* of q, k and v; of what follows attention; of the MLP; NULL: fixed */
    int is_gpt2; /* sizes have other keys, and positions are learned */
    int64_t window; /* default of sliding_window; -1: there is no such key */
    qdri_layer_rule layers;
    int64_t period; /* default */
    const char *period_key; /* NULL: fixed */
    int64_t original; /* default of original_max_position_embeddings, of the class itself; 0: it has no such key */
    double theta; /* default; 0: 10000 */
    const char *theta_key, *share_key; /* NULL: rope_theta; share: of a head's columns; NULL: all */
    double share; /* default; 0: 1 */
    double local_theta; /* default of windows' layers */
    const char *local_theta_key; /* NULL: none */
    double epsilon; /* default; 0: 1e-6 of RMS norms, 1e-5 of layer norms */
} qdri_type;

/* "cohere2, gemma, …" */
extern const char qdri_known_types[];
/* NULL: not known. */
const qdri_type *qdri_find_type(const char *model_type);

/* A default of the classes stands for an absent key; null is refused but where they say what it means. */
static inline int qdri_is_given(qdri_json_node node) { return qdri_json_kind_of(node) != QDRI_JSON_ABSENT; }

/* Steps of reading: each reads some keys into the network, or refuses them. */
QDR_NODISCARD qdr_status qdri_read_layers(const qdri_json_node *root, const qdri_type *type, qdr_network *net);
QDR_NODISCARD qdr_status qdri_read_rotary(const qdri_json_node *root, const qdri_type *type, qdr_network *net);

#endif
