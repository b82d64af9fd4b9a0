/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of ranks that communicate over each channel of a grid, and the levels into which d is cut. Pure functions
 * of sizes and coordinates. */
#ifndef QDRI_CORE_GROUP_H
#define QDRI_CORE_GROUP_H

#include "core/layout.h"
#include "quadrille/grid.h"

/* The ranks of a channel on its axis: every stride-th, beginning with the one whose coordinate is `first`. */
typedef struct qdri_channel_group {
    int size; /* 1: nothing is communicated */
    int index; /* of this rank */
    int first, stride; /* in coordinates of the axis */
} qdri_channel_group;

/* Whether what it carries runs on the compute stream. Channels that are added follow those of statistics. */
static inline int qdri_is_statistics(qdr_channel channel)
{
    return channel >= QDR_CHANNEL_X_STAT && channel <= QDR_CHANNEL_D_STAT;
}

/* The group of a position, in which near and far may be 0: no levels. */
qdri_channel_group qdri_channel_group_of(const qdri_position *position, qdr_channel channel);
/* Whether gradients or optimizer state are partitioned over more ranks than z. */
int qdri_has_levels(const qdri_position *position);

/* The number of members per node, if they are numbered node by node and several nodes have the same number (two or
 * more); else 0. nodes: by rank; members: their ranks, NULL: 0, 1, … */
int qdri_members_per_node(const int *nodes, const int *members, int size);

/* The numbers of parts of weights, gradients and optimizer state, from largest parts to smallest. */
typedef struct qdri_levels {
    int of[QDR_N_LEVELS];
} qdri_levels;

/* Replaces zeros of options by what they mean: z, and as many as of gradients.
 * @retval QDR_ERR_ARGUMENT  the parts do not nest; the message names the nearest that do */
QDR_NODISCARD qdr_status qdri_levels_read(const char *who, int z, int d, int gradient_parts, int optimizer_parts,
                                          qdri_levels *levels);
/* Whether they nest. */
int qdri_levels_nest(int z, int d, int gradient_parts, int optimizer_parts);
/* Sets near and far of a position that has sizes. */
void qdri_levels_cut(const qdri_levels *levels, qdri_position *position);

#endif
