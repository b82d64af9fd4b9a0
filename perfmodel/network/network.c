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

static qdr_status check(const qdr_network *net)
{
    for (int i = 0; i < qdri_n_network_keys; i++) QDR_TRY(check_member(net, &qdri_network_keys[i]));
    return qdri_network_check(net);
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

double qdri_mean_seen(double sequence, double window)
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
    made.attention_causal = 4 * q * ((layers - windows) * qdri_mean_seen(s, s) + windows * qdri_mean_seen(s, window));
    QDRI_GIVE(qdr_network_flops, flops, &made);
    return QDR_OK;
}
