/* SPDX-License-Identifier: Apache-2.0 */
/* Where the members of a group lie: which levels of links join them, and who shares these. */
#ifndef QDRI_PERFMODEL_GROUP_H
#define QDRI_PERFMODEL_GROUP_H

#include "quadrille/machine.h"
#include "quadrille/types.h"

/* The groups of one axis, all alike. Level l joins units of the level below (single ranks below level 0); a unit of
 * level l has links[l].n_ranks ranks, that of the last level all. */
typedef struct qdri_group {
    int n_ranks;
    /* Members in a unit of level l; where units cut groups unequally, the mean of the group that is cut most: all
     * others wait for it. */
    double n_inside[QDR_MAX_LINKS];
    double n_fewest[QDR_MAX_LINKS]; /* in the unit that has fewest of them */
    /* Groups that leave the same unit of the level below l at the same time, at most. */
    double n_sharing[QDR_MAX_LINKS];
} qdri_group;

/* The group of an axis whose members' ranks are `stride` apart, among n_ranks_all ranks. */
qdri_group qdri_group_make(const qdr_machine *machine, int n_ranks, int stride, int n_ranks_all);
/* 1 where members of the group meet only on level l or above it. */
int qdri_group_crosses(const qdri_group *group, int level);

#endif
