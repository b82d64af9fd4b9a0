/* SPDX-License-Identifier: Apache-2.0 */
/* The links used by the axes of a grid. Pure functions. */
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "core/size.h"
#include "topo/machine.h"

#define MAX_RANKS (1 << 20)

/* ---- the grid ---- */

static qdr_status check_sizes(const int sizes[QDR_N_AXES], int *n_ranks)
{
    int64_t n = 1;
    for (int i = 0; i < QDR_N_AXES; i++) {
        n *= sizes[i] < 1 ? 0 : sizes[i];
        if (n < 1 || n > MAX_RANKS)
            return QDR_FAIL(
                QDR_ERR_ARGUMENT,
                "topology: grid %dx%dx%dx%d; each axis must have 1 rank or more, and all axes together at most %d",
                sizes[0], sizes[1], sizes[2], sizes[3], MAX_RANKS);
    }
    *n_ranks = (int)n;
    return QDR_OK;
}

static qdr_status check_places(const qdr_topo *topo, const qdr_topo_place *places, int n_ranks)
{
    for (int rank = 0; rank < n_ranks; rank++) {
        const qdr_topo_place *place = &places[rank];
        if (place->node < 0 || place->node >= n_ranks)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: rank %d is on node %d; nodes of %d ranks are 0 to %d", rank,
                            place->node, n_ranks, n_ranks - 1);
        if (topo && place->gpu >= topo->n_gpus)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: rank %d is on GPU %d; there are %d", rank, place->gpu,
                            topo->n_gpus);
    }
    return QDR_OK;
}

/* ---- one axis ---- */

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

/* Among links of the same kind, an unknown rate (0) counts as the slowest. */
static int is_slower(qdr_link link, double rate, qdr_link than, double than_rate)
{
    if (link != than) return link > than;
    return rate < than_rate;
}

static void take_pair(const axis_walk *walk, int a, int b, qdr_topo_axis *axis, qdr_link *slowest)
{
    double rate;
    int is_assumed;
    const qdr_link link = qdr_topo_between(walk->topo, &walk->places[a], &walk->places[b], &rate, &is_assumed);
    if (link > *slowest) *slowest = link;
    if (!is_slower(link, rate, axis->inner, axis->inner_rate)) return;
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

static void measure_axes(axis_walk *walk, const int sizes[QDR_N_AXES], const char *order,
                         qdr_topo_axis axes[QDR_N_AXES])
{
    walk->stride = 1;
    for (int i = 0; i < QDR_N_AXES; i++) {
        const int axis = qdri_axis_of(order[i]);
        walk->n_members = sizes[axis];
        measure_axis(walk, &axes[axis]);
        walk->stride *= sizes[axis];
    }
}

qdr_status qdr_topo_map(const qdr_topo *topo, const int sizes[QDR_N_AXES], const char *order,
                        const qdr_topo_place *places, qdr_topo_axis axes[QDR_N_AXES])
{
    axis_walk walk = {.topo = topo, .places = places};
    qdr_status status = QDR_OK;
    if (!order) order = QDRI_USUAL_ORDER;
    if (!axes || !sizes || !places) return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: sizes, places or the result is NULL");
    memset(axes, 0, QDR_N_AXES * sizeof *axes);
    if (!qdri_is_order(order))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: the order '%s' must be a permutation of xyzd, fastest axis first",
                        order);
    QDR_TRY(check_sizes(sizes, &walk.n_ranks));
    QDR_TRY(check_places(topo, places, walk.n_ranks));
    QDR_TRY_OUT(status, QDRI_NEW(walk.n_ranks, "nodes of ranks", &walk.nodes));
    QDR_TRY_OUT(status, QDRI_NEW(walk.n_ranks, "links of groups", &walk.links));
    QDR_TRY_OUT(status, QDRI_NEW(walk.n_ranks, "members of groups", &walk.before));
    measure_axes(&walk, sizes, order, axes);
out:
    free(walk.nodes);
    free(walk.links);
    free(walk.before);
    return status;
}
