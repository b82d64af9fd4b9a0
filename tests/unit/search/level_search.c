/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for levels, too: the same winners as if all plans were simulated, and the promised partitions. */
#include <math.h>

#include "core/order.h"
#include "pairs.h"
#include "random_model.h"
#include "search/search.h"

enum { MOST_RANKS = 32 };

static qdr_search_opts random_opts(uint64_t *seed, const qdr_machine *machine, int n_ranks)
{
    qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .n_ranks = n_ranks, .n_best = 3, .any_levels = 1};
    opts.dtype = machine->bf16.peak_flops > 0 ? QDR_BF16 : QDR_F32;
    opts.batch = opts.n_ranks * test_between(seed, 1, 6);
    opts.micro_batch = random_flag(seed);
    opts.layouts = (int)test_between(seed, 1, 3);
    opts.recomputes = (int)random_of(
        seed, (const int64_t[]){1 << QDR_RECOMPUTE_NONE, 1 << QDR_RECOMPUTE_OPERATIONS, 1 << QDR_RECOMPUTE_FULL}, 3);
    opts.order = random_flag(seed) ? NULL : random_flag(seed) ? "zdxy" : "xyzd";
    return opts;
}

static void check_best(const qdri_search_result *found, const qdri_search_result *all, uint64_t seed)
{
    assert_int_equal(found->n_best, all->n_best);
    assert_true(found->n_candidates == all->n_candidates && found->n_grids == all->n_grids);
    assert_true(found->n_grids >= found->n_best && found->n_fitting >= all->n_fitting);
    assert_true(found->n_simulated <= all->n_simulated && all->n_simulated == all->n_fitting);
    for (int b = 0; b < found->n_best; b++)
        if (fabs(found->best[b].result.secs - all->best[b].result.secs) > 1e-12 * all->best[b].result.secs)
            fail_msg("seed %llu: number %d takes %g, not %g", (unsigned long long)seed, b, found->best[b].result.secs,
                     all->best[b].result.secs);
}

/* For all numbers of ranks up to 32, with memory for everything, for some plans, and for none. */
TEST(winners)
{
    static qdri_search_result found, all, plain;
    uint64_t seed = test_seed();
    const int is_long = getenv("QDR_TEST_LONG") != NULL;
    int64_t n_simulated = 0, n_all = 0;
    int n_with_levels = 0, n_faster = 0;
    for (int n_ranks = 1; n_ranks <= MOST_RANKS; n_ranks++)
        for (int trial = 0; trial < (is_long ? 8 : 1); trial++) {
            const uint64_t before = seed;
            const qdr_machine machine = random_machine(&seed);
            const qdr_network network = random_network(&seed, test_between(&seed, 2, 12));
            qdr_search_opts opts = random_opts(&seed, &machine, n_ranks);
            qdr_model *model = NULL;
            CHECK_OK(qdr_model_create(&machine, &network, &model));
            CHECK_OK(qdri_model_search(model, &opts, &found));
            qdri_planned_grid least = {.result = {.memory_bytes = 0}};
            if (found.n_best == 0) CHECK_OK(qdri_model_least_memory(model, &opts, &least));
            const double shares[] = {0, 0, 1.2, 1.02, 0.9};
            opts.memory_bytes = shares[test_between(&seed, 0, 4)] * least.result.memory_bytes;
            CHECK_OK(qdri_model_search(model, &opts, &found));
            opts.exhaustive = 1;
            CHECK_OK(qdri_model_search(model, &opts, &all));
            check_best(&found, &all, before);
            opts.exhaustive = opts.any_levels = 0;
            CHECK_OK(qdri_model_search(model, &opts, &plain));
            assert_true(found.n_best >= plain.n_best && found.n_candidates >= plain.n_candidates);
            n_simulated += found.n_simulated;
            n_all += all.n_simulated;
            qdr_model_destroy(&model);
            if (found.n_best == 0) continue;
            const qdr_plan *best = &found.best[0].plan;
            n_with_levels += best->optimizer_parts > best->z;
            n_faster += plain.n_best && found.best[0].result.secs < plain.best[0].result.secs;
        }
    print_message("%lld of %lld plans simulated; %d winners have levels, %d are faster for it\n",
                  (long long)n_simulated, (long long)n_all, n_with_levels, n_faster);
    assert_true(n_simulated < n_all && n_with_levels > 0 && n_faster > 0);
}

/* A number of parts other than z and z·d fills a unit of some level: neither twice as many nor any other multiple up to
 * there would stay inside. */
static int fills(const qdr_machine *m, const int size[QDR_N_AXES], int parts)
{
    const int z = size[QDR_Z], d = size[QDR_D], k = parts / z;
    for (int l = 0; l < m->n_links - 1; l++)
        for (int is_slow = 0; is_slow < 2; is_slow++) {
            const int stride = z * (is_slow ? size[QDR_X] * size[QDR_Y] : 1), unit = m->links[l].n_ranks;
            int largest = 0;
            for (int j = 1; j <= d; j++)
                if (d % j == 0 && unit % (j * stride) == 0) largest = j;
            if (k == largest) return 1;
        }
    return 0;
}

TEST(partitions)
{
    uint64_t seed = test_seed();
    int n_most = 0;
    for (int trial = 0; trial < 4000; trial++) {
        const qdr_machine machine = random_machine(&seed);
        const int size[QDR_N_AXES] = {(int)test_between(&seed, 1, 4), (int)test_between(&seed, 1, 4),
                                      (int)test_between(&seed, 1, 24), (int)test_between(&seed, 1, 96)};
        const int z = size[QDR_Z], all = z * size[QDR_D];
        qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .any_levels = 1};
        qdri_parts pairs[QDRI_MOST_PAIRS];
        const int n = qdri_search_parts(&machine, &opts, size, pairs);
        n_most = n > n_most ? n : n_most;
        assert_true(has_pair(pairs, n, z, z) && has_pair(pairs, n, z, all) && has_pair(pairs, n, all, all));
        for (int i = 0; i < n; i++) {
            const int of[2] = {pairs[i].gradient, pairs[i].optimizer};
            assert_true(of[0] % z == 0 && of[1] % of[0] == 0 && all % of[1] == 0);
            for (int j = 0; j < 2; j++) assert_true(of[j] == z || of[j] == all || fills(&machine, size, of[j]));
            assert_false(has_pair(pairs, i, of[0], of[1]));
        }
        opts = (qdr_search_opts){.gradient_parts = -1, .optimizer_parts = 6};
        assert_int_equal(qdri_search_parts(&machine, &opts, size, pairs), all == 6);
        opts = (qdr_search_opts){.gradient_parts = z, .optimizer_parts = -1};
        assert_int_equal(qdri_search_parts(&machine, &opts, size, pairs), 1);
        assert_true(pairs[0].gradient == z && pairs[0].optimizer == all);
    }
    print_message("at most %d pairs\n", n_most);
    assert_in_range(n_most, 6, 21);
}

/* With words, each plan found has the parts that its order has. */
TEST(words_and_orders)
{
    static qdri_search_result found;
    uint64_t seed = test_seed();
    int n_orders = 0;
    for (int trial = 0; trial < 12; trial++) {
        const qdr_machine machine = random_machine(&seed);
        const qdr_network network = random_network(&seed, test_between(&seed, 2, 12));
        qdr_search_opts opts = random_opts(&seed, &machine, (int)test_between(&seed, 4, 24));
        qdr_model *model = NULL;
        opts.any_levels = 0;
        opts.order = NULL;
        opts.memory_bytes = 0x1p60;
        opts.gradient_parts = QDR_PARTS_OF_LINK(0);
        opts.optimizer_parts = QDR_PARTS_OF_LINK(machine.n_links > 2 ? 1 : 0);
        CHECK_OK(qdr_model_create(&machine, &network, &model));
        CHECK_OK(qdri_model_search(model, &opts, &found));
        for (int b = 0; b < found.n_best; b++) {
            const qdr_plan *plan = &found.best[b].plan;
            const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
            const qdri_parts parts = qdri_search_given(&machine, &opts, size, plan->order);
            assert_true(plan->gradient_parts == parts.gradient && plan->optimizer_parts == parts.optimizer);
            n_orders += strcmp(plan->order, QDRI_USUAL_ORDER) != 0;
        }
        qdr_model_destroy(&model);
    }
    assert_true(n_orders > 0);
}

/* Frontier: modules of 2, nodes of 8. */
TEST(frontier)
{
    qdr_machine m = {QDR_INIT(qdr_machine)};
    qdri_parts pairs[QDRI_MOST_PAIRS];
    const qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .any_levels = 1};
    CHECK_OK(qdr_machine_load("frontier", &m));
    int n = qdri_search_parts(&m, &opts, (const int[]){1, 1, 2, 192}, pairs);
    static const qdri_parts all[] = {{2, 2}, {2, 8}, {2, 384}, {8, 8}, {8, 384}, {384, 384}};
    assert_int_equal(n, 6);
    for (int i = 0; i < n; i++) assert_memory_equal(&pairs[i], &all[i], sizeof all[i]);
    n = qdri_search_parts(&m, &opts, (const int[]){1, 4, 1, 96}, pairs); /* a node has 2 of its own d if y is faster */
    assert_true(has_pair(pairs, n, 2, 8) && has_pair(pairs, n, 8, 96));
    assert_int_equal(qdri_search_parts(&m, &opts, (const int[]){1, 1, 384, 1}, pairs), 1);
}

TEST(refusals)
{
    static qdri_search_result found;
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_model *model = NULL;
    qdri_planned_grid least;
    CHECK_OK(qdr_machine_load("dgx-a100", &machine));
    CHECK_OK(qdr_network_load("gpt2", &network));
    CHECK_OK(qdr_model_create(&machine, &network, &model));
    qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .n_ranks = 4, .dtype = QDR_BF16, .any_levels = 1};
    CHECK_OK(qdri_model_search(model, &opts, &found));
    opts.gradient_parts = 2;
    CHECK_FAILS(qdri_model_search(model, &opts, &found), QDR_ERR_ARGUMENT, "gradients in 2 parts");
    assert_int_equal(found.n_best, 0);
    opts.gradient_parts = 0;
    opts.optimizer_parts = -1;
    CHECK_FAILS(qdri_model_least_memory(model, &opts, &least), QDR_ERR_ARGUMENT, "optimizer state in -1");
    opts.optimizer_parts = 0;
    opts.any_levels = 2;
    CHECK_FAILS(qdri_model_search(model, &opts, &found), QDR_ERR_ARGUMENT, "any_levels is 2");
    qdr_model_destroy(&model);
}
