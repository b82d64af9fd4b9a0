/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a network as keys of files. */
#ifndef QDRI_PERFMODEL_NETWORK_KEYS_H
#define QDRI_PERFMODEL_NETWORK_KEYS_H

#include <stddef.h>

#include "quadrille/network.h"

typedef enum qdri_network_kind {
    QDRI_NETWORK_TEXT, /* char[bytes] */
    QDRI_NETWORK_COUNT, /* int64_t */
    QDRI_NETWORK_NUMBER, /* int */
    QDRI_NETWORK_SWITCH, /* int: 0 or 1 */
    QDRI_NETWORK_NORM /* qdr_norm_kind: one of qdri_norm_words */
} qdri_network_kind;

typedef struct qdri_network_key {
    const char *name;
    qdri_network_kind kind;
    size_t at, bytes;
} qdri_network_key;

/* All but the version and the name, in their order. */
enum { QDRI_N_NETWORK_KEYS = 21 };
extern const qdri_network_key qdri_network_keys[QDRI_N_NETWORK_KEYS];
extern const char *const qdri_norm_words[2];
/* The value as a whole number; of a text 0. */
int64_t qdri_network_get(const qdr_network *network, const qdri_network_key *key);
void qdri_network_set(qdr_network *network, const qdri_network_key *key, int64_t value);

#endif
