/* SPDX-License-Identifier: Apache-2.0 */
/* The places of ranks on a machine, the link between two of them, and those used by the axes of a grid. Pure
 * functions. */
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "core/size.h"
#include "core/sized.h"
#include "topo/machine.h"

#define MAX_RANKS (1 << 20)

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
        const double rate = topo->lists->nics[i].rate;
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
        if (is_used[i]) confine(place, &topo->lists->cores[i], i, n++ == 0);
}

void qdr_topo_spread(const qdr_topo *topo, int on_gpus, int node, int index, int n_ranks, qdr_topo_place *place)
{
    if (!place) return;
    *place = (qdr_topo_place){node, -1, -1, -1, -1, -1};
    if (!topo || index < 0 || index >= n_ranks) return;
    const int64_t n = on_gpus ? topo->n_gpus : topo->n_cores;
    const int begin = (int)(index * n / n_ranks);
    if (!on_gpus) {
        int end = (int)((index + 1) * n / n_ranks);
        if (end <= begin) end = begin + 1; /* more ranks than cores */
        for (int i = begin; i < end && i < n; i++) confine(place, &topo->lists->cores[i], i, i == begin);
    } else if (n > 0) {
        place->gpu = n_ranks <= n ? index : begin;
        place->package = topo->lists->gpus[place->gpu].package;
        place->numa = topo->lists->gpus[place->gpu].numa;
    }
}

/* ---- links between two places ---- */

const qdr_topo_gpu_link *qdri_topo_find_link(const qdr_topo *topo, int a, int b)
{
    const int low = a < b ? a : b, high = a < b ? b : a;
    for (int i = 0; topo && i < topo->n_gpu_links; i++)
        if (topo->lists->gpu_links[i].a == low && topo->lists->gpu_links[i].b == high)
            return &topo->lists->gpu_links[i];
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

/* ---- the axes of a grid ---- */

/* Counters for each node. */
typedef struct node_count {
    int group, n_members, last; /* of the last group that was seen, from 1 on; its last rank here */
    int n_far; /* groups here whose slowest link is of the same kind as that of the axis */
} node_count;

typedef struct axis_walk {
    const qdr_topo *topo;
    const qdr_topo_place *places;
    node_count *nodes;
    qdr_link *links; /* by group: the slowest one */
    int *before; /* by rank: the previous member on its node; -1: none */
    int n_ranks, n_members, stride;
} axis_walk;

static void take_pair(const axis_walk *walk, int a, int b, qdr_topo_axis *axis, qdr_link *slowest)
{
    double rate;
    int is_assumed;
    const qdr_link link = qdr_topo_between(walk->topo, &walk->places[a], &walk->places[b], &rate, &is_assumed);
    if (link > *slowest) *slowest = link;
    /* Among links of the same kind, an unknown rate (0) counts as the slowest. */
    if (link < axis->inner || (link == axis->inner && rate >= axis->inner_rate)) return;
    axis->inner = link;
    axis->inner_rate = rate;
    axis->inner_is_assumed = is_assumed;
}

/* Compares each member with the earlier ones on its node; between nodes there is only one kind of link. `group` counts
 * from 1. */
static void measure_group(const axis_walk *walk, int first, int group, qdr_topo_axis *axis, qdr_link *slowest)
{
    int n_nodes = 0;
    for (int i = 0; i < walk->n_members; i++) {
        const int rank = first + i * walk->stride;
        node_count *node = &walk->nodes[walk->places[rank].node];
        if (node->group != group) {
            node->group = group;
            node->n_members = 0;
            node->last = -1;
            n_nodes++;
        }
        for (int other = node->last; other >= 0; other = walk->before[other])
            take_pair(walk, other, rank, axis, slowest);
        walk->before[rank] = node->last;
        node->last = rank;
        node->n_members++;
        if (node->n_members > axis->n_on_node) axis->n_on_node = node->n_members;
    }
    if (n_nodes > axis->n_nodes) axis->n_nodes = n_nodes;
    if (n_nodes > 1) *slowest = QDR_LINK_NETWORK;
}

/* The number of groups that use the axis' slowest link, on the node where it is largest. */
static void count_siblings(const axis_walk *walk, qdr_topo_axis *axis)
{
    int group = 0;
    for (int rank = 0; rank < walk->n_ranks; rank++) walk->nodes[rank].group = 0;
    for (int first = 0; first < walk->n_ranks; first++) {
        if (first / walk->stride % walk->n_members) continue;
        if (walk->links[group++] != axis->link) continue;
        for (int i = 0; i < walk->n_members; i++) {
            node_count *node = &walk->nodes[walk->places[first + i * walk->stride].node];
            if (node->group == group) continue;
            node->group = group;
            node->n_far++;
            if (node->n_far > axis->n_siblings) axis->n_siblings = node->n_far;
        }
    }
}

static void measure_axis(const axis_walk *walk, qdr_topo_axis *axis)
{
    int group = 0;
    memset(walk->nodes, 0, (size_t)walk->n_ranks * sizeof *walk->nodes);
    axis->n_ranks = walk->n_members;
    axis->stride = walk->stride;
    for (int first = 0; first < walk->n_ranks; first++) {
        if (first / walk->stride % walk->n_members) continue;
        qdr_link *slowest = &walk->links[group++];
        *slowest = QDR_LINK_NONE;
        measure_group(walk, first, group, axis, slowest);
        if (*slowest > axis->link) axis->link = *slowest;
    }
    if (axis->link == QDR_LINK_NETWORK) {
        axis->rate = qdr_topo_network_rate(walk->topo);
    } else {
        axis->rate = axis->inner_rate;
        axis->is_assumed = axis->inner_is_assumed;
    }
    if (axis->link != QDR_LINK_NONE) count_siblings(walk, axis);
}

qdr_status qdri_topo_check_grid(const int sizes[QDR_N_AXES], const char *order, const qdr_topo_place *places,
                                int *n_ranks)
{
    if (!sizes || !places) return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: sizes, places or the result is NULL");
    if (order && !qdri_is_order(order))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: the order '%s' must be a permutation of xyzd, fastest axis first",
                        order);
    int64_t n = 1;
    for (int i = 0; i < QDR_N_AXES; i++) {
        n *= sizes[i] < 1 ? 0 : sizes[i];
        if (n < 1 || n > MAX_RANKS)
            return QDR_FAIL(
                QDR_ERR_ARGUMENT,
                "topology: grid %dx%dx%dx%d; each axis must have 1 rank or more, and all axes together at most %d",
                sizes[0], sizes[1], sizes[2], sizes[3], MAX_RANKS);
    }
    for (int rank = 0; rank < n; rank++)
        if (places[rank].node < 0 || places[rank].node >= n)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: rank %d is on node %d; nodes of %d ranks are 0 to %d", rank,
                            places[rank].node, (int)n, (int)n - 1);
    *n_ranks = (int)n;
    return QDR_OK;
}

qdr_status qdr_topo_map(const qdr_topo *topo, const int sizes[QDR_N_AXES], const char *order,
                        const qdr_topo_place *places, qdr_axis axis, qdr_topo_axis *found)
{
    axis_walk walk = {.topo = topo, .places = places, .stride = 1};
    qdr_topo_axis own = {.n_ranks = 0};
    qdr_status status = QDR_OK;
    QDR_TRY(QDRI_CLEAR(qdr_topo_axis, found));
    QDR_TRY(qdri_topo_check_grid(sizes, order, places, &walk.n_ranks));
    if ((unsigned)axis >= QDR_N_AXES) return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: there is no axis %d", (int)axis);
    if (!order) order = QDRI_USUAL_ORDER;
    for (int rank = 0; rank < walk.n_ranks; rank++)
        if (topo && places[rank].gpu >= topo->n_gpus)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: rank %d is on GPU %d; there are %d", rank, places[rank].gpu,
                            topo->n_gpus);
    QDR_TRY_OUT(status, QDRI_NEW(walk.n_ranks, "nodes of ranks", &walk.nodes));
    QDR_TRY_OUT(status, QDRI_NEW(walk.n_ranks, "links of groups", &walk.links));
    QDR_TRY_OUT(status, QDRI_NEW(walk.n_ranks, "members of groups", &walk.before));
    for (int i = 0; qdri_axis_of(order[i]) != (int)axis; i++) walk.stride *= sizes[qdri_axis_of(order[i])];
    walk.n_members = sizes[axis];
    measure_axis(&walk, &own);
    QDRI_GIVE(qdr_topo_axis, found, &own);
out:
    free(walk.nodes);
    free(walk.links);
    free(walk.before);
    return status;
}
