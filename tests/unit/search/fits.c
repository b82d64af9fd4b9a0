/* SPDX-License-Identifier: Apache-2.0 */
/* What fits: the closed form is never above what the lists say, no search ranks a plan over its limit, and none refuses
 * a plan whose own bytes are the limit. */
#include <math.h>

#include "core/codec.h"
#include "price/gemm.h"
#include "price/model.h"
#include "quadrille/codec.h"
#include "random_model.h"
#include "search/search.h"

static int is_long(void) { return getenv("QDR_TEST_LONG") != NULL; }

static qdr_model *model_of(const qdr_machine *machine, const qdr_network *network)
{
    qdr_model *model = NULL;
    CHECK_OK(qdr_model_create(machine, network, &model));
    return model;
}

/* A small network, or one of those that the command knows. */
static qdr_network any_network(uint64_t *seed, int64_t most_layers)
{
    static const char *const names[] = {"gpt2", "llama-3.2-1b", "qwen2-7b", "mistral-7b", "gpt-neox-20b", "llama-3-8b"};
    qdr_network network = {QDR_INIT(qdr_network)};
    if (test_between(seed, 0, 3) > 0) return random_network(seed, test_between(seed, 1, most_layers));
    CHECK_OK(qdr_network_load(names[test_between(seed, 0, 5)], &network));
    return network;
}

static qdr_plan any_plan(uint64_t *seed, const qdr_network *network)
{
    qdr_plan plan = random_grid(seed);
    random_levels(seed, &plan);
    random_order(seed, plan.order);
    plan.batch *= test_between(seed, 1, 4);
    if (random_flag(seed)) plan.micro_batch = test_between(seed, 1, plan.batch);
    if (random_flag(seed)) plan.sequence = test_between(seed, 1, network->context);
    plan.recompute = (qdr_recompute)test_between(seed, 0, QDR_RECOMPUTE_LAYERS);
    plan.panels = 1 << test_between(seed, 0, 4);
    plan.batch_parts = (int)test_between(seed, 1, 2);
    plan.threads = test_between(seed, 0, 9);
    return plan;
}

/* Term by term, except that a part of the workspace may be counted as gathered. */
TEST(bound_is_below)
{
    uint64_t seed = test_seed();
    double closest = 0;
    for (int trial = 0, n = is_long() ? 10000 : 1000; trial < n; trial++) {
        const qdr_network network = any_network(&seed, 12);
        const qdr_machine machine = random_machine(&seed);
        const qdr_plan plan = any_plan(&seed, &network);
        qdri_pricing pricing;
        qdri_stages stages;
        qdr_plan_result needed = {QDR_INIT(qdr_plan_result)}, bound = {QDR_INIT(qdr_plan_result)};
        if (!(qdri_machine_products(&machine, plan.dtype)->peak_flops > 0)) continue;
        qdr_model *model = model_of(&machine, &network);
        CHECK_OK(qdri_model_price(model, &plan, &pricing, &stages, &needed));
        qdri_memory(&pricing, &network, &stages, needed.n_micro, &bound);
        for (int term = 0; term < QDR_N_MEMORY_TERMS; term++)
            if (term != QDR_MEMORY_GATHERED && term != QDR_MEMORY_WORKSPACE)
                assert_true(bound.memory[term] == needed.memory[term]);
        if (bound.memory_bytes > needed.memory_bytes)
            fail_msg("trial %d: %dx%dx%dx%d, layout %d, levels %d,%d, micro-batch %d, panels %d, parts %d: %.0f bytes, "
                     "but the bound is %.0f",
                     trial, plan.x, plan.y, plan.z, plan.d, (int)plan.layout, plan.gradient_parts, plan.optimizer_parts,
                     (int)plan.micro_batch, plan.panels, plan.batch_parts, needed.memory_bytes, bound.memory_bytes);
        closest += bound.memory_bytes / needed.memory_bytes / n;
        qdr_model_destroy(&model);
    }
    assert_true(closest > 0.8); /* a bound that says nothing would prune nothing */
}

/* ---- searches ---- */

static qdri_search_result *search(qdr_model *model, const qdr_search_opts *opts)
{
    static qdri_search_result found;
    CHECK_OK(qdri_model_search(model, opts, &found));
    return &found;
}

static qdr_search_opts any_opts(uint64_t *seed, const qdr_machine *machine, const qdr_codecs *codecs)
{
    qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .dtype = machine->bf16.peak_flops > 0 ? QDR_BF16 : QDR_F32};
    opts.n_ranks = (int)test_between(seed, 1, 24);
    opts.layouts = (int)test_between(seed, 0, 3);
    opts.recomputes = (int)test_between(seed, 0, 15) & QDRI_RECOMPUTES;
    opts.micro_batch = random_flag(seed) ? test_between(seed, 1, 4) : 0;
    opts.batch = opts.n_ranks * test_between(seed, 1, 3);
    opts.any_levels = random_flag(seed);
    opts.codecs = test_between(seed, 0, 9) ? NULL : codecs;
    opts.n_best = QDR_MAX_BEST;
    opts.threads = test_between(seed, 0, 99);
    if (random_flag(seed) && opts.dtype == QDR_BF16) opts.dtype = QDR_F16;
    return opts;
}

/* The choices of a plan as options, with its own bytes as the limit. */
static qdr_search_opts only(const qdri_planned_grid *planned, const qdr_search_opts *asked)
{
    const qdr_plan *plan = &planned->plan;
    qdr_search_opts opts = *asked;
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
    memcpy(opts.ranks, size, sizeof size);
    opts.order = plan->order;
    opts.layouts = 1 << plan->layout;
    opts.recomputes = 1 << plan->recompute;
    opts.micro_batch = plan->micro_batch;
    opts.any_levels = 0;
    opts.gradient_parts = plan->gradient_parts;
    opts.optimizer_parts = plan->optimizer_parts;
    opts.panels = plan->panels;
    opts.batch_parts = plan->batch_parts;
    opts.memory_bytes = planned->result.memory_bytes;
    return opts;
}

static void check_ranked(qdr_model *model, int trial, const qdri_planned_grid *planned, const qdr_search_opts *asked)
{
    qdr_plan_result again = {QDR_INIT(qdr_plan_result)};
    if (planned->result.memory_bytes > asked->memory_bytes)
        fail_msg("trial %d: a ranked plan needs %.0f of %.0f bytes", trial, planned->result.memory_bytes,
                 asked->memory_bytes);
    CHECK_OK(qdr_model_predict(model, &planned->plan, &again));
    assert_true(again.memory_bytes == planned->result.memory_bytes);
    const qdr_search_opts same = only(planned, asked);
    const qdri_search_result *found = search(model, &same);
    if (found->n_best != 1 || found->best[0].result.memory_bytes != same.memory_bytes)
        fail_msg("trial %d: %dx%dx%dx%d is refused with its own %.0f bytes", trial, planned->plan.x, planned->plan.y,
                 planned->plan.z, planned->plan.d, same.memory_bytes);
}

TEST(limits)
{
    uint64_t seed = test_seed();
    int n_ranked = 0, n_none = 0;
    qdr_codecs codecs;
    CHECK_OK(qdr_codecs_parse("hybrid,z.gradient=int8+feedback,d.gradient=int8+feedback,least=1K", &codecs));
    for (int trial = 0, n = is_long() ? 10000 : 40; trial < n; trial++) {
        const qdr_machine machine = random_machine(&seed);
        const qdr_network network = any_network(&seed, 6);
        qdr_search_opts opts = any_opts(&seed, &machine, &codecs);
        qdri_planned_grid least, kept[3];
        qdr_model *model = model_of(&machine, &network);
        CHECK_OK(qdri_model_least_memory(model, &opts, &least));
        opts.memory_bytes = ceil(least.result.memory_bytes * (double)test_between(&seed, 95, 130) / 100);
        const qdri_search_result *found = search(model, &opts);
        assert_int_equal(found->n_best > 0, opts.memory_bytes >= least.result.memory_bytes);
        n_none += found->n_best == 0;
        /* All are within the limit; the first, the last and another one are searched for again. */
        const int n_best = found->n_best;
        for (int i = 0; i < n_best; i++) assert_true(found->best[i].result.memory_bytes <= opts.memory_bytes);
        for (int i = 0; i < 3 && n_best > 0; i++)
            kept[i] = found->best[i == 0 ? 0 : i == 1 ? n_best - 1 : (int)test_between(&seed, 0, n_best - 1)];
        for (int i = 0; i < 3 && n_best > 0; i++) check_ranked(model, trial, &kept[i], &opts);
        n_ranked += n_best;
        qdr_model_destroy(&model);
    }
    assert_true(n_ranked > 0 && n_none > 0);
}

/* ---- codecs that pay ---- */

/* Eight nodes with one copy each: their sums as int8, with what rounding leaves kept, a float for each element of a
 * rank's quarter. The limit is the caller's, or else the machine's. */
TEST(codecs_fit)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_codecs offered;
    qdr_plan_result plain = {QDR_INIT(qdr_plan_result)}, coded = {QDR_INIT(qdr_plan_result)};
    const qdr_plan plan = {QDR_INIT(qdr_plan), .x = 4, .y = 1, .z = 1, .d = 8, .batch = 8, .dtype = QDR_BF16};
    CHECK_OK(qdr_machine_load("perlmutter", &machine));
    CHECK_OK(qdr_network_load("gpt2-large", &network));
    CHECK_OK(qdr_codecs_parse("none,d.gradient=int8+feedback", &offered));
    qdr_plan with = plan;
    with.codecs = offered;
    qdr_model *model = model_of(&machine, &network);
    CHECK_OK(qdr_model_predict(model, &plan, &plain));
    CHECK_OK(qdr_model_predict(model, &with, &coded));
    qdr_model_destroy(&model);
    const double kept_bytes = 4.0 * (36 * 12 * 1280.0 * 1280 + 50257 * 1280.0) / 4;
    const double least = plain.memory_bytes, needed = coded.memory_bytes;
    assert_true(coded.secs < 0.9 * plain.secs);
    if (fabs(needed - least - kept_bytes) > 1e-3 * kept_bytes) fail_msg("%.0f, not %.0f", needed - least, kept_bytes);
    const struct {
        double limit, machines;
        int is_coded;
    } cases[] = {{needed, 1e6, 1},       {needed, needed - 1, 1}, {needed - 1, 1e15, 0}, {least, 1e15, 0},
                 {least - 1, needed, 0}, {0, needed, 1},          {0, needed - 1, 0}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        qdr_plan chosen = plan;
        qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
        machine.memory_bytes = cases[i].machines;
        model = model_of(&machine, &network);
        CHECK_OK(qdr_model_choose_codecs(model, &offered, cases[i].limit, &chosen, &result));
        if (result.memory_bytes != (cases[i].is_coded ? needed : least) ||
            qdri_codecs_are_none(&chosen.codecs) == cases[i].is_coded)
            fail_msg("case %d: %.0f bytes of %.0f", i, result.memory_bytes, cases[i].limit);
        qdr_model_destroy(&model);
    }
}

/* On four ranks of four nodes, whichever axis joins them: a codec of its own pays, and the options of all are kept. */
TEST(codecs_pay_on_each_axis)
{
    static const char *const offered_words[] = {"none,x=int8,least=2K,inside", "none,y=int8,least=2K",
                                                "none,z=int8,inside", "none,d=int8,least=4K,inside"};
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_network network = {QDR_INIT(qdr_network)};
    CHECK_OK(qdr_machine_load("perlmutter", &machine));
    CHECK_OK(qdr_network_load("gpt2-large", &network));
    machine.ranks_per_node = 1; /* and one level of links, at 1 GB/s */
    machine.n_links = 1;
    machine.links[0].n_ranks = 0;
    machine.links[0].rank_bytes_per_sec = 1e9;
    qdr_model *model = model_of(&machine, &network);
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        qdr_plan plan = {QDR_INIT(qdr_plan), .x = 1, .y = 1, .z = 1, .d = 1, .batch = 4, .dtype = QDR_BF16};
        qdr_codecs offered;
        qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
        *(axis == QDR_X ? &plan.x : axis == QDR_Y ? &plan.y : axis == QDR_Z ? &plan.z : &plan.d) = 4;
        CHECK_OK(qdr_codecs_parse(offered_words[axis], &offered));
        CHECK_OK(qdr_model_choose_codecs(model, &offered, 1e15, &plan, &result));
        int n_coded = 0;
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++)
            n_coded += plan.codecs.of[axis][class].kind == QDR_CODEC_INT8;
        if (n_coded == 0) fail_msg("axis %d: nothing is coded", axis);
        assert_true(plan.codecs.least_bytes == offered.least_bytes && plan.codecs.inside == offered.inside);
    }
    qdr_model_destroy(&model);
}
