/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a collective on a machine's links; and where the members of its group are: which levels of links connect
 * them, and who shares these. */
#ifndef QDRI_PERFMODEL_PRICE_COLLECTIVE_H
#define QDRI_PERFMODEL_PRICE_COLLECTIVE_H

#include "core/layout.h"
#include "price/simulate.h"
#include "quadrille/grid.h"

/* The kinds of groups on a grid: those of the axes, whose numbers are the axes', and of the levels of d. */
typedef enum qdri_group_kind { QDRI_OF_NEAR = QDR_N_AXES, QDRI_OF_FAR, QDRI_OF_COPIES, QDRI_N_GROUPS } qdri_group_kind;
/* A channel over which a kind of group communicates, and the kind of a channel's group. */
qdr_channel qdri_group_channel(int kind);
int qdri_group_kind_of(qdr_channel channel);

/* The groups of one kind, which are all alike. Level l connects units of the level below (single ranks below level 0);
 * a unit of level l has links[l].n_ranks ranks, that of the last level all. */
typedef struct qdri_group {
    int n_ranks;
    /* Members in a unit of level l; if units divide groups unequally, the average for the group that is divided most:
     * all others wait for it. */
    double n_inside[QDR_MAX_LINKS];
    double n_fewest[QDR_MAX_LINKS]; /* in the unit that has the smallest number of them */
    /* The largest number of groups that leave the same unit of the level below l at the same time. */
    double n_sharing[QDR_MAX_LINKS];
} qdri_group;

/* The group whose members' ranks are `stride` apart, among n_ranks_all ranks. */
qdri_group qdri_group_make(const qdr_machine *machine, int n_ranks, int stride, int n_ranks_all);
/* 1 if members of the group are connected only by level l or higher levels. */
int qdri_group_crosses(const qdri_group *group, int level);

/* One way to perform a collective: affine in the bytes of the whole vector. */
typedef struct qdri_way {
    double latency_secs, secs_per_byte;
} qdri_way;

enum { QDRI_MAX_WAYS = 2 * QDR_MAX_PROTOCOLS + 1 };

/* The ways of one group, while all groups of its kind do the same: for one pass over the vector (all-gather,
 * reduce-scatter) and for two (all-reduce). */
typedef struct qdri_ways {
    int n_ranks;
    double start_secs; /* added once, whatever the way */
    int n_once, n_twice;
    qdri_way once[QDRI_MAX_WAYS], twice[QDRI_MAX_WAYS];
    qdri_way message; /* from one rank to another */
    double full_rate[QDR_MAX_LINKS]; /* the rate at which the group's flow saturates each level; 0: not used */
    double slowdown; /* of the top level's link */
    double n_flows; /* number of flows that share it: one for each adapter near the members of a unit */
} qdri_ways;

/* The group of a kind on a grid; stride: of its axis. */
qdri_group qdri_group_on(const qdr_machine *machine, const qdri_position *position, int kind, int stride,
                         int n_ranks_all);

/* How the ranks of a kind of group communicate, by the set of faster axes: the same for all cases of a grid. */
typedef struct qdri_grid_ways {
    qdri_position position; /* the grid's; zeroed: none yet */
    qdri_ways of[QDRI_N_GROUPS][16];
    unsigned short known[QDRI_N_GROUPS];
} qdri_grid_ways;

qdri_ways qdri_ways_make(const qdr_machine *machine, const qdri_group *group);
/* A collective of a kind over n_bytes in total (for an all-gather or reduce-scatter: the parts of all members
 * together): the fastest way when it runs alone. Zero for a group of one. See docs/model.md. */
qdri_price qdri_coll_price(const qdri_ways *ways, qdr_coll_kind kind, double n_bytes);
/* The sum of its latency_secs and work_secs. */
double qdri_coll_secs(const qdri_ways *ways, qdr_coll_kind kind, double n_bytes);

#endif
