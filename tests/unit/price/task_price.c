/* SPDX-License-Identifier: Apache-2.0 */
/* The prices of tasks and of uncoded collectives, by hand from docs/model.md. Memory moves 500 GB/s for kernels, a
 * launch takes 2 us, the host takes 3 us to enqueue it, and products have a peak of 1 TFLOPS. */
#include "price/price.h"

#include <math.h>

#include "price/gemm.h"
#include "qdr_test.h"

#define USEC 1e-6
#define PEAK 1e12
#define MEMORY 500e9
enum { CONTEXT = 256, HEADS = 4, HEAD_SIZE = 64, SEQUENCES = 2 };

static qdr_machine machine_of(void)
{
    const qdr_machine_products products = {PEAK, 0.5, 0, 0, 0, {1, 1, 1}, 1, {0}};
    return (qdr_machine){
        QDR_INIT(qdr_machine),
        .name = "round numbers",
        .ranks_per_node = 4,
        .memory_bytes = 64e9,
        .memory_bytes_per_sec = 2 * MEMORY,
        .memory_efficiency = 0.5,
        .n_units = 1,
        .wave_power = 1,
        .f64 = products,
        .f32 = products,
        .bf16 = products,
        .n_links = 2,
        .links = {{.n_ranks = 4, .rank_bytes_per_sec = 100e9, .step_secs = USEC},
                  {.n_adapters = 2, .adapter_bytes_per_sec = 10e9, .step_secs = 10 * USEC}},
        .collectives = {.start_secs = 5 * USEC, .n_protocols = 1, .protocols = {{.step_factor = 1, .rate_factor = 1}}},
        .software = {.launch_secs = 2 * USEC, .host_secs = 3 * USEC}};
}

/* Of a task on the first rank of a grid, x fastest. */
static qdri_task_price price_on(const qdr_machine *machine, qdr_plan plan, const qdri_task *task)
{
    static qdri_pricing pricing;
    plan.size = sizeof plan;
    memcpy(plan.order, "xyzd", 4);
    qdri_pricing_place(machine, &plan, &pricing);
    return qdri_task_price_of(&pricing, task);
}

static qdri_task_price price_of(const qdr_machine *machine, const qdri_task *task)
{
    return price_on(machine, (qdr_plan){.x = 1, .y = 1, .z = 1, .d = 1}, task);
}

static void assert_near(const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted))) fail_msg("%s: %.12g, not %.12g", what, got, wanted);
}

/* Work that takes secs after `latency`, in n kernels. */
static void assert_price(const char *what, qdri_task_price price, int n_kernels, double work)
{
    assert_int_equal(price.n_kernels, n_kernels);
    assert_near(what, price.price.latency_secs, n_kernels * 2 * USEC);
    assert_near(what, price.price.work_secs, work);
    assert_near(what, price.secs, n_kernels * 2 * USEC + work);
    assert_near(what, price.host_secs, n_kernels * 3 * USEC);
}

/* ---- kernels ---- */

static qdri_task kernel(qdri_task_work work) { return (qdri_task){.kind = QDRI_TASK_KERNEL, .work = work}; }

TEST(kernels)
{
    qdr_machine machine = machine_of();
    const qdri_task plain = kernel((qdri_task_work){5e6, 2e7, 3, QDRI_COST_PLAIN});
    assert_price("memory alone", price_of(&machine, &plain), 3, 10 * USEC);
    machine.kernel_flops = 1e12;
    assert_price("flops", price_of(&machine, &plain), 3, 20 * USEC);
    machine.kernel_flops = 4e12;
    assert_price("memory", price_of(&machine, &plain), 3, 10 * USEC);
}

/* A loss that moves 40 bytes a logit instead of four times two; unfused. */
TEST(logits)
{
    qdr_machine machine = machine_of();
    qdri_task task = kernel((qdri_task_work){4e6, 0, 1, QDRI_COST_LOGITS});
    task.dtype = QDR_BF16;
    assert_price("as counted", price_of(&machine, &task), 1, 8 * USEC);
    machine.software.logit_bytes = 40;
    assert_price("of a framework", price_of(&machine, &task), 6, 5 * 8 * USEC);
}

TEST(biases)
{
    qdr_machine machine = machine_of();
    const qdri_task fused = kernel((qdri_task_work){5e6, 0, 1, QDRI_COST_FUSED}),
                    after = kernel((qdri_task_work){1e6, 0, 1, QDRI_COST_AFTER_FUSED});
    assert_price("own kernel", price_of(&machine, &fused), 1, 10 * USEC);
    assert_price("with it", price_of(&machine, &after), 0, 2 * USEC);
    machine.software.fused_biases = 1;
    assert_price("no kernel", price_of(&machine, &fused), 0, 0);
    assert_price("alone", price_of(&machine, &after), 1, 2 * USEC);
}

/* ---- attention ---- */

static qdri_task attention(int backward, double bytes)
{
    const double pairs = SEQUENCES * HEADS * (double)CONTEXT * CONTEXT;
    return (qdri_task){.kind = QDRI_TASK_KERNEL,
                       .kernel = {.kind = backward ? QDRI_K_ATTENTION_BACKWARD : QDRI_K_ATTENTION_FORWARD,
                                  .u.attention = {.context = CONTEXT,
                                                  .window = CONTEXT,
                                                  .n_heads = HEADS,
                                                  .n_kv_heads = HEADS / 2,
                                                  .head_size = HEAD_SIZE}},
                       .dtype = QDR_F32,
                       .m = SEQUENCES * CONTEXT,
                       .n = HEADS * HEAD_SIZE,
                       .work = {bytes, (backward ? 10 : 4) * pairs * HEAD_SIZE, backward ? 2 : 1,
                                backward ? QDRI_COST_SCORES_BACKWARD : QDRI_COST_SCORES}};
}

/* Two products of whole squares for each head, four backward; softmax moves 0.45 and 0.55 of 20 bytes a score. */
TEST(unfused_attention)
{
    const double pairs = SEQUENCES * HEADS * (double)CONTEXT * CONTEXT;
    const double product = 2 * pairs * HEAD_SIZE / (0.5 * PEAK);
    qdr_machine machine = machine_of();
    qdri_task forward = attention(0, 1e3), backward = attention(1, 1e3);
    machine.software.score_bytes = 20;
    assert_price("forward", price_of(&machine, &forward), 4, 2 * product + pairs * 0.45 * 20 / MEMORY);
    assert_price("backward", price_of(&machine, &backward), 6, 4 * product + pairs * 0.55 * 20 / MEMORY);
    /* Scores are products NT, values NN. */
    machine.f32.factor[0] = 0.5;
    assert_price("modes", price_of(&machine, &forward), 4, (1 + 2) * product + pairs * 0.45 * 20 / MEMORY);
    /* Of few features memory limits the products: of two operands and the scores, or scores and two of values. */
    machine = machine_of();
    machine.software.score_bytes = 20;
    machine.bf16.peak_flops = 1e18;
    qdri_task narrow = attention(0, 1e3);
    narrow.dtype = QDR_BF16;
    const qdr_plan in_bf16 = {.x = 1, .y = 1, .z = 1, .d = 1, .dtype = QDR_BF16};
    const double moved = 2 * SEQUENCES * HEADS * 2.0 * (2 * CONTEXT * HEAD_SIZE + CONTEXT * CONTEXT);
    assert_price("bf16", price_on(&machine, in_bf16, &narrow), 4, (moved + pairs * 0.45 * 20) / MEMORY);
    machine = machine_of();
    machine.software.score_bytes = 20;
    forward.work.n_kernels = 0; /* done by another task */
    assert_price("none", price_of(&machine, &forward), 0, 0);
}

TEST(fused_attention)
{
    const double pairs = SEQUENCES * HEADS * (double)CONTEXT * CONTEXT;
    qdr_machine machine = machine_of();
    qdri_task forward = attention(0, 1e3), backward = attention(1, 1e3);
    machine.attention_efficiency = 0.25;
    assert_price("forward", price_of(&machine, &forward), 1, 4 * pairs * HEAD_SIZE / (0.25 * PEAK));
    assert_price("backward", price_of(&machine, &backward), 2, 10 * pairs * HEAD_SIZE / (0.25 * PEAK));
    forward = attention(0, 1e9);
    assert_price("memory", price_of(&machine, &forward), 1, 1e9 / MEMORY);
}

/* Of a sequence in four parts the positions of all are seen, on average (4 n + 1) / (n + 1) times as many; a window
 * that is shorter than a part hides what it hid; three times keys and values of a part come from the rank before. */
TEST(attention_of_parts)
{
    const double flops = 4.0 * SEQUENCES * HEADS * CONTEXT * CONTEXT * HEAD_SIZE;
    const qdr_plan plan = {.x = 1, .y = 1, .z = 2, .d = 2, .context_parts = 4};
    qdr_machine machine = machine_of();
    qdri_task forward = attention(0, 1e3), backward = attention(1, 1e3);
    machine.attention_efficiency = 0.25;
    const double more = (4 * CONTEXT + 1) / (CONTEXT + 1.0);
    assert_price("forward", price_on(&machine, plan, &forward), 1, more * flops / (0.25 * PEAK));
    assert_price("backward", price_on(&machine, plan, &backward), 2, more * 2.5 * flops / (0.25 * PEAK));
    forward.kernel.u.attention.window = 16;
    const double part = 16 - 16 * 15 / (2.0 * CONTEXT), whole = 16 - 16 * 15 / (8.0 * CONTEXT);
    assert_price("window", price_on(&machine, plan, &forward), 1, whole / part * flops / (0.25 * PEAK));
    machine.links[0].rank_bytes_per_sec = 1e9;
    const double bytes = 4 * 2.0 * SEQUENCES * CONTEXT * (HEADS / 2.0) * HEAD_SIZE;
    const double message = 6 * USEC + bytes / 1e9, again = 6 * USEC + 2 * bytes / 1e9;
    assert_price("ring", price_on(&machine, plan, &forward), 1, 3 * message);
    machine.attention_efficiency = 1;
    assert_price("ring backward", price_on(&machine, plan, &backward), 2, 3 * again);
    machine.attention_efficiency = 0;
    machine.software.score_bytes = 20;
    const double pairs = 4.0 * SEQUENCES * HEADS * CONTEXT * CONTEXT, product = 2 * pairs * HEAD_SIZE / (0.5 * PEAK);
    assert_price("unfused", price_on(&machine, plan, &forward), 4, 2 * product + pairs * 0.45 * 20 / MEMORY);
}

/* ---- products ---- */

TEST(products)
{
    qdr_machine machine = machine_of();
    qdri_task task = {.kind = QDRI_TASK_PRODUCT, .dtype = QDR_F32, .out_dtype = QDR_F32, .m = 512, .n = 256, .k = 128};
    const double secs = 2.0 * 512 * 256 * 128 / (0.5 * PEAK);
    assert_price("product", price_of(&machine, &task), 1, secs);
    task.parameter_gradient = 1;
    assert_price("gradient", price_of(&machine, &task), 1, secs);
    machine.software.weight_gradient_bytes = 6;
    assert_price("gradient of a framework", price_of(&machine, &task), 1, secs + 6.0 * 512 * 256 / MEMORY);
    task.parameter_gradient = 0;
    assert_price("no gradient", price_of(&machine, &task), 1, secs);
    /* So thin that memory limits it: operands once, the result once, or twice if it is added to. */
    task.m = task.n = 1024;
    task.k = 1;
    assert_price("thin", price_of(&machine, &task), 1, 4.0 * (2 * 1024 + 1024 * 1024) / MEMORY);
    task.accumulate = 1;
    assert_price("added", price_of(&machine, &task), 1, 4.0 * (2 * 1024 + 2 * 1024 * 1024) / MEMORY);
    task.out_dtype = QDR_F64;
    assert_price("wider", price_of(&machine, &task), 1, (4.0 * 2 * 1024 + 8.0 * 2 * 1024 * 1024) / MEMORY);
}

static double product_secs(const qdr_machine *machine, double m, double n, double k, qdr_dtype dtype, qdri_mode mode)
{
    const qdri_product product = {m, n, k, 1, dtype, mode, (double)qdr_dtype_bytes(dtype), 0};
    return qdri_product_secs(machine, &product);
}

TEST(efficiencies)
{
    const double flops = 2.0 * 512 * 256 * 1024;
    qdr_machine machine = machine_of();
    machine.memory_bytes_per_sec = 1e15;
    machine.f32 = (qdr_machine_products){PEAK, 0.8, 512, 128, 256, {0.9, 0.8, 0.7}, 0.5, {0}};
    machine.f64.peak_flops = PEAK / 2;
    machine.bf16.peak_flops = 4 * PEAK;
    const double shape = 0.8 / (1 + 1 + 0.5 + 0.25);
    assert_near("NN", product_secs(&machine, 512, 256, 1024, QDR_F32, QDRI_MODE_NN), flops / (PEAK * shape * 0.9));
    assert_near("NT", product_secs(&machine, 512, 256, 1024, QDR_F32, QDRI_MODE_NT), flops / (PEAK * shape * 0.8));
    assert_near("TN", product_secs(&machine, 512, 256, 1024, QDR_F32, QDRI_MODE_TN), flops / (PEAK * shape * 0.7));
    assert_near("f64", product_secs(&machine, 512, 256, 1024, QDR_F64, QDRI_MODE_NN), flops / (PEAK / 2 * 0.5));
    assert_near("bf16", product_secs(&machine, 512, 256, 1024, QDR_BF16, QDRI_MODE_NN), flops / (4 * PEAK * 0.5));
    assert_near("f16", product_secs(&machine, 512, 256, 1024, QDR_F16, QDRI_MODE_NN), flops / (4 * PEAK * 0.5));
    machine.f32 = (qdr_machine_products){PEAK, 0.5, 0, 0, 0, {1, 1, 1}, 0.25, {0}};
    static const double odd[][3] = {{511, 256, 1024}, {512, 255, 1024}, {512, 256, 1023}};
    for (int i = 0; i < 3; i++)
        assert_near("odd", product_secs(&machine, odd[i][0], odd[i][1], odd[i][2], QDR_F32, QDRI_MODE_NN),
                    2 * odd[i][0] * odd[i][1] * odd[i][2] / (PEAK * 0.5 * 0.25));
    for (int i = 0; i < 3; i++) {
        double none[] = {512, 256, 1024};
        none[i] = 0;
        assert_true(product_secs(&machine, none[0], none[1], none[2], QDR_F32, QDRI_MODE_NN) <= 0);
    }
}

/* Tiles of 128 x 64 on 6 units: whole ones count, and, beyond one wave, whole waves to a power; below one, the units
 * that have none. The best tile is chosen. */
TEST(tiles)
{
    static const struct {
        double m, n, share;
    } cases[] = {
        {128 * 3, 64 * 2, 1}, /* 6 tiles: one wave */
        {128 * 3 - 64, 64 * 2 - 16, (320.0 / 384) * (112.0 / 128)}, /* the same 6 tiles, partly used */
        {128, 64 * 2, 2 / 6.0}, /* 2 of 6 units */
        {128 * 4, 64 * 3, 1}, /* 12: two waves */
        {128 * 3, 64 * 3, 0.8660254037844386}, /* 9 of 12: to the power of 1/2 */
    };
    qdr_machine machine = machine_of();
    machine.memory_bytes_per_sec = 1e15;
    machine.n_units = 6;
    machine.wave_power = 0.5;
    machine.n_tiles = 1;
    machine.tiles[0] = (qdr_machine_tile){128, 64, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_near("share", product_secs(&machine, cases[i].m, cases[i].n, 64, QDR_F32, QDRI_MODE_NN),
                    2 * cases[i].m * cases[i].n * 64 / (0.5 * PEAK * cases[i].share));
    /* 128 x 128: 2 of 6 units with the first tile; with the second, 8 tiles in two waves of 6. */
    machine.n_tiles = 2;
    machine.tiles[1] = (qdr_machine_tile){32, 64, 0.75};
    assert_near("the second", product_secs(&machine, 128, 128, 64, QDR_F32, QDRI_MODE_NN),
                2 * 128.0 * 128 * 64 / (0.5 * PEAK * 0.75 * sqrt(8 / 12.0)));
    /* Three products of two tiles fill a wave. */
    const qdri_product three = {128, 128, 64, 3, QDR_F32, QDRI_MODE_NN, 4, 0};
    assert_near("several", qdri_product_secs(&machine, &three), 3 * 2 * 128.0 * 128 * 64 / (0.5 * PEAK));
}

/* ---- collectives ---- */

static qdri_task sum_over(qdr_channel channel, int64_t count)
{
    return (qdri_task){.kind = QDRI_TASK_COLLECTIVE,
                       .stream = QDRI_STREAM_OF_CHANNEL(channel),
                       .channel = channel,
                       .coll = QDR_ALL_REDUCE,
                       .dtype = QDR_BF16,
                       .parameter_gradient = 1,
                       .count = count};
}

/* d over four ranks of one node: rings of 3/4 of the bytes and 3 steps, an all-reduce two of them. */
TEST(sums_of_gradients)
{
    const qdr_plan plan = {.x = 1, .y = 1, .z = 1, .d = 4};
    const double n = 1e6, per_byte = 1.5 / 100e9, fixed = 5 * USEC + 6 * USEC;
    qdr_machine machine = machine_of();
    qdri_task task = sum_over(QDR_CHANNEL_D_REDUCE, (int64_t)n);
    qdri_task_price price = price_on(&machine, plan, &task);
    assert_near("latency", price.price.latency_secs, fixed);
    assert_near("work", price.price.work_secs, 2 * n * per_byte);
    assert_near("sent", price.bytes_sent, 1.5 * 2 * n);
    assert_near("plain", price.bytes_plain, 1.5 * 2 * n);
    assert_near("rate", price.price.flow_bytes_per_sec, 100e9);
    assert_near("use", price.price.use[0], 1);
    assert_near("host", price.host_secs, 3 * USEC);
    machine.software.gradient_bytes = 4;
    assert_near("wider", price_on(&machine, plan, &task).secs, fixed + 4 * n * per_byte);
    /* A fifth of a bucket: a fifth of its time. Larger ones are sent alone. */
    machine.software.bucket_bytes = 5 * 4 * n;
    price = price_on(&machine, plan, &task);
    assert_near("in a bucket", price.secs, fixed / 5 + 4 * n * per_byte);
    assert_near("of it", price.bytes_sent, 1.5 * 4 * n);
    machine.software.bucket_bytes = 2 * n;
    assert_near("alone", price_on(&machine, plan, &task).secs, fixed + 4 * n * per_byte);
    machine.software.bucket_bytes = 5 * 4 * n;
    task.parameter_gradient = 0;
    assert_near("others", price_on(&machine, plan, &task).secs, fixed + 2 * n * per_byte);
    /* Nothing runs beside what is on the processor's stream. */
    task.stream = QDRI_STREAM_OF_COMPUTE;
    price = price_on(&machine, plan, &task);
    assert_near("all latency", price.price.latency_secs, fixed + 2 * n * per_byte);
    assert_true(price.price.work_secs <= 0 && price.n_kernels == 1);
}

/* Far sums what near has left of a bucket, copies what both have. d = 16 on four nodes: two near are on one; two
 * far join two of a node, four far two nodes; copies are on as many nodes. Other sums have no buckets. */
TEST(buckets_of_levels)
{
    static const struct {
        int optimizer_parts;
        qdr_channel channel;
        double share, fixed;
    } cases[] = {{4, QDR_CHANNEL_D_NEAR, 1, 5 + 2},        {4, QDR_CHANNEL_D_FAR, 0.5, 5 + 2},
                 {4, QDR_CHANNEL_D_COPIES, 0.25, 5 + 60},  {8, QDR_CHANNEL_D_NEAR, 1, 5 + 2},
                 {8, QDR_CHANNEL_D_FAR, 0.5, 5 + 20 + 4},  {8, QDR_CHANNEL_D_COPIES, 0.125, 5 + 20},
                 {16, QDR_CHANNEL_D_FAR, 0.5, 5 + 60 + 8}, {8, QDR_CHANNEL_Z_REDUCE, 0, 5 + 20}};
    qdr_machine machine = machine_of();
    machine.software.bucket_bytes = 80e6;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        qdr_plan plan = {
            .x = 1, .y = 1, .z = 1, .d = 16, .gradient_parts = 2, .optimizer_parts = cases[i].optimizer_parts};
        qdri_task task = sum_over(cases[i].channel, 1000000);
        task.dtype = QDR_F32;
        if (cases[i].channel == QDR_CHANNEL_Z_REDUCE) plan = (qdr_plan){.x = 4, .y = 1, .z = 2, .d = 2};
        const double in_bucket = cases[i].share > 0 ? 4e6 / (80e6 * cases[i].share) : 1;
        assert_near("latency", price_on(&machine, plan, &task).price.latency_secs, in_bucket * cases[i].fixed * USEC);
    }
}

/* A stage of three ranks: the second one, ranks 3 to 5, is on two nodes. */
TEST(groups_of_stages)
{
    const qdr_plan one = {.x = 3, .y = 1, .z = 1, .d = 1}, stages = {.x = 3, .y = 1, .z = 1, .d = 1, .pipeline = 4};
    const qdr_machine machine = machine_of();
    const qdri_task task = sum_over(QDR_CHANNEL_X_REDUCE, 1000000);
    assert_near("one", price_on(&machine, one, &task).secs, (5 + 2 * 2) * USEC + 4 / 3.0 * 2e6 / 100e9);
    assert_near("four", price_on(&machine, stages, &task).secs, (5 + 2 * 11) * USEC + 4 / 3.0 * 2e6 / 10e9);
}

/* The samples of sums over levels: members, how far apart, among all ranks, and bytes of the whole vector. */
TEST(samples_of_levels)
{
    static const struct {
        qdr_channel channel;
        qdr_coll_kind coll;
        int n_ranks, stride;
        double times; /* the count */
    } cases[] = {{QDR_CHANNEL_D_NEAR, QDR_REDUCE_SCATTER, 2, 3, 2},   {QDR_CHANNEL_D_FAR, QDR_REDUCE_SCATTER, 4, 6, 4},
                 {QDR_CHANNEL_D_FAR, QDR_ALL_GATHER, 4, 6, 4},        {QDR_CHANNEL_D_COPIES, QDR_ALL_REDUCE, 3, 24, 1},
                 {QDR_CHANNEL_D_REDUCE, QDR_ALL_REDUCE, 24, 3, 1},    {QDR_CHANNEL_X_REDUCE, QDR_ALL_REDUCE, 3, 1, 1},
                 {QDR_CHANNEL_Z_GATHER, QDR_ALL_GATHER, 5, 3 * 24, 5}};
    const qdri_position grid = {.size = {3, 1, 5, 24}, .near = 2, .far = 4};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        qdri_task task = sum_over(cases[i].channel, 1000);
        qdr_sample sample;
        task.coll = cases[i].coll;
        assert_true(qdri_task_sample(&task, &grid, "xydz", &sample));
        assert_int_equal(sample.n_ranks, cases[i].n_ranks);
        assert_int_equal(sample.stride, cases[i].stride);
        assert_int_equal(sample.n_ranks_all, 3 * 5 * 24);
        assert_near("bytes", sample.bytes, cases[i].times * 1000 * 2);
        assert_true(sample.coll == cases[i].coll && sample.kind == QDR_SAMPLE_COLLECTIVE);
    }
}

/* Gathers count the part of each member. Eight ranks on two nodes of four: 7/8 of the bytes leave a node over its two
 * adapters, and of the ring's 7 steps 6 are inside nodes. */
TEST(gathers_of_rows)
{
    const qdr_plan plan = {.x = 8, .y = 1, .z = 1, .d = 1}, inside = {.x = 4, .y = 1, .z = 1, .d = 1};
    const double n = 1e6;
    qdr_machine machine = machine_of();
    qdri_task task = {.kind = QDRI_TASK_COLLECTIVE,
                      .stream = QDRI_STREAM_OF_CHANNEL(QDR_CHANNEL_X_GATHER),
                      .overlap_class = QDRI_CLASS_ROWS,
                      .channel = QDR_CHANNEL_X_GATHER,
                      .coll = QDR_ALL_GATHER,
                      .dtype = QDR_F32,
                      .count = (int64_t)n};
    const qdri_task_price price = price_on(&machine, plan, &task);
    assert_near("latency", price.price.latency_secs, (5 + 6 * 1 + 1 * 10) * USEC);
    assert_near("work", price.price.work_secs, 7 / 8.0 * 8 * 4 * n / 20e9);
    assert_near("sent", price.bytes_sent, 7 / 8.0 * 8 * 4 * n);
    /* What enqueuing takes: of the collective, or of each member of a group that spans nodes. */
    machine.software.collective_host_secs = 7 * USEC;
    assert_near("host", price_on(&machine, plan, &task).host_secs, (3 + 7) * USEC);
    machine.software.collective_rank_secs = 2 * USEC;
    assert_near("host of members", price_on(&machine, plan, &task).host_secs, (3 + 16) * USEC);
    assert_near("host in a node", price_on(&machine, inside, &task).host_secs, (3 + 7) * USEC);
    qdr_plan stages = inside;
    stages.pipeline = 4; /* on several nodes: members wait for one another's stages */
    assert_near("host of stages", price_on(&machine, stages, &task).host_secs, (3 + 7) * USEC);
    machine.software.staged_rank_secs = 5 * USEC;
    assert_near("staged", price_on(&machine, stages, &task).host_secs, (3 + 4 * 5) * USEC);
    /* In a state that takes longer, and in one that does not. */
    qdri_pricing in_state;
    qdri_pricing_place(&machine, &inside, &in_state);
    qdri_pricing_set_state(&in_state, &(qdr_machine_state){.rank_secs = 1 * USEC});
    assert_near("no slower", qdri_task_price_of(&in_state, &task).host_secs, (3 + 7) * USEC);
    qdri_pricing_set_state(&in_state, &(qdr_machine_state){.rank_secs = 9 * USEC});
    assert_near("a state", qdri_task_price_of(&in_state, &task).host_secs, (3 + 4 * 9) * USEC);
    machine.n_states = 1; /* which say how many wait: normally none does */
    assert_near("normally", price_on(&machine, stages, &task).host_secs, (3 + 7) * USEC);
    machine.n_states = 0;
    assert_near("no stages", price_on(&machine, inside, &task).host_secs, (3 + 7) * USEC);
    /* Of each axis its own members; alone there is nothing to wait for. */
    const qdr_plan both = {.x = 2, .y = 4, .z = 1, .d = 1, .pipeline = 4}, alone = {.x = 1, .y = 4, .z = 1, .d = 1};
    assert_near("x", price_on(&machine, both, &task).host_secs, (3 + 2 * 5) * USEC);
    assert_near("alone", price_on(&machine, alone, &task).host_secs, 3 * USEC);
    task.channel = QDR_CHANNEL_Y_GATHER;
    task.stream = QDRI_STREAM_OF_CHANNEL(QDR_CHANNEL_Y_GATHER);
    assert_near("y", price_on(&machine, both, &task).host_secs, (3 + 4 * 5) * USEC);
    task.channel = QDR_CHANNEL_X_GATHER;
    task.stream = QDRI_STREAM_OF_CHANNEL(QDR_CHANNEL_X_GATHER);
    /* On three levels only what spans nodes. */
    machine.software.staged_rank_secs = 0;
    machine.n_links = 3;
    machine.links[2] = machine.links[1];
    machine.links[1].n_ranks = 8;
    machine.ranks_per_node = 8;
    const qdr_plan two = {.x = 16, .y = 1, .z = 1, .d = 1};
    assert_near("in a node of two levels", price_on(&machine, plan, &task).host_secs, (3 + 7) * USEC);
    assert_near("two nodes", price_on(&machine, two, &task).host_secs, (3 + 32) * USEC);
    task.overlap_class = QDRI_CLASS_WEIGHTS;
    assert_near("weights", price_on(&machine, plan, &task).host_secs, 3 * USEC);
}

/* Stages wait for one another on more than one node: those of a pipeline, and all on so many nodes as the machine's
 * software says, of which the last may be partly used. */
TEST(staged)
{
    static const struct {
        int x, pipeline, stall_nodes, is_staged;
    } cases[] = {{4, 2, 0, 1}, {2, 2, 0, 0}, {4, 1, 0, 0}, {4, 0, 1, 0},  {9, 0, 3, 1},
                 {8, 0, 3, 0}, {9, 0, 2, 1}, {9, 0, 4, 0}, {12, 0, 3, 1}, {3, 2, 0, 1}};
    qdr_machine machine = machine_of();
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const qdr_plan plan = {.x = cases[i].x, .y = 1, .z = 1, .d = 1, .pipeline = cases[i].pipeline};
        machine.software.stall_nodes = cases[i].stall_nodes;
        if (qdri_is_staged(&machine, &plan) != cases[i].is_staged) fail_msg("case %d", i);
    }
}

/* ---- the host ---- */

TEST(host)
{
    qdr_machine_software software = {.host_power = 0};
    assert_near("no host", qdri_secs_with_host(&software, 3, 4), 3);
    software.host_power = 2;
    assert_near("as a triangle", qdri_secs_with_host(&software, 3, 4), 5);
    assert_near("nothing to enqueue", qdri_secs_with_host(&software, 3, 0), 3);
    software.host_power = 1;
    assert_near("one after the other", qdri_secs_with_host(&software, 3, 4), 7);
    software.host_power = 0.5;
    assert_near("no slower", qdri_secs_with_host(&software, 3, 4), 7);
}
