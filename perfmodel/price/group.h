/* SPDX-License-Identifier: Apache-2.0 */
/* The location of a group's members: which levels of links connect them, and who shares these. */
#ifndef QDRI_PERFMODEL_PRICE_GROUP_H
#define QDRI_PERFMODEL_PRICE_GROUP_H

#include "quadrille/machine.h"
#include "quadrille/types.h"

/* The groups of one axis, which are all alike. Level l connects units of the level below (single ranks below level 0);
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

/* The group of an axis whose members' ranks are `stride` apart, among n_ranks_all ranks. */
qdri_group qdri_group_make(const qdr_machine *machine, int n_ranks, int stride, int n_ranks_all);
/* 1 if members of the group are connected only by level l or higher levels. */
int qdri_group_crosses(const qdri_group *group, int level);

#endif
