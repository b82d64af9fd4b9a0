/* SPDX-License-Identifier: Apache-2.0 */
/* Panels and parts that a stack chooses, compared with those that a plan of it chooses: random networks, grids, orders,
 * layouts, types, overlaps, on all machines that have a file. QDR_TEST_SEED repeats a run.
 *
 * A stack prices one forward and one backward pass of its own lists; a plan, the passes of a whole step. Choices are
 * equal where these are the same. They may differ
 * - with several micro-batches: all but the last add to gradients and leave out sums over d;
 * - with recomputation, a pipeline, codecs, or gradients that are partitioned over d: stacks have none;
 * - with windows in some layers: a plan prices few of each kind;
 * - with more or fewer layers than a plan prices, from which it concludes what all take;
 * - if sequences do not divide among cells: a plan rounds up, and rank 0 of a stack need not have most;
 * - on machines whose files tell the host's time: plans also count what it takes for each micro-batch. */
#include <math.h>

#include "network/describe.h"
#include "price/lists.h"
#include "qdr_test.h"
#include "schedule/net_price.h"
#include "schedule/panel_search.h"

enum { N_LAYERS = QDRI_FEW_LAYERS, N_CASES = 300 };

typedef struct choice_case {
    qdr_machine machine;
    qdr_network network;
    qdr_plan plan;
} choice_case;

/* ---- random cases ---- */

typedef struct drawn_name {
    uint64_t *seed;
    int64_t n_seen;
    char name[QDR_MAX_NAME];
} drawn_name;

/* Each of n names is the one that is kept with the same probability. */
static void draw_name(const char *name, void *user)
{
    drawn_name *drawn = user;
    if (test_between(drawn->seed, 0, drawn->n_seen++) == 0) snprintf(drawn->name, sizeof drawn->name, "%s", name);
}

static qdr_machine random_machine(uint64_t *seed)
{
    drawn_name drawn = {.seed = seed};
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    CHECK_OK(qdr_machine_list(draw_name, &drawn));
    CHECK_OK(qdr_machine_load(drawn.name, &machine));
    machine.software.host_power = 0;
    return machine;
}

static qdr_network random_network(uint64_t *seed)
{
    const int64_t kv_heads = test_between(seed, 1, 8), heads = kv_heads << test_between(seed, 0, 3);
    const int64_t head_size = 64 << test_between(seed, 0, 1), context = 128 << test_between(seed, 0, 4);
    return (qdr_network){QDR_INIT(qdr_network),
                         .name = "few layers",
                         .layers = N_LAYERS,
                         .hidden = heads * head_size,
                         .heads = heads,
                         .kv_heads = kv_heads,
                         .head_size = head_size,
                         .ffn = heads * head_size * test_between(seed, 2, 4),
                         .vocab = test_between(seed, 1000, 50000),
                         .context = context,
                         .positions = context * test_between(seed, 0, 1),
                         .gated = (int)test_between(seed, 0, 1),
                         .qkv_bias = (int)test_between(seed, 0, 1),
                         .out_bias = (int)test_between(seed, 0, 1),
                         .mlp_bias = (int)test_between(seed, 0, 1),
                         .window = context / 4,
                         .window_layers = N_LAYERS * test_between(seed, 0, 1),
                         .norms_per_layer = 2,
                         .tied = (int)test_between(seed, 0, 1),
                         .parallel_residual = (int)test_between(seed, 0, 1)};
}

static qdr_plan random_plan(uint64_t *seed)
{
    static const char *const orders[] = {"xyzd", "dzyx", "yxzd", "zxyd", "dxyz"};
    qdr_plan plan = {QDR_INIT(qdr_plan),
                     .x = 1 << test_between(seed, 0, 3),
                     .y = 1 << test_between(seed, 0, 3),
                     .z = 1 << test_between(seed, 0, 2),
                     .d = 1 << test_between(seed, 0, 2),
                     .layout = test_between(seed, 0, 1) ? QDR_SCATTERED : QDR_REPLICATED,
                     .dtype = test_between(seed, 0, 1) ? QDR_BF16 : QDR_F32,
                     .batch = test_between(seed, 1, 8),
                     .overlap = (int)test_between(seed, 0, QDR_OVERLAP_NONE)};
    plan.batch *= (int64_t)plan.z * plan.d;
    memcpy(plan.order, orders[test_between(seed, 0, 4)], 5);
    return plan;
}

/* ---- the choices ---- */

static double pass_secs(const choice_case *c, const qdri_net *net, const qdri_schedule *list)
{
    double secs;
    CHECK_OK(qdri_net_price(net, c->plan.order, &c->machine, list, NULL, &secs));
    return secs;
}

/* Sets panels and parts to those of a stack. Returns the time of its passes. */
static double stack_secs(const choice_case *c, int *panels, int *parts)
{
    const qdri_position position = {.size = {c->plan.x, c->plan.y, c->plan.z, c->plan.d}};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = c->plan.batch * c->network.context,
                                 .row_unit = c->network.context, .dtype = c->plan.dtype, .overlap = c->plan.overlap};
    int layer_of[QDRI_NODES_OF(N_LAYERS)];
    qdri_net net = {0};
    qdri_schedule list = {0};
    CHECK_OK(
        qdri_describe(&net, &c->network, &position, &opts, c->network.context, c->plan.layout, N_LAYERS, layer_of));
    CHECK_OK(qdri_net_place(&net));
    CHECK_OK(qdri_net_choose_panels(&net, c->plan.order, &c->machine));
    *panels = net.opts.panels;
    *parts = net.opts.batch_parts;
    CHECK_OK(qdri_net_forward(&net, 0, &list));
    double secs = pass_secs(c, &net, &list);
    CHECK_OK(qdri_net_backward(&net, QDRI_GRADIENT_OVERWRITE, 0, &list));
    secs += pass_secs(c, &net, &list);
    qdri_schedule_free(&list);
    qdri_net_free(&net);
    return secs;
}

/* Returns the time of the passes, without what follows them: the host takes time for nothing else. */
static double plan_secs(const choice_case *c, int *panels, int *parts)
{
    qdr_model *model;
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    CHECK_OK(qdr_model_create(&c->machine, &c->network, &model));
    CHECK_OK(qdr_model_predict(model, &c->plan, &result));
    qdr_model_destroy(&model);
    *panels = result.panels;
    *parts = result.batch_parts;
    return result.secs - result.time[QDR_TIME_OPTIMIZER] - result.time[QDR_TIME_HOST];
}

TEST(stacks_choose_as_plans_do)
{
    uint64_t seed = test_seed();
    int n_panels = 0, n_parts = 0;
    for (int i = 0; i < N_CASES; i++) {
        const choice_case c = {random_machine(&seed), random_network(&seed), random_plan(&seed)};
        int panels, parts, plan_panels, plan_parts;
        const double secs = stack_secs(&c, &panels, &parts), planned_secs = plan_secs(&c, &plan_panels, &plan_parts);
        if (panels != plan_panels || parts != plan_parts || fabs(secs - planned_secs) > 1e-9 * secs)
            fail_msg("%s, %dx%dx%dx%d %s, hidden %d, %d of %d heads, context %d, batch %d, layout %d, type %d, overlap "
                     "%d: stack %.9g s with %d panels, %d parts; plan %.9g s with %d, %d",
                     c.machine.name, c.plan.x, c.plan.y, c.plan.z, c.plan.d, c.plan.order, (int)c.network.hidden,
                     (int)c.network.kv_heads, (int)c.network.heads, (int)c.network.context, (int)c.plan.batch,
                     (int)c.plan.layout, (int)c.plan.dtype, c.plan.overlap, secs, panels, parts, planned_secs,
                     plan_panels, plan_parts);
        n_panels += panels > 1;
        n_parts += parts > 1;
    }
    print_message("%d of %d in panels, %d in parts\n", n_panels, N_CASES, n_parts);
    assert_true(n_panels > 0 && n_parts > 0);
}

/* Panels that cost more than they gain say nothing about parts. */
TEST(parts_are_tried_after_panels)
{
    qdri_panel_search search;
    qdri_panel_search_begin(&search, 0, 0, 1, 0);
    while (qdri_panel_search_next(&search)) {
        const double busy_secs = 0.8 + 0.07 * (search.panels - 1);
        qdri_panel_search_note(&search, busy_secs + (search.batch_parts > 1 ? 0.1 : 0.2), busy_secs);
    }
    const qdri_panel_trial *best = &search.tried[qdri_panel_search_best(&search)];
    assert_int_equal(best->panels, 1);
    assert_int_equal(best->batch_parts, 2);
}

/* Of products without a peak there is no time: the choice would never end. */
TEST(a_machine_without_the_type_is_refused)
{
    uint64_t seed = test_seed();
    choice_case c = {.machine = {QDR_INIT(qdr_machine)}, .network = random_network(&seed), .plan = random_plan(&seed)};
    const qdri_position position = {.size = {2, 2, 1, 1}};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = c.network.context, .row_unit = c.network.context,
                                 .dtype = QDR_F64};
    int layer_of[QDRI_NODES_OF(N_LAYERS)];
    qdri_net net = {0};
    CHECK_OK(qdr_machine_load("dgx-a100", &c.machine));
    c.machine.f64.peak_flops = 0;
    CHECK_OK(qdri_describe(&net, &c.network, &position, &opts, c.network.context, QDR_REPLICATED, N_LAYERS, layer_of));
    CHECK_OK(qdri_net_place(&net));
    CHECK_FAILS(qdri_net_choose_panels(&net, "xyzd", &c.machine), QDR_ERR_DTYPE, "no peak for f64");
    assert_int_equal(net.opts.panels, 0);
    qdri_net_free(&net);
}
