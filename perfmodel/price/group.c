/* SPDX-License-Identifier: Apache-2.0 */
/* Geometry of groups on levels of links. */
#include "price/group.h"

#include <string.h>

/* The last level connects all ranks, however many its unit had where it was measured. */
static int unit_ranks(const qdr_machine *machine, int level, int n_ranks_all)
{
    if (level < 0) return 1;
    const int n = machine->links[level].n_ranks;
    return level < machine->n_links - 1 && n < n_ranks_all ? n : n_ranks_all;
}

static int common_divisor(int a, int b)
{
    while (b) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* `stride` interleaved groups: consecutive ranks. */
typedef struct block {
    int n_members, stride;
    int64_t n_ranks;
} block;

/* The largest number of units of n ranks in which a group has members. Groups may begin at any rank of a unit that the
 * common divisor of the sizes allows. */
static double units_touched(const block *b, int unit)
{
    const int common = common_divisor((int)(b->n_ranks % unit), unit);
    const int latest = unit - common + (b->stride < common ? b->stride : common) - 1;
    const int64_t touched = (latest + (int64_t)(b->n_members - 1) * b->stride) / unit + 1;
    return touched < b->n_members ? (double)touched : b->n_members;
}

/* The smallest number of members in a unit, over groups that are in several units. */
static double fewest_members(const block *b, int unit)
{
    const int common = common_divisor((int)(b->n_ranks % unit), unit);
    const int64_t length = (int64_t)(b->n_members - 1) * b->stride;
    const int whole = b->stride <= unit ? unit / b->stride : 0;
    int64_t fewest = b->n_members;
    if (common == unit && whole * b->stride == unit) return whole;
    for (int first = 0; first < unit; first++) {
        if (first % common >= b->stride || first + length < unit) continue;
        const int64_t at_begin = (unit - first - 1) / b->stride + 1, at_end = (first + length) % unit / b->stride + 1;
        fewest = at_begin < fewest ? at_begin : fewest;
        fewest = at_end < fewest ? at_end : fewest;
    }
    return (double)fewest;
}

/* The largest number of groups with members both in one unit and outside of it. */
static double groups_leaving(const block *b, int unit, int n_ranks_all)
{
    const int period = unit / common_divisor((int)(b->n_ranks % unit), unit);
    const int64_t in_period = period * b->n_ranks / unit; /* units until a block begins at the start of one */
    int n_blocks = b->n_ranks % unit == 0 || n_ranks_all == b->n_ranks ? 1 : 2;
    if (b->n_ranks < unit && (in_period == 2 || n_ranks_all <= 2 * unit)) n_blocks = 1;
    const double groups = (double)n_blocks * b->stride;
    return groups < unit ? groups : unit;
}

qdri_group qdri_group_make(const qdr_machine *machine, int n_ranks, int stride, int n_ranks_all)
{
    const block all = {n_ranks, stride, (int64_t)n_ranks * stride};
    qdri_group group = {.n_ranks = n_ranks};
    for (int l = 0; l < machine->n_links; l++) {
        const int unit = unit_ranks(machine, l, n_ranks_all), below = unit_ranks(machine, l - 1, n_ranks_all);
        group.n_inside[l] = unit == n_ranks_all ? n_ranks : n_ranks / units_touched(&all, unit);
        group.n_fewest[l] = unit == n_ranks_all || group.n_inside[l] == n_ranks ? group.n_inside[l]
                                                                                : fewest_members(&all, unit);
        group.n_sharing[l] = below == n_ranks_all ? 1 : groups_leaving(&all, below, n_ranks_all);
    }
    return group;
}

int qdri_group_crosses(const qdri_group *group, int level)
{
    return group->n_inside[level] > (level > 0 ? group->n_inside[level - 1] : 1);
}
