/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer as nodes, in order of execution: the one description that stacks, the planner and benchmarks share. */
#ifndef QDRI_SCHEDULE_NETWORK_H
#define QDRI_SCHEDULE_NETWORK_H

#include "quadrille/network.h"
#include "schedule/net.h"

typedef struct qdri_network_part {
    const qdr_network *network;
    int64_t context; /* tokens of a sequence */
    qdr_layout layout; /* of all edges */
    int64_t n_layers;
    int has_ends; /* also embedding, last norm, head and loss */
    int first_node; /* its number */
    const qdr_edge *first_keys; /* as in qdr_attention_desc */
    double z_loss; /* as in qdr_cross_entropy_desc */
    int n_ranks_y; /* query heads that share a key head stay together if there is a key head for each */
} qdri_network_part;

/* Adds a node. desc->name: of its part of the layer, "fc"; layer: from 0 on; -1: before the layers, n_layers: after
 * them */
typedef qdr_status (*qdri_node_fn)(void *user, const qdri_node_desc *desc, int64_t layer, qdr_edge *edge);

enum { QDRI_NETWORK_NAME_BYTES = 64 };
/* The node's name in a whole network: "block0.fc" in a layer, else its own. */
void qdri_network_node_name(const qdri_node_desc *desc, int64_t layer, int64_t n_layers,
                            char name[QDRI_NETWORK_NAME_BYTES]);

/* Names of activations in transformers that the library computes. */
enum { QDRI_N_ACTIVATION_NAMES = 11 };
extern const char *const qdri_activation_names[QDRI_N_ACTIVATION_NAMES];
/* The function by its name; "" is GELU by tanh. @return 0: the library lacks it, and *function stays */
int qdri_activation_named(const char *name, qdr_activation_function *function);

/* What a network is made of that the library lacks, such as "rotary positions"; NULL: nothing. */
const char *qdri_network_lacks(const qdr_network *network);

/* Whether its members fit each other. */
QDR_NODISCARD qdr_status qdri_network_check(const qdr_network *network);
QDR_NODISCARD qdr_status qdri_rotary_check(const qdr_network *network, const char *name, const qdr_rotary *rotary);
/* Norms of a layer on the stream. */
int qdri_network_norms(const qdr_network *network);
/* Bits of a layer that there is: of layer_kinds, or those for which window_layers stands. */
int qdri_layer_kind(const qdr_network *network, int64_t layer);
/* NULL: the layer, which there is, has no rotary positions. */
const qdr_rotary *qdri_layer_rotary(const qdr_network *network, int64_t layer);
/* 0: none. */
int64_t qdri_layer_window(const qdr_network *network, int64_t layer);
/* Of each head, an even number. */
int64_t qdri_rotary_columns(const qdr_network *network, const qdr_rotary *rotary);
/* The same set with what its zeros stand for. */
qdr_rotary qdri_rotary_whole(const qdr_network *network, const qdr_rotary *rotary);
/* Which of rotary and local_rotary any layer has. */
void qdri_network_rotaries(const qdr_network *network, int has[2]);
/* By how much a position turns pair i, in sequences of so many tokens; the set is whole. */
double qdri_rotary_frequency(const qdr_rotary *rotary, int64_t i, int64_t sequence);

enum { QDRI_NETWORK_NODES_OF_LAYER = 14, QDRI_NETWORK_NODES_OF_ENDS = 4 }; /* at most */

/* Before a node of this layer is added, of n_layers (others: of the ends): begins or ends a segment, of as many layers
 * as the net's options say. */
void qdri_network_enter(qdri_net *net, int64_t layer, int64_t n_layers);

/* Has the nodes added, from `in`, the tokens or, without ends, an activation of `hidden` columns over x. out: the
 * targets of the loss, or the output. */
QDR_NODISCARD qdr_status qdri_network_add(const qdri_network_part *part, qdri_node_fn add, void *user, qdr_edge in,
                                          qdr_edge *out);

#endif
