/* SPDX-License-Identifier: Apache-2.0 */
/* Geometry of groups on levels of links. */
#include "group.h"

#include <string.h>

static double unit_ranks(const qdr_machine *machine, int level, int n_ranks_all)
{
    if (level < 0) return 1;
    const int n = machine->links[level].n_ranks;
    return n > 0 && n < n_ranks_all ? n : n_ranks_all;
}

qdri_group qdri_group_make(const qdr_machine *machine, int n_ranks, int stride, int n_ranks_all)
{
    qdri_group group = {.n_ranks = n_ranks};
    double below = 1; /* members in a unit of the level below */
    for (int l = 0; l < machine->n_links; l++) {
        const double unit = unit_ranks(machine, l, n_ranks_all);
        double inside = unit / stride;
        if (inside < 1) inside = 1;
        if (inside > n_ranks) inside = n_ranks;
        group.n_inside[l] = inside;
        group.n_sharing[l] = unit_ranks(machine, l - 1, n_ranks_all) / below;
        below = inside;
    }
    return group;
}

void qdri_strides(const int size[QDR_N_AXES], const char *order, int stride[QDR_N_AXES])
{
    static const char names[] = "xyzd";
    int step = 1;
    for (int i = 0; i < QDR_N_AXES; i++) {
        const int axis = (int)(strchr(names, order[i]) - names);
        stride[axis] = step;
        step *= size[axis];
    }
}

int qdri_group_crosses(const qdri_group *group, int level)
{
    return group->n_inside[level] > (level > 0 ? group->n_inside[level - 1] : 1);
}
