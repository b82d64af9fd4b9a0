/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of channels and members of nodes, counted; the words for levels that do not nest. */
#include "core/group.h"

#include "qdr_test.h"

enum { MOST = 24 };

/* Ranks of d that share what a channel does not vary: of i + near · (j + far · copy), near varies i, far j, and copies
 * the copy. */
static int are_together(qdr_channel channel, int near, int far, int a, int b)
{
    const int part[2][3] = {{a % near, a / near % far, a / near / far}, {b % near, b / near % far, b / near / far}};
    const int varies = channel == QDR_CHANNEL_D_NEAR ? 0 : channel == QDR_CHANNEL_D_FAR ? 1 : 2;
    for (int i = 0; i < 3; i++)
        if (i != varies && part[0][i] != part[1][i]) return 0;
    return 1;
}

static void check_group(qdr_channel channel, int d, int near, int far, int at)
{
    const qdri_position position = {.size = {1, 1, 1, d}, .coordinate = {0, 0, 0, at}, .near = near, .far = far};
    const qdri_channel_group group = qdri_channel_group_of(&position, channel);
    int n = 0;
    for (int j = 0; j < d; j++) {
        if (!are_together(channel, near, far, at, j)) continue;
        if (group.first + n * group.stride != j || (j == at) != (group.index == n))
            fail_msg("%s of %d = %d · %d · …, rank %d: member %d is not rank %d", qdr_channel_name(channel), d, near,
                     far, at, n, j);
        n++;
    }
    assert_int_equal(group.size, n);
}

TEST(levels_of_d)
{
    static const qdr_channel channels[] = {QDR_CHANNEL_D_NEAR, QDR_CHANNEL_D_FAR, QDR_CHANNEL_D_COPIES};
    for (int d = 1; d <= MOST; d++)
        for (int near = 1; near <= d; near++)
            for (int far = 1; far <= d / near; far++)
                for (int at = 0; d % (near * far) == 0 && near * far > 1 && at < d; at++)
                    for (int i = 0; i < 3; i++) check_group(channels[i], d, near, far, at);
}

/* Without levels the channels of levels have nobody to talk to; all others have the whole axis. */
TEST(without_levels)
{
    for (int i = 0; i < 2; i++) {
        const qdri_position at = {.size = {2, 3, 4, 6}, .coordinate = {1, 2, 3, 4}, .near = i, .far = i};
        assert_false(qdri_has_levels(&at));
        for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
            const qdri_channel_group group = qdri_channel_group_of(&at, (qdr_channel)channel);
            const int axis = (int)qdr_channel_axis((qdr_channel)channel);
            const int is_level = channel == (int)QDR_CHANNEL_D_NEAR || channel == (int)QDR_CHANNEL_D_FAR ||
                                 channel == (int)QDR_CHANNEL_D_COPIES;
            assert_int_equal(group.size, is_level ? 1 : at.size[axis]);
            assert_int_equal(group.first + group.index * group.stride, at.coordinate[axis]);
            if (!is_level) assert_int_equal(group.stride, 1);
        }
    }
    assert_true(qdri_has_levels(&(qdri_position){.near = 2}));
    assert_true(qdri_has_levels(&(qdri_position){.far = 2}));
}

/* ---- nodes ---- */

/* The same, from counts: k > 1 members on each of several nodes, one node after the other. */
static int per_node_by_counting(const int *nodes, const int *members, int size)
{
    int count[MOST] = {0}, n_nodes = 0, k = 0;
    for (int j = 0; j < size; j++) count[nodes[members ? members[j] : j]]++;
    for (int node = 0; node < MOST; node++) {
        if (!count[node]) continue;
        n_nodes++;
        if (k && count[node] != k) return 0;
        k = count[node];
    }
    int n_changes = 0;
    for (int j = 1; j < size; j++)
        n_changes += nodes[members ? members[j] : j] != nodes[members ? members[j - 1] : j - 1];
    return n_nodes > 1 && k > 1 && n_changes == n_nodes - 1 ? k : 0;
}

TEST(members_of_nodes)
{
    uint64_t seed = test_seed();
    int n_by_node = 0;
    for (int round = 0; round < 20000; round++) {
        const int size = (int)test_between(&seed, 1, 12), unit = (int)test_between(&seed, 1, 4);
        const int n_nodes = 1 + (size - 1) / unit;
        int nodes[MOST], members[MOST];
        for (int j = 0; j < MOST; j++) nodes[j] = j < size ? (j / unit + 5) % n_nodes : MOST - 1;
        /* Often node by node; else some are elsewhere. */
        for (int n = (int)test_between(&seed, -2, 2); n > 0; n--)
            nodes[test_between(&seed, 0, size - 1)] = (int)test_between(&seed, 0, n_nodes - 1);
        for (int j = 0; j < size; j++) members[j] = size - 1 - j;
        const int wanted = per_node_by_counting(nodes, NULL, size);
        n_by_node += wanted > 0;
        assert_int_equal(qdri_members_per_node(nodes, NULL, size), wanted);
        assert_int_equal(qdri_members_per_node(nodes, members, size), per_node_by_counting(nodes, members, size));
    }
    assert_true(n_by_node > 1000);
}

/* ---- options ---- */

TEST(nesting)
{
    static const struct {
        int z, d, gradients, optimizer;
        const char *words; /* NULL: they nest */
    } cases[] = {
        {2, 6, 0, 0, NULL},
        {2, 6, 4, 12, NULL},
        {2, 6, 0, 12, NULL},
        {1, 8, 8, 8, NULL},
        {2, 6, 3, 0, "gradients in 3 parts; use a multiple of 2 that divides z*d = 12, such as 2 or 4"},
        {2, 6, 8, 0, "gradients in 8 parts; use a multiple of 2 that divides z*d = 12, such as 6 or 12"},
        {2, 6, 24, 0, "gradients in 24 parts; use a multiple of 2 that divides z*d = 12, such as 12"},
        {2, 6, 1, 0, "gradients in 1 parts; use a multiple of 2 that divides z*d = 12, such as 2"},
        {2, 6, -4, 0, "gradients in -4 parts"},
        {1, 8, 3, 0, "gradients in 3 parts; use a number that divides z*d = 8, such as 2 or 4"},
        {2, 6, 4, 6, "optimizer state in 6 parts; use a multiple of 4 that divides z*d = 12, such as 4 or 12"},
        {2, 6, 4, 2, "optimizer state in 2 parts; use a multiple of 4 that divides z*d = 12, such as 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int z = cases[i].z, d = cases[i].d, gradients = cases[i].gradients, optimizer = cases[i].optimizer;
        qdri_levels levels = {{0}};
        qdri_position cut = {.near = 0};
        assert_int_equal(qdri_levels_nest(z, d, gradients, optimizer), !cases[i].words);
        if (cases[i].words) {
            CHECK_FAILS(qdri_levels_read("grid", z, d, gradients, optimizer, &levels), QDR_ERR_ARGUMENT,
                        cases[i].words);
            continue;
        }
        CHECK_OK(qdri_levels_read("grid", z, d, gradients, optimizer, &levels));
        qdri_levels_cut(&levels, &cut);
        assert_int_equal(levels.of[QDR_LEVEL_WEIGHTS], z);
        assert_int_equal(cut.near * z, gradients ? gradients : z);
        assert_int_equal(cut.far * cut.near * z, optimizer ? optimizer : cut.near * z);
    }
}
