/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and flops of a network, from its shape. */
#include <float.h>

#include "core/sized.h"
#include "core/status.h"
#include "network/sizes.h"
#include "schedule/network.h"

static qdr_status check_words(const qdr_network *net)
{
    const struct {
        const char *what;
        int value, last;
    } words[] = {{"norm", (int)net->norm, QDR_NORM_RMS},
                 {"norm_place", (int)net->norm_place, QDR_NORM_AROUND},
                 {"head_norm", (int)net->head_norm, QDR_HEAD_NORM_ALL},
                 {"rotary.kind", (int)net->rotary.kind, QDR_ROTARY_LONGROPE},
                 {"local_rotary.kind", (int)net->local_rotary.kind, QDR_ROTARY_LONGROPE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].value < 0 || words[i].value > words[i].last)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "network: %s is %d; use one of the constants of network.h, 0 to %d",
                            words[i].what, words[i].value, words[i].last);
    return QDR_OK;
}

static qdr_status check_numbers(const qdr_network *net)
{
    const qdr_rotary *r = &net->rotary, *l = &net->local_rotary;
    const struct {
        const char *what;
        double value;
    } numbers[] = {{"norm_epsilon", net->norm_epsilon},
                   {"attention_scale", net->attention_scale},
                   {"attention_cap", net->attention_cap},
                   {"logits_cap", net->logits_cap},
                   {"embedding_factor", net->embedding_factor},
                   {"branch_factor", net->branch_factor},
                   {"logits_factor", net->logits_factor},
                   {"rotary.theta", r->theta},
                   {"rotary.factor", r->factor},
                   {"rotary.magnitude", r->magnitude},
                   {"rotary.low", r->low},
                   {"rotary.high", r->high},
                   {"local_rotary.theta", l->theta},
                   {"local_rotary.factor", l->factor},
                   {"local_rotary.magnitude", l->magnitude},
                   {"local_rotary.low", l->low},
                   {"local_rotary.high", l->high}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i].value >= 0 && numbers[i].value <= DBL_MAX))
            return QDR_FAIL(QDR_ERR_ARGUMENT, "network: %.63s has %s %g; a finite number of at least 0 is needed",
                            net->name, numbers[i].what, numbers[i].value);
    return QDR_OK;
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
    int has[2];
    qdri_network_rotaries(net, has);
    for (int i = 0; i < 2; i++) {
        const qdr_rotary *set = sets[i];
        const int64_t most = set->kind == QDR_ROTARY_LONGROPE ? 2 * (int64_t)QDR_ROTARY_MOST_FACTORS : net->head_size;
        const int64_t n = set->columns ? set->columns : net->head_size;
        if (!has[i]) continue;
        if (n < 0 || n > net->head_size || n > most)
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
    const struct {
        const char *what;
        int64_t n, least;
    } sizes[] = {
        {"layers", net->layers, 1},
        {"hidden", net->hidden, 1},
        {"heads", net->heads, 1},
        {"kv_heads", net->kv_heads, 1},
        {"head_size", net->head_size, 1},
        {"ffn", net->ffn, 1},
        {"vocab", net->vocab, 1},
        {"context", net->context, 1},
        {"positions", net->positions, 0},
        {"window", net->window, 0},
        {"window_layers", net->window_layers, 0},
        {"norms_per_layer", net->norms_per_layer, 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].n < sizes[i].least || sizes[i].n > QDRI_NETWORK_MOST)
            return QDR_FAIL(QDR_ERR_SHAPE, "network: %.63s has %s %" PRId64 "; from %" PRId64 " to %d", net->name,
                            sizes[i].what, sizes[i].n, sizes[i].least, QDRI_NETWORK_MOST);
    const struct {
        const char *what;
        int value;
    } switches[] = {{"gated", net->gated},
                    {"qkv_bias", net->qkv_bias},
                    {"out_bias", net->out_bias},
                    {"mlp_bias", net->mlp_bias},
                    {"tied", net->tied},
                    {"parallel_residual", net->parallel_residual},
                    {"norm_one_plus", net->norm_one_plus},
                    {"norm_no_beta", net->norm_no_beta}};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        QDR_TRY(qdri_check_switch("network", switches[i].what, switches[i].value));
    if (net->kv_heads > net->heads)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "network: %.63s has %" PRId64 " key heads for %" PRId64 " heads; at most one each", net->name,
                        net->kv_heads, net->heads);
    if (net->window_layers > net->layers)
        return QDR_FAIL(QDR_ERR_SHAPE, "network: %.63s has %" PRId64 " layers with a window, but %" PRId64 " layers",
                        net->name, net->window_layers, net->layers);
    QDR_TRY(check_words(net));
    QDR_TRY(check_numbers(net));
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
