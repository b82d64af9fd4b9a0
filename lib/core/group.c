/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of channels, and levels. */
#include "core/group.h"

#include <stdio.h>

static int or_one(int n) { return n > 0 ? n : 1; }

int qdri_has_levels(const qdri_position *position) { return or_one(position->near) * or_one(position->far) > 1; }

/* d's coordinate is i + near * (j + far * copy). */
qdri_channel_group qdri_channel_group_of(const qdri_position *position, qdr_channel channel)
{
    const qdr_axis axis = qdr_channel_axis(channel);
    const int size = position->size[axis], at = position->coordinate[axis];
    const int near = or_one(position->near), far = or_one(position->far);
    qdri_channel_group group = {.size = size, .index = at, .first = 0, .stride = 1};
    if (channel == QDR_CHANNEL_D_NEAR) group.size = near;
    if (channel == QDR_CHANNEL_D_FAR) group = (qdri_channel_group){.size = far, .stride = near};
    if (channel == QDR_CHANNEL_D_COPIES) {
        group.stride = near * far;
        group.size = qdri_has_levels(position) ? size / group.stride : 1;
    }
    group.index = at / group.stride % group.size;
    group.first = at - group.index * group.stride;
    return group;
}

static int node_of(const int *nodes, const int *members, int j) { return nodes[members ? members[j] : j]; }

int qdri_members_per_node(const int *nodes, const int *members, int size)
{
    int per_node = 1;
    while (per_node < size && node_of(nodes, members, per_node) == node_of(nodes, members, 0)) per_node++;
    if (per_node == 1 || per_node == size || size % per_node) return 0;
    for (int j = 0; j < size; j++) {
        const int first = j - j % per_node;
        if (node_of(nodes, members, j) != node_of(nodes, members, first)) return 0;
        for (int before = 0; before < first; before += per_node)
            if (node_of(nodes, members, before) == node_of(nodes, members, first)) return 0;
    }
    return per_node;
}

/* ---- levels ---- */

/* The nearest number of parts below and above `wanted` that is a multiple of inner and divides all; 0: none. */
static void find_nearest(int wanted, int inner, int all, int nearest[2])
{
    nearest[0] = nearest[1] = 0;
    for (int parts = inner; parts <= all; parts += inner) {
        if (all % parts) continue;
        if (parts < wanted) nearest[0] = parts;
        if (parts > wanted && !nearest[1]) nearest[1] = parts;
    }
}

static int is_nested(int parts, int inner, int all) { return parts >= inner && parts % inner == 0 && all % parts == 0; }

static qdr_status check_nested(const char *who, const char *what, int parts, int inner, int all)
{
    int nearest[2];
    char words[64], kind[64] = "number";
    if (is_nested(parts, inner, all)) return QDR_OK;
    find_nearest(parts, inner, all, nearest);
    if (nearest[0] && nearest[1])
        snprintf(words, sizeof words, "%d or %d", nearest[0], nearest[1]);
    else
        snprintf(words, sizeof words, "%d", nearest[0] ? nearest[0] : nearest[1]);
    if (inner > 1) snprintf(kind, sizeof kind, "multiple of %d", inner);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s in %d parts; use a %s that divides z*d = %d, such as %s", who, what,
                    parts, kind, all, words);
}

qdr_status qdri_levels_read(const char *who, int z, int d, int gradient_parts, int optimizer_parts, qdri_levels *levels)
{
    const int gradients = gradient_parts ? gradient_parts : z, state = optimizer_parts ? optimizer_parts : gradients;
    QDR_TRY(check_nested(who, "gradients", gradients, z, z * d));
    QDR_TRY(check_nested(who, "optimizer state", state, gradients, z * d));
    *levels = (qdri_levels){{z, gradients, state}};
    return QDR_OK;
}

int qdri_levels_nest(int z, int d, int gradient_parts, int optimizer_parts)
{
    const int gradients = gradient_parts ? gradient_parts : z, state = optimizer_parts ? optimizer_parts : gradients;
    return is_nested(gradients, z, z * d) && is_nested(state, gradients, z * d);
}

void qdri_levels_cut(const qdri_levels *levels, qdri_position *position)
{
    position->near = levels->of[QDR_LEVEL_GRADIENTS] / levels->of[QDR_LEVEL_WEIGHTS];
    position->far = levels->of[QDR_LEVEL_OPTIMIZER] / levels->of[QDR_LEVEL_GRADIENTS];
}
