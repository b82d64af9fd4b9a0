/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of a plan: every network and grid has them, their extents are those of the closed forms, and few layers
 * represent many. */
#include "price/lists.h"

#include <math.h>

#include "random_model.h"
#include "schedule/net_price.h"

/* ---- every network has lists ---- */

static void check_lists(const qdri_lists *lists, const qdr_plan *plan)
{
    const int is_one = lists->n_micro <= 1;
    assert_true(is_one == (plan->micro_batch == 0 || plan->micro_batch * plan->z * plan->d >= plan->batch));
    for (int kind = 0; kind < QDRI_N_LIST_KINDS; kind++) {
        const qdri_list *list = &lists->of[kind];
        const int has_returns = plan->optimizer_parts > plan->z;
        const int is_used = kind == QDRI_LIST_FORWARD         ? 1
                            : kind == QDRI_LIST_FORWARD_FIRST ? has_returns
                                                              : (kind == QDRI_LIST_BACKWARD_ONLY) == is_one;
        if (!is_used) {
            assert_int_equal(list->schedule.n_tasks, 0);
            continue;
        }
        assert_true(list->schedule.n_tasks > 10);
        for (int layer = 0; layer < lists->n_kinds * QDRI_FEW_LAYERS; layer++)
            assert_true(list->last_of_layer[layer][QDRI_STREAM_OF_COMPUTE] >= 0);
        assert_true(list->last_of_first >= 0 && list->last_of_last >= 0);
    }
}

/* ---- the closed forms ---- */

static const qdri_edge *edge_of(const qdri_net *net, const char *name)
{
    for (int i = 0; i < net->n_edges; i++)
        if (strcmp(net->edges[i].name, name) == 0) return &net->edges[i];
    fail_msg("no edge %s", name);
    return NULL;
}

static double shard_of(const qdri_net *net, const char *name)
{
    for (int i = 0; i < net->n_parameters; i++) {
        const qdri_parameter *p = &net->parameters[i];
        if (p->flat_over_z && strcmp(net->nodes[p->node].name, name) == 0) return (double)p->shard_elems;
    }
    fail_msg("no weight of %s", name);
    return 0;
}

/* Elements of all weights, as an optimizer updates them. */
static double shards_of_all(const qdri_net *net)
{
    double sum = 0;
    for (int i = 0; i < net->n_parameters; i++)
        if (net->parameters[i].flat_over_z) sum += (double)net->parameters[i].shard_elems;
    return sum;
}

static void expect(const char *what, double expected, double found)
{
    if (expected != found) fail_msg("%s: %.17g in closed form, %.17g in the net", what, expected, found);
}

static void check_sizes(const qdr_network *network, const qdr_plan *plan, const qdri_lists *lists)
{
    const qdri_net *net = &lists->net;
    const int scattered = plan->layout == QDR_SCATTERED;
    qdri_sizes s;
    qdri_sizes_make(network, plan, &s);
    expect("rows", s.of[QDRI_SIZE_ROWS], (double)net->cell_rows);
    expect("rows of norms", s.of[scattered ? QDRI_SIZE_ROWS_Y : QDRI_SIZE_ROWS],
           (double)edge_of(net, "norm1")->owned.n_rows);
    expect("rows of fc", s.of[scattered ? QDRI_SIZE_ROWS_X : QDRI_SIZE_ROWS], (double)edge_of(net, "fc")->owned.n_rows);
    expect("rows of attention", s.of[scattered ? QDRI_SIZE_SEQUENCES_X : QDRI_SIZE_ROWS],
           (double)edge_of(net, "attention")->owned.n_rows);
    expect("columns of norms", s.of[QDRI_SIZE_HIDDEN], (double)edge_of(net, "norm1")->owned.n_cols);
    expect("columns of qkv", s.of[QDRI_SIZE_QKV], (double)edge_of(net, "qkv")->owned.n_cols);
    expect("columns of attention", s.of[QDRI_SIZE_QUERIES], (double)edge_of(net, "attention")->owned.n_cols);
    expect("columns of fc", s.of[QDRI_SIZE_UP], (double)edge_of(net, "fc")->owned.n_cols);
    expect("shard of qkv", s.of[QDRI_SIZE_SHARD_QKV], shard_of(net, "qkv"));
    expect("shard of proj", s.of[QDRI_SIZE_SHARD_PROJ], shard_of(net, "proj"));
    expect("shard of fc", s.of[QDRI_SIZE_SHARD_UP], shard_of(net, "fc"));
    expect("shard of fc2", s.of[QDRI_SIZE_SHARD_DOWN], shard_of(net, "fc2"));
    expect("shard of the embedding", s.of[QDRI_SIZE_SHARD_VOCAB], shard_of(net, "embedding"));
    const double layer = s.of[QDRI_SIZE_SHARD_QKV] + s.of[QDRI_SIZE_SHARD_PROJ] + s.of[QDRI_SIZE_SHARD_UP] +
                         s.of[QDRI_SIZE_SHARD_DOWN];
    expect("shards", lists->n_kinds * QDRI_FEW_LAYERS * layer + (network->tied ? 1 : 2) * s.of[QDRI_SIZE_SHARD_VOCAB],
           shards_of_all(net));
}

TEST(lists_of_all)
{
    const int n_trials = getenv("QDR_TEST_LONG") ? 20000 : 2000;
    uint64_t seed = test_seed();
    qdri_lists lists;
    memset(&lists, 0, sizeof lists);
    for (int trial = 0; trial < n_trials; trial++) {
        const qdr_network network = random_network(&seed, QDRI_FEW_LAYERS);
        qdr_plan plan = random_grid(&seed);
        plan.overlap = random_flag(&seed) ? 0 : (int)test_between(&seed, 1, QDR_OVERLAP_ALL | QDR_OVERLAP_NONE);
        plan.micro_batch = random_flag(&seed) ? 0 : test_between(&seed, 1, 4);
        random_levels(&seed, &plan);
        CHECK_OK(qdri_lists_make(&network, &plan, 1, QDRI_FEW_LAYERS, QDRI_FEW_LAYERS, 1, &lists));
        check_lists(&lists, &plan);
        check_sizes(&network, &plan, &lists);
    }
    qdri_lists_free(&lists);
}

/* ---- many layers ---- */

enum { N_LAYERS = 12, MOST_LAYERS = 36, N_TRIALS = 60 };

/* A network of usual proportions. */
static qdr_network usual_network(uint64_t *seed)
{
    static const int64_t hidden[] = {1536, 3072, 6144};
    qdr_network n = {QDR_INIT(qdr_network), .name = "usual", .layers = N_LAYERS};
    n.hidden = random_of(seed, hidden, 3);
    n.heads = 24;
    n.kv_heads = random_flag(seed) ? 24 : 12;
    n.head_size = n.hidden / 24;
    n.gated = random_flag(seed);
    n.ffn = n.gated ? n.hidden / 24 * 64 : 4 * n.hidden;
    n.vocab = random_flag(seed) ? 50304 : 128256;
    n.context = 2048;
    n.positions = random_flag(seed) ? n.context : 0;
    n.tied = random_flag(seed);
    n.parallel_residual = random_flag(seed);
    n.qkv_bias = n.out_bias = n.mlp_bias = random_flag(seed);
    n.norms_per_layer = 2;
    return n;
}

/* In which layers differ: all but each sixth have windows; each second; those from the middle on; or none, but each
 * fourth has no rotary positions. */
typedef enum pattern { FULL_SIXTH, ALTERNATING, FROM_THE_MIDDLE, UNROTATED_FOURTH, N_PATTERNS } pattern;

static qdr_network mixed_network(uint64_t *seed, pattern which, int64_t window)
{
    static const int64_t layers[N_PATTERNS] = {26, 26, 28, MOST_LAYERS};
    qdr_network n = usual_network(seed);
    n.layers = layers[which];
    n.context = 8192;
    n.positions = 0;
    n.window = which == UNROTATED_FOURTH ? 0 : window;
    for (int64_t i = 0; i < n.layers; i++) {
        const int has_window = which == FULL_SIXTH ? i % 6 < 5 : which == ALTERNATING ? i % 2 == 0 : i >= n.layers / 2;
        if (which == UNROTATED_FOURTH)
            n.layer_kinds[i] = i % 4 == 3 ? QDR_LAYER_UNROTATED : 0;
        else if (has_window)
            n.layer_kinds[i] = QDR_LAYER_WINDOW | (which == FULL_SIXTH ? QDR_LAYER_LOCAL : 0);
        n.window_layers += n.layer_kinds[i] & QDR_LAYER_WINDOW;
    }
    return n;
}

/* A step of all layers, list by list. */
static double exact_secs(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan)
{
    int layer_of[QDRI_NODES_OF(MOST_LAYERS)];
    const qdri_position position = qdri_plan_position(plan);
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = plan->batch * network->context,
                                 .row_unit = network->context, .dtype = plan->dtype, .panels = 1};
    qdri_net net;
    qdri_net_lists lists = {.n_layers = 0};
    double forward_secs = 0, backward_secs = 0;
    memset(&net, 0, sizeof net);
    CHECK_OK(
        qdri_describe(&net, network, &position, &opts, network->context, plan->layout, (int)network->layers, layer_of));
    CHECK_OK(qdri_net_build(&net, &lists));
    const qdri_schedule *forward = lists.first_forward.n_tasks ? &lists.first_forward : &lists.forward;
    CHECK_OK(qdri_net_price(&net, plan->order, machine, forward, NULL, &forward_secs));
    CHECK_OK(qdri_net_price(&net, plan->order, machine, &lists.backward[0], NULL, &backward_secs));
    qdri_net_lists_free(&lists);
    qdri_net_free(&net);
    return forward_secs + backward_secs;
}

/* How far the prediction from few layers is from the price of all of them. slow: how many times as slow links are. */
static double error_of_few(const char *machine_name, double slow, const qdr_network *network, qdr_plan *plan)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_model *model = NULL;
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    CHECK_OK(qdr_machine_load(machine_name, &machine));
    for (int l = 0; l < machine.n_links; l++) {
        machine.links[l].rank_bytes_per_sec /= slow;
        machine.links[l].adapter_bytes_per_sec /= slow;
    }
    machine.software = (qdr_machine_software){.launch_secs = 4e-6};
    plan->dtype = machine.bf16.peak_flops > 0 ? QDR_BF16 : QDR_F32;
    plan->panels = plan->batch_parts = 1;
    CHECK_OK(qdr_model_create(&machine, network, &model));
    CHECK_OK(qdr_model_predict(model, plan, &result));
    qdr_model_destroy(&model);
    return (result.secs - result.time[QDR_TIME_OPTIMIZER]) / exact_secs(&machine, network, plan) - 1;
}

TEST(layers)
{
    static const char *const machines[] = {"dgx-a100", "perlmutter", "laptop"};
    uint64_t seed = test_seed();
    double worst = 0;
    int n_off = 0, n_far = 0;
    for (int trial = 0; trial < N_TRIALS; trial++) {
        const qdr_network network = trial % 2 ? usual_network(&seed)
                                              : mixed_network(&seed, (pattern)(trial / 2 % N_PATTERNS),
                                                              random_flag(&seed) ? 512 : 1024);
        qdr_plan plan = random_grid(&seed);
        random_order(&seed, plan.order);
        random_levels(&seed, &plan);
        const double error = error_of_few(machines[trial % 3], 1, &network, &plan);
        if (fabs(error) > worst) worst = fabs(error);
        n_off += fabs(error) > 0.01;
        n_far += fabs(error) > 0.08;
        if (fabs(error) > 0.01)
            print_message("%s %dx%dx%dx%d levels %d,%d %s %s hidden %d%s%s: %+.2f %%\n", machines[trial % 3], plan.x,
                          plan.y, plan.z, plan.d, plan.gradient_parts, plan.optimizer_parts, plan.order,
                          plan.layout ? "S" : "R", (int)network.hidden, network.gated ? " gated" : "",
                          network.tied ? " tied" : "", error * 100);
    }
    /* If gradients pile up on slow links, four layers do not reach a steady state. Of 6600 trials (110
     * seeds) the worst was off by 12.6 %; of half of them 8 % were off by more than 1 %, and 0.3 % by more than 8 %. */
    print_message("%d of %d off by more than 1 %%, %d by more than 8 %%, the worst by %.2f %%\n", n_off, N_TRIALS,
                  n_far, worst * 100);
    assert_true(n_off <= N_TRIALS / 4);
    assert_true(n_far <= N_TRIALS / 20);
    assert_true(worst <= 0.15);
}

/* Alone, a rank only works. With others, weights are gathered a product ahead: on some links that takes longer than a
 * layer's work with a window, and not as long as that without one. Where a kind follows another, a part of one
 * product's gather is hidden better, or less: by 0.12 % of a step at most. */
TEST(kinds_of_layers)
{
    static const char *const machines[] = {"dgx-a100", "perlmutter", "frontier"};
    double worst = 0;
    for (int i = 0; i < 3 * 6 * (int)N_PATTERNS; i++) {
        uint64_t seed = 1;
        qdr_network network = mixed_network(&seed, (pattern)(i % N_PATTERNS), i / N_PATTERNS % 2 ? 1024 : 512);
        network.hidden = 1536;
        network.heads = network.kv_heads = 24;
        network.head_size = 64;
        network.gated = 1;
        network.ffn = 4096;
        network.parallel_residual = 0;
        if (i / N_PATTERNS % 6 > 3) network.context = 32768;
        qdr_plan plan = {QDR_INIT(qdr_plan), .x = 1, .y = 1, .z = 8, .d = 1, .batch = 8, .order = "xyzd"}, alone = plan;
        alone.z = 1;
        assert_true(fabs(error_of_few(machines[i % 3], 1, &network, &alone)) < 1e-9);
        const double error = error_of_few(machines[i % 3], 1 << i / N_PATTERNS % 6, &network, &plan);
        worst = fmax(worst, fabs(error));
    }
    print_message("the worst off by %.2f %%\n", worst * 100);
    assert_true(worst <= 0.0025);
}
