/* SPDX-License-Identifier: Apache-2.0 */
/* What is sent costs its bytes over the rate of the link, in however many panels. */
#include <math.h>

#include "core/coded.h"
#include "network/describe.h"
#include "qdr_test.h"
#include "quadrille/plan.h"
#include "schedule/net_price.h"

enum { CONTEXT = 64, N_LAYERS = 3 };

static qdr_network network_of(int tied, int few_keys)
{
    return (qdr_network){QDR_INIT(qdr_network), .name = "three layers",
                         .layers = N_LAYERS,    .hidden = 768,
                         .heads = 12,           .kv_heads = few_keys ? 1 : 12,
                         .head_size = 64,       .ffn = 3072,
                         .vocab = 1200,         .context = CONTEXT,
                         .positions = CONTEXT,  .qkv_bias = 1,
                         .out_bias = 1,         .mlp_bias = 1,
                         .norms_per_layer = 2,  .tied = tied};
}

/* What a framework does to gradients on their way is none of the lists' business. */
static qdr_machine machine_of(const char *name)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    assert_int_equal(qdr_machine_load(name, &machine), QDR_OK);
    machine.software.gradient_bytes = machine.software.bucket_bytes = 0;
    return machine;
}

static void describe(const qdr_network *network, const qdr_plan *plan, qdri_net *net, qdri_net_lists *lists)
{
    int layer_of[QDRI_NODES_OF(N_LAYERS)];
    const qdri_position position = {.size = {plan->x, plan->y, plan->z, plan->d}};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = plan->batch * CONTEXT, .row_unit = CONTEXT,
                                 .dtype = plan->dtype, .panels = 1};
    assert_int_equal(qdri_describe(net, network, &position, &opts, CONTEXT, plan->layout, N_LAYERS, layer_of), QDR_OK);
    assert_int_equal(qdri_net_build(net, lists), QDR_OK);
}

/* ---- panels ---- */

enum { N_ROWS = 4032, N_IN = 2048, N_OUT = 1536 };

static qdr_status add_layer(qdri_net *net, const qdr_linear_desc *desc, qdr_edge x, qdr_edge *y)
{
    const qdri_node_desc node = {QDRI_NODE_LINEAR, desc->name, {x}, {.linear = {*desc, 0}}};
    return qdri_net_add(net, &node, y);
}

/* A layer whose output is summed over x, and whose input is on no more than one rank of y. */
static void describe_layer(int g, qdr_layout layout, qdr_dtype dtype, int panels, qdri_net *net, qdri_net_lists *lists)
{
    const qdri_position position = {.size = {g, 1, 1, 1}};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = N_ROWS, .row_unit = 1, .dtype = dtype,
                                 .panels = panels};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{N_IN, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc layer = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{N_IN, 1}}, .out = {{N_OUT, 1}},
                                   .out_layout = layout};
    qdr_edge x, y;
    assert_int_equal(qdri_net_begin(net, &position, &opts), QDR_OK);
    assert_int_equal(qdri_net_add_input(net, "x", &input, 1, &x), QDR_OK);
    assert_int_equal(add_layer(net, &layer, x, &y), QDR_OK);
    assert_int_equal(qdri_net_build(net, lists), QDR_OK);
}

/* Of all collectives of a list. */
static double collective_secs(const qdri_net *net, const qdr_machine *machine, const qdri_schedule *schedule)
{
    double *secs = calloc((size_t)schedule->n_tasks, sizeof *secs), end_secs, sum = 0;
    assert_int_equal(qdri_net_price(net, "xyzd", machine, schedule, secs, &end_secs), QDR_OK);
    for (int i = 0; i < schedule->n_tasks; i++)
        if (schedule->tasks[i].kind == QDRI_TASK_COLLECTIVE) sum += secs[i];
    free(secs);
    return sum;
}

static void assert_secs(double secs, double expected, int g, int panels)
{
    if (fabs(secs - expected) > 1e-9 * expected)
        fail_msg("%d ranks, %d panels: %.9g s instead of %.9g s", g, panels, secs, expected);
}

/* A rank sends (g - 1)/g of what is scattered or gathered, twice that of what is summed for all. */
TEST(panels_cost_their_bytes)
{
    static const int groups[] = {2, 3, 4, 8}, all_panels[] = {1, 2, 4, 8};
    static const qdr_dtype types[] = {QDR_F32, QDR_BF16};
    for (int i = 0; i < 4 * 4 * 2 * 2; i++) {
        const int g = groups[i % 4], panels = all_panels[i / 4 % 4];
        const qdr_layout layout = i / 16 % 2 ? QDR_SCATTERED : QDR_REPLICATED;
        const qdr_dtype dtype = types[i / 32];
        qdr_machine machine = machine_of("dgx-h100");
        qdri_net net = {0};
        qdri_net_lists lists = {.n_layers = 0};
        machine.collectives = (qdr_machine_collectives){.n_protocols = 1,
                                                        .protocols = {{.step_factor = 1, .rate_factor = 1}}};
        machine.links[0].step_secs = machine.links[0].switch_bytes_per_sec = 0;
        const double part_secs = (g - 1.0) / g * N_ROWS * N_OUT * (double)qdr_dtype_bytes(dtype) /
                                 machine.links[0].rank_bytes_per_sec;
        describe_layer(g, layout, dtype, panels, &net, &lists);
        assert_secs(collective_secs(&net, &machine, &lists.forward),
                    layout == QDR_SCATTERED ? part_secs : 2 * part_secs, g, panels);
        assert_secs(collective_secs(&net, &machine, &lists.backward[0]), layout == QDR_SCATTERED ? part_secs : 0, g,
                    panels);
        qdri_net_lists_free(&lists);
        qdri_net_free(&net);
    }
}

/* ---- levels and codecs ---- */

/* Nodes of four ranks, 100 GB/s inside, each with an adapter of 10 GB/s; nothing has latency. */
static qdr_machine nodes_of_four(void)
{
    qdr_machine machine = machine_of("laptop");
    machine.ranks_per_node = 4;
    machine.n_links = 2;
    machine.links[0] = (qdr_machine_link){.n_ranks = 4, .rank_bytes_per_sec = 1e11};
    machine.links[1] = (qdr_machine_link){.n_adapters = 4, .adapter_bytes_per_sec = 1e10};
    machine.collectives = (qdr_machine_collectives){.n_protocols = 1,
                                                    .protocols = {{.step_factor = 1, .rate_factor = 1}}};
    machine.codecs = (qdr_machine_codecs){.processor_share = 0};
    machine.codecs.encode_bytes_per_sec[QDR_CODEC_INT8] = 2e10;
    machine.codecs.decode_bytes_per_sec[QDR_CODEC_INT8] = 1e10;
    return machine;
}

/* One layer on d = 8 ranks of two nodes: sums of its gradient, and returns of its weights, by hand. */
TEST(levels_and_codecs)
{
    const double bytes = 4.0 * N_IN * N_OUT, inside = 1e11, two = 2e10, one = 1e10;
    /* With a codec each of four members of a node sends a quarter, 33 of 128 bytes. */
    const double slice = bytes / 4, sending = slice * 33 / 128 / one, codec = slice / 2e10 + 2 * slice / 1e10;
    const double chunk = 1024 * 1024 / slice;
    const struct {
        const char *codec;
        int near, far;
        double sums, returns;
    } cases[] = {
        {"none", 1, 1, 2 * 7 / 8.0 * bytes / 4e10, 0},
        /* Two near and four far, of which two are on each node; or two far on a node, and copies on both. */
        {"none", 2, 4, bytes / 2 / inside + 3 / 4.0 * bytes / 2 / two, bytes / 2 / inside + 3 / 4.0 * bytes / 2 / two},
        {"none", 2, 2, bytes / 2 / inside + bytes / 4 / inside + bytes / 4 / one,
         bytes / 2 / inside + bytes / 4 / inside},
        {"int8", 1, 1, fmax(sending, codec) + chunk * fmin(sending, codec) + 2 * 3 / 4.0 * bytes / inside, 0},
    };
    const qdr_machine machine = nodes_of_four();
    for (int i = 0; i < 4; i++) {
        const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = 64, .row_unit = 1, .panels = 1};
        const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{N_IN, 1}}, .col_axis = QDR_X};
        const qdr_linear_desc layer = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{N_IN, 1}}, .out = {{N_OUT, 1}}};
        const qdri_position position = {.size = {1, 1, 1, 8}, .near = cases[i].near, .far = cases[i].far};
        qdri_coding coding = {.codecs = {QDR_INIT(qdr_codecs)}};
        const int stride[QDR_N_AXES] = {1, 1, 1, 1};
        qdri_net net = {0};
        qdri_net_lists lists = {.n_layers = 0};
        qdr_edge x, y;
        CHECK_OK(qdr_codecs_parse(cases[i].codec, &coding.codecs));
        qdri_coding_place(&position, stride, 4, &coding);
        CHECK_OK(qdri_net_begin(&net, &position, &opts));
        qdri_net_set_coding(&net, &coding);
        CHECK_OK(qdri_net_add_input(&net, "x", &input, 1, &x));
        CHECK_OK(add_layer(&net, &layer, x, &y));
        CHECK_OK(qdri_net_build(&net, &lists));
        assert_secs(collective_secs(&net, &machine, &lists.backward[0]), cases[i].sums, 8, i);
        if (cases[i].returns > 0)
            assert_secs(collective_secs(&net, &machine, &lists.first_forward), cases[i].returns, 8, i);
        qdri_net_lists_free(&lists);
        qdri_net_free(&net);
    }
}

/* ---- layers alone ---- */

/* All sequences at once, without stages, in the plan's order, panels and parts. */
TEST(layers_alone)
{
    const qdr_network network = network_of(1, 0);
    const qdr_machine machine = machine_of("perlmutter");
    qdr_model *model = NULL;
    CHECK_OK(qdr_model_create(&machine, &network, &model));
    for (int i = 0; i < 12; i++) {
        /* Three ranks: those of another stage would be on two nodes. */
        const int few = i % 2, x = few ? 3 : 4, y = few ? 1 : 2, z = few ? 1 : 2, d = few ? 1 : 4;
        qdr_plan plan = {QDR_INIT(qdr_plan), .x = x, .y = y, .z = z, .d = d, .batch = 64, .dtype = QDR_BF16};
        const int64_t rows = 64 * CONTEXT;
        const char *order = i % 3 == 0 ? "xyzd" : i % 3 == 1 ? "dzyx" : "zdxy";
        plan.panels = i & 4 ? 2 : 0;
        plan.batch_parts = i & 8 ? 2 : 0;
        memcpy(plan.order, order, 4);
        const qdri_position position = {.size = {x, y, z, d}};
        const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = rows,        .row_unit = CONTEXT,
                                     .dtype = QDR_BF16,        .panels = plan.panels, .batch_parts = plan.batch_parts};
        qdri_net net = {0};
        qdri_net_lists lists = {.n_layers = 0};
        double forward, backward, wanted[2];
        CHECK_OK(qdri_describe(&net, &network, &position, &opts, CONTEXT, QDR_REPLICATED, 2, NULL));
        CHECK_OK(qdri_net_place(&net));
        CHECK_OK(qdri_net_choose_panels(&net, order, &machine));
        CHECK_OK(qdri_net_build(&net, &lists));
        CHECK_OK(qdri_net_price(&net, order, &machine, &lists.forward, NULL, &wanted[0]));
        CHECK_OK(qdri_net_price(&net, order, &machine, &lists.backward[0], NULL, &wanted[1]));
        for (int other = 0; other < 3; other++) {
            plan.micro_batch = other == 1;
            plan.pipeline = other == 2 ? 3 : 0;
            CHECK_OK(qdr_model_layers_time(model, &plan, 2, &forward, &backward));
            assert_secs(forward, wanted[0], i, other);
            assert_secs(backward, wanted[1], i, other);
        }
        qdri_net_lists_free(&lists);
        qdri_net_free(&net);
    }
    qdr_model_destroy(&model);
}

/* ---- the choice ---- */

/* Of a long net not all nodes are priced, but all are there afterwards. */
TEST(long_nets_stay_long)
{
    enum { N_MANY = 30 };
    const qdr_network network = network_of(1, 0);
    const qdr_machine machine = machine_of("perlmutter");
    const qdri_position position = {.size = {4, 2, 1, 1}};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = 8 * CONTEXT, .row_unit = CONTEXT};
    qdri_net net = {0};
    CHECK_OK(qdri_describe(&net, &network, &position, &opts, CONTEXT, QDR_REPLICATED, N_MANY, NULL));
    CHECK_OK(qdri_net_place(&net));
    const int n_nodes = net.n_nodes;
    assert_true(n_nodes > 8 * N_MANY);
    CHECK_OK(qdri_net_choose_panels(&net, "xyzd", &machine));
    assert_int_equal(net.n_nodes, n_nodes);
    qdri_net_free(&net);
}

/* A layer forward and backward with given panels and parts. */
typedef struct priced_layer {
    int64_t n_rows, n_in, n_out;
    qdr_layout layout;
    int n_copies; /* of the grid, fastest: they fill the nodes, so that x crosses them */
} priced_layer;

static double layer_secs(const qdr_machine *machine, const priced_layer *l, int *panels, int *parts)
{
    const qdri_position position = {.size = {4, 1, 1, l->n_copies}};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts),
                                 .n_rows = l->n_rows * l->n_copies,
                                 .row_unit = 1,
                                 .dtype = machine->bf16.peak_flops > 0 ? QDR_BF16 : QDR_F32,
                                 .panels = *panels,
                                 .batch_parts = *parts};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{l->n_in, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc layer = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{l->n_in, 1}},
                                   .out = {{l->n_out, 1}}, .out_layout = l->layout};
    qdri_net net = {0};
    qdri_net_lists lists = {.n_layers = 0};
    double forward_secs, backward_secs;
    qdr_edge x, y;
    assert_int_equal(qdri_net_begin(&net, &position, &opts), QDR_OK);
    assert_int_equal(qdri_net_add_input(&net, "x", &input, 1, &x), QDR_OK);
    assert_int_equal(add_layer(&net, &layer, x, &y), QDR_OK);
    assert_int_equal(qdri_net_place(&net), QDR_OK);
    if (*panels == 0) assert_int_equal(qdri_net_choose_panels(&net, "dxyz", machine), QDR_OK);
    *panels = net.opts.panels;
    *parts = net.opts.batch_parts;
    assert_int_equal(qdri_net_build(&net, &lists), QDR_OK);
    assert_int_equal(qdri_net_price(&net, "dxyz", machine, &lists.forward, NULL, &forward_secs), QDR_OK);
    assert_int_equal(qdri_net_price(&net, "dxyz", machine, &lists.backward[0], NULL, &backward_secs), QDR_OK);
    qdri_net_lists_free(&lists);
    qdri_net_free(&net);
    return forward_secs + backward_secs;
}

/* Against all combinations. */
TEST(the_choice_is_the_best)
{
    static const char *const names[] = {"perlmutter", "frontier", "dgx-h100", "dgx-a100", "alps", "summit", "laptop"};
    static const int64_t shapes[][3] = {
        {8192, 8192, 8192}, {2048, 4096, 16384}, {16384, 12288, 4096}, {512, 1024, 1024}};
    int n_divided = 0, n_parts = 0;
    for (int i = 0; i < 7 * 2 * 4 * 2; i++) {
        qdr_machine machine = {QDR_INIT(qdr_machine)};
        assert_int_equal(qdr_machine_load(names[i % 7], &machine), QDR_OK);
        const int64_t *shape = shapes[i / 14 % 4];
        const priced_layer layer = {shape[0], shape[1], shape[2], i / 56 ? QDR_SCATTERED : QDR_REPLICATED,
                                    i / 7 % 2 ? machine.ranks_per_node : 1};
        int panels = 0, parts = 0;
        const double chosen = layer_secs(&machine, &layer, &panels, &parts);
        n_divided += panels > 1;
        n_parts += parts > 1;
        for (int p = 1; p <= 16; p *= 2)
            for (int n = 1; n <= 2; n++) {
                int all_panels = p, all_parts = n;
                const double secs = layer_secs(&machine, &layer, &all_panels, &all_parts);
                if (chosen > 1.02 * secs)
                    fail_msg("%s, %d copies, layout %d, %dx%dx%d: %.4g ms with %d panels, %d parts; %.4g with %d, %d",
                             names[i % 7], layer.n_copies, (int)layer.layout, (int)shape[0], (int)shape[1],
                             (int)shape[2], 1e3 * chosen, panels, parts, 1e3 * secs, p, n);
            }
    }
    print_message("%d of %d layers in panels, %d in parts\n", n_divided, 7 * 2 * 4 * 2, n_parts);
    assert_true(n_divided > 0 && n_divided < 7 * 2 * 4 * 2);
}

/* ---- samples ---- */

/* A sample costs what its task costs, on a machine without a framework's habits. Products that add to C, which samples
 * do not say, cost more. Returns the number of samples. */
static int check_samples(const qdri_net *net, const char *order, const qdr_machine *machine,
                         const qdri_schedule *schedule, int n_of[QDR_N_SAMPLE_KINDS])
{
    double *secs = calloc((size_t)schedule->n_tasks, sizeof *secs), end_secs, said;
    int n = 0;
    assert_int_equal(qdri_net_price(net, order, machine, schedule, secs, &end_secs), QDR_OK);
    for (int i = 0; i < schedule->n_tasks; i++) {
        const qdri_task *task = &schedule->tasks[i];
        qdr_sample sample;
        const int is_one = qdri_net_sample(net, order, task, &sample);
        if (!is_one && secs[i] > 0)
            fail_msg("task %d, %s, costs %g s but is no sample", i, qdri_task_name(task), secs[i]);
        if (!is_one || (task->kind == QDRI_TASK_PRODUCT && task->accumulate)) continue;
        sample.group = "";
        sample.secs = 1;
        assert_int_equal(qdr_sample_secs(machine, &sample, &said), QDR_OK);
        if (fabs(said - secs[i]) > 1e-9 * secs[i])
            fail_msg("task %d, %s: %.9g s, as a sample %.9g s", i, qdri_task_name(task), secs[i], said);
        n_of[sample.kind]++;
        n++;
    }
    free(secs);
    return n;
}

TEST(samples_cost_what_tasks_cost)
{
    static const int grids[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 4, 1, 1}, {2, 2, 2, 1}, {2, 1, 2, 4}, {4, 2, 1, 2}};
    const qdr_network network = network_of(0, 0);
    qdr_machine machine = machine_of("laptop");
    int n_of[QDR_N_SAMPLE_KINDS] = {0}, n = 0;
    machine.ranks_per_node = machine.links[0].n_ranks = 4;
    for (int i = 0; i < 6 * 2; i++) {
        const qdr_plan plan = {QDR_INIT(qdr_plan),
                               .x = grids[i / 2][0],
                               .y = grids[i / 2][1],
                               .z = grids[i / 2][2],
                               .d = grids[i / 2][3],
                               .batch = 16,
                               .layout = i % 2 ? QDR_SCATTERED : QDR_REPLICATED};
        const char *order = i % 3 ? "xyzd" : "dzyx";
        qdri_net net = {0};
        qdri_net_lists lists = {.n_layers = 0};
        describe(&network, &plan, &net, &lists);
        n += check_samples(&net, order, &machine, &lists.forward, n_of);
        n += check_samples(&net, order, &machine, &lists.backward[0], n_of);
        qdri_net_lists_free(&lists);
        qdri_net_free(&net);
    }
    print_message("%d samples, %d of them products, %d collectives\n", n, n_of[QDR_SAMPLE_PRODUCT],
                  n_of[QDR_SAMPLE_COLLECTIVE]);
    assert_true(n_of[QDR_SAMPLE_PRODUCT] >= 12 * 3 * 4 * N_LAYERS && n_of[QDR_SAMPLE_ATTENTION] == 12 * 2 * N_LAYERS);
}

/* ---- operations ---- */

/* The model prices what a task's kernels do, not what they compute: any kind costs the same. */
TEST(kinds_of_kernels_are_alike)
{
    static const char *const machines[] = {"laptop", "dgx-a100", "selene-2022"};
    const qdr_network network = network_of(0, 1);
    const qdr_plan plan = {QDR_INIT(qdr_plan), .x = 4, .y = 2, .z = 2, .d = 1, .batch = 8};
    int n_kernels = 0;
    for (int i = 0; i < 3 * 2; i++) {
        const qdr_machine machine = machine_of(machines[i / 2]);
        double before[512], after[512], end_before, end_after;
        qdri_net net = {0};
        qdri_net_lists lists = {.n_layers = 0};
        describe(&network, &plan, &net, &lists);
        qdri_schedule *schedule = i % 2 ? &lists.backward[0] : &lists.forward;
        assert_true(schedule->n_tasks <= 512);
        assert_int_equal(qdri_net_price(&net, "xyzd", &machine, schedule, before, &end_before), QDR_OK);
        for (int t = 0; t < schedule->n_tasks; t++) {
            qdri_task *task = &schedule->tasks[t];
            qdr_sample as_before, as_after;
            if (task->kind == QDRI_TASK_PRODUCT || task->kind == QDRI_TASK_COLLECTIVE) continue;
            const int is_one = qdri_net_sample(&net, "xyzd", task, &as_before);
            task->kernel.kind = task->kernel.kind == QDRI_K_ADD ? QDRI_K_CAST : QDRI_K_ADD;
            assert_int_equal(qdri_net_sample(&net, "xyzd", task, &as_after), is_one);
            assert_true(as_after.kind == as_before.kind && as_after.bytes == as_before.bytes &&
                        as_after.flops == as_before.flops && as_after.n_kernels == as_before.n_kernels);
            n_kernels += is_one;
        }
        assert_int_equal(qdri_net_price(&net, "xyzd", &machine, schedule, after, &end_after), QDR_OK);
        assert_memory_equal(before, after, (size_t)schedule->n_tasks * sizeof *before);
        assert_true(end_before == end_after);
        qdri_net_lists_free(&lists);
        qdri_net_free(&net);
    }
    assert_true(n_kernels > 3 * 2 * 6 * N_LAYERS);
}

/* A machine without the type, or without numbers. */
TEST(refusals)
{
    const qdr_network network = network_of(0, 0);
    qdr_plan plan = {QDR_INIT(qdr_plan), .x = 1, .y = 1, .z = 1, .d = 1, .batch = 1};
    qdr_machine machine = machine_of("dgx-a100");
    qdri_net net = {0};
    qdri_net_lists lists = {.n_layers = 0};
    double secs[512], end_secs;
    plan.dtype = QDR_F64;
    describe(&network, &plan, &net, &lists);
    assert_true(lists.forward.n_tasks < 512);
    machine.f64.peak_flops = 0;
    assert_int_equal(qdri_net_price(&net, "xyzd", &machine, &lists.forward, secs, &end_secs), QDR_ERR_DTYPE);
    machine.memory_bytes_per_sec = 0;
    assert_int_equal(qdri_net_price(&net, "xyzd", &machine, &lists.forward, secs, &end_secs), QDR_ERR_ARGUMENT);
    qdri_net_lists_free(&lists);
    qdri_net_free(&net);
}
