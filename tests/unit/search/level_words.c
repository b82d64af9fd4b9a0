/* SPDX-License-Identifier: Apache-2.0 */
/* Levels in words mean the same parts for a search, which knows links, as for the runtime, which knows places. */
#include "core/order.h"
#include "pairs.h"
#include "quadrille/topo.h"
#include "random_model.h"

/* What the runtime takes for "node" if nodes hold `unit` ranks each; 0: it takes all ranks of z and d instead. */
static int parts_of_nodes(const int size[QDR_N_AXES], const char *order, int unit)
{
    static qdr_topo_place places[4 * 3 * 4 * 24];
    const int n = size[QDR_X] * size[QDR_Y] * size[QDR_Z] * size[QDR_D];
    qdr_topo_levels levels = {QDR_INIT(qdr_topo_levels)};
    for (int rank = 0; rank < n; rank++)
        places[rank] = (qdr_topo_place){
            .node = rank / unit, .gpu = -1, .core = -1, .cache = -1, .numa = -1, .package = -1};
    CHECK_OK(qdr_topo_levels_read(NULL, size, order, places, "node,all", &levels));
    return levels.note[0] ? 0 : levels.gradient_parts;
}

/* Links have the parts that the runtime would take. A fixed order has one number for each grid, else each order its
 * own. */
TEST(parts_of_links)
{
    static const char *const orders[] = {"xyzd", "zdxy", "ydzx", "dzxy", "zxdy"};
    uint64_t seed = test_seed();
    int n_none = 0, n_all = 0;
    for (int trial = 0; trial < 1500; trial++) {
        const qdr_machine machine = random_machine(&seed);
        const int size[QDR_N_AXES] = {(int)test_between(&seed, 1, 4), (int)test_between(&seed, 1, 3),
                                      (int)test_between(&seed, 1, 4), (int)test_between(&seed, 1, 24)};
        const int z = size[QDR_Z], d = size[QDR_D], level = (int)test_between(&seed, 0, machine.n_links - 1);
        for (int i = 0; i < 5; i++) {
            qdr_plan plan = {QDR_INIT(qdr_plan), .x = size[QDR_X], .y = size[QDR_Y], .z = z, .d = d};
            memcpy(plan.order, orders[i], 5);
            int wanted = z * d;
            for (int l = machine.n_links - 2; l >= level; l--) {
                const int parts = parts_of_nodes(size, orders[i], machine.links[l].n_ranks);
                assert_int_equal(qdr_plan_parts_of_link(&plan, &machine, l), parts);
                if (parts) wanted = parts;
                n_none += !parts;
                n_all++;
            }
            assert_int_equal(qdr_plan_parts_of_link(&plan, &machine, machine.n_links - 1), z * d);
            const qdr_search_opts opts = {
                .order = orders[i], .gradient_parts = QDR_PARTS_OF_LINK(level), .optimizer_parts = -1};
            qdri_parts pairs[QDRI_MOST_PAIRS];
            assert_int_equal(qdri_search_parts(&machine, &opts, size, pairs), 1);
            assert_true(pairs[0].gradient == wanted && pairs[0].optimizer == z * d);
            const qdr_search_opts any_order = {.gradient_parts = QDR_PARTS_OF_LINK(level), .optimizer_parts = -1};
            assert_true(has_pair(pairs, qdri_search_parts(&machine, &any_order, size, pairs), wanted, z * d));
        }
    }
    print_message("%d of %d levels have no parts\n", n_none, n_all);
    assert_true(n_none > n_all / 10 && n_none < n_all * 9 / 10);
    assert_int_equal(qdr_plan_parts_of_link(NULL, NULL, 0), 0);
}
