/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the members of a network fit each other, for the model and for stacks. */
#include "core/sized.h"
#include "core/status.h"
#include "schedule/network.h"

int qdri_network_norms(const qdr_network *net)
{
    const int is_shared = net->norm_place == QDR_NORM_BEFORE && net->parallel_residual && net->norms_per_layer == 1;
    return is_shared ? 1 : net->norm_place == QDR_NORM_AROUND ? 4 : 2;
}

static qdr_status check_norms(const qdr_network *net)
{
    if (net->norms_per_layer == 0 || net->norms_per_layer == qdri_network_norms(net)) return QDR_OK;
    return QDR_FAIL(
        QDR_ERR_SHAPE,
        "network: %.63s has %d norms_per_layer; with its norm_place there are %d, or 1 that parallel halves "
        "share",
        net->name, net->norms_per_layer, qdri_network_norms(net));
}

/* Members that are constants of network.h. */
static qdr_status check_words(const qdr_network *net)
{
    const struct {
        const char *name;
        int value, last;
    } words[] = {{"norm", (int)net->norm, QDR_NORM_RMS},
                 {"norm_place", (int)net->norm_place, QDR_NORM_AROUND},
                 {"head_norm", (int)net->head_norm, QDR_HEAD_NORM_ALL},
                 {"rotary.kind", (int)net->rotary.kind, QDR_ROTARY_LONGROPE},
                 {"local_rotary.kind", (int)net->local_rotary.kind, QDR_ROTARY_LONGROPE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].value < 0 || words[i].value > words[i].last)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "network: %s is %d; use one of the constants of network.h, 0 to %d",
                            words[i].name, words[i].value, words[i].last);
    return QDR_OK;
}

/* What kinds of layers say, or windows alone. */
static qdr_status check_layers(const qdr_network *net)
{
    int64_t n_windows = 0;
    int some = 0;
    for (int64_t i = 0; i < QDR_NETWORK_MOST_LAYERS; i++) {
        const int kind = net->layer_kinds[i];
        if (kind > (QDR_LAYER_WINDOW | QDR_LAYER_UNROTATED | QDR_LAYER_LOCAL) || (kind && i >= net->layers))
            return QDR_FAIL(QDR_ERR_ARGUMENT, "network: %.63s has kind %d for layer %" PRId64 " of %" PRId64, net->name,
                            kind, i, net->layers);
        some |= kind;
        n_windows += kind & QDR_LAYER_WINDOW;
    }
    if (some && net->layers > QDR_NETWORK_MOST_LAYERS)
        return QDR_FAIL(QDR_ERR_SHAPE, "network: %.63s has %" PRId64 " layers that are not alike; at most %d are known",
                        net->name, net->layers, QDR_NETWORK_MOST_LAYERS);
    if (some && n_windows != net->window_layers)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "network: %.63s has %" PRId64 " window_layers, but %" PRId64 " of its layer_kinds have windows",
                        net->name, net->window_layers, n_windows);
    return QDR_OK;
}

qdr_status qdri_network_check(const qdr_network *net)
{
    int has[2];
    if (net->heads < 1 || net->kv_heads < 1)
        return QDR_FAIL(QDR_ERR_SHAPE, "network: %" PRId64 " heads and %" PRId64 " key heads; at least 1 of each",
                        net->heads, net->kv_heads);
    if (net->kv_heads > net->heads)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "network: %.63s has %" PRId64 " key heads for %" PRId64 " heads; at most one each", net->name,
                        net->kv_heads, net->heads);
    if (net->window_layers > net->layers)
        return QDR_FAIL(QDR_ERR_SHAPE, "network: %.63s has %" PRId64 " layers with a window, but %" PRId64 " layers",
                        net->name, net->window_layers, net->layers);
    QDR_TRY(check_words(net));
    QDR_TRY(check_norms(net));
    QDR_TRY(check_layers(net));
    qdri_network_rotaries(net, has); /* the sets that layers have */
    if (has[0]) QDR_TRY(qdri_rotary_check(net, "rotary", &net->rotary));
    return has[1] ? qdri_rotary_check(net, "local_rotary", &net->local_rotary) : QDR_OK;
}
