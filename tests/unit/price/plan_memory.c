/* SPDX-License-Identifier: Apache-2.0 */
/* The model's memory compared with what the runtime allocates for the same network: parameters and gradients within 1
 * %, activations within 3 %. */
#include <math.h>
#include <string.h>

#include "network/describe.h"
#include "quadrille/plan.h"

#include "qdr_test.h"

enum { LAYERS = 6, CONTEXT = 128, BATCH = 16 };

/* Shares of what is allocated: of parameters and gradients, of activations. */
static double worst_kept, worst_activations;

static qdr_network network_of(int64_t hidden)
{
    qdr_network network = {.version = QDR_OPTS_INIT,
                           .layers = LAYERS,
                           .hidden = hidden,
                           .heads = 8,
                           .kv_heads = 8,
                           .head_size = hidden / 8,
                           .ffn = 4 * hidden,
                           .vocab = 512,
                           .context = CONTEXT,
                           .positions = CONTEXT,
                           .qkv_bias = 1,
                           .out_bias = 1,
                           .mlp_bias = 1,
                           .norms_per_layer = 2,
                           .tied = 1};
    strcpy(network.name, "a test");
    return network;
}

static void compare(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan)
{
    const qdri_position position = {.size = {plan->x, plan->y, plan->z, plan->d}};
    const qdr_stack_opts opts = {.version = QDR_OPTS_INIT,
                                 .n_rows = (int64_t)BATCH * CONTEXT,
                                 .row_unit = CONTEXT,
                                 .dtype = plan->dtype,
                                 .panels = 1};
    int layer_of[QDRI_NODES_OF(LAYERS)];
    qdri_net net;
    qdri_net_lists lists;
    qdr_model *model = NULL;
    qdr_plan_result told;
    memset(&net, 0, sizeof net);
    memset(&lists, 0, sizeof lists);
    CHECK_OK(qdr_model_create(machine, network, &model));
    CHECK_OK(qdr_model_predict(model, plan, &told));
    CHECK_OK(qdri_describe(&net, network, &position, &opts, CONTEXT, plan->layout, LAYERS, layer_of));
    CHECK_OK(qdri_net_build(&net, &lists));
    const size_t *bytes = net.buffers.region_bytes;
    const double kept = (double)(bytes[QDRI_PARAMETERS] + bytes[QDRI_GRADIENTS]);
    const double kept_told = told.memory[QDR_MEMORY_PARAMETERS] + told.memory[QDR_MEMORY_GRADIENTS];
    const double activations = (double)bytes[QDRI_ACTIVATIONS];
    const double activations_told = told.memory[QDR_MEMORY_ACTIVATIONS];
    const double kept_error = fabs(kept_told / kept - 1), activations_error = fabs(activations_told / activations - 1);
    worst_kept = fmax(worst_kept, kept_error);
    worst_activations = fmax(worst_activations, activations_error);
    if (kept_error > 0.01 || activations_error > 0.03)
        fail_msg("%dx%dx%dx%d, layout %d, %s: %.0f of %.0f bytes, activations %.0f of %.0f", plan->x, plan->y, plan->z,
                 plan->d, (int)plan->layout, qdr_dtype_name(plan->dtype), kept_told, kept, activations_told,
                 activations);
    qdri_net_lists_free(&lists);
    qdri_net_free(&net);
    qdr_model_destroy(&model);
}

static void all_plans(void **state)
{
    (void)state;
    static const int grids[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2}, {2, 2, 1, 1},
                                   {2, 2, 2, 1}, {1, 2, 2, 2}, {4, 2, 1, 1}, {1, 4, 2, 1}, {2, 2, 2, 2}, {1, 8, 1, 1}};
    static const qdr_dtype types[] = {QDR_F32, QDR_BF16, QDR_F16};
    qdr_machine machine;
    CHECK_OK(qdr_machine_load("laptop", &machine));
    for (int64_t hidden = 256; hidden <= 1024; hidden *= 2) {
        const qdr_network network = network_of(hidden);
        for (size_t i = 0; i < sizeof grids / sizeof *grids; i++)
            for (int way = 0; way < 6; way++) {
                const qdr_plan plan = {.version = QDR_OPTS_INIT,
                                       .x = grids[i][0],
                                       .y = grids[i][1],
                                       .z = grids[i][2],
                                       .d = grids[i][3],
                                       .layout = way & 1 ? QDR_SCATTERED : QDR_REPLICATED,
                                       .dtype = types[way / 2],
                                       .batch = BATCH,
                                       .sequence = CONTEXT};
                compare(&machine, &network, &plan);
            }
    }
    print_message("parameters and gradients within %.4f %%, activations within %.2f %%\n", 100 * worst_kept,
                  100 * worst_activations);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_plans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
