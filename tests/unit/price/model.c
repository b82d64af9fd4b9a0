/* SPDX-License-Identifier: Apache-2.0 */
/* The model as a whole: its terms add up, bounds hold, additional resources never make it slower, and it agrees with
 * closed forms. */
#include <float.h>
#include <math.h>

#include "price/collective.h"
#include "random_model.h"
#include "search/search.h"

static const char *const machines[] = {"dgx-a100", "perlmutter",  "frontier",       "summit",
                                       "laptop",   "selene-2022", "vtrain-cluster", "hf-cluster"};
static const char *const networks[] = {"gpt2", "gpt3-1.3b", "llama-3-8b", "gpt-neox-20b"};
enum { N_MACHINES = sizeof machines / sizeof *machines, N_NETWORKS = 4 };

static qdr_plan random_plan(uint64_t *seed, qdr_dtype dtype)
{
    qdr_plan plan = random_grid(seed);
    plan.x <<= test_between(seed, 0, 2);
    plan.z <<= test_between(seed, 0, 3);
    plan.batch = (int64_t)plan.z * plan.d * test_between(seed, 1, 16);
    plan.micro_batch = test_between(seed, 0, 4);
    plan.recompute = (qdr_recompute)test_between(seed, 0, QDR_RECOMPUTE_OPERATIONS);
    plan.dtype = dtype;
    random_order(seed, plan.order);
    plan.panels = (int)random_of(seed, (const int64_t[]){1, 1, 1, 1, 1, 2, 4, 8}, 8);
    plan.batch_parts = (int)random_of(seed, (const int64_t[]){1, 1, 1, 2}, 4);
    if (test_between(seed, 0, 31) == 0) plan.panels = plan.batch_parts = 0;
    random_levels(seed, &plan);
    return plan;
}

static void say(const char *machine, const char *network, const qdr_plan *p)
{
    print_message("%s, %s: %dx%dx%dx%d %s %c recompute %d batch %d micro %d overlap %d panels %d, %d parts %d %d\n",
                  machine, network, p->x, p->y, p->z, p->d, p->order, p->layout == QDR_SCATTERED ? 'S' : 'R',
                  (int)p->recompute, (int)p->batch, (int)p->micro_batch, p->overlap, p->panels, p->batch_parts,
                  p->gradient_parts, p->optimizer_parts);
}

static qdr_dtype type_of(const char *machine) { return strcmp(machine, "laptop") == 0 ? QDR_F32 : QDR_BF16; }

/* ---- terms and bounds ---- */

/* @return whether all is well */
static int check_terms(const qdr_plan_result *r)
{
    double secs = 0, bytes = 0;
    int well = 1;
    for (int t = 0; t < QDR_N_TIME_TERMS; t++) {
        well &= isfinite(r->time[t]) && r->time[t] >= -1e-9 * r->secs;
        secs += r->time[t];
    }
    for (int t = 0; t < QDR_N_MEMORY_TERMS; t++) {
        well &= isfinite(r->memory[t]) && r->memory[t] >= 0;
        bytes += r->memory[t];
    }
    return well && fabs(secs - r->secs) <= 1e-9 * r->secs && fabs(bytes - r->memory_bytes) <= 1e-9 * bytes &&
           r->peak_share <= 1;
}

TEST(bounds_and_terms)
{
    uint64_t seed = test_seed();
    int n_above = 0, n_terms = 0, n = 0;
    double worst = 0;
    for (int pair = 0; pair < N_MACHINES * N_NETWORKS; pair++) {
        const char *machine = machines[pair % N_MACHINES], *network = networks[pair / N_MACHINES];
        qdr_model *model = named_model(machine, network);
        for (int trial = 0; trial < 625; trial++, n++) {
            const qdr_plan plan = random_plan(&seed, type_of(machine));
            qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
            double bound = 0, work[QDRI_N_RECOMPUTES];
            CHECK_OK(qdr_model_predict(model, &plan, &result));
            CHECK_OK(qdr_model_bound(model, &plan, &bound));
            CHECK_OK(qdri_model_work(model, &plan, work));
            const double work_secs = work[plan.recompute];
            const int above = bound > result.secs * (1 + 1e-9) || work_secs > bound * (1 + 1e-9);
            const int terms = !check_terms(&result);
            if ((above && !n_above) || (terms && !n_terms)) {
                say(machine, network, &plan);
                print_message("work %g, bound %g, predicted %g\n", work_secs, bound, result.secs);
                for (int t = 0; terms && t < QDR_N_TIME_TERMS; t++)
                    print_message("%s %g\n", qdr_time_term_name((qdr_time_term)t), result.time[t]);
            }
            n_above += above;
            n_terms += terms;
            worst = fmax(worst, bound / result.secs);
        }
        qdr_model_destroy(&model);
    }
    print_message("%d plans: %d bounds above (the highest %.6f), %d with wrong terms\n", n, n_above, worst, n_terms);
    assert_int_equal(n_above, 0);
    assert_int_equal(n_terms, 0);
}

/* ---- the search ---- */

TEST(winners)
{
    static const int few[] = {1, 6, 8, 12, 16}, pairs[][2] = {{0, 1}, {3, 0}, {4, 0}};
    static qdri_search_result found, all;
    const int is_long = getenv("QDR_TEST_LONG") != NULL;
    for (int i = 0; i < 3; i++) {
        qdr_model *model = named_model(machines[pairs[i][0]], networks[pairs[i][1]]);
        for (int j = 0; j < (is_long ? 64 : 5); j++) {
            qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .n_best = 3};
            opts.n_ranks = is_long ? j + 1 : few[j];
            opts.batch = 2 * opts.n_ranks;
            opts.dtype = type_of(machines[pairs[i][0]]);
            opts.memory_bytes = 1e13;
            CHECK_OK(qdri_model_search(model, &opts, &found));
            opts.exhaustive = 1;
            CHECK_OK(qdri_model_search(model, &opts, &all));
            assert_true(found.n_best >= 1 && found.n_best == all.n_best);
            assert_true(found.n_simulated <= all.n_simulated);
            for (int b = 0; b < found.n_best; b++)
                if (fabs(found.best[b].result.secs - all.best[b].result.secs) > 1e-12 * all.best[b].result.secs)
                    fail_msg("%d ranks: number %d takes %g, not %g", opts.n_ranks, b, found.best[b].result.secs,
                             all.best[b].result.secs);
        }
        qdr_model_destroy(&model);
    }
}

/* ---- closed forms ---- */

/* Infinitely fast links, no latency. */
static void set_ideal(qdr_machine *machine)
{
    for (int l = 0; l < machine->n_links; l++) {
        qdr_machine_link *link = &machine->links[l];
        link->rank_bytes_per_sec = l ? 0 : 1e18;
        link->adapter_bytes_per_sec = 1e18;
        link->switch_bytes_per_sec = 0;
        link->step_secs = link->wait_secs = link->wait_secs_per_byte = 0;
    }
    machine->collectives.start_secs = machine->collectives.fill_secs = 0;
    machine->processor_slowdown = machine->transfer_slowdown = 0;
}

/* With links that cost nothing, d and z only part the batch. */
TEST(ideal_links)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_model *model = NULL;
    qdr_plan_result one = {QDR_INIT(qdr_plan_result)}, many = {QDR_INIT(qdr_plan_result)};
    CHECK_OK(qdr_machine_load("dgx-a100", &machine));
    CHECK_OK(qdr_network_load("gpt2-xl", &network));
    set_ideal(&machine);
    machine.software.host_secs = machine.software.collective_host_secs = 0;
    CHECK_OK(qdr_model_create(&machine, &network, &model));
    const qdr_plan alone = {QDR_INIT(qdr_plan), .x = 1, .y = 1, .z = 1, .d = 1, .dtype = QDR_BF16, .batch = 4};
    CHECK_OK(qdr_model_predict(model, &alone, &one));
    for (int is_z = 0; is_z < 2; is_z++) {
        qdr_plan plan = alone;
        *(is_z ? &plan.z : &plan.d) = 32;
        plan.batch = 4 * 32;
        CHECK_OK(qdr_model_predict(model, &plan, &many));
        for (int t = 0; t < QDR_TIME_OPTIMIZER; t++) assert_true(fabs(many.time[t] - one.time[t]) <= 1e-9 * one.secs);
        for (int t = QDR_TIME_X; t <= QDR_TIME_D; t++)
            if (many.time[t] > 1e-3 * one.secs) /* which layer a deferred sum is counted with */
                fail_msg("%s takes %g of %g", qdr_time_term_name((qdr_time_term)t), many.time[t], one.secs);
    }
    qdr_model_destroy(&model);
}

/* What is of two bytes costs the same, and is held the same. */
TEST(f16_is_as_bf16)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_model *model = NULL;
    qdr_plan_result bf16 = {QDR_INIT(qdr_plan_result)}, f16 = {QDR_INIT(qdr_plan_result)};
    CHECK_OK(qdr_machine_load("dgx-a100", &machine));
    CHECK_OK(qdr_network_load("gpt2-xl", &network));
    CHECK_OK(qdr_model_create(&machine, &network, &model));
    qdr_plan plan = {QDR_INIT(qdr_plan), .x = 2, .y = 2, .z = 2, .d = 2, .batch = 8};
    plan.dtype = QDR_BF16;
    CHECK_OK(qdr_model_predict(model, &plan, &bf16));
    plan.dtype = QDR_F16;
    CHECK_OK(qdr_model_predict(model, &plan, &f16));
    assert_true(f16.secs == bf16.secs && f16.secs > 0);
    for (int i = 0; i < QDR_N_MEMORY_TERMS; i++) assert_true(f16.memory[i] == bf16.memory[i]);
    qdr_model_destroy(&model);
}

TEST(rings)
{
    qdr_machine m = {
        .n_links = 1,
        .collectives = {.start_secs = 3e-6, .n_protocols = 1, .protocols = {{.step_factor = 1, .rate_factor = 1}}}};
    m.links[0] = (qdr_machine_link){.rank_bytes_per_sec = 1e11, .step_secs = 2e-6};
    for (int g = 2; g <= 64; g++) {
        const qdri_group group = qdri_group_make(&m, g, 1, g);
        const qdri_ways ways = qdri_ways_make(&m, &group);
        for (double n = 1; n < 1e12; n *= 7) {
            const double one = 3e-6 + (g - 1) * 2e-6 + (g - 1.0) / g * n / 1e11;
            const double two = 3e-6 + 2 * (g - 1) * 2e-6 + 2 * (g - 1.0) / g * n / 1e11;
            assert_true(fabs(qdri_coll_secs(&ways, QDR_ALL_REDUCE, n) - two) <= 1e-12 * two);
            assert_true(fabs(qdri_coll_secs(&ways, QDR_ALL_GATHER, n) - one) <= 1e-12 * one);
            assert_true(fabs(qdri_coll_secs(&ways, QDR_REDUCE_SCATTER, n) - one) <= 1e-12 * one);
        }
    }
}

/* The last level connects all ranks, also more than the unit that its machine was measured with. */
TEST(last_level)
{
    qdr_machine measured = {QDR_INIT(qdr_machine), .n_links = 1}, any = {QDR_INIT(qdr_machine), .n_links = 1};
    measured.links[0].n_ranks = 9;
    for (int g = 2; g <= 64; g++)
        for (int stride = 1; stride <= 64; stride *= 2) {
            const qdri_group a = qdri_group_make(&measured, g, stride, g * stride),
                             b = qdri_group_make(&any, g, stride, g * stride);
            assert_memory_equal(&a, &b, sizeof a);
            assert_true(qdri_group_crosses(&a, 0));
        }
}

/* Gradients parted over a node: every micro-batch's are reduce-scattered inside it, the last one's parts between nodes,
 * and new parameters come back the same way; those of biases, norms and positions are summed over all ranks at the end.
 * Without latencies all of it is bytes over rates. */
TEST(levels)
{
    qdr_machine m = {QDR_INIT(qdr_machine)};
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_model *model = NULL;
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    CHECK_OK(qdr_machine_load("laptop", &m));
    m.n_links = 2;
    m.links[0] = (qdr_machine_link){.n_ranks = 8, .rank_bytes_per_sec = 1e11};
    m.links[1] = (qdr_machine_link){.n_adapters = 8, .adapter_bytes_per_sec = 1e10};
    m.collectives = (qdr_machine_collectives){.n_protocols = 1, .protocols = {{.step_factor = 1, .rate_factor = 1}}};
    CHECK_OK(qdr_network_load("gpt2", &network));
    CHECK_OK(qdr_model_create(&m, &network, &model));
    qdr_plan plan = {QDR_INIT(qdr_plan),
                     .x = 1,
                     .y = 1,
                     .z = 1,
                     .d = 32,
                     .batch = 96,
                     .micro_batch = 1,
                     .gradient_parts = 8,
                     .optimizer_parts = 32,
                     .overlap = QDR_OVERLAP_NONE,
                     .dtype = QDR_F32};
    CHECK_OK(qdr_model_predict(model, &plan, &result));
    /* 25 norms, biases of four products in 12 layers, positions */
    const double small = 4 * (25.0 * 2 * 768 + 12 * (2304 + 768 + 3072 + 768) + 1024 * 768);
    const double bytes = result.memory[QDR_MEMORY_PARAMETERS] - small, end = 2 * 31.0 / 32 * small / 8e10;
    const double twice = 4 * 50257.0 * 768; /* the tied table, by its two uses */
    const double near = 7.0 / 8 * bytes / 1e11, far = 3.0 / 4 * bytes / 8 / 1e10;
    const double sums = 7.0 / 8 * (bytes + twice) / 1e11;
    double secs = 3 * sums + far + (far + near) + end;
    assert_true(fabs(result.busy[QDR_D] - secs) <= 1e-9 * secs);
    plan.optimizer_parts = 8; /* the parts are summed between nodes; parameters are there */
    CHECK_OK(qdr_model_predict(model, &plan, &result));
    secs = 3 * sums + 2 * far + near + end;
    assert_true(fabs(result.busy[QDR_D] - secs) <= 1e-9 * secs);
    plan.gradient_parts = plan.optimizer_parts = 32; /* nothing is left for the last one */
    CHECK_OK(qdr_model_predict(model, &plan, &result));
    secs = 31.0 / 32 * (3 * (bytes + twice) + bytes) / 8e10 + end;
    assert_true(fabs(result.busy[QDR_D] - secs) <= 1e-9 * secs);
    plan.gradient_parts = plan.optimizer_parts = 0;
    CHECK_OK(qdr_model_predict(model, &plan, &result));
    secs = 2 * 31.0 / 32 * bytes / 8e10 + end;
    assert_true(fabs(result.busy[QDR_D] - secs) <= 1e-9 * secs);
    qdr_model_destroy(&model);
}

static double busy_d(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan)
{
    qdr_model *model = NULL;
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    CHECK_OK(qdr_model_create(machine, network, &model));
    CHECK_OK(qdr_model_predict(model, plan, &result));
    qdr_model_destroy(&model);
    return result.busy[QDR_D];
}

/* Gradients in parts, in both orders of x and d: the ranks of d are on one node if d varies fastest, as on a machine
 * that is one node. */
TEST(parts_follow_the_order)
{
    qdr_machine nodes = {QDR_INIT(qdr_machine)}, one = {QDR_INIT(qdr_machine)};
    qdr_network network = {QDR_INIT(qdr_network)};
    CHECK_OK(qdr_machine_load("laptop", &nodes));
    CHECK_OK(qdr_network_load("gpt2", &network));
    nodes.n_links = 2;
    nodes.links[0] = (qdr_machine_link){.n_ranks = 8, .rank_bytes_per_sec = 1e11};
    nodes.links[1] = (qdr_machine_link){.n_adapters = 8, .adapter_bytes_per_sec = 1e10};
    nodes.collectives = (qdr_machine_collectives){.n_protocols = 1,
                                                  .protocols = {{.step_factor = 1, .rate_factor = 1}}};
    one = nodes;
    one.n_links = 1;
    one.links[0].n_ranks = 0;
    qdr_plan plan = {QDR_INIT(qdr_plan),
                     .x = 4,
                     .y = 1,
                     .z = 1,
                     .d = 8,
                     .batch = 24,
                     .micro_batch = 1,
                     .gradient_parts = 4,
                     .optimizer_parts = 8,
                     .overlap = QDR_OVERLAP_NONE,
                     .dtype = QDR_F32,
                     .order = "dxyz"};
    const double secs = busy_d(&one, &network, &plan);
    assert_true(fabs(busy_d(&nodes, &network, &plan) - secs) <= 1e-9 * secs);
    memcpy(plan.order, "xdyz", sizeof "xdyz");
    assert_true(fabs(busy_d(&one, &network, &plan) - secs) <= 1e-9 * secs);
    assert_true(busy_d(&nodes, &network, &plan) > 2 * secs);
}

/* Increasing and without jumps in bytes, on all machines. */
TEST(bytes_of_collectives)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < 400; i++) {
        qdr_machine m = {QDR_INIT(qdr_machine)};
        CHECK_OK(qdr_machine_load(machines[i % N_MACHINES], &m));
        const int g = (int)test_between(&seed, 2, 64), stride = 1 << test_between(&seed, 0, 5);
        const qdri_group group = qdri_group_make(&m, g, stride, g * stride * 2);
        const qdri_ways ways = qdri_ways_make(&m, &group);
        for (int kind = 0; kind < 3; kind++)
            for (double n = 1; n < 1e11; n *= 1.5) {
                const double a = qdri_coll_secs(&ways, (qdr_coll_kind)kind, n),
                             b = qdri_coll_secs(&ways, (qdr_coll_kind)kind, n * 1.001);
                assert_true(b >= a && b <= a * 1.001 + 1e-15);
            }
    }
}

/* ---- more is never slower ---- */

typedef struct change {
    const qdr_machine *machine;
    const qdr_network *network;
    const qdr_plan *plan;
    double secs;
    int n_wrong;
} change;

/* Whether a larger number makes a machine faster: 1, slower: -1, neither of them always: 0. */
static int sense_of(const char *key)
{
    static const char *const faster[] = {
        "memory_GBps", "memory_efficiency", "peak_TFLOPS",          ".most",   "rank_GBps", "adapter_GBps",
        "switch_GBps", "rate_factor",       "attention_efficiency", "adapters"};
    static const char *const slower[] = {"half_",     "step_us", "wait_us",     "start_us",  "fill_us",
                                         "launch_us", "host_us", "step_factor", "_slowdown", "microbatch_us"};
    for (size_t i = 0; i < sizeof slower / sizeof *slower; i++)
        if (strstr(key, slower[i])) return -1;
    for (size_t i = 0; i < sizeof faster / sizeof *faster; i++)
        if (strstr(key, faster[i])) return 1;
    return 0;
}

static void try_key(const char *key, void *user)
{
    change *c = user;
    qdr_machine other = *c->machine;
    qdr_model *model = NULL;
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    double value = 0;
    const int sense = sense_of(key);
    CHECK_OK(qdr_machine_get(&other, key, &value));
    if (!sense || !(value > 0) || strstr(key, "efficiency") || strstr(key, ".most")) return;
    CHECK_OK(qdr_machine_set(&other, key, value * 2));
    CHECK_OK(qdr_model_create(&other, c->network, &model));
    CHECK_OK(qdr_model_predict(model, c->plan, &result));
    if (sense * (result.secs - c->secs) > 1e-9 * c->secs) {
        if (c->n_wrong++ == 0) {
            say(c->machine->name, c->network->name, c->plan);
            print_message("%s %g -> %g: %g -> %g\n", key, value, 2 * value, c->secs, result.secs);
        }
    }
    qdr_model_destroy(&model);
}

/* One wide axis. With overlap, its gathers and sums share links, and the protocol or tree that is fastest alone need
 * not be the best then: there is one way to choose from. */
TEST(monotone)
{
    uint64_t seed = test_seed();
    int n_wrong = 0;
    for (int trial = 0; trial < 64; trial++) {
        qdr_machine machine = {QDR_INIT(qdr_machine)};
        qdr_network network = {QDR_INIT(qdr_network)};
        qdr_model *model = NULL;
        qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
        CHECK_OK(qdr_machine_load(machines[trial % N_MACHINES], &machine));
        machine.processor_slowdown = machine.transfer_slowdown = 0; /* that is contention, too */
        CHECK_OK(qdr_network_load(networks[test_between(&seed, 0, 1)], &network));
        const int overlaps = random_flag(&seed);
        if (overlaps) machine.collectives.n_protocols = 1, machine.collectives.has_tree = 0;
        CHECK_OK(qdr_model_create(&machine, &network, &model));
        qdr_plan plan = {
            QDR_INIT(qdr_plan), .x = 1, .y = 1, .z = 1, .d = 1, .dtype = type_of(machines[trial % N_MACHINES])};
        int *const axes[] = {&plan.x, &plan.y, &plan.z, &plan.d};
        *axes[trial / N_MACHINES % 4] = 1 << test_between(&seed, 0, 5);
        plan.layout = random_flag(&seed) ? QDR_SCATTERED : QDR_REPLICATED;
        plan.batch = (int64_t)plan.z * plan.d * test_between(&seed, 1, 8);
        plan.micro_batch = test_between(&seed, 0, 2);
        plan.overlap = overlaps ? QDR_OVERLAP_ALL : QDR_OVERLAP_NONE;
        CHECK_OK(qdr_model_predict(model, &plan, &result));
        plan.panels = result.panels, plan.batch_parts = result.batch_parts; /* which other machines may not choose */
        change c = {&machine, &network, &plan, result.secs, 0};
        qdr_machine_keys(&machine, try_key, &c);
        n_wrong += c.n_wrong;
        qdr_model_destroy(&model);
    }
    assert_int_equal(n_wrong, 0);
}
