/* SPDX-License-Identifier: Apache-2.0 */
/* The places of ranks on a machine, and the link between two of them. Pure functions. */
#include "topo/machine.h"

static const char *const link_names[QDR_N_LINKS] = {
    "none", "same core or GPU", "shared cache", "XGMI in a module", "NVLink",  "XGMI", "NVSwitch",
    "PCI",  "NUMA node",        "package",      "between packages", "network",
};

const char *qdr_link_name(qdr_link link)
{
    const unsigned index = (unsigned)link;
    return index < QDR_N_LINKS ? link_names[index] : "?";
}

double qdr_topo_network_rate(const qdr_topo *topo)
{
    double fastest = 0;
    int n = 0;
    for (int i = 0; topo && i < topo->n_nics; i++) {
        const double rate = topo->nics[i].rate;
        if (rate > fastest) {
            fastest = rate;
            n = 0;
        }
        n += rate >= fastest;
    }
    return n * fastest;
}

/* ---- places ---- */

/* What all of these cores have in common. */
static void confine(qdr_topo_place *place, const qdr_topo_core *core, int index, int is_first)
{
    if (is_first) {
        place->package = core->package;
        place->numa = core->numa;
        place->cache = core->cache;
        place->core = index;
        return;
    }
    if (place->package != core->package) place->package = -1;
    if (place->numa != core->numa) place->numa = -1;
    if (place->cache != core->cache) place->cache = -1;
    place->core = -1;
}

void qdri_topo_confine(const qdr_topo *topo, const unsigned char *is_used, qdr_topo_place *place)
{
    int n = 0;
    *place = (qdr_topo_place){0, -1, -1, -1, -1, -1};
    for (int i = 0; i < topo->n_cores; i++)
        if (is_used[i]) confine(place, &topo->cores[i], i, n++ == 0);
}

static void spread_cores(const qdr_topo *topo, int index, int n_ranks, qdr_topo_place *place)
{
    const int64_t n = topo->n_cores;
    const int begin = (int)(index * n / n_ranks);
    int end = (int)((index + 1) * n / n_ranks);
    if (end <= begin) end = begin + 1; /* more ranks than cores */
    for (int i = begin; i < end && i < n; i++) confine(place, &topo->cores[i], i, i == begin);
}

static void spread_gpus(const qdr_topo *topo, int index, int n_ranks, qdr_topo_place *place)
{
    const int64_t n = topo->n_gpus;
    if (n == 0) return;
    place->gpu = n_ranks <= n ? index : (int)(index * n / n_ranks);
    place->package = topo->gpus[place->gpu].package;
    place->numa = topo->gpus[place->gpu].numa;
}

qdr_topo_place qdr_topo_spread(const qdr_topo *topo, int on_gpus, int node, int index, int n_ranks)
{
    qdr_topo_place place = {node, -1, -1, -1, -1, -1};
    if (!topo || index < 0 || index >= n_ranks) return place;
    if (on_gpus)
        spread_gpus(topo, index, n_ranks, &place);
    else
        spread_cores(topo, index, n_ranks, &place);
    return place;
}

/* ---- links between two places ---- */

const qdr_topo_gpu_link *qdri_topo_find_link(const qdr_topo *topo, int a, int b)
{
    const int low = a < b ? a : b, high = a < b ? b : a;
    for (int i = 0; topo && i < topo->n_gpu_links; i++)
        if (topo->gpu_links[i].a == low && topo->gpu_links[i].b == high) return &topo->gpu_links[i];
    return NULL;
}

static int are_equal(int a, int b) { return a >= 0 && a == b; }

/* The smallest part of the node that contains both. */
static qdr_link through_host(const qdr_topo_place *a, const qdr_topo_place *b)
{
    if (a->gpu < 0 && b->gpu < 0) {
        if (are_equal(a->core, b->core)) return QDR_LINK_SAME;
        if (are_equal(a->cache, b->cache)) return QDR_LINK_CACHE;
    }
    if (are_equal(a->numa, b->numa)) return QDR_LINK_NUMA;
    return are_equal(a->package, b->package) ? QDR_LINK_PACKAGE : QDR_LINK_NODE;
}

qdr_link qdr_topo_between(const qdr_topo *topo, const qdr_topo_place *a, const qdr_topo_place *b, double *rate,
                          int *is_assumed)
{
    double unused_rate;
    int unused;
    if (!rate) rate = &unused_rate;
    if (!is_assumed) is_assumed = &unused;
    *rate = 0;
    *is_assumed = 0;
    if (a->node != b->node) {
        *rate = qdr_topo_network_rate(topo);
        return QDR_LINK_NETWORK;
    }
    if (a->gpu < 0 || b->gpu < 0) return through_host(a, b);
    if (a->gpu == b->gpu) return QDR_LINK_SAME;
    const qdr_topo_gpu_link *link = qdri_topo_find_link(topo, a->gpu, b->gpu);
    if (!link) return through_host(a, b);
    *rate = link->rate;
    *is_assumed = link->is_assumed;
    return link->link;
}
