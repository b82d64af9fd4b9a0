/* SPDX-License-Identifier: Apache-2.0 */
/* Groups on nodes, and the ways of a collective, by hand from docs/model.md: nodes of four ranks with 100 GB/s and 1 us
 * a step inside, two adapters of 10 GB/s and 10 us a step between nodes, 5 us to start. */
#include "price/collective.h"

#include <math.h>

#include "qdr_test.h"

#define USEC 1e-6
#define KB 1e3
#define GB 1e9

static qdr_machine machine_of(void)
{
    return (qdr_machine){
        QDR_INIT(qdr_machine), .ranks_per_node = 4, .n_links = 2,
        .links = {{.n_ranks = 4, .rank_bytes_per_sec = 100 * GB, .step_secs = USEC, .slowdown = 0.25},
                  {.n_adapters = 2, .adapter_bytes_per_sec = 10 * GB, .step_secs = 10 * USEC, .slowdown = 0.125}},
        .collectives = {.start_secs = 5 * USEC, .n_protocols = 1, .protocols = {{.step_factor = 1, .rate_factor = 1}}}};
}

static void assert_near(const char *what, int i, double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted))) fail_msg("%s %d: %.12g, not %.12g", what, i, got, wanted);
}

/* ---- groups ---- */

/* Members in a node (the average over the nodes of the group that is on most), in the node with fewest, and groups that
 * leave the same node. */
TEST(groups)
{
    static const struct {
        int n, stride, all;
        double inside, fewest, sharing;
    } cases[] = {
        {4, 1, 16, 4, 4, 1},   {8, 1, 16, 4, 4, 1}, {16, 1, 16, 4, 4, 1}, {4, 2, 16, 2, 2, 2},
        {2, 4, 8, 1, 1, 4},    {4, 4, 16, 1, 1, 4}, {2, 8, 16, 1, 1, 4}, /* of 8 groups in two nodes, 4 leave each */
        {3, 1, 12, 1.5, 1, 2}, /* 0-2, 3-5, 6-8: the second has one rank on the first node, and shares the second */
        {6, 1, 12, 3, 2, 2}, /* 4 and 2; both on the second node */
        {2, 3, 12, 1, 1, 4}, /* 0 and 3 are on one node, 1 and 4 are not; of the second node, 4-7, all four leave */
        {5, 1, 10, 2.5, 1, 2}, /* 4 and 1; 5-7 and 8-9 */
    };
    const qdr_machine machine = machine_of();
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const qdri_group group = qdri_group_make(&machine, cases[i].n, cases[i].stride, cases[i].all);
        assert_int_equal(group.n_ranks, cases[i].n);
        assert_near("inside", i, group.n_inside[0], cases[i].inside);
        assert_near("all", i, group.n_inside[1], cases[i].n);
        if (cases[i].inside >= cases[i].n) continue;
        assert_near("fewest", i, group.n_fewest[0], cases[i].fewest);
        assert_near("sharing", i, group.n_sharing[1], cases[i].sharing);
    }
}

/* The same, counted: of each group among `all` ranks, its members on each node. */
static void count_groups(int n, int stride, int unit, int all, double *inside, double *fewest, double *sharing)
{
    int most_nodes = 0, least = n, most_sharing = 0, leaving[256] = {0};
    for (int group = 0; group < all / n; group++) {
        const int first = group / stride * n * stride + group % stride;
        int on_node[256] = {0}, n_nodes = 0;
        for (int j = 0; j < n; j++) on_node[(first + j * stride) / unit]++;
        for (int node = 0; node < (all + unit - 1) / unit; node++) n_nodes += on_node[node] > 0;
        most_nodes = n_nodes > most_nodes ? n_nodes : most_nodes;
        for (int node = 0; n_nodes > 1 && node < (all + unit - 1) / unit; node++) {
            if (on_node[node] > 0 && on_node[node] < least) least = on_node[node];
            leaving[node] += on_node[node] > 0;
        }
    }
    for (int node = 0; node < (all + unit - 1) / unit; node++)
        most_sharing = leaving[node] > most_sharing ? leaving[node] : most_sharing;
    *inside = (double)n / most_nodes;
    *fewest = least;
    *sharing = most_sharing;
}

/* Where groups begin at all the places of nodes at which they can. Blocks that are not whole nodes are counted as two
 * that leave a node, which is more than there are in a few cases. */
TEST(groups_are_counted)
{
    qdr_machine machine = machine_of();
    int n_cases = 0, n_more = 0;
    for (int i = 0; i < 7 * 8 * 7; i++) {
        const int n = 2 + i % 7, stride = 1 + i / 7 % 8, unit = 2 + i / 56, all = n * stride * unit;
        double inside, fewest, sharing;
        if (all > 256) continue;
        machine.links[0].n_ranks = unit;
        const qdri_group group = qdri_group_make(&machine, n, stride, all);
        count_groups(n, stride, unit, all, &inside, &fewest, &sharing);
        if (fabs(group.n_inside[0] - inside) > 1e-9)
            fail_msg("%d, %d apart, nodes of %d: %g inside, not %g", n, stride, unit, group.n_inside[0], inside);
        n_cases++;
        if (inside >= n) continue;
        if (fabs(group.n_fewest[0] - fewest) > 1e-9)
            fail_msg("%d, %d apart, nodes of %d: %g fewest, not %g", n, stride, unit, group.n_fewest[0], fewest);
        if (group.n_sharing[1] < sharing)
            fail_msg("%d, %d apart, nodes of %d: %g leave one, not %g", n, stride, unit, group.n_sharing[1], sharing);
        n_more += group.n_sharing[1] > sharing;
    }
    print_message("%d kinds of groups; of %d, fewer share a node\n", n_cases, n_more);
    assert_in_range(n_more, 0, n_cases / 80);
}

/* One to three blocks, of which the last node may be partly empty: groups may begin at fewer places of a node than is
 * assumed. So a group is on as many nodes or fewer, shared by as many or fewer; that matters in few cases. */
TEST(few_blocks_are_counted)
{
    enum { N_CASES = 7 * 8 * 7 * 3 };
    qdr_machine machine = machine_of();
    int n_other = 0;
    for (int i = 0; i < N_CASES; i++) {
        const int n = 2 + i % 7, stride = 1 + i / 7 % 8, unit = 2 + i / 56 % 7, all = n * stride * (1 + i / 392);
        double inside, fewest, sharing;
        machine.links[0].n_ranks = unit;
        const qdri_group group = qdri_group_make(&machine, n, stride, all);
        count_groups(n, stride, unit, all, &inside, &fewest, &sharing);
        if (group.n_inside[0] > inside + 1e-9)
            fail_msg("%d, %d apart, of %d, nodes of %d: inside", n, stride, all, unit);
        if (inside >= n) continue;
        if (group.n_fewest[0] > fewest || group.n_sharing[1] < sharing)
            fail_msg("%d, %d apart, of %d, nodes of %d: %g fewest, not %g; %g leave one, not %g", n, stride, all, unit,
                     group.n_fewest[0], fewest, group.n_sharing[1], sharing);
        n_other += group.n_inside[0] < inside - 1e-9 || group.n_fewest[0] < fewest || group.n_sharing[1] > sharing;
    }
    print_message("%d kinds of groups, of which %d are counted higher\n", N_CASES, n_other);
    assert_in_range(n_other, 0, N_CASES / 13);
}

/* ---- ways ---- */

static qdri_price price_of(const qdr_machine *machine, int n, int stride, qdr_coll_kind kind, double bytes)
{
    const qdri_group group = qdri_group_make(machine, n, stride, 16);
    const qdri_ways ways = qdri_ways_make(machine, &group);
    return qdri_coll_price(&ways, kind, bytes);
}

typedef struct way {
    int n, stride;
    qdr_coll_kind kind;
    double bytes;
    double usecs, secs_per_GB; /* after the start */
} way;

static void assert_ways(const qdr_machine *machine, const char *what, const way *ways, int n)
{
    for (int i = 0; i < n; i++) {
        const qdri_price price = price_of(machine, ways[i].n, ways[i].stride, ways[i].kind, ways[i].bytes);
        assert_near(what, i, price.latency_secs, 5 * USEC + ways[i].usecs * USEC);
        assert_near(what, i, price.work_secs, ways[i].bytes / GB * ways[i].secs_per_GB);
    }
}
#define ASSERT_WAYS(machine, what, ...)                                                                                \
    assert_ways(machine, what, (const way[]){__VA_ARGS__}, (int)(sizeof((const way[]){__VA_ARGS__}) / sizeof(way)))

TEST(rings)
{
    qdr_machine machine = machine_of();
    /* One adapter is near two ranks: two members have one, one member has one, which four groups share by two. */
    ASSERT_WAYS(&machine, "ring", {4, 1, QDR_ALL_GATHER, 4e6, 3, 3 / 4.0 / 100},
                {4, 1, QDR_REDUCE_SCATTER, 4e6, 3, 3 / 4.0 / 100}, {4, 1, QDR_ALL_REDUCE, 4e6, 6, 2 * 3 / 4.0 / 100},
                {8, 1, QDR_ALL_GATHER, 4e6, 10 + 6, 7 / 8.0 / 20}, {4, 2, QDR_ALL_GATHER, 4e6, 10 + 2, 3 / 4.0 / 10},
                {4, 4, QDR_ALL_GATHER, 4e6, 30, 3 / 4.0 / 5}, {2, 4, QDR_ALL_REDUCE, 4e6, 20, 2 / 2.0 / 5},
                {16, 1, QDR_ALL_REDUCE, 4e6, 2 * (30 + 12), 2 * 15 / 16.0 / 20});
    machine.links[0].rank_bytes_per_sec = 8 * GB; /* the slowest level */
    ASSERT_WAYS(&machine, "slow inside", {8, 1, QDR_ALL_GATHER, 4e6, 16, 7 / 8.0 / 8});
    machine.links[0].rank_bytes_per_sec = 100 * GB;
    machine.links[1].rank_bytes_per_sec = 4 * GB; /* ranks reach their adapters with so much */
    ASSERT_WAYS(&machine, "slow ranks", {8, 1, QDR_ALL_GATHER, 4e6, 16, 7 / 8.0 / 16},
                {4, 2, QDR_ALL_GATHER, 4e6, 12, 3 / 4.0 / 8}, {4, 4, QDR_ALL_GATHER, 4e6, 30, 3 / 4.0 / 4});
    assert_true(price_of(&machine, 1, 1, QDR_ALL_REDUCE, 1).latency_secs <= 0);
    assert_true(price_of(&machine, 4, 1, QDR_ALL_REDUCE, 0).latency_secs <= 0);
}

/* Groups of five on nodes of four: one has four members and one, another three and two. The one alone has the adapters
 * near it, two of the node's eight, and not the share that the average of 2.5 members would have. */
TEST(the_fewest_members_limit_a_ring)
{
    qdr_machine machine = machine_of();
    machine.links[1].n_adapters = 8;
    const qdri_group group = qdri_group_make(&machine, 5, 1, 20);
    const qdri_ways ways = qdri_ways_make(&machine, &group);
    const qdri_price price = qdri_coll_price(&ways, QDR_ALL_GATHER, 4e6);
    assert_near("latency", 0, price.latency_secs, (5 + 10 + 3) * USEC);
    assert_near("work", 0, price.work_secs, 4e6 / GB * 4 / 5.0 / (2 * 10));
    machine.links[1].rank_bytes_per_sec = 4 * GB; /* the one alone reaches its adapters with so much */
    const qdri_ways slow = qdri_ways_make(&machine, &group);
    assert_near("slow rank", 0, qdri_coll_price(&slow, QDR_ALL_GATHER, 4e6).work_secs, 4e6 / GB * 4 / 5.0 / 4);
}

/* Pairs of 200 GB/s and half a microsecond, joined by nodes in which each pair has one adapter of 50 GB/s. */
TEST(rings_on_three_levels)
{
    qdr_machine machine = machine_of();
    machine.n_links = 3;
    machine.links[2] = machine.links[1];
    machine.links[1] = (qdr_machine_link){
        .n_ranks = 4, .n_adapters = 1, .adapter_bytes_per_sec = 50 * GB, .step_secs = USEC};
    machine.links[0] = (qdr_machine_link){.n_ranks = 2, .rank_bytes_per_sec = 200 * GB, .step_secs = USEC / 2};
    ASSERT_WAYS(&machine, "pairs", {2, 1, QDR_ALL_GATHER, 4e6, 0.5, 1 / 2.0 / 200},
                {4, 1, QDR_ALL_GATHER, 4e6, 1 + 2 * 0.5, 3 / 4.0 / 50}, {2, 2, QDR_ALL_GATHER, 4e6, 1, 1 / 2.0 / 25},
                {8, 1, QDR_ALL_GATHER, 4e6, 10 + 2 * 1 + 4 * 0.5, 7 / 8.0 / 20});
    machine.collectives.by_level = 1;
    ASSERT_WAYS(&machine, "by level",
                {8, 1, QDR_ALL_GATHER, 4e6, 10 + 1 + 0.5, 1 / 2.0 / 20 + 1 / 2.0 / 50 + 1 / 2.0 / 200},
                {16, 1, QDR_ALL_REDUCE, 4e6, 2 * (30 + 1 + 0.5), 2 * (3 / 4.0 / 20 + 1 / 2.0 / 50 + 1 / 2.0 / 200)});
}

/* Pairs of 200 GB/s and half a microsecond, four to a node of eight, each with one adapter of 50 GB/s and 1 us; nodes
 * with four adapters of 10 GB/s and 10 us. */
static qdr_machine pairs_in_nodes(void)
{
    qdr_machine machine = machine_of();
    machine.ranks_per_node = 8;
    machine.n_links = 3;
    machine.links[0] = (qdr_machine_link){.n_ranks = 2, .rank_bytes_per_sec = 200 * GB, .step_secs = USEC / 2};
    machine.links[1] = (qdr_machine_link){
        .n_ranks = 8, .n_adapters = 1, .adapter_bytes_per_sec = 50 * GB, .step_secs = USEC, .slowdown = 0.5};
    machine.links[2] = (qdr_machine_link){
        .n_adapters = 4, .adapter_bytes_per_sec = 10 * GB, .step_secs = 10 * USEC, .slowdown = 0.125};
    return machine;
}

static void assert_among(const qdr_machine *machine, const char *what, int n_all, const way *ways, int n)
{
    for (int i = 0; i < n; i++) {
        const qdri_group group = qdri_group_make(machine, ways[i].n, ways[i].stride, n_all);
        const qdri_ways all = qdri_ways_make(machine, &group);
        const qdri_price price = qdri_coll_price(&all, ways[i].kind, ways[i].bytes);
        assert_near(what, i, price.latency_secs, 5 * USEC + ways[i].usecs * USEC);
        assert_near(what, i, price.work_secs, ways[i].bytes / GB * ways[i].secs_per_GB);
    }
}
#define ASSERT_AMONG_64(machine, what, ...)                                                                            \
    assert_among(machine, what, 64, (const way[]){__VA_ARGS__}, (int)(sizeof((const way[]){__VA_ARGS__}) / sizeof(way)))

/* Of eight nodes: each level's own units, siblings, adapters, waits and rates. */
TEST(three_levels)
{
    qdr_machine machine = pairs_in_nodes();
    /* Two nodes or four; one member of each node, of which eight groups share four adapters, and of each pair, of which
     * two groups share one. */
    ASSERT_AMONG_64(&machine, "three levels", {16, 1, QDR_ALL_GATHER, 4e6, 10 + 6 + 8 / 2.0, 15 / 16.0 / 40},
                    {32, 1, QDR_REDUCE_SCATTER, 4e6, 30 + 12 + 16 / 2.0, 31 / 32.0 / 40},
                    {4, 8, QDR_ALL_GATHER, 4e6, 30, 3 / 4.0 / 5}, {4, 2, QDR_ALL_GATHER, 4e6, 3, 3 / 4.0 / 25},
                    {8, 2, QDR_ALL_REDUCE, 4e6, 2 * (10 + 6), 2 * 7 / 8.0 / 20},
                    {16, 1, QDR_SEND_RECV, 4e6, 10, 8 * 8 / 15.0 / 40}, {8, 1, QDR_SEND_RECV, 4e6, 1, 12 / 7.0 / 50});
    machine.links[2].rank_bytes_per_sec = 2 * GB; /* eight members of a node reach its adapters with 16 */
    ASSERT_AMONG_64(&machine, "slow ranks", {16, 1, QDR_ALL_GATHER, 4e6, 20, 15 / 16.0 / 16},
                    {8, 2, QDR_ALL_GATHER, 4e6, 16, 7 / 8.0 / 8});
    machine.links[2].rank_bytes_per_sec = 0;
    machine.collectives.has_tree = 1;
    /* Chains inside nodes are as slow as the adapters of pairs; a switch of pairs does not join a node. */
    machine.links[0].switch_bytes_per_sec = 45 * GB;
    ASSERT_AMONG_64(&machine, "trees", {16, 1, QDR_ALL_REDUCE, 1e3, 2 * (7 / 2.0 + 10), 2 * 15 / 16.0 / 50},
                    {32, 1, QDR_ALL_REDUCE, 1e3, 2 * (7 / 2.0 + 20), 2 / 40.0},
                    {8, 1, QDR_ALL_REDUCE, 1e3, 2 * (1 / 2.0 + 2), 2 / 50.0});
    machine.collectives.has_tree = 0;
    machine.links[0].switch_bytes_per_sec = 0;
    machine.links[1].wait_secs = 7 * USEC;
    machine.links[1].wait_secs_per_byte = 5e-12;
    machine.links[2].wait_secs = 3 * USEC;
    machine.links[2].wait_secs_per_byte = 2e-12;
    ASSERT_AMONG_64(&machine, "waits", {16, 1, QDR_ALL_GATHER, 4e6, 20 + 3, 15 / 16.0 / 40 + 0.002},
                    {4, 8, QDR_ALL_GATHER, 4e6, 30 + 9, 3 / 4.0 / 5 + 3 * 0.002 * sqrt(8)},
                    {4, 2, QDR_ALL_GATHER, 4e6, 3 + 21, 3 / 4.0 / 25 + 3 * 0.005 * sqrt(2)});
}

/* What a group of two nodes, and one inside a node, use of each level, over how many adapters. */
TEST(links_of_three_levels)
{
    const qdr_machine machine = pairs_in_nodes();
    static const struct {
        int n, stride;
        double use[3], flow, slowdown;
    } cases[] = {{16, 1, {40 / 200.0, 40 / 50.0, 1}, 10, 0.125},
                 {8, 2, {0, 20 / 25.0, 1}, 10, 0.125},
                 {4, 8, {0, 0, 1}, 5, 0.125},
                 {8, 1, {50 / 200.0, 1, 0}, 50, 0.5},
                 {4, 2, {0, 1, 0}, 25, 0.5}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const qdri_group group = qdri_group_make(&machine, cases[i].n, cases[i].stride, 64);
        const qdri_ways ways = qdri_ways_make(&machine, &group);
        for (int twice = 0; twice < 2; twice++) {
            const qdri_price price = qdri_coll_price(&ways, twice ? QDR_ALL_REDUCE : QDR_ALL_GATHER, 1e9);
            for (int level = 0; level < 3; level++) assert_near("use", i, price.use[level], cases[i].use[level]);
            assert_near("flow", i, price.flow_bytes_per_sec, cases[i].flow * GB);
            assert_near("slowdown", i, price.slowdown, cases[i].slowdown);
        }
    }
}

TEST(by_level)
{
    qdr_machine machine = machine_of();
    machine.collectives.by_level = 1;
    ASSERT_WAYS(&machine, "by level", {8, 1, QDR_ALL_GATHER, 4e6, 3 + 10, 3 / 4.0 / 100 + 1 / 2.0 / 20},
                {8, 1, QDR_ALL_REDUCE, 4e6, 2 * 13, 2 * (3 / 4.0 / 100 + 1 / 2.0 / 20)},
                {4, 1, QDR_ALL_GATHER, 4e6, 3, 3 / 4.0 / 100}, {4, 4, QDR_ALL_GATHER, 4e6, 30, 3 / 4.0 / 5});
}

/* Of two nodes each sends once, of more twice; inside, chains pass 2(g - 1)/g. */
TEST(trees)
{
    qdr_machine machine = machine_of();
    machine.collectives.has_tree = 1;
    ASSERT_WAYS(&machine, "tree", {8, 1, QDR_ALL_REDUCE, 4e6, 2 * (3 + 10), 1 / 20.0},
                {16, 1, QDR_ALL_REDUCE, 1 * KB, 2 * (3 + 20), 2 / 20.0},
                {16, 1, QDR_ALL_REDUCE, 1e9, 2 * (30 + 12), 2 * 15 / 16.0 / 20}, /* the ring sends less */
                {16, 1, QDR_ALL_GATHER, 1 * KB, 30 + 12, 15 / 16.0 / 20}, {4, 1, QDR_ALL_REDUCE, 1 * KB, 6, 1.5 / 100},
                {4, 4, QDR_ALL_REDUCE, 1 * KB, 2 * 20, 2 / 5.0});
    machine.links[0].n_ranks = machine.ranks_per_node = 5;
    machine.links[1].n_adapters = 1;
    ASSERT_WAYS(&machine, "three nodes", {15, 1, QDR_ALL_REDUCE, 1 * KB, 2 * (4 + 10 * log2(3)), 2 / 10.0});
    machine.links[0].n_ranks = machine.ranks_per_node = 4;
    machine.links[1].n_adapters = 2;
    machine.links[0].rank_bytes_per_sec = 16 * GB;
    ASSERT_WAYS(&machine, "slow chains", {8, 1, QDR_ALL_REDUCE, 4e6, 26, 2 * 7 / 8.0 / 16});
    machine.links[0].switch_bytes_per_sec = 40 * GB; /* instead of the chains: 5/4 passes */
    machine.links[1].adapter_bytes_per_sec = 1000 * GB;
    ASSERT_WAYS(&machine, "switch inside", {8, 1, QDR_ALL_REDUCE, 4e6, 26, 5 / 4.0 / 40},
                {8, 2, QDR_ALL_REDUCE, 4e6, 2 * (1 + 20), 2 * 7 / 8.0 / 16}); /* not of two */
}

TEST(switches)
{
    qdr_machine machine = machine_of();
    machine.collectives.fill_secs = 3 * USEC;
    machine.links[0].switch_bytes_per_sec = 50 * GB;
    ASSERT_WAYS(&machine, "switch", {4, 1, QDR_ALL_REDUCE, 1 * KB, 3 + 2, 5 / 4.0 / 50},
                {4, 1, QDR_ALL_REDUCE, 1e9, 3 + 6, 2 * 3 / 4.0 / 100}, /* rings are longer, but send less */
                {2, 1, QDR_ALL_REDUCE, 1 * KB, 3 + 2, 1 / 100.0}, {4, 1, QDR_ALL_GATHER, 1 * KB, 3 + 3, 3 / 4.0 / 100});
}

/* A second protocol with a quarter of the steps' time and half of the rate: for short messages. */
TEST(protocols)
{
    qdr_machine machine = machine_of();
    machine.collectives.fill_secs = 4 * USEC;
    machine.collectives.n_protocols = 2;
    machine.collectives.protocols[1] = (qdr_machine_protocol){.step_factor = 0.25, .rate_factor = 0.5};
    ASSERT_WAYS(&machine, "protocol", {4, 1, QDR_ALL_GATHER, 1 * KB, (4 + 3) / 4.0, 3 / 4.0 / 50},
                {4, 1, QDR_ALL_REDUCE, 1 * KB, (4 + 6) / 4.0, 6 / 4.0 / 50},
                {4, 1, QDR_ALL_REDUCE, 1e9, 4 + 6, 6 / 4.0 / 100});
    machine.collectives.has_tree = 1;
    ASSERT_WAYS(&machine, "its tree", {8, 1, QDR_ALL_REDUCE, 1 * KB, (4 + 26) / 4.0, 1 / 10.0});
}

/* For each node beyond the first, 3 us and 2 ps a byte times the root of the groups of a node; twice in rings of one
 * pass. */
TEST(waits)
{
    qdr_machine machine = machine_of();
    machine.links[1].wait_secs = 3 * USEC;
    machine.links[1].wait_secs_per_byte = 2e-12;
    machine.links[1].ring_wait_factor = 2;
    ASSERT_WAYS(&machine, "waits", {8, 1, QDR_ALL_GATHER, 4e6, 16 + 3, 7 / 8.0 / 20 + 2 * 0.002},
                {16, 1, QDR_ALL_REDUCE, 4e6, 2 * 42 + 9, 2 * 15 / 16.0 / 20 + 3 * 0.002},
                {4, 4, QDR_REDUCE_SCATTER, 4e6, 30 + 9, 3 / 4.0 / 5 + 2 * 3 * 0.002 * 2},
                {4, 4, QDR_ALL_REDUCE, 4e6, 60 + 9, 6 / 4.0 / 5 + 3 * 0.002 * 2},
                {4, 1, QDR_ALL_REDUCE, 4e6, 6, 6 / 4.0 / 100});
    machine.links[1].ring_wait_factor = 0;
    ASSERT_WAYS(&machine, "as in sums", {8, 1, QDR_ALL_GATHER, 4e6, 16 + 3, 7 / 8.0 / 20 + 0.002});
}

/* From each to another, averaged: of 8 on two nodes, 4 · 4/7 of those of a node leave it. */
TEST(messages)
{
    const qdr_machine machine = machine_of();
    ASSERT_WAYS(&machine, "message", {4, 1, QDR_SEND_RECV, 4e6, 1, 1 / 100.0},
                {8, 1, QDR_SEND_RECV, 4e6, 10, 16 / 7.0 / 20}, {2, 4, QDR_SEND_RECV, 4e6, 10, 1 / 5.0});
}

/* What of each level a flow uses while it runs alone, over how many adapters, and how much it slows work down. */
TEST(links)
{
    const qdr_machine machine = machine_of();
    const qdri_price in_node = price_of(&machine, 4, 1, QDR_ALL_REDUCE, 1e6),
                     two_nodes = price_of(&machine, 8, 1, QDR_ALL_GATHER, 1e6),
                     apart = price_of(&machine, 2, 4, QDR_ALL_REDUCE, 1e6),
                     message = price_of(&machine, 4, 1, QDR_SEND_RECV, 1e6);
    assert_near("use in a node", 0, in_node.use[0], 1);
    assert_near("flow", 0, in_node.flow_bytes_per_sec, 100 * GB);
    assert_near("slowdown", 0, in_node.slowdown, 0.25);
    assert_true(in_node.use[1] <= 0);
    assert_near("use of inside", 1, two_nodes.use[0], 20 / 100.0);
    assert_near("use of adapters", 1, two_nodes.use[1], 1);
    assert_near("flow of each adapter", 1, two_nodes.flow_bytes_per_sec, 10 * GB);
    assert_near("slowdown", 1, two_nodes.slowdown, 0.125);
    assert_true(apart.use[0] <= 0);
    assert_near("use of shared adapters", 2, apart.use[1], 1);
    assert_near("flow", 2, apart.flow_bytes_per_sec, 5 * GB);
    assert_near("message", 3, message.flow_bytes_per_sec, 100 * GB);
}
