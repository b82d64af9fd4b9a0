/* SPDX-License-Identifier: Apache-2.0 */
/* Searches for levels, too: the same winners as if all plans were simulated, and the promised partitions. */
#include <math.h>

#include "core/order.h"
#include "random_model.h"
#include "search/search.h"

static const char *const machines[] = {"dgx-a100", "frontier", "summit", "perlmutter", "dgx-h100", "laptop"};
enum { N_MACHINES = sizeof machines / sizeof *machines, MOST_RANKS = 32 };

/* A machine whose levels of links have other sizes and rates than its file. */
static qdr_machine random_machine(uint64_t *seed)
{
    static const int64_t inner[] = {2, 3, 4}, factors[] = {2, 2, 3, 4};
    qdr_machine m;
    CHECK_OK(qdr_machine_load(machines[test_between(seed, 0, N_MACHINES - 1)], &m));
    if (m.n_links < 2 || random_flag(seed)) return m;
    int n_ranks = (int)random_of(seed, inner, 3);
    for (int l = 0; l < m.n_links - 1; l++, n_ranks *= (int)random_of(seed, factors, 4)) {
        m.links[l].n_ranks = n_ranks;
        m.ranks_per_node = n_ranks;
        if (l > 0) m.links[l].n_adapters = n_ranks;
    }
    m.links[m.n_links - 1].n_adapters = (int)test_between(seed, 1, m.ranks_per_node);
    m.links[m.n_links - 1].adapter_bytes_per_sec *= (double)test_between(seed, 1, 20) / 10;
    CHECK_OK(qdr_machine_check(&m, m.name));
    return m;
}

static qdr_search_opts random_opts(uint64_t *seed, const qdr_machine *machine, int n_ranks)
{
    qdr_search_opts opts = {.version = QDR_OPTS_INIT, .n_ranks = n_ranks, .n_best = 3, .any_levels = 1};
    opts.dtype = machine->bf16.peak_flops > 0 ? QDR_BF16 : QDR_F32;
    opts.batch = opts.n_ranks * test_between(seed, 1, 6);
    opts.micro_batch = random_flag(seed);
    opts.layouts = (int)test_between(seed, 1, 3);
    opts.recomputes = 1 << test_between(seed, 0, 2);
    opts.order = random_flag(seed) ? NULL : random_flag(seed) ? "zdxy" : "xyzd";
    return opts;
}

static void check_best(const qdr_search_result *found, const qdr_search_result *all, uint64_t seed)
{
    assert_int_equal(found->n_best, all->n_best);
    assert_true(found->n_candidates == all->n_candidates && found->n_fitting == all->n_fitting);
    assert_true(found->n_simulated <= all->n_simulated && all->n_simulated == all->n_fitting);
    for (int b = 0; b < found->n_best; b++)
        if (fabs(found->best[b].result.secs - all->best[b].result.secs) > 1e-12 * all->best[b].result.secs)
            fail_msg("seed %llu: number %d takes %g, not %g", (unsigned long long)seed, b, found->best[b].result.secs,
                     all->best[b].result.secs);
}

/* For all numbers of ranks up to 32, with memory for everything, for some plans, and for none. */
static void winners(void **state)
{
    (void)state;
    static qdr_search_result found, all, plain;
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
            CHECK_OK(qdr_model_search(model, &opts, &found));
            const double least = found.least_memory.result.memory_bytes;
            const double shares[] = {0, 0, 1.2, 1.02, 0.9};
            opts.memory_bytes = shares[test_between(&seed, 0, 4)] * least;
            CHECK_OK(qdr_model_search(model, &opts, &found));
            opts.exhaustive = 1;
            CHECK_OK(qdr_model_search(model, &opts, &all));
            check_best(&found, &all, before);
            opts.exhaustive = opts.any_levels = 0;
            CHECK_OK(qdr_model_search(model, &opts, &plain));
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

static int has_pair(const qdri_parts *pairs, int n, int gradient, int optimizer)
{
    for (int i = 0; i < n; i++)
        if (pairs[i].gradient == gradient && pairs[i].optimizer == optimizer) return 1;
    return 0;
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

static void partitions(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    int n_most = 0;
    for (int trial = 0; trial < 4000; trial++) {
        const qdr_machine machine = random_machine(&seed);
        const int size[QDR_N_AXES] = {(int)test_between(&seed, 1, 4), (int)test_between(&seed, 1, 4),
                                      (int)test_between(&seed, 1, 24), (int)test_between(&seed, 1, 96)};
        const int z = size[QDR_Z], all = z * size[QDR_D];
        qdr_search_opts opts = {.version = QDR_OPTS_INIT, .any_levels = 1};
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

/* Whether all ranks of each k neighbours on d that begin at a multiple of k, with all of z, share a unit. */
static int share(const int size[QDR_N_AXES], const char *order, int unit, int k)
{
    int strides[QDR_N_AXES], n = 1;
    for (int i = 0; i < QDR_N_AXES; n *= size[qdri_axis_of(order[i++])]) strides[qdri_axis_of(order[i])] = n;
    for (int rank = 0; rank < n; rank++) {
        const int d = rank / strides[QDR_D] % size[QDR_D], z = rank / strides[QDR_Z] % size[QDR_Z];
        if (rank / unit != (rank - z * strides[QDR_Z] - d % k * strides[QDR_D]) / unit) return 0;
    }
    return 1;
}

/* Levels of links by name: one number if the order is fixed, else those of both orders. */
static void parts_of_links(void **state)
{
    (void)state;
    static const char *const orders[] = {"xyzd", "zdxy", "ydzx", "dzxy", "zxdy"};
    uint64_t seed = test_seed();
    int n_next = 0;
    for (int trial = 0; trial < 4000; trial++) {
        const qdr_machine machine = random_machine(&seed);
        const int size[QDR_N_AXES] = {(int)test_between(&seed, 1, 4), (int)test_between(&seed, 1, 3),
                                      (int)test_between(&seed, 1, 4), (int)test_between(&seed, 1, 24)};
        const int z = size[QDR_Z], d = size[QDR_D], level = (int)test_between(&seed, 0, machine.n_links - 1);
        int wanted[5];
        for (int i = 0; i < 5; i++) {
            wanted[i] = 0;
            for (int l = level; l < machine.n_links - 1 && !wanted[i]; l++)
                for (int k = 1; k <= d; k++)
                    if (d % k == 0 && share(size, orders[i], machine.links[l].n_ranks, k)) wanted[i] = z * k;
            n_next += !wanted[i];
            if (!wanted[i]) wanted[i] = z * d;
            qdr_plan plan = {.x = size[QDR_X], .y = size[QDR_Y], .z = z, .d = d};
            memcpy(plan.order, orders[i], 5);
            assert_int_equal(qdr_plan_parts_of_link(&plan, &machine, level), wanted[i]);
            const qdr_search_opts opts = {
                .order = orders[i], .gradient_parts = QDR_PARTS_OF_LINK(level), .optimizer_parts = -1};
            qdri_parts pairs[QDRI_MOST_PAIRS];
            assert_int_equal(qdri_search_parts(&machine, &opts, size, pairs), 1);
            assert_true(pairs[0].gradient == wanted[i] && pairs[0].optimizer == z * d);
        }
        const qdr_search_opts opts = {.gradient_parts = QDR_PARTS_OF_LINK(level),
                                      .optimizer_parts = QDR_PARTS_OF_LINK(level)};
        qdri_parts pairs[QDRI_MOST_PAIRS];
        const int n = qdri_search_parts(&machine, &opts, size, pairs);
        assert_in_range(n, 1, 4);
        for (int i = 0; i < n; i++) assert_int_equal(pairs[i].optimizer % pairs[i].gradient, 0);
    }
    assert_in_range(n_next, 100, 19000);
    assert_int_equal(qdr_plan_parts_of_link(NULL, NULL, 0), 0);
}

/* Frontier: modules of 2, nodes of 8. */
static void frontier(void **state)
{
    (void)state;
    qdr_machine m;
    qdri_parts pairs[QDRI_MOST_PAIRS];
    const qdr_search_opts opts = {.version = QDR_OPTS_INIT, .any_levels = 1};
    CHECK_OK(qdr_machine_load("frontier", &m));
    int n = qdri_search_parts(&m, &opts, (const int[]){1, 1, 2, 192}, pairs);
    static const qdri_parts all[] = {{2, 2}, {2, 8}, {2, 384}, {8, 8}, {8, 384}, {384, 384}};
    assert_int_equal(n, 6);
    for (int i = 0; i < n; i++) assert_memory_equal(&pairs[i], &all[i], sizeof all[i]);
    n = qdri_search_parts(&m, &opts, (const int[]){1, 4, 1, 96}, pairs); /* a node has 2 of its own d if y is faster */
    assert_true(has_pair(pairs, n, 2, 8) && has_pair(pairs, n, 8, 96));
    assert_int_equal(qdri_search_parts(&m, &opts, (const int[]){1, 1, 384, 1}, pairs), 1);
}

static void refusals(void **state)
{
    (void)state;
    static qdr_search_result found;
    qdr_machine machine;
    qdr_network network;
    qdr_model *model = NULL;
    qdr_planned_grid least;
    CHECK_OK(qdr_machine_load("dgx-a100", &machine));
    CHECK_OK(qdr_network_load("gpt2", &network));
    CHECK_OK(qdr_model_create(&machine, &network, &model));
    qdr_search_opts opts = {.version = QDR_OPTS_INIT, .n_ranks = 4, .dtype = QDR_BF16, .any_levels = 1};
    CHECK_OK(qdr_model_search(model, &opts, &found));
    opts.gradient_parts = 2;
    CHECK_FAILS(qdr_model_search(model, &opts, &found), QDR_ERR_ARGUMENT, "gradients in 2 parts");
    assert_int_equal(found.n_best, 0);
    opts.gradient_parts = 0;
    opts.optimizer_parts = -1;
    CHECK_FAILS(qdr_model_least_memory(model, &opts, &least), QDR_ERR_ARGUMENT, "optimizer state in -1");
    opts.optimizer_parts = 0;
    opts.any_levels = 2;
    CHECK_FAILS(qdr_model_search(model, &opts, &found), QDR_ERR_ARGUMENT, "any_levels is 2");
    qdr_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(winners),  cmocka_unit_test(partitions), cmocka_unit_test(parts_of_links),
        cmocka_unit_test(frontier), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
