/* SPDX-License-Identifier: Apache-2.0 */
/* Grids chosen by the model: all ranks get the same one, whatever they request, and it can be created. */

#include "comm/internal.h"
#include "context/internal.h"
#include "dist.h"

static qdr_network small_network(void)
{
    return (qdr_network){QDR_INIT(qdr_network), .name = "small",     .layers = 4, .hidden = 512, .heads = 8,
                         .kv_heads = 8,         .head_size = 64,     .ffn = 2048, .vocab = 1000, .context = 128,
                         .positions = 128,      .norms_per_layer = 2};
}

static qdr_machine machine_of(const char *name)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    DIST_OK(qdr_machine_load(name, &machine));
    return machine;
}

/* The answer of rank 0 is everybody's. */
/* All that qdr_plan_auto() tells; the pointers of `about` are NULL afterwards. */
typedef struct answer {
    qdr_auto_plan about;
    qdr_plan plan;
    qdr_plan_result result, second;
} answer;

static qdr_status choose(qdr_context *ctx, const qdr_network *network, const qdr_machine *machine,
                         const qdr_search_opts *opts, answer *chosen)
{
    memset(chosen, 0, sizeof *chosen);
    chosen->plan.size = sizeof chosen->plan;
    chosen->result.size = chosen->second.size = sizeof chosen->result;
    chosen->about = (qdr_auto_plan){QDR_INIT(qdr_auto_plan), .plan = &chosen->plan, .result = &chosen->result,
                                    .second_result = &chosen->second};
    const qdr_status status = qdr_plan_auto(ctx, network, machine, opts, &chosen->about);
    chosen->about.plan = NULL;
    chosen->about.result = chosen->about.second_result = NULL;
    return status;
}

static void check_same(qdr_context *ctx, const answer *chosen)
{
    answer first = *chosen;
    DIST_OK(qdr_broadcast(ctx, 0, &first, sizeof first));
    DIST_CHECK(memcmp(&first, chosen, sizeof first) == 0, "ranks have different plans");
}

static void check_grid(qdr_context *ctx, const answer *chosen)
{
    const qdr_plan *plan = &chosen->plan;
    qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts)};
    qdr_grid *grid;
    DIST_OK(qdr_plan_check(plan, qdr_context_size(ctx)));
    DIST_OK(qdr_plan_grid_opts(plan, &opts));
    DIST_OK(qdr_grid_create(ctx, &opts, &grid));
    DIST_CHECK(qdr_grid_size(grid, QDR_X) == plan->x && qdr_grid_size(grid, QDR_D) == plan->d, "another grid was made");
    qdr_grid_destroy(&grid);
}

/* What rank 0 would find alone. */
static void check_best(qdr_context *ctx, const qdr_network *network, const qdr_machine *machine, qdr_search_opts opts,
                       const answer *chosen)
{
    qdr_search_result found = {QDR_INIT(qdr_search_result)};
    qdr_plan_result best = {QDR_INIT(qdr_plan_result)};
    qdr_model *model;
    opts.n_ranks = qdr_context_size(ctx);
    DIST_OK(qdr_model_create(machine, network, &model));
    DIST_OK(qdr_model_search(model, &opts, &found));
    DIST_OK(qdr_model_best(model, 0, NULL, &best));
    DIST_CHECK(best.secs == chosen->result.secs, "%g s, alone %g s", chosen->result.secs, best.secs);
    DIST_CHECK(chosen->about.n_grids == 1 || chosen->second.secs >= chosen->result.secs, "the second is faster");
    qdr_model_destroy(&model);
}

DIST_TEST(test_agrees)
{
    const char *const names[] = {"dgx-a100", "laptop", "dgx-h100"};
    for (int i = 0; i < 3; i++) {
        const qdr_machine machine = machine_of(names[i]);
        qdr_network network = small_network();
        network.layers = 1 + dist_below(&seed, 12);
        const qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .batch = 8 + dist_below(&seed, 64), .dtype = QDR_F32,
                                      .any_levels = i == 2, .threads = i == 1 ? 3 : 0};
        const int first = qdr_context_rank(ctx) == 0;
        answer chosen;
        /* only what rank 0 passes counts */
        DIST_OK(choose(ctx, first ? &network : NULL, first ? &machine : NULL, first ? &opts : NULL, &chosen));
        DIST_CHECK(strcmp(chosen.about.machine, names[i]) == 0, "of %s", chosen.about.machine);
        DIST_CHECK(chosen.about.n_fitting > 0 && chosen.about.n_candidates >= chosen.about.n_fitting, "counts");
        DIST_CHECK(chosen.plan.threads == (i == 1 ? 3 : qdr_context_threads(ctx)), "%lld threads",
                   (long long)chosen.plan.threads);
        check_same(ctx, &chosen);
        check_grid(ctx, &chosen);
        check_best(ctx, &network, &machine, opts, &chosen);
    }
}

DIST_TEST(test_defaults)
{
    const qdr_network network = small_network();
    answer chosen;
    DIST_OK(choose(ctx, &network, NULL, NULL, &chosen));
    check_same(ctx, &chosen);
    check_grid(ctx, &chosen);
    DIST_CHECK(chosen.plan.batch == qdr_context_size(ctx) && chosen.plan.dtype == QDR_F32, "batch %lld",
               (long long)chosen.plan.batch);
}

/* Rank 0's mistake is everybody's, and so is the sentence. */
DIST_TEST(test_refusals)
{
    const qdr_machine machine = machine_of("dgx-a100");
    qdr_network network = small_network();
    qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .dtype = QDR_F32};
    answer chosen;
    DIST_FAILS(choose(NULL, &network, &machine, &opts, &chosen), QDR_ERR_ARGUMENT, "context");
    DIST_FAILS(choose(ctx, NULL, &machine, &opts, &chosen), QDR_ERR_ARGUMENT, "network");
    DIST_FAILS(qdr_plan_auto(ctx, &network, &machine, &opts, NULL), QDR_ERR_ARGUMENT, "NULL");
    opts.n_ranks = 77;
    DIST_FAILS(choose(ctx, &network, &machine, &opts, &chosen), QDR_ERR_ARGUMENT, "77");
    opts.n_ranks = 0;
    opts.recomputes = 1 << QDR_RECOMPUTE_ATTENTION;
    DIST_FAILS(choose(ctx, &network, &machine, &opts, &chosen), QDR_ERR_ARGUMENT, "QDR_RECOMPUTE_OPERATIONS");
    opts.recomputes = 0;
    opts.memory_bytes = 1e6;
    DIST_FAILS(choose(ctx, &network, &machine, &opts, &chosen), QDR_ERR_MEMORY, "fits in");
    DIST_CHECK(chosen.plan.x == 0, "a result after an error");
    opts.memory_bytes = 0;
    network.layers = 0;
    DIST_FAILS(choose(ctx, &network, &machine, &opts, &chosen), QDR_ERR_SHAPE, "layers");
}

DIST_TEST(test_check)
{
    const int p = qdr_context_size(ctx);
    const qdr_plan good = {QDR_INIT(qdr_plan), .x = 1, .y = 1, .z = 1, .d = p};
    qdr_plan plan = good;
    DIST_OK(qdr_plan_check(&good, p));
    DIST_OK(qdr_plan_check(&good, 0));
    DIST_FAILS(qdr_plan_check(NULL, 0), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_plan_check(&good, p + 1), QDR_ERR_ARGUMENT, "-n");
    plan.recompute = QDR_RECOMPUTE_LAYERS;
    DIST_OK(qdr_plan_check(&plan, p));
    plan = good;
    plan.pipeline = 2;
    DIST_FAILS(qdr_plan_check(&plan, 0), QDR_ERR_UNSUPPORTED, "plan again without one");
    plan = good;
    plan.gradient_parts = 1;
    plan.optimizer_parts = p;
    DIST_OK(qdr_plan_check(&plan, p));
    qdr_grid_opts levels = {QDR_INIT(qdr_grid_opts)};
    DIST_OK(qdr_plan_grid_opts(&plan, &levels));
    DIST_CHECK(levels.gradient_parts == 1 && levels.optimizer_parts == p, "levels %d,%d", levels.gradient_parts,
               levels.optimizer_parts);
    plan.optimizer_parts = p + 1;
    DIST_FAILS(qdr_plan_check(&plan, p), QDR_ERR_ARGUMENT, "use a number that divides z*d");
    plan = good;
    plan.pipeline = 2;
    DIST_FAILS(qdr_plan_check(&plan, p), QDR_ERR_UNSUPPORTED, "pipeline");
    plan = good;
    plan.codecs.of[QDR_D][QDR_TRAFFIC_GRADIENT] = (qdr_codec){.kind = QDR_CODEC_INT8, .block = 48};
    DIST_FAILS(qdr_plan_check(&plan, p), QDR_ERR_ARGUMENT, "plan: int8 in blocks of 48");
    plan = good;
    plan.y = 0;
    DIST_FAILS(qdr_plan_check(&plan, 0), QDR_ERR_ARGUMENT, "≥ 1");
}

/* Rank 0's machine is that of all ranks, whatever the environment names: for stacks and for collectives. */
DIST_TEST(test_set_machine)
{
    const int is_first = qdr_context_rank(ctx) == 0;
    qdr_machine machine = machine_of(is_first ? "laptop" : "dgx-a100"), found;
    const qdri_comm_machine before = qdri_context_world(ctx)->root->machine;
    DIST_FAILS(qdr_context_set_machine(ctx, NULL), QDR_ERR_ARGUMENT, "machine");
    machine.n_links = 2;
    machine.links[0].n_ranks = 2;
    machine.links[1] = (qdr_machine_link){.n_adapters = 2, .adapter_bytes_per_sec = is_first ? 3e9 : 1e9};
    machine.collectives.direct_bytes = is_first ? 4096 : 1;
    machine.collectives.two_round_bytes = is_first ? 8192 : 1;
    DIST_OK(qdr_context_set_machine(ctx, is_first ? &machine : NULL));
    DIST_OK(qdri_context_machine(ctx, &found));
    DIST_CHECK(strcmp(found.name, "laptop") == 0, "machine %s", found.name);
    const qdri_comm_machine after = qdri_context_world(ctx)->root->machine;
    DIST_CHECK(after.direct_bytes == 4096 && after.two_round_bytes == 8192 && after.node_bytes_per_sec == 6e9 &&
                   after.direct_all_reduce_bytes == before.direct_all_reduce_bytes,
               "borders %lld, %lld, %lld", (long long)after.direct_bytes, (long long)after.direct_all_reduce_bytes,
               (long long)after.two_round_bytes);
}
