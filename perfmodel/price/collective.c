/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives: the fastest of rings, double trees and sums in a switch, with each of the machine's protocols. Every
 * candidate is affine in the number of bytes, so the result is continuous and increasing. Rings: Thakur, Rabenseifner,
 * Gropp 2005; double trees: Sanders, Speck, Träff 2009. */
#include "price/collective.h"

#include <float.h>
#include <math.h>

#include "core/group.h"
#include "core/size.h"

/* ---- groups on levels of links ---- */

/* The last level connects all ranks, however many its unit had where it was measured. */
static int unit_ranks(const qdr_machine *machine, int level, int n_ranks_all)
{
    if (level < 0) return 1;
    const int n = machine->links[level].n_ranks;
    return level < machine->n_links - 1 && n < n_ranks_all ? n : n_ranks_all;
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
    const int common = (int)qdri_common_divisor(b->n_ranks % unit, unit);
    const int latest = unit - common + (b->stride < common ? b->stride : common) - 1;
    const int64_t touched = (latest + (int64_t)(b->n_members - 1) * b->stride) / unit + 1;
    return touched < b->n_members ? (double)touched : b->n_members;
}

/* The smallest number of members in a unit, over groups that are in several units. */
static double fewest_members(const block *b, int unit)
{
    const int common = (int)qdri_common_divisor(b->n_ranks % unit, unit);
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
    const int period = unit / (int)qdri_common_divisor(b->n_ranks % unit, unit);
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

qdr_channel qdri_group_channel(int kind)
{
    static const qdr_channel channels[QDRI_N_GROUPS] = {
        [QDR_X] = QDR_CHANNEL_X_REDUCE,         [QDR_Y] = QDR_CHANNEL_Y_REDUCE,      [QDR_Z] = QDR_CHANNEL_Z_GATHER,
        [QDR_D] = QDR_CHANNEL_D_REDUCE,         [QDRI_OF_NEAR] = QDR_CHANNEL_D_NEAR, [QDRI_OF_FAR] = QDR_CHANNEL_D_FAR,
        [QDRI_OF_COPIES] = QDR_CHANNEL_D_COPIES};
    return channels[kind];
}

int qdri_group_kind_of(qdr_channel channel)
{
    int kind = QDR_N_AXES;
    while (kind < QDRI_N_GROUPS && qdri_group_channel(kind) != channel) kind++;
    return kind < QDRI_N_GROUPS ? kind : (int)qdr_channel_axis(channel);
}

qdri_group qdri_group_on(const qdr_machine *machine, const qdri_position *position, int kind, int stride,
                         int n_ranks_all)
{
    const qdri_channel_group group = qdri_channel_group_of(position, qdri_group_channel(kind));
    return qdri_group_make(machine, group.size, stride * group.stride, n_ranks_all);
}

int qdri_group_crosses(const qdri_group *group, int level)
{
    return group->n_inside[level] > (level > 0 ? group->n_inside[level - 1] : 1);
}

/* ---- ways ---- */

static double inside(const qdri_group *group, int level) { return level < 0 ? 1 : group->n_inside[level]; }

/* Parts of the group that a level connects, over all its units. */
static double n_parts(const qdri_group *group, int level) { return group->n_ranks / inside(group, level - 1); }

static double adapters_rate(const qdr_machine_link *link) { return link->n_adapters * link->adapter_bytes_per_sec; }

/* Adapters near the members of a unit of the level below. */
static double near_adapters(const qdr_machine *machine, const qdri_group *group, int level)
{
    const int unit = level ? machine->links[level - 1].n_ranks : 0;
    return unit ? fmax(1, machine->links[level].n_adapters * group->n_fewest[level - 1] / unit) : 1;
}

/* The rate at which one group's data leave a unit of the level below while all groups are active. */
static double level_rate(const qdr_machine *machine, const qdri_group *group, int level)
{
    const qdr_machine_link *link = &machine->links[level];
    if (level == 0) return link->rank_bytes_per_sec;
    const double n_members = group->n_fewest[level - 1];
    double rate = fmin(near_adapters(machine, group, level) * link->adapter_bytes_per_sec,
                       adapters_rate(link) / group->n_sharing[level]);
    if (link->rank_bytes_per_sec > 0) rate = fmin(rate, n_members * link->rank_bytes_per_sec);
    return rate;
}

static double ring_rate(const qdr_machine *machine, const qdri_group *group, int up_to)
{
    double rate = DBL_MAX;
    for (int l = 0; l <= up_to; l++)
        if (qdri_group_crosses(group, l)) rate = fmin(rate, level_rate(machine, group, l));
    return rate;
}

/* One turn of a ring, with its steps on each level. */
static qdri_way ring(const qdr_machine *machine, const qdri_group *group, int top)
{
    const double g = group->n_ranks;
    double secs = (n_parts(group, top) - 1) * machine->links[top].step_secs;
    for (int l = 0; l < top; l++) secs += (n_parts(group, l) - n_parts(group, l + 1)) * machine->links[l].step_secs;
    return (qdri_way){secs, (g - 1) / g / ring_rate(machine, group, top)};
}

/* One level after the other: on each a ring of the parts that it connects within a unit, so that a unit sends as much
 * as one member would, not that amount for each (Thakur et al. 2005, 5; Karonis et al. 2000). Sums and gathers of what
 * remains on each level cost the same. */
static qdri_way by_level(const qdr_machine *machine, const qdri_group *group, int top)
{
    qdri_way way = {0};
    for (int l = 0; l <= top; l++) {
        if (!qdri_group_crosses(group, l)) continue;
        const double parts = inside(group, l) / inside(group, l - 1);
        way.latency_secs += (parts - 1) * machine->links[l].step_secs;
        way.secs_per_byte += (parts - 1) / parts / level_rate(machine, group, l);
    }
    return way;
}

/* All members send everything, and receive the sum: 1 + 1/g passes of the vector through a rank's link. */
static qdri_way in_switch(const qdr_machine *machine, double n_members)
{
    const qdr_machine_link *link = &machine->links[0];
    return (qdri_way){machine->collectives.fill_secs + 2 * link->step_secs,
                      (n_members + 1) / n_members / link->switch_bytes_per_sec};
}

/* Chains inside the units of the level below, and a double tree between them. */
static qdri_way tree(const qdr_machine *machine, const qdri_group *group, int top)
{
    const double units = n_parts(group, top), members = inside(group, top - 1), g = group->n_ranks;
    const double between = (units > 2 ? 2 : 1) / level_rate(machine, group, top);
    double within = members > 1 ? 2 * (g - 1) / g / ring_rate(machine, group, top - 1) : 0;
    if (members > 2 && top == 1 && machine->links[0].switch_bytes_per_sec > 0)
        within = fmin(within, in_switch(machine, members).secs_per_byte);
    return (qdri_way){2 * ((members - 1) * machine->links[0].step_secs + log2(units) * machine->links[top].step_secs),
                      fmax(between, within)};
}

/* n_turns of a way. A protocol fills its pipeline once. */
static qdri_way with_protocol(const qdr_machine *machine, qdri_way way, int protocol, double n_turns)
{
    const qdr_machine_protocol *p = &machine->collectives.protocols[protocol];
    const double fill_secs = machine->collectives.fill_secs;
    way.latency_secs = p->step_factor * (fill_secs + n_turns * way.latency_secs);
    way.secs_per_byte *= n_turns / p->rate_factor;
    return way;
}

/* From each member to another at the same time, averaged over their distances: the members of a unit share its outgoing
 * rate. */
static qdri_way message(const qdr_machine *machine, const qdri_group *group, int top)
{
    const double members = inside(group, top - 1), g = group->n_ranks;
    const double n_leaving = members * (g - members) / (g - 1);
    return (qdri_way){machine->links[top].step_secs, (n_leaving > 1 ? n_leaving : 1) / ring_rate(machine, group, top)};
}

/* For each unit beyond the first; its groups also wait for one another's bytes. */
static void add_waits(const qdr_machine *machine, const qdri_group *group, int top, qdri_ways *ways)
{
    const qdr_machine_link *link = &machine->links[top];
    const double n_units = n_parts(group, top) - 1;
    const double per_byte = link->wait_secs_per_byte * n_units * sqrt(group->n_sharing[top]);
    ways->start_secs += link->wait_secs * n_units;
    const double factor = link->ring_wait_factor > 0 ? link->ring_wait_factor : 1;
    for (int i = 0; i < ways->n_once; i++) ways->once[i].secs_per_byte += factor * per_byte;
    for (int i = 0; i < ways->n_twice; i++) ways->twice[i].secs_per_byte += per_byte;
}

qdri_ways qdri_ways_make(const qdr_machine *machine, const qdri_group *group)
{
    qdri_ways ways = {.n_ranks = group->n_ranks, .start_secs = machine->collectives.start_secs};
    if (group->n_ranks < 2) return ways;
    int top = 0; /* the lowest level whose unit contains the whole group */
    for (int l = 1; l < machine->n_links; l++)
        if (qdri_group_crosses(group, l)) top = l;
    ways.n_flows = near_adapters(machine, group, top);
    ways.slowdown = machine->links[top].slowdown;
    ways.message = message(machine, group, top);
    const qdri_way turn = machine->collectives.by_level ? by_level(machine, group, top) : ring(machine, group, top);
    for (int i = 0; i < machine->collectives.n_protocols; i++) {
        ways.once[ways.n_once++] = with_protocol(machine, turn, i, 1);
        ways.twice[ways.n_twice++] = with_protocol(machine, turn, i, 2);
    }
    if (top > 0 && machine->collectives.has_tree) {
        const qdri_way chains = tree(machine, group, top);
        for (int i = 0; i < machine->collectives.n_protocols; i++)
            ways.twice[ways.n_twice++] = with_protocol(machine, chains, i, 1);
    }
    if (top == 0 && group->n_ranks > 2 && machine->links[0].switch_bytes_per_sec > 0)
        ways.twice[ways.n_twice++] = in_switch(machine, group->n_ranks);
    if (top > 0) add_waits(machine, group, top, &ways);
    for (int l = 0; l < machine->n_links; l++) {
        if (!qdri_group_crosses(group, l)) continue;
        ways.full_rate[l] = l == 0 ? machine->links[0].rank_bytes_per_sec
                                   : adapters_rate(&machine->links[l]) / group->n_sharing[l];
    }
    return ways;
}

static qdri_way fastest(const qdri_way *ways, int n, double n_bytes)
{
    qdri_way best = ways[0];
    for (int i = 1; i < n; i++)
        if (ways[i].latency_secs + ways[i].secs_per_byte * n_bytes < best.latency_secs + best.secs_per_byte * n_bytes)
            best = ways[i];
    return best;
}

qdri_price qdri_coll_price(const qdri_ways *ways, qdr_coll_kind kind, double n_bytes)
{
    qdri_price price = {.latency_secs = 0};
    const int twice = kind == QDR_ALL_REDUCE;
    if (ways->n_ranks < 2 || !(n_bytes > 0)) return price;
    const qdri_way way = kind == QDR_SEND_RECV ? ways->message
                         : twice               ? fastest(ways->twice, ways->n_twice, n_bytes)
                                               : fastest(ways->once, ways->n_once, n_bytes);
    price.latency_secs = ways->start_secs + way.latency_secs;
    price.work_secs = way.secs_per_byte * n_bytes;
    const double g = ways->n_ranks, share = kind == QDR_SEND_RECV ? 1 : (g - 1) / g;
    const double rate = (1 + twice) * share / way.secs_per_byte;
    price.flow_bytes_per_sec = rate / ways->n_flows;
    price.slowdown = ways->slowdown;
    for (int l = 0; l < QDR_MAX_LINKS; l++)
        if (ways->full_rate[l] > 0) price.use[l] = fmin(1, rate / ways->full_rate[l]);
    return price;
}

double qdri_coll_secs(const qdri_ways *ways, qdr_coll_kind kind, double n_bytes)
{
    const qdri_price price = qdri_coll_price(ways, kind, n_bytes);
    return price.latency_secs + price.work_secs;
}
