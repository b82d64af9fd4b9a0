/* SPDX-License-Identifier: Apache-2.0 */
/* Reading which layers of a network have windows, and which rotary positions. */
#include <string.h>

#include "core/sized.h"
#include "network/sizes.h"
#include "network/types.h"

/* Says what one layer has. */
typedef struct layer_words {
    int has_window, is_rotated;
} layer_words;

/* A list with an item for each layer; *has = 0: there is none. */
static qdr_status list_of(const qdri_json_node *root, const char *key, const qdr_network *net, qdri_json_node *list,
                          int *has)
{
    const qdri_json_node node = qdri_json_get(root, key);
    size_t n;
    *has = qdri_json_has(node);
    if (!*has) return QDR_OK;
    QDR_TRY(qdri_json_list(node, list, &n));
    if ((int64_t)n == net->layers) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has %zu items for %" PRId64 " layers; one for each is needed",
                    qdri_json_where(node).text, n, net->layers);
}

/* What the class does without lists. */
static layer_words by_rule(const qdri_type *type, int64_t layer, int64_t period, int64_t first)
{
    const int is_nth = (layer + 1) % period == 0;
    switch (type->layers) {
    case QDRI_ALIKE: return (layer_words){1, 1};
    case QDRI_FROM_LAYER: return (layer_words){layer >= first, 1};
    case QDRI_BY_ROTATION: return (layer_words){is_nth, !is_nth};
    default: return (layer_words){!is_nth, 1};
    }
}

static qdr_status read_count(const qdri_json_node *root, const char *key, int64_t least, int64_t otherwise,
                             int64_t *count)
{
    const qdri_json_node node = qdri_json_get(root, key);
    *count = otherwise;
    return qdri_is_given(node) ? qdri_json_int(node, least, QDRI_NETWORK_MOST, count) : QDR_OK;
}

/* The window that some layers have; 0: none has. */
static qdr_status read_window(const qdri_json_node *root, const qdri_type *type, int64_t *window)
{
    const qdri_json_node node = qdri_json_get(root, "sliding_window");
    const int64_t otherwise = qdri_is_given(node) ? 0 : type->window;
    int uses = type->window >= 0;
    *window = 0;
    if (type->layers == QDRI_FROM_LAYER || type->layers == QDRI_BY_ROTATION)
        QDR_TRY(qdri_json_flag_or(qdri_json_get(root, "use_sliding_window"), 0, &uses));
    return uses ? qdri_json_int_or(node, 1, QDRI_NETWORK_MOST, otherwise, window) : QDR_OK;
}

static qdr_status words_of(const qdri_json_node *windows, const qdri_json_node *rotations, int64_t layer,
                           layer_words *words)
{
    static const char *const names[] = {"full_attention", "sliding_attention"};
    int64_t is_rotated;
    if (rotations) {
        QDR_TRY(qdri_json_int(qdri_json_at(rotations, (size_t)layer), 0, 1, &is_rotated));
        words->is_rotated = (int)is_rotated;
        words->has_window = !is_rotated;
    }
    return windows ? qdri_json_word(qdri_json_at(windows, (size_t)layer), names, 2, &words->has_window) : QDR_OK;
}

static unsigned char kind_of(const qdri_type *type, layer_words words, int64_t window)
{
    const int has_window = words.has_window && window;
    const int turns = type->layers == QDRI_BY_PERIOD_ROTATED ? has_window : words.is_rotated;
    return (unsigned char)((has_window ? QDR_LAYER_WINDOW : 0) | (turns ? 0 : QDR_LAYER_UNROTATED) |
                           (type->layers == QDRI_BY_PERIOD_LOCAL && words.has_window ? QDR_LAYER_LOCAL : 0));
}

/* The last window_layers have windows, and nothing else differs: no bits. */
static void forget_usual(qdr_network *net)
{
    for (int64_t i = 0; i < net->layers; i++)
        if (net->layer_kinds[i] != (i < net->layers - net->window_layers ? 0 : QDR_LAYER_WINDOW)) return;
    memset(net->layer_kinds, 0, sizeof net->layer_kinds);
}

/* A list where the class knows none, or one with windows where other keys say that there are none. */
static qdr_status check_list(const qdri_json_node *root, const qdri_type *type, const qdr_network *net, int64_t listed)
{
    const int is_known = type->layers != QDRI_ALIKE;
    const int64_t expected = is_known && net->window ? listed : net->window_layers;
    if (listed == expected || (is_known && type->layers != QDRI_FROM_LAYER && type->layers != QDRI_BY_ROTATION))
        return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s has %" PRId64 " times \"sliding_attention\", but %s has windows in %" PRId64
                    " layers by its other keys; leave the list out, or correct it",
                    qdri_json_where(qdri_json_get(root, "layer_types")).text, listed, net->architecture, expected);
}

qdr_status qdri_read_layers(const qdri_json_node *root, const qdri_type *type, qdr_network *net)
{
    int64_t window, period = type->period ? type->period : 1, first = 0, listed = 0;
    int has_windows, has_rotations = 0;
    qdri_json_node windows, rotations;
    QDR_TRY(read_window(root, type, &window));
    QDR_TRY(list_of(root, "layer_types", net, &windows, &has_windows));
    if (type->layers == QDRI_BY_ROTATION)
        QDR_TRY(list_of(root, "no_rope_layers", net, &rotations, &has_rotations)); /* 1: with */
    if (type->layers == QDRI_FROM_LAYER) QDR_TRY(read_count(root, "max_window_layers", 0, 28, &first));
    if (type->period_key) QDR_TRY(read_count(root, type->period_key, 1, period, &period));
    const int differ = type->layers != QDRI_ALIKE && (window || type->layers >= QDRI_BY_PERIOD_ROTATED);
    if (differ && net->layers > QDR_NETWORK_MOST_LAYERS)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s: %" PRId64 " layers that are not alike; at most %d are known",
                        qdri_json_where(*root).text, net->layers, QDR_NETWORK_MOST_LAYERS);
    net->window = window;
    for (int64_t i = 0; i < net->layers && (differ || has_windows || has_rotations); i++) {
        layer_words words = by_rule(type, i, period, first);
        QDR_TRY(words_of(has_windows ? &windows : NULL, has_rotations ? &rotations : NULL, i, &words));
        listed += has_windows && words.has_window;
        if (!differ) continue;
        net->layer_kinds[i] = kind_of(type, words, window);
        net->window_layers += net->layer_kinds[i] & QDR_LAYER_WINDOW;
    }
    if (differ) forget_usual(net);
    if (!differ && window) net->window_layers = net->layers;
    if (net->window_layers == 0) net->window = 0;
    return has_windows ? check_list(root, type, net, listed) : QDR_OK;
}
