/* SPDX-License-Identifier: Apache-2.0 */
/* The members of a network as keys of files. */
#ifndef QDRI_PERFMODEL_NETWORK_KEYS_H
#define QDRI_PERFMODEL_NETWORK_KEYS_H

#include <stddef.h>
#include <stdio.h>

#include "core/json.h"
#include "quadrille/network.h"

typedef enum qdri_network_kind {
    QDRI_NETWORK_TEXT, /* char[bytes] */
    QDRI_NETWORK_SIZE, /* int64_t, at least 1 */
    QDRI_NETWORK_COUNT, /* int64_t, at least 0 */
    QDRI_NETWORK_NUMBER, /* int */
    QDRI_NETWORK_SWITCH, /* int: 0 or 1 */
    QDRI_NETWORK_WORD, /* an enum: one of `words` */
    QDRI_NETWORK_REAL, /* double */
    QDRI_NETWORK_FACTORS, /* double[QDR_ROTARY_MOST_FACTORS], of which the first are not 0 */
    QDRI_NETWORK_LAYERS /* layer_kinds: a digit for each layer */
} qdri_network_kind;

typedef struct qdri_network_key {
    const char *name;
    qdri_network_kind kind;
    size_t at, bytes;
    const char *const *words;
    int n_words;
} qdri_network_key;

/* All but the size and the name, in their order. */
extern const qdri_network_key qdri_network_keys[];
extern const int qdri_n_network_keys;
enum { QDRI_N_FIRST_NETWORK_KEYS = 21 }; /* files have these always, the others if they are not zero */
/* Writes the members as those of a JSON object, each after `between`; the first one follows another member if
 * !is_first. */
void qdri_network_put(FILE *file, const qdr_network *network, const char *between, int is_first);
/* Reads them from an object, and checks that they are a network; other_key: what it may have, too, or NULL. */
QDR_NODISCARD qdr_status qdri_network_take(qdri_json_node node, const char *other_key, qdr_network *network);

#endif
