/* SPDX-License-Identifier: Apache-2.0 */
/* The constants from which samples were generated are recovered; machines survive being written; layers alone agree
 * with steps. */
#include <math.h>
#include <quadrille/calibrate.h>
#include <quadrille/plan.h>

#include "price/fit.h"
#include "qdr_test.h"

enum { MOST = 512 };

/* Two nodes or more of four ranks each. */
static qdr_machine planted(void)
{
    qdr_machine m = {
        QDR_INIT(qdr_machine),
        .name = "planted",
        .device = "a \"device\" \\ of\ttests",
        .ranks_per_node = 4,
        .memory_bytes = 1e10,
        .memory_bytes_per_sec = 2e10,
        .memory_efficiency = 1,
        .kernel_flops = 3e9,
        .n_units = 1,
        .wave_power = 1,
        .attention_efficiency = 0.3,
        .processor_slowdown = 0.25,
        .transfer_slowdown = 0.5,
        .n_links = 2,
        .links = {{.name = "node", 4, 2.5e9, .step_secs = 8e-6}, {.name = "network", 0, 0, 1, 1.2e8, 3e-5, 2e-5, 0}},
        .collectives = {.start_secs = 5e-6, .n_protocols = 1, .protocols = {{.step_factor = 1, .rate_factor = 1}}},
        .software = {.launch_secs = 2e-6}};
    const qdr_machine_products products = {9e10, 1, 11, 23, 37, {0.9, 1, 0.8}, 1, {0}};
    m.f32 = m.f64 = m.bf16 = products;
    m.f64.peak_flops /= 2;
    return m;
}

/* As it is before anything was measured. */
static qdr_machine blank(void)
{
    qdr_machine m = planted();
    m.memory_bytes_per_sec = 1e9;
    m.kernel_flops = m.attention_efficiency = m.processor_slowdown = m.transfer_slowdown = 0;
    m.f32 = m.f64 = m.bf16 = (qdr_machine_products){1e9, 1, 0, 0, 0, {1, 1, 1}, 1, {0}};
    m.links[0].rank_bytes_per_sec = 1e9;
    m.links[1].adapter_bytes_per_sec = 1e9;
    m.links[0].step_secs = m.links[1].step_secs = m.links[1].wait_secs = 1e-5;
    m.collectives.start_secs = 0;
    m.software.launch_secs = 0;
    return m;
}

typedef struct set {
    qdr_sample samples[MOST];
    int n;
} set;

static void add(set *s, qdr_sample sample)
{
    assert_true(s->n < MOST);
    sample.size = sizeof sample;
    sample.group = "test";
    sample.secs = 1;
    s->samples[s->n++] = sample;
}

static void add_products(set *s, qdr_dtype dtype)
{
    static const int shapes[][3] = {{64, 64, 64},   {512, 512, 512}, {64, 512, 512}, {512, 64, 512},
                                    {512, 512, 64}, {32, 2048, 256}, {1024, 32, 64}, {48, 96, 1024}};
    for (int i = 0; i < 8; i++)
        for (int mode = 0; mode < 3; mode++)
            add(s, (qdr_sample){.kind = QDR_SAMPLE_PRODUCT,
                                .dtype = dtype,
                                .mode = (qdr_product_mode)mode,
                                .m = shapes[i][0],
                                .n = shapes[i][1],
                                .k = shapes[i][2]});
}

static void add_kernels(set *s)
{
    for (double n = 1e5; n < 1e7; n *= 3) {
        add(s, (qdr_sample){.kind = QDR_SAMPLE_LAUNCH, .n_kernels = 3});
        add(s, (qdr_sample){.kind = QDR_SAMPLE_MEMORY, .n_kernels = 1, .bytes = 12 * n});
        add(s, (qdr_sample){.kind = QDR_SAMPLE_KERNEL, .n_kernels = 1, .bytes = 8 * n, .flops = 12 * n});
        add(s,
            (qdr_sample){.kind = QDR_SAMPLE_ATTENTION, .n_kernels = 1, .dtype = QDR_F32, .bytes = n, .flops = 100 * n});
    }
}

static void add_collectives(set *s)
{
    static const qdr_coll_kind kinds[] = {QDR_ALL_GATHER, QDR_REDUCE_SCATTER, QDR_ALL_REDUCE};
    static const int groups[][2] = {{2, 1}, {4, 1}, {2, 4}, {4, 4}, {8, 1}, {16, 1}, {2, 8}, {4, 2}};
    for (int g = 0; g < 8; g++)
        for (int kind = 0; kind < 3; kind++)
            for (double bytes = 1024; bytes < 1e7; bytes *= 16)
                for (int alone = 0; alone < 2; alone++)
                    add(s, (qdr_sample){.kind = QDR_SAMPLE_COLLECTIVE,
                                        .coll = kinds[kind],
                                        .n_ranks = groups[g][0],
                                        .stride = groups[g][1],
                                        .n_ranks_all = 16,
                                        .bytes = bytes,
                                        .alone = alone});
}

/* What the planted machine takes, times 1 ± noise. */
static void measure(const qdr_machine *machine, set *s, double noise)
{
    for (int i = 0; i < s->n; i++) {
        double secs;
        assert_int_equal(qdr_sample_secs(machine, &s->samples[i], &secs), QDR_OK);
        assert_true(secs > 0);
        s->samples[i].secs = secs * (1 + noise * (2.0 * rand() / RAND_MAX - 1));
    }
}

static set *all_samples(const qdr_machine *machine, double noise)
{
    set *s = calloc(1, sizeof *s);
    assert_non_null(s);
    add_products(s, QDR_F32);
    add_products(s, QDR_F64);
    add_kernels(s);
    add_collectives(s);
    measure(machine, s, noise);
    const int first = s->n;
    add(s, (qdr_sample){.kind = QDR_SAMPLE_TOGETHER, .product_secs = 1, .coll_secs = 0.5});
    add(s, (qdr_sample){.kind = QDR_SAMPLE_TOGETHER, .product_secs = 1, .coll_secs = 2});
    /* the shorter one overlaps with the other all the time; then the longer one runs alone */
    s->samples[first].coll_end_secs = 0.75;
    s->samples[first].secs = 0.75 + 1 - 0.75 / 1.25;
    s->samples[first + 1].secs = 1.25;
    s->samples[first + 1].coll_end_secs = 1.25 + 2 - 1.25 / 1.5;
    return s;
}

static void near(double got, double wanted, double share, const char *what)
{
    if (!(fabs(got - wanted) <= share * fabs(wanted)))
        fail_msg("%s is %g, not %g within %g %%", what, got, wanted, 100 * share);
}

TEST(planted_constants)
{
    static const char *const keys[] = {"memory_GBps",
                                       "kernel_GFLOPS",
                                       "attention_efficiency",
                                       "processor_slowdown",
                                       "transfer_slowdown",
                                       "f32.peak_TFLOPS",
                                       "f32.half_m",
                                       "f32.half_n",
                                       "f32.half_k",
                                       "f32.NN",
                                       "f32.NT",
                                       "f32.TN",
                                       "f64.peak_TFLOPS",
                                       "links[0].rank_GBps",
                                       "links[0].step_us",
                                       "links[1].step_us",
                                       "links[1].wait_us",
                                       "links[1].adapter_GBps",
                                       "collectives.start_us",
                                       "software.launch_us"};
    const qdr_machine wanted = planted();
    set *s = all_samples(&wanted, 0);
    qdr_machine got = blank();
    assert_int_equal(qdr_machine_fit(&got, s->samples, s->n), QDR_OK);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        double a, b;
        assert_int_equal(qdr_machine_get(&got, keys[i], &a), QDR_OK);
        assert_int_equal(qdr_machine_get(&wanted, keys[i], &b), QDR_OK);
        near(a, b, 0.01, keys[i]);
    }
    assert_true(got.bf16.peak_flops == 1e9); /* nothing was said of it */
    free(s);
}

/* With noise, and a tenth of the samples ten times too slow, the model is still near. */
TEST(noise)
{
    const qdr_machine wanted = planted();
    set *s = all_samples(&wanted, 0.05);
    for (int i = 0; i < s->n; i += 10)
        if (s->samples[i].kind == QDR_SAMPLE_COLLECTIVE || s->samples[i].kind == QDR_SAMPLE_PRODUCT)
            s->samples[i].secs *= 10;
    qdr_machine got = blank();
    assert_int_equal(qdr_machine_fit(&got, s->samples, s->n), QDR_OK);
    for (int i = 0; i < s->n; i++) {
        double a, b;
        assert_int_equal(qdr_sample_secs(&got, &s->samples[i], &a), QDR_OK);
        assert_int_equal(qdr_sample_secs(&wanted, &s->samples[i], &b), QDR_OK);
        near(a, b, 0.15, "a sample's time");
    }
    free(s);
}

/* Little to go by: the fit makes a machine, and what nothing was said of stays. */
TEST(few_samples)
{
    const qdr_machine wanted = planted();
    for (int kind = 0; kind < 4; kind++) {
        set s = {.n = 0};
        qdr_machine got = blank();
        const double peak = got.f32.peak_flops, adapter = got.links[1].adapter_bytes_per_sec;
        if (kind == 0) add(&s, (qdr_sample){.kind = QDR_SAMPLE_LAUNCH, .n_kernels = 1});
        if (kind == 1) add(&s, (qdr_sample){.kind = QDR_SAMPLE_PRODUCT, .m = 8, .n = 8, .k = 8});
        for (int i = 0; kind >= 2 && i < 2; i++)
            add(&s, (qdr_sample){.kind = QDR_SAMPLE_COLLECTIVE,
                                 .coll = QDR_ALL_REDUCE,
                                 .n_ranks = 4,
                                 .stride = 1,
                                 .n_ranks_all = 4,
                                 .bytes = kind == 2 ? 0.001 : 4096}); /* all alike */
        measure(&wanted, &s, 0);
        assert_int_equal(qdr_machine_fit(&got, s.samples, s.n), QDR_OK);
        double secs;
        assert_int_equal(qdr_sample_secs(&got, &s.samples[0], &secs), QDR_OK);
        /* a rate that is not needed to explain it stays, and adds a little */
        near(secs, s.samples[0].secs, kind == 3 ? 0.15 : 0.01, "the only sample");
        if (kind != 1) assert_true(got.f32.peak_flops == peak);
        assert_true(got.links[1].adapter_bytes_per_sec == adapter);
    }
}

/* On a busy machine the overlapped work may have made no progress. */
TEST(stalled)
{
    qdr_machine got = blank();
    set s = {.n = 0};
    add(&s, (qdr_sample){.kind = QDR_SAMPLE_TOGETHER, .product_secs = 1, .coll_secs = 1});
    s.samples[0].secs = 0.9;
    s.samples[0].coll_end_secs = 0.9 + 1 - 1e-6; /* a millionth of it was done by 0.9 */
    assert_int_equal(qdr_machine_fit(&got, s.samples, s.n), QDR_OK);
    assert_true(got.transfer_slowdown == 100 && got.processor_slowdown == 0);
}

TEST(refused)
{
    qdr_machine machine = blank();
    const qdr_machine before = machine;
    const qdr_sample good = {QDR_INIT(qdr_sample), .group = "test", .secs = 1, .n_kernels = 1};
    qdr_sample bad[6];
    double secs = 1;
    for (int i = 0; i < 6; i++) bad[i] = good;
    bad[0].size = 0;
    bad[1].secs = 0;
    bad[2].secs = (double)NAN;
    bad[3].kind = QDR_N_SAMPLE_KINDS;
    bad[4].kind = QDR_SAMPLE_COLLECTIVE; /* of no ranks */
    bad[5].kind = QDR_SAMPLE_TOGETHER;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(qdr_sample_secs(&machine, &bad[i], &secs), QDR_ERR_ARGUMENT);
        assert_true(secs == 0);
        assert_int_equal(qdr_machine_fit(&machine, &bad[i], 1), QDR_ERR_ARGUMENT);
        assert_memory_equal(&machine, &before, sizeof machine);
    }
    assert_int_equal(qdr_machine_fit(&machine, NULL, 1), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_machine_fit(&machine, &good, 0), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_machine_fit(NULL, &good, 1), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_sample_secs(&machine, &good, NULL), QDR_ERR_ARGUMENT);
}

TEST(least)
{
    /* x + y = 2, x - y = 4 wants y = -1: without y, x of 2 or 4 */
    const qdri_equation signs[] = {{{1, 1}, 2, 1}, {{1, -1}, 4, 1}};
    double unknowns[2];
    qdri_nnls(signs, 2, 2, unknowns);
    assert_true(unknowns[0] >= 2 && unknowns[0] <= 4 && unknowns[1] == 0);
    /* an unknown that is nowhere */
    const qdri_equation one[] = {{{3, 0}, 6, 1}};
    qdri_nnls(one, 1, 2, unknowns);
    near(unknowns[0], 2, 1e-9, "x");
    assert_true(unknowns[1] == 0);
    /* the median, not the mean */
    const qdri_equation far[] = {{{1}, 1, 1}, {{1}, 1, 1}, {{1}, 1.01, 1}, {{1}, 50, 1}};
    qdri_nnls(far, 4, 1, unknowns);
    near(unknowns[0], 1, 0.02, "x");
}

/* ---- files ---- */

static void read_back(const qdr_machine *machine, const char *more)
{
    char *text = NULL;
    size_t bytes = 0;
    qdr_machine got = {QDR_INIT(qdr_machine)};
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    assert_int_equal(qdr_machine_write(machine, more, file), QDR_OK);
    assert_int_equal(fclose(file), 0);
    if (qdr_machine_parse(text, bytes, "written", &got) != QDR_OK)
        fail_msg("%s: %s\n%s", machine->name, qdr_last_error(), text);
    assert_string_equal(got.name, machine->name);
    assert_string_equal(got.device, machine->device);
    qdr_machine clean = *machine; /* behind the ends of its names, too */
    strncpy(clean.name, machine->name, sizeof clean.name);
    strncpy(clean.device, machine->device, sizeof clean.device);
    assert_memory_equal(&got, &clean, sizeof got);
    free(text);
}

static void each_machine(const char *name, void *user)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    (void)user;
    assert_int_equal(qdr_machine_load(name, &machine), QDR_OK);
    read_back(&machine, NULL);
}

TEST(files)
{
    qdr_machine machine = planted(), broken = machine;
    char small[8];
    assert_int_equal(qdr_machine_list(each_machine, NULL), QDR_OK);
    read_back(&machine, "\"notes\": {\"name\": \"x\"}");
    machine.links[1].adapter_bytes_per_sec = 1e9 / 3;
    machine.software.launch_secs = 1e-6 / 7;
    machine.f64.peak_flops = 0;
    machine.f64 = (qdr_machine_products){.most = 1, .factor = {1, 1, 1}, .odd_factor = 1};
    read_back(&machine, NULL);
    FILE *file = fmemopen(small, sizeof small, "w");
    assert_non_null(file);
    assert_int_equal(qdr_machine_write(&machine, NULL, file), QDR_ERR_IO);
    fclose(file);
    broken.ranks_per_node = 0;
    assert_int_equal(qdr_machine_write(&broken, NULL, stderr), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_machine_write(&machine, NULL, NULL), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_machine_write(NULL, NULL, stderr), QDR_ERR_ARGUMENT);
}

/* ---- layers alone ---- */

static qdr_network small_network(int64_t n_layers)
{
    return (qdr_network){QDR_INIT(qdr_network), .layers = n_layers, .hidden = 256, .heads = 8,          .kv_heads = 8,
                         .head_size = 32,       .ffn = 1024,        .vocab = 64,   .context = 64,       .positions = 64,
                         .qkv_bias = 1,         .out_bias = 1,      .mlp_bias = 1, .norms_per_layer = 2};
}

static double step_secs(const qdr_machine *machine, const qdr_plan *plan, int64_t n_layers)
{
    const qdr_network network = small_network(n_layers);
    qdr_model *model;
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    assert_int_equal(qdr_model_create(machine, &network, &model), QDR_OK);
    assert_int_equal(qdr_model_predict(model, plan, &result), QDR_OK);
    qdr_model_destroy(&model);
    return result.secs - result.time[QDR_TIME_OPTIMIZER];
}

static double layers_secs(const qdr_machine *machine, const qdr_plan *plan, int n_layers)
{
    const qdr_network network = small_network(1);
    double forward, backward;
    qdr_model *model;
    assert_int_equal(qdr_model_create(machine, &network, &model), QDR_OK);
    assert_int_equal(qdr_model_layers_time(model, plan, n_layers, &forward, &backward), QDR_OK);
    assert_true(forward > 0 && backward > forward);
    qdr_model_destroy(&model);
    return forward + backward;
}

/* A layer more takes the same as in a step; z: weights and gradients, whose sums are not behind; levels: also what
 * returns. */
TEST(layers)
{
    static const int grids[][6] = {{1, 1, 1, 1}, {1, 1, 2, 1},       {2, 1, 1, 1},
                                   {1, 4, 1, 1}, {1, 1, 1, 4, 2, 4}, {1, 1, 2, 4, 4, 8}};
    const qdr_machine machine = planted();
    for (int g = 0; g < 6; g++)
        for (int layout = 0; layout < 2; layout++) {
            const qdr_plan plan = {QDR_INIT(qdr_plan),
                                   .x = grids[g][0],
                                   .y = grids[g][1],
                                   .z = grids[g][2],
                                   .d = grids[g][3],
                                   .gradient_parts = grids[g][4],
                                   .optimizer_parts = grids[g][5],
                                   .layout = layout ? QDR_SCATTERED : QDR_REPLICATED,
                                   .dtype = QDR_F32,
                                   .overlap = QDR_OVERLAP_NONE,
                                   .batch = 8};
            const double more = layers_secs(&machine, &plan, 6) - layers_secs(&machine, &plan, 5);
            near(more, step_secs(&machine, &plan, 6) - step_secs(&machine, &plan, 5), 0.02, "a layer more");
        }
}

TEST(layers_refused)
{
    const qdr_machine machine = planted();
    const qdr_network network = small_network(1);
    qdr_plan plan = {QDR_INIT(qdr_plan), .x = 1, .y = 1, .z = 1, .d = 1, .batch = 1};
    double a, b;
    qdr_model *model;
    assert_int_equal(qdr_model_create(&machine, &network, &model), QDR_OK);
    assert_int_equal(qdr_model_layers_time(model, &plan, 0, &a, &b), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_model_layers_time(model, &plan, 1025, &a, &b), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_model_layers_time(model, NULL, 1, &a, &b), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_model_layers_time(NULL, &plan, 1, &a, &b), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_model_layers_time(model, &plan, 1, NULL, &b), QDR_ERR_ARGUMENT);
    plan.x = 0;
    assert_int_equal(qdr_model_layers_time(model, &plan, 1, &a, &b), QDR_ERR_ARGUMENT);
    assert_true(a == 0 && b == 0);
    qdr_model_destroy(&model);
}
