/* SPDX-License-Identifier: Apache-2.0 */
/* The model's memory compared with what the runtime allocates for the same network: parameters, gradients, feedback and
 * state to the byte, as what a rank writes to a checkpoint; activations but for the padding of buffers; workspace
 * within 3 %. */
#include <math.h>

#include "core/block.h"
#include "network/describe.h"
#include "network/sizes.h"
#include "price/lists.h"
#include "price/price.h"
#include "quadrille/codec.h"
#include "quadrille/plan.h"

#include "qdr_test.h"

enum { LAYERS = 6, CONTEXT = 128, BATCH = 16, MOST_PADDING = 12 * QDRI_BUFFER_ALIGN };

/* Shares of what is allocated. */
static double worst_activations, worst_workspace;

static qdr_network network_of(int64_t hidden, qdr_norm_kind norm)
{
    qdr_network network = {QDR_INIT(qdr_network), .layers = LAYERS,
                           .hidden = hidden,      .heads = 8,
                           .kv_heads = 8,         .head_size = hidden / 8,
                           .ffn = 4 * hidden,     .vocab = 512,
                           .context = CONTEXT,    .positions = CONTEXT,
                           .qkv_bias = 1,         .out_bias = 1,
                           .mlp_bias = 1,         .norm = norm,
                           .norms_per_layer = 2,  .tied = 1};
    strcpy(network.name, "a test");
    return network;
}

/* What qdr_adamw_size() says: numbers of a step, and two or three arrays for each parameter. */
static double state_of(const qdri_net *net)
{
    const size_t each = qdr_dtype_bytes(net->grad_dtype),
                 n_arrays = net->opts.dtype == QDR_BF16 || net->opts.dtype == QDR_F16 ? 3 : 2;
    size_t bytes = 128;
    for (int i = 0; i < net->n_parameters; i++) {
        const qdri_parameter *p = &net->parameters[i];
        const size_t n = (size_t)qdri_parameter_updates(p);
        bytes += n_arrays * ((n * each + 63) / 64 * 64);
    }
    return (double)bytes;
}

/* What a rank writes to a checkpoint: parameters and two moments. */
static double saved_of(const qdri_net *net)
{
    int64_t n_elems = 0;
    for (int i = 0; i < net->n_parameters; i++) {
        const qdri_parameter *p = &net->parameters[i];
        const int64_t n = qdri_parameter_updates(p);
        int64_t begin = 0, end = n;
        if (p->flat_over_z) qdri_split(n, 1, p->n_copies, p->copy, &begin, &end);
        n_elems += end - begin;
    }
    return 3.0 * (double)n_elems * (double)qdr_dtype_bytes(net->grad_dtype);
}

static void compare_checkpoint(qdr_model *model, const qdr_plan *plan, const qdri_net *net)
{
    qdr_plan_checkpoint told = {QDR_INIT(qdr_plan_checkpoint)};
    int64_t n_elems = 0;
    for (int i = 0; i < net->n_parameters; i++) n_elems += net->parameters[i].n_global;
    CHECK_OK(qdr_model_checkpoint(model, plan, &told));
    assert_true(told.bytes == 3.0 * (double)n_elems * (double)qdr_dtype_bytes(net->grad_dtype));
    if (told.rank_bytes != saved_of(net))
        fail_msg("%dx%dx%dx%d, levels %d,%d, %s: a rank saves %.0f bytes, not %.0f", plan->x, plan->y, plan->z, plan->d,
                 plan->gradient_parts, plan->optimizer_parts, qdr_dtype_name(plan->dtype), saved_of(net),
                 told.rank_bytes);
}

static void compare(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan)
{
    const qdri_position position = qdri_plan_position(plan);
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = (int64_t)BATCH * CONTEXT, .row_unit = CONTEXT,
                                 .dtype = plan->dtype, .panels = 1};
    int layer_of[QDRI_NODES_OF(LAYERS)];
    qdri_net net;
    qdri_net_lists lists;
    qdr_model *model = NULL;
    qdr_plan_result told = {QDR_INIT(qdr_plan_result)};
    memset(&net, 0, sizeof net);
    memset(&lists, 0, sizeof lists);
    CHECK_OK(qdr_model_create(machine, network, &model));
    CHECK_OK(qdr_model_predict(model, plan, &told));
    CHECK_OK(qdri_describe(&net, network, &position, &opts, CONTEXT, plan->layout, LAYERS, layer_of));
    const qdri_coding coding = qdri_plan_coding(plan, machine->ranks_per_node);
    qdri_net_set_coding(&net, &coding);
    CHECK_OK(qdri_net_build(&net, &lists));
    const size_t *bytes = net.buffers.region_bytes;
    const double activations = (double)bytes[QDRI_ACTIVATIONS], workspace = (double)bytes[QDRI_WORKSPACE];
    const double activations_told = told.memory[QDR_MEMORY_ACTIVATIONS];
    const double padding = activations - activations_told;
    const double workspace_told = told.memory[QDR_MEMORY_GATHERED] + told.memory[QDR_MEMORY_WORKSPACE];
    worst_activations = fmax(worst_activations, fabs(activations_told / activations - 1));
    const double workspace_error = fabs(workspace_told / workspace - 1);
    worst_workspace = fmax(worst_workspace, workspace_error);
    const char *wrong = told.memory[QDR_MEMORY_PARAMETERS] != (double)bytes[QDRI_PARAMETERS] ? "parameters"
                        : told.memory[QDR_MEMORY_GRADIENTS] != (double)bytes[QDRI_GRADIENTS] ? "gradients"
                        : told.memory[QDR_MEMORY_FEEDBACK] != (double)bytes[QDRI_FEEDBACK]   ? "feedback"
                        : told.memory[QDR_MEMORY_OPTIMIZER] != state_of(&net)                ? "state"
                        : padding < 0 || padding > MOST_PADDING                              ? "activations"
                        : workspace_error > 0.03                                             ? "workspace"
                                                                                             : NULL;
    if (wrong)
        fail_msg("%dx%dx%dx%d, levels %d,%d, layout %d, %s: %s: %.0f of %zu, %.0f of %zu, %.0f of %.0f, %.0f of "
                 "%.0f, %.0f of %.0f",
                 plan->x, plan->y, plan->z, plan->d, plan->gradient_parts, plan->optimizer_parts, (int)plan->layout,
                 qdr_dtype_name(plan->dtype), wrong, told.memory[QDR_MEMORY_PARAMETERS], bytes[QDRI_PARAMETERS],
                 told.memory[QDR_MEMORY_GRADIENTS], bytes[QDRI_GRADIENTS], told.memory[QDR_MEMORY_OPTIMIZER],
                 state_of(&net), activations_told, activations, workspace_told, workspace);
    compare_checkpoint(model, plan, &net);
    qdri_net_lists_free(&lists);
    qdri_net_free(&net);
    qdr_model_destroy(&model);
}

TEST(all_plans)
{
    static const int grids[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2},
                                   {2, 2, 1, 1}, {2, 2, 2, 1}, {1, 2, 2, 2}, {4, 2, 1, 1}, {1, 4, 2, 1},
                                   {2, 2, 2, 2}, {1, 8, 1, 1}, {1, 1, 1, 3}, {1, 1, 2, 4}, {3, 1, 1, 5}};
    static const qdr_dtype types[] = {QDR_F32, QDR_BF16, QDR_F16};
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_codecs codecs;
    int n_coded = 0;
    CHECK_OK(qdr_machine_load("laptop", &machine));
    CHECK_OK(qdr_codecs_parse("int8+feedback,least=1K,inside", &codecs));
    for (int64_t hidden = 256; hidden <= 1024; hidden *= 2) {
        const qdr_network network = network_of(hidden, hidden == 512 ? QDR_NORM_RMS : QDR_NORM_LAYER);
        for (size_t i = 0; i < sizeof grids / sizeof *grids; i++)
            for (int way = 0; way < 6; way++) {
                const qdr_plan plan = {
                    QDR_INIT(qdr_plan),      .x = grids[i][0],   .y = grids[i][1],
                    .z = grids[i][2],        .d = grids[i][3],   .layout = way & 1 ? QDR_SCATTERED : QDR_REPLICATED,
                    .dtype = types[way / 2], .panels = 1,        .batch_parts = 1,
                    .batch = BATCH,          .sequence = CONTEXT};
                compare(&machine, &network, &plan);
                if (plan.d == 1) continue;
                qdr_plan levels = plan;
                levels.gradient_parts = plan.z * (1 + way % 2 * (plan.d - 1));
                levels.optimizer_parts = plan.z * plan.d;
                compare(&machine, &network, &levels);
                levels.codecs = codecs;
                compare(&machine, &network, &levels);
                n_coded += plan.z * plan.d > 1;
            }
    }
    assert_true(n_coded > 0);
    print_message("activations within %.2f %%, workspace within %.1f %%\n", 100 * worst_activations,
                  100 * worst_workspace);
}

/* Networks that differ in one thing from those of all_plans(). */
TEST(all_networks)
{
    enum {
        GATED = 1,
        FEW_KEYS = 2,
        ONE_KEY = 4,
        SOME_KEYS = 1024, /* three ranks have two, one and one, each with its queries */
        ROTARY = 8,
        UNTIED = 16,
        QKV_BIAS = 32,
        OUT_BIAS = 64,
        MLP_BIAS = 128,
        PARALLEL = 256,
        RMS = 512
    };
    static const int changes[] = {GATED,
                                  FEW_KEYS,
                                  ONE_KEY,
                                  SOME_KEYS,
                                  ROTARY,
                                  UNTIED,
                                  QKV_BIAS,
                                  OUT_BIAS,
                                  MLP_BIAS,
                                  PARALLEL,
                                  GATED | FEW_KEYS | ROTARY | UNTIED | RMS | QKV_BIAS | OUT_BIAS | MLP_BIAS};
    static const int grids[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 4, 2, 1}, {2, 2, 2, 2},
                                   {1, 8, 1, 1}, {3, 1, 1, 5}, {4, 2, 1, 2}, {1, 3, 1, 2}, {8, 1, 1, 4}};
    static const qdr_dtype types[] = {QDR_F32, QDR_BF16, QDR_F64};
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    CHECK_OK(qdr_machine_load("laptop", &machine));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const int change = changes[i];
        qdr_network network = network_of(512, change & RMS ? QDR_NORM_RMS : QDR_NORM_LAYER);
        network.gated = (change & GATED) != 0;
        network.kv_heads = change & SOME_KEYS ? 4 : change & FEW_KEYS ? 2 : change & ONE_KEY ? 1 : network.heads;
        network.positions = change & ROTARY ? 0 : CONTEXT;
        network.tied = !(change & UNTIED);
        network.qkv_bias = !(change & QKV_BIAS);
        network.out_bias = !(change & OUT_BIAS);
        network.mlp_bias = !(change & MLP_BIAS);
        network.parallel_residual = (change & PARALLEL) != 0;
        for (size_t j = 0; j < 6 * sizeof grids / sizeof *grids; j++) {
            const int *grid = grids[j / 6];
            const qdr_plan plan = {QDR_INIT(qdr_plan),
                                   .x = grid[0],
                                   .y = grid[1],
                                   .z = grid[2],
                                   .d = grid[3],
                                   .layout = j & 1 ? QDR_SCATTERED : QDR_REPLICATED,
                                   .dtype = types[j % 6 / 2],
                                   .panels = 1,
                                   .batch_parts = 1,
                                   .batch = BATCH,
                                   .sequence = CONTEXT};
            compare(&machine, &network, &plan);
        }
    }
}

/* An RMS norm has a gamma alone: of these and nothing else consist the small parameters of a Llama, whose gradients are
 * summed over d at the end. */
TEST(rms_norms)
{
    const qdr_plan plan = {QDR_INIT(qdr_plan), .x = 1, .y = 1, .z = 1, .d = 8, .dtype = QDR_BF16, .batch = 8};
    qdri_lists lists = {.n_kinds = 0};
    qdr_network network = {QDR_INIT(qdr_network)};
    int64_t n_elems = 0;
    CHECK_OK(qdr_network_load("llama-2-7b", &network));
    CHECK_OK(qdri_lists_make(&network, &plan, 8, QDRI_FEW_LAYERS, (double)network.layers, 0, &lists));
    const qdri_schedule *backward = &lists.of[QDRI_LIST_BACKWARD_ONLY].schedule;
    for (int i = 0; i < backward->n_tasks; i++)
        if (backward->tasks[i].node < 0 && backward->tasks[i].kind == QDRI_TASK_COLLECTIVE)
            n_elems += backward->tasks[i].count;
    assert_int_equal(n_elems, 4096 * (2 * 32 + 1));
    qdri_lists_free(&lists);
}

/* Sums of the small gradients of one layer count as many elements as those of all, over each axis. */
TEST(small_gradients)
{
    qdr_network network = network_of(256, QDR_NORM_LAYER);
    for (int i = 0; i < 16; i++) {
        const qdr_plan plan = {QDR_INIT(qdr_plan),
                               .x = 2,
                               .y = 4,
                               .z = 3,
                               .d = 2,
                               .dtype = QDR_F32,
                               .layout = i & 1 ? QDR_SCATTERED : QDR_REPLICATED,
                               .batch = 12};
        int64_t counts[2][QDR_N_CHANNELS] = {{0}};
        network.qkv_bias = (i & 2) != 0;
        network.out_bias = network.mlp_bias = (i & 4) != 0;
        network.positions = i & 8 ? 0 : CONTEXT;
        for (int all = 0; all < 2; all++) {
            qdri_lists lists = {.n_kinds = 0};
            CHECK_OK(qdri_lists_make(&network, &plan, 8, all ? QDRI_FEW_LAYERS : 1, QDRI_FEW_LAYERS, 0, &lists));
            const qdri_schedule *backward = &lists.of[QDRI_LIST_BACKWARD_ONLY].schedule;
            for (int t = 0; t < backward->n_tasks; t++)
                if (backward->tasks[t].node < 0 && backward->tasks[t].kind == QDRI_TASK_COLLECTIVE)
                    counts[all][backward->tasks[t].channel] += backward->tasks[t].count;
            qdri_lists_free(&lists);
        }
        assert_memory_equal(counts[0], counts[1], sizeof counts[0]);
        assert_true(counts[1][QDR_CHANNEL_D_REDUCE] > 0);
    }
}

/* Whichever takes longer; nothing where the machine has no figures. */
TEST(save_times)
{
    const qdr_network network = network_of(256, QDR_NORM_LAYER);
    const qdr_plan plan = {QDR_INIT(qdr_plan), .x = 1, .y = 1, .z = 4, .d = 1, .batch = BATCH};
    const double rates[][2] = {{0, 0}, {1e9, 0}, {0, 2e9}, {1e9, 2e9}, {1e9, 8e9}};
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    CHECK_OK(qdr_machine_load("laptop", &machine));
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        qdr_model *model = NULL;
        qdr_plan_checkpoint told = {QDR_INIT(qdr_plan_checkpoint)};
        machine.file = (qdr_machine_file){rates[i][0], rates[i][1], {0}};
        CHECK_OK(qdr_model_create(&machine, &network, &model));
        CHECK_OK(qdr_model_checkpoint(model, &plan, &told));
        assert_true(told.rank_bytes > told.bytes / 4 && told.rank_bytes < told.bytes / 3);
        const double secs[] = {0, told.rank_bytes / 1e9, told.bytes / 2e9, told.bytes / 2e9, told.rank_bytes / 1e9};
        assert_true(told.secs == secs[i]);
        qdr_model_destroy(&model);
    }
}

TEST(wrong_arguments)
{
    const qdr_network network = network_of(256, QDR_NORM_LAYER);
    const qdr_plan plan = {QDR_INIT(qdr_plan), .x = 0, .y = 1, .z = 1, .d = 1, .batch = BATCH};
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_model *model = NULL;
    qdr_plan_checkpoint told = {QDR_INIT(qdr_plan_checkpoint), .bytes = 1};
    CHECK_OK(qdr_machine_load("laptop", &machine));
    CHECK_OK(qdr_model_create(&machine, &network, &model));
    CHECK_FAILS(qdr_model_checkpoint(NULL, &plan, &told), QDR_ERR_ARGUMENT, "NULL");
    assert_true(told.bytes == 0);
    CHECK_FAILS(qdr_model_checkpoint(model, NULL, &told), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_model_checkpoint(model, &plan, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_model_checkpoint(model, &plan, &told), QDR_ERR_ARGUMENT, "0x1x1x1");
    qdr_model_destroy(&model);
}
