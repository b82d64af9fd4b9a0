/* SPDX-License-Identifier: Apache-2.0 */
/* A network of 8 layers of H = 256 and F = 1024, in f32, on a machine on which only products, at 0.5 TFLOPS, attention,
 * at 0.25, and what a test adds take time. */
#ifndef QDR_TEST_EIGHT_LAYERS_H
#define QDR_TEST_EIGHT_LAYERS_H

#include <math.h>

#include "qdr_test.h"
#include "quadrille/plan.h"

#define USEC 1e-6
#define PRODUCTS 0.5e12
#define ATTENTION 0.25e12
enum { LAYERS = 8, H = 256, F = 1024, V = 1000, CONTEXT = 128 };

static const qdr_network network = {
    QDR_INIT(qdr_network), .name = "eight layers", .layers = LAYERS, .hidden = H, .heads = 4,
    .kv_heads = 4,         .head_size = H / 4,     .ffn = F,         .vocab = V,  .context = CONTEXT,
    .positions = CONTEXT,  .norms_per_layer = 2,   .tied = 1};

/* Memory is so fast that nothing waits for it. */
static inline qdr_machine machine_of(void)
{
    const qdr_machine_products products = {2 * PRODUCTS, 0.5, 0, 0, 0, {1, 1, 1}, 1, {0}};
    return (qdr_machine){QDR_INIT(qdr_machine),
                         .name = "round numbers",
                         .ranks_per_node = 1,
                         .memory_bytes = 1e12,
                         .memory_bytes_per_sec = 1e18,
                         .memory_efficiency = 1,
                         .n_units = 1,
                         .wave_power = 1,
                         .f64 = products,
                         .f32 = products,
                         .bf16 = products,
                         .attention_efficiency = ATTENTION / (2 * PRODUCTS),
                         .n_links = 1,
                         .links = {{.rank_bytes_per_sec = 1e18}},
                         .collectives = {.n_protocols = 1, .protocols = {{.step_factor = 1, .rate_factor = 1}}}};
}

/* Of one sequence: the forward products of a layer, its forward attention, and the forward head. */
static const double layer = 2.0 * CONTEXT * (3.0 * H * H + H * H + 2.0 * H * F) / PRODUCTS,
                    scores = 2.0 * CONTEXT * (CONTEXT + 1) * H / ATTENTION, head = 2.0 * CONTEXT * V * H / PRODUCTS;

static inline qdr_plan plan_of(int64_t batch, int64_t micro_batch)
{
    return (qdr_plan){
        QDR_INIT(qdr_plan),         .x = 1,      .y = 1,           .z = 1,          .d = 1, .batch = batch,
        .micro_batch = micro_batch, .panels = 1, .batch_parts = 1, .dtype = QDR_F32};
}

static inline qdr_plan_result predict(const qdr_machine *machine, const qdr_network *of, const qdr_plan *plan)
{
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    qdr_model *model = NULL;
    CHECK_OK(qdr_model_create(machine, of, &model));
    CHECK_OK(qdr_model_predict(model, plan, &result));
    qdr_model_destroy(&model);
    return result;
}

static inline void assert_near(const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-6 * fabs(wanted) + 1e-12)) fail_msg("%s: %.9g, not %.9g", what, got, wanted);
}

#endif
