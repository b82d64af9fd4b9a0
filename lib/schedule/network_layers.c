/* SPDX-License-Identifier: Apache-2.0 */
/* What the layers of a network have that others may not have: windows and rotary positions. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/sized.h"
#include "core/status.h"
#include "schedule/network.h"

static const double pi = 3.14159265358979323846;

/* ---- kinds of layers ---- */

int qdri_layer_kind(const qdr_network *net, int64_t layer)
{
    static const unsigned char none[QDR_NETWORK_MOST_LAYERS];
    const int64_t n = net->layers < QDR_NETWORK_MOST_LAYERS ? net->layers : QDR_NETWORK_MOST_LAYERS;
    if (n > 0 && memcmp(net->layer_kinds, none, (size_t)n) != 0) return layer < n ? net->layer_kinds[layer] : 0;
    return net->window && layer >= net->layers - net->window_layers ? QDR_LAYER_WINDOW : 0;
}

const qdr_rotary *qdri_layer_rotary(const qdr_network *net, int64_t layer)
{
    const int kind = qdri_layer_kind(net, layer);
    if (net->positions || kind & QDR_LAYER_UNROTATED) return NULL;
    return kind & QDR_LAYER_LOCAL ? &net->local_rotary : &net->rotary;
}

int64_t qdri_layer_window(const qdr_network *net, int64_t layer)
{
    return qdri_layer_kind(net, layer) & QDR_LAYER_WINDOW ? net->window : 0;
}

int64_t qdri_rotary_columns(const qdr_network *net, const qdr_rotary *rotary)
{
    return rotary->columns ? (rotary->columns + 1) / 2 * 2 : net->head_size;
}

qdr_rotary qdri_rotary_whole(const qdr_network *net, const qdr_rotary *rotary)
{
    qdr_rotary whole = *rotary;
    if (whole.columns == 0) whole.columns = net->head_size;
    if (whole.theta == 0) whole.theta = 1e4;
    if (whole.magnitude == 0) whole.magnitude = 1;
    return whole;
}

void qdri_network_rotaries(const qdr_network *net, int has[2])
{
    has[0] = has[1] = 0;
    for (int64_t i = 0; !net->positions && i < net->layers && i < QDR_NETWORK_MOST_LAYERS && !(has[0] && has[1]); i++)
        if (!(net->layer_kinds[i] & QDR_LAYER_UNROTATED)) has[(net->layer_kinds[i] & QDR_LAYER_LOCAL) != 0] = 1;
}

static qdr_status check_layer(const qdr_network *net, int64_t layer)
{
    if (layer >= 0 && layer < net->layers) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "network: layer %" PRId64 " of %.63s, which has %" PRId64, layer, net->name,
                    net->layers);
}

/* ---- frequencies ---- */

/* Low frequencies make fewer than `low` turns in the original positions, high ones more than `high`. */
static double llama3(const qdr_rotary *r, double frequency)
{
    const double turns = (double)r->original * frequency / (2 * pi);
    if (turns > r->high) return frequency;
    if (turns < r->low) return frequency / r->factor;
    const double share = (turns - r->low) / (r->high - r->low);
    return (1 - share) * frequency / r->factor + share * frequency;
}

/* The index of the pair that makes so many turns in the original positions. */
static double pair_of(const qdr_rotary *r, double columns, double turns)
{
    return columns * log((double)r->original / (turns * 2 * pi)) / (2 * log(r->theta));
}

static double yarn(const qdr_rotary *r, double columns, double i, double frequency)
{
    double low = pair_of(r, columns, r->high), high = pair_of(r, columns, r->low);
    if (!r->exact_bounds) low = floor(low), high = ceil(high);
    low = fmax(low, 0), high = fmin(high, columns - 1);
    if (low == high) high += 0.001;
    const double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return frequency / r->factor * ramp + frequency * (1 - ramp);
}

double qdri_rotary_frequency(const qdr_rotary *r, int64_t i, int64_t sequence)
{
    double theta = r->theta;
    const double columns = (double)r->columns, original = (double)r->original,
                 length = fmax((double)sequence, original);
    if (r->kind == QDR_ROTARY_DYNAMIC)
        theta *= pow(r->factor * length / original - (r->factor - 1), columns / (columns - 2));
    const double frequency = pow(theta, -2 * (double)i / columns);
    switch (r->kind) {
    case QDR_ROTARY_LINEAR: return frequency / r->factor;
    case QDR_ROTARY_LLAMA3: return llama3(r, frequency);
    case QDR_ROTARY_YARN: return yarn(r, columns, (double)i, frequency);
    case QDR_ROTARY_LONGROPE: return frequency / (sequence > r->original ? r->long_factors : r->short_factors)[i];
    default: return frequency;
    }
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

qdr_status qdri_rotary_check(const qdr_network *net, const char *name, const qdr_rotary *set)
{
    const int64_t most_turned = 65536; /* heads have hundreds of columns; each pair has an angle for each position */
    const int64_t most = set->kind == QDR_ROTARY_LONGROPE ? 2 * (int64_t)QDR_ROTARY_MOST_FACTORS : most_turned;
    const int64_t n = set->columns ? set->columns : net->head_size;
    if (n > net->head_size || n > most)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "network: %.63s turns %s.columns %" PRId64 " of heads of %" PRId64 "; at most %" PRId64
                        " can be turned",
                        net->name, name, n, net->head_size, net->head_size < most ? net->head_size : most);
    if (set->kind >= QDR_ROTARY_DYNAMIC && set->original < 1)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "network: %.63s has %s.original %" PRId64 ", but its kind needs the positions of before "
                        "scaling, at least 1",
                        net->name, name, set->original);
    return check_frequencies(net, name, set);
}

/* ---- public functions ---- */

qdr_status qdr_network_describe_layer(const qdr_network *given, int64_t layer, qdr_network_layer *described)
{
    qdr_network net;
    QDR_TRY(QDRI_CLEAR(qdr_network_layer, described));
    QDR_TRY(QDRI_TAKE(qdr_network, given, &net));
    QDR_TRY(check_layer(&net, layer));
    const qdr_rotary *rotary = qdri_layer_rotary(&net, layer);
    qdr_network_layer made = {.window = qdri_layer_window(&net, layer)};
    if (rotary) {
        made.rotary_columns = qdri_rotary_columns(&net, rotary);
        made.interleaved = rotary->interleaved;
    }
    QDRI_GIVE(qdr_network_layer, described, &made);
    return QDR_OK;
}

qdr_status qdr_network_rotary(const qdr_network *given, int64_t layer, int64_t sequence, double *frequencies,
                              double *magnitude)
{
    qdr_network net;
    QDR_TRY(QDRI_TAKE(qdr_network, given, &net));
    QDR_TRY(check_layer(&net, layer));
    const qdr_rotary *rotary = qdri_layer_rotary(&net, layer);
    if (!frequencies || !magnitude || !rotary || sequence < 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "network: frequencies of layer %" PRId64 " of %.63s for %" PRId64 " tokens; the layer needs "
                        "rotary positions, the sequence a token, and the results places",
                        layer, net.name, sequence);
    const qdr_rotary r = qdri_rotary_whole(&net, rotary);
    QDR_TRY(qdri_rotary_check(&net, "rotary", rotary));
    for (int64_t i = 0; i < (r.columns + 1) / 2; i++) frequencies[i] = qdri_rotary_frequency(&r, i, sequence);
    *magnitude = r.magnitude;
    return QDR_OK;
}
