/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and flops of a network, from its shape. */
#include <float.h>

#include "core/sized.h"
#include "core/status.h"
#include "network/keys.h"
#include "network/sizes.h"
#include "schedule/network.h"

/* What the kind of a member says of it. */
static qdr_status check_member(const qdr_network *net, const qdri_network_key *key)
{
    const void *at = (const char *)net + key->at;
    const int is_int = key->kind != QDRI_NETWORK_SIZE && key->kind != QDRI_NETWORK_COUNT;
    const int64_t least = key->kind == QDRI_NETWORK_SIZE, n = is_int ? *(const int *)at : *(const int64_t *)at;
    switch (key->kind) {
    case QDRI_NETWORK_SIZE:
    case QDRI_NETWORK_COUNT:
    case QDRI_NETWORK_NUMBER:
        if (n >= least && n <= QDRI_NETWORK_MOST) return QDR_OK;
        return QDR_FAIL(QDR_ERR_SHAPE, "network: %.63s has %s %" PRId64 "; from %" PRId64 " to %d", net->name,
                        key->name, n, least, QDRI_NETWORK_MOST);
    case QDRI_NETWORK_SWITCH: return qdri_check_switch("network", key->name, (int)n);
    case QDRI_NETWORK_WORD:
        if (n >= 0 && n < key->n_words) return QDR_OK;
        return QDR_FAIL(QDR_ERR_ARGUMENT, "network: %s is %d; use one of the constants of network.h, 0 to %d",
                        key->name, (int)n, key->n_words - 1);
    case QDRI_NETWORK_REAL:
        if (*(const double *)at >= 0 && *(const double *)at <= DBL_MAX) return QDR_OK;
        return QDR_FAIL(QDR_ERR_ARGUMENT, "network: %.63s has %s %g; a finite number of at least 0 is needed",
                        net->name, key->name, *(const double *)at);
    default: return QDR_OK;
    }
}

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

/* Numbers that are possible one by one may give angles that are none. */
static qdr_status check_frequencies(const qdr_network *net, const char *set, const qdr_rotary *rotary)
{
    enum { MOST = 4096 }; /* further ones are between these */
    const qdr_rotary r = qdri_rotary_whole(net, rotary);
    for (int64_t i = 0; i < (r.columns + 1) / 2 && i < MOST; i++)
        for (int is_long = 0; is_long < 2; is_long++) {
            const double f = qdri_rotary_frequency(&r, i, is_long ? net->context : 1);
            if (!(f >= 0 && f <= DBL_MAX))
                return QDR_FAIL(QDR_ERR_ARGUMENT,
                                "network: %.63s has %s positions that turn pair %" PRId64
                                " by %g each; check the base, the factors and the positions before scaling",
                                net->name, set, i, f);
        }
    return QDR_OK;
}

/* The sets that layers have. */
static qdr_status check_rotary(const qdr_network *net)
{
    const qdr_rotary *const sets[] = {&net->rotary, &net->local_rotary};
    static const char *const names[] = {"rotary", "local_rotary"};
    const int64_t most_turned = 65536; /* heads have hundreds of columns; each pair has an angle for each position */
    int has[2];
    qdri_network_rotaries(net, has);
    for (int i = 0; i < 2; i++) {
        const qdr_rotary *set = sets[i];
        const int64_t most = set->kind == QDR_ROTARY_LONGROPE ? 2 * (int64_t)QDR_ROTARY_MOST_FACTORS : most_turned;
        const int64_t n = set->columns ? set->columns : net->head_size;
        if (!has[i]) continue;
        if (n > net->head_size || n > most)
            return QDR_FAIL(QDR_ERR_SHAPE,
                            "network: %.63s turns %s.columns %" PRId64 " of heads of %" PRId64 "; at most %" PRId64
                            " can be turned",
                            net->name, names[i], n, net->head_size, net->head_size < most ? net->head_size : most);
        if (set->kind >= QDR_ROTARY_DYNAMIC && set->original < 1)
            return QDR_FAIL(QDR_ERR_SHAPE,
                            "network: %.63s has %s.original %" PRId64 ", but its kind needs the positions of before "
                            "scaling, at least 1",
                            net->name, names[i], set->original);
        QDR_TRY(check_frequencies(net, names[i], set));
    }
    return QDR_OK;
}

static qdr_status check(const qdr_network *net)
{
    for (int i = 0; i < qdri_n_network_keys; i++) QDR_TRY(check_member(net, &qdri_network_keys[i]));
    if (net->kv_heads > net->heads)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "network: %.63s has %" PRId64 " key heads for %" PRId64 " heads; at most one each", net->name,
                        net->kv_heads, net->heads);
    if (net->window_layers > net->layers)
        return QDR_FAIL(QDR_ERR_SHAPE, "network: %.63s has %" PRId64 " layers with a window, but %" PRId64 " layers",
                        net->name, net->window_layers, net->layers);
    QDR_TRY(check_norms(net));
    QDR_TRY(check_layers(net));
    return check_rotary(net);
}

/* ---- parameters ---- */

/* Sums of products that record an overflow. */
typedef struct sum {
    int64_t n;
    int too_large;
} sum;

static void add(sum *s, int64_t a, int64_t b)
{
    int64_t product = 0;
    s->too_large |= __builtin_mul_overflow(a, b, &product);
    s->too_large |= __builtin_add_overflow(s->n, product, &s->n);
}

qdr_status qdr_network_params(const qdr_network *given, qdr_network_counts *counts)
{
    qdr_network own;
    const qdr_network *network = &own;
    QDR_TRY(QDRI_CLEAR(qdr_network_counts, counts));
    QDR_TRY(QDRI_TAKE(qdr_network, given, &own));
    QDR_TRY(check(network));
    const int64_t norm = network->hidden * (network->norm == QDR_NORM_LAYER && !network->norm_no_beta ? 2 : 1);
    const int64_t of_heads[] = {0, 2 * network->head_size, (network->heads + network->kv_heads) * network->head_size};
    const int64_t norms = qdri_network_norms(network) * norm + of_heads[network->head_norm];
    const int64_t hidden = network->hidden, n_up = network->gated ? 2 : 1;
    const int64_t q = network->heads * network->head_size, kv = network->kv_heads * network->head_size;
    sum attention = {0, 0}, mlp = {0, 0};
    add(&attention, hidden, q);
    add(&attention, 2 * hidden, kv);
    add(&attention, q, hidden);
    if (network->qkv_bias) add(&attention, 1, q);
    if (network->qkv_bias) add(&attention, 2, kv);
    if (network->out_bias) add(&attention, 1, hidden);
    add(&mlp, n_up * hidden, network->ffn);
    add(&mlp, network->ffn, hidden);
    if (network->mlp_bias) add(&mlp, n_up, network->ffn);
    if (network->mlp_bias) add(&mlp, 1, hidden);
    sum layer = {0, attention.too_large || mlp.too_large};
    add(&layer, 1, attention.n);
    add(&layer, 1, mlp.n);
    add(&layer, 1, norms);
    sum total = {0, layer.too_large};
    add(&total, network->vocab, network->tied ? network->hidden : 2 * network->hidden);
    add(&total, network->positions, network->hidden);
    add(&total, network->layers, layer.n);
    add(&total, 1, norm);
    if (total.too_large)
        return QDR_FAIL(QDR_ERR_SHAPE, "network: the parameters of %.63s are too many for 63 bits; check its sizes",
                        network->name);
    const qdr_network_counts made = {
        .embedding = network->vocab * network->hidden,
        .positions = network->positions * network->hidden,
        .attention = attention.n,
        .mlp = mlp.n,
        .norms = norms,
        .layer = layer.n,
        .final_norm = norm,
        .head = network->tied ? 0 : network->vocab * network->hidden,
        .total = total.n,
    };
    QDRI_GIVE(qdr_network_counts, counts, &made);
    return QDR_OK;
}

/* ---- flops ---- */

/* The average number of positions that the tokens of a sequence attend to, at most `window` each. */
static double mean_seen(double sequence, double window)
{
    const double w = window < sequence ? window : sequence;
    return w - w * (w - 1) / (2 * sequence);
}

qdr_status qdr_network_flops_per_token(const qdr_network *given, int64_t sequence, qdr_network_flops *flops)
{
    qdr_network own;
    const qdr_network *network = &own;
    qdr_network_flops made;
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    QDR_TRY(QDRI_CLEAR(qdr_network_flops, flops));
    QDR_TRY(QDRI_TAKE(qdr_network, given, &own));
    QDR_TRY(qdr_network_params(network, &counts));
    if (sequence < 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "network: a sequence of %" PRId64 " tokens; 1 at least", sequence);
    const double layers = (double)network->layers, hidden = (double)network->hidden;
    const double q = (double)network->heads * (double)network->head_size;
    const double kv = (double)network->kv_heads * (double)network->head_size;
    const double n_mlp = network->gated ? 3 : 2, s = (double)sequence;
    const double windows = network->window ? (double)network->window_layers : 0;
    const double window = network->window && network->window < sequence ? (double)network->window : s;
    made.linear = 2 * layers * hidden * (2 * q + 2 * kv + n_mlp * (double)network->ffn);
    made.head = 2 * (double)network->vocab * hidden;
    made.attention = 4 * q * ((layers - windows) * s + windows * window);
    made.attention_causal = 4 * q * ((layers - windows) * mean_seen(s, s) + windows * mean_seen(s, window));
    QDRI_GIVE(qdr_network_flops, flops, &made);
    return QDR_OK;
}
