/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline of one layer agrees with the step to which it belongs; plans are explained. */
#include <math.h>

#include "qdr_test.h"
#include "quadrille/plan.h"

static const char machine_text[] =
    "{\"name\": \"toy\", \"ranks_per_node\": 4, \"memory_GiB\": 64, \"memory_GBps\": 1000, "
    "\"attention_efficiency\": 0.5, \"processor_slowdown\": 0.1, \"transfer_slowdown\": 0.2, "
    "\"bf16\": {\"peak_TFLOPS\": 100, \"most\": 0.8}, \"f32\": {\"peak_TFLOPS\": 20}, "
    "\"links\": [{\"name\": \"inside\", \"ranks\": 4, \"rank_GBps\": 100, \"step_us\": 2}, "
    "{\"name\": \"between\", \"ranks\": 0, \"adapters\": 4, \"adapter_GBps\": 10, \"step_us\": "
    "9}]}";

static const char network_text[] = "{\"model_type\": \"gpt2\", \"n_layer\": 12, \"n_embd\": 1024, \"n_head\": 16, "
                                   "\"n_positions\": 512, \"vocab_size\": 5000}";

/* The last n_windows layers attend to 100 positions. */
static qdr_model *model_of(int n_layers, int n_windows)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_model *model;
    CHECK_OK(qdr_machine_parse(machine_text, strlen(machine_text), "toy", &machine));
    CHECK_OK(qdr_network_parse(network_text, strlen(network_text), "toy", &network));
    network.layers = n_layers;
    network.window = n_windows ? 100 : 0;
    network.window_layers = n_windows;
    CHECK_OK(qdr_model_create(&machine, &network, &model));
    return model;
}

static qdr_plan plan_of(int x, int y, int z, int d)
{
    return (qdr_plan){QDR_INIT(qdr_plan),          .x = x,      .y = y,          .z = z, .d = d, .dtype = QDR_BF16,
                      .batch = 4 * (int64_t)z * d, .panels = 1, .batch_parts = 1};
}

enum { MAX_SPANS = 400 };

typedef struct seen {
    int n, n_products[QDR_N_PASSES], n_on_channels;
    qdr_timeline_span spans[MAX_SPANS];
} seen;

static void see(const qdr_timeline_span *span, void *user)
{
    seen *all = user;
    assert_true(all->n < MAX_SPANS);
    all->spans[all->n++] = *span;
    all->n_products[span->pass] += span->is_product;
    all->n_on_channels += span->channel >= 0;
}

/* Inside their pass, and one after the other on each stream. */
/* What a backward repeats is shown in it. */
static int pass_of(const qdr_timeline_span *span, const double secs[QDR_N_PASSES])
{
    return secs[span->pass] > 0 ? (int)span->pass : QDR_PASS_BACKWARD;
}

static void check_spans(const seen *all, const double secs[QDR_N_PASSES])
{
    for (int i = 0; i < all->n; i++) {
        const qdr_timeline_span *a = &all->spans[i];
        assert_true(a->begin_secs >= 0 && a->begin_secs < a->end_secs);
        assert_true(a->end_secs <= secs[pass_of(a, secs)] * (1 + 1e-12));
        assert_true(*a->name && *a->kind);
        for (int j = 0; j < i; j++) {
            const qdr_timeline_span *b = &all->spans[j];
            if (pass_of(a, secs) != pass_of(b, secs) || b->channel != a->channel) continue;
            assert_true(a->begin_secs >= b->end_secs - 1e-15 || b->begin_secs >= a->end_secs - 1e-15);
        }
    }
}

TEST(on_one_rank)
{
    qdr_model *less = model_of(12, 0), *more = model_of(13, 0);
    const qdr_plan plan = plan_of(1, 1, 1, 1);
    qdr_plan_result a = {QDR_INIT(qdr_plan_result)}, b = {QDR_INIT(qdr_plan_result)};
    double secs[QDR_N_PASSES];
    static seen all;
    memset(&all, 0, sizeof all);
    CHECK_OK(qdr_model_timeline(less, &plan, see, &all, secs));
    check_spans(&all, secs);
    assert_int_equal(all.n_products[QDR_PASS_FORWARD], 4);
    assert_int_equal(all.n_products[QDR_PASS_BACKWARD], 8);
    assert_int_equal(all.n_on_channels, 0);
    assert_true(secs[QDR_PASS_RECOMPUTE] == 0);
    CHECK_OK(qdr_model_predict(less, &plan, &a));
    CHECK_OK(qdr_model_predict(more, &plan, &b));
    const double layer = (b.secs - b.time[QDR_TIME_OPTIMIZER]) - (a.secs - a.time[QDR_TIME_OPTIMIZER]);
    assert_true(fabs(secs[QDR_PASS_FORWARD] + secs[QDR_PASS_BACKWARD] - layer) < 1e-9 * a.secs);
    qdr_model_destroy(&less);
    qdr_model_destroy(&more);
}

TEST(with_recomputing)
{
    qdr_model *model = model_of(12, 0);
    for (int recompute = QDR_RECOMPUTE_NONE; recompute <= QDR_RECOMPUTE_LAYERS; recompute++) {
        qdr_plan plan = plan_of(2, 2, 2, 2);
        qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
        double secs[QDR_N_PASSES];
        static seen all;
        memset(&all, 0, sizeof all);
        plan.recompute = (qdr_recompute)recompute;
        plan.micro_batch = 2;
        CHECK_OK(qdr_model_timeline(model, &plan, see, &all, secs));
        CHECK_OK(qdr_model_predict(model, &plan, &result));
        check_spans(&all, secs);
        assert_true(all.n_on_channels > 0);
        if (recompute == QDR_RECOMPUTE_ATTENTION) /* two micro-batches, twelve layers */
            assert_true(fabs(24 * secs[QDR_PASS_RECOMPUTE] - result.time[QDR_TIME_RECOMPUTE]) < 1e-9 * result.secs);
        if (recompute == QDR_RECOMPUTE_LAYERS) assert_true(secs[QDR_PASS_RECOMPUTE] == secs[QDR_PASS_FORWARD]);
        if (recompute == QDR_RECOMPUTE_FULL) { /* without the last of four */
            assert_true(secs[QDR_PASS_RECOMPUTE] == 0 && result.time[QDR_TIME_RECOMPUTE] > 0);
            assert_int_equal(all.n_products[QDR_PASS_RECOMPUTE], 3);
        }
    }
    qdr_model_destroy(&model);
}

/* Of the kind, on the channel, in the pass. */
static int n_spans(const seen *all, qdr_timeline_pass pass, const char *kind, qdr_channel channel)
{
    int n = 0;
    for (int i = 0; i < all->n; i++) {
        const qdr_timeline_span *span = &all->spans[i];
        n += span->pass == pass && span->channel == (int)channel && strcmp(span->kind, kind) == 0;
    }
    return n;
}

/* Forward returns what backward scatters, over near and far; copies are summed backward only. */
TEST(with_levels)
{
    qdr_model *model = model_of(12, 0);
    for (int n_micro = 1; n_micro <= 2; n_micro++) {
        qdr_plan plan = plan_of(1, 1, 1, 8);
        double secs[QDR_N_PASSES];
        static seen all;
        memset(&all, 0, sizeof all);
        plan.gradient_parts = 2;
        plan.optimizer_parts = 4;
        plan.micro_batch = 1; /* short layers, or all has returned before the middle ones */
        plan.batch = 8 * n_micro;
        CHECK_OK(qdr_model_timeline(model, &plan, see, &all, secs));
        check_spans(&all, secs);
        static const qdr_channel levels[] = {QDR_CHANNEL_D_NEAR, QDR_CHANNEL_D_FAR};
        for (int i = 0; i < 2; i++) {
            assert_true(n_spans(&all, QDR_PASS_FORWARD, "all-gather", levels[i]) > 0);
            assert_true(n_spans(&all, QDR_PASS_BACKWARD, "reduce-scatter", levels[i]) > 0);
        }
        assert_true(n_spans(&all, QDR_PASS_BACKWARD, "all-reduce", QDR_CHANNEL_D_COPIES) > 0);
        assert_int_equal(n_spans(&all, QDR_PASS_FORWARD, "all-reduce", QDR_CHANNEL_D_COPIES), 0);
    }
    qdr_model_destroy(&model);
}

static void read_all(FILE *file, char *text, size_t bytes)
{
    rewind(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
}

static void check_explained(int n_windows, const qdr_plan *plan, const char *const *words, size_t n_words)
{
    static char text[65536];
    qdr_model *model = model_of(12, n_windows);
    FILE *file = tmpfile();
    assert_non_null(file);
    CHECK_OK(qdr_model_explain(model, plan, file));
    read_all(file, text, sizeof text);
    for (size_t i = 0; i < n_words; i++) {
        if (!strstr(text, words[i])) fail_msg("word %zu is not in\n%s", i, text);
    }
    assert_null(strstr(text, "nan"));
    fclose(file);
    qdr_model_destroy(&model);
}

TEST(explained)
{
    static const char *const words[] = {"Rows: 16 sequences over z*d = 4 cells are 4 for each",
                                        "H/x = 1024/2 = 512",
                                        "m = 2048 (rows), n = 1536 (out/y), k = 512 (in/x)",
                                        "over z, 2 ranks on",
                                        "Time of a step",
                                        "waiting for collectives over y",
                                        "12 layers * 1 micro-batch",
                                        "of 64 GiB"};
    static const char *const level_words[] = {"order xyzd, levels 2,4 (near 2, far 2, copies 2), replicated edges",
                                              "; gathers over d, and sums over far and copies, once a step",
                                              "over d near, 2 ranks on inside", "over d far, 2 ranks on inside",
                                              "over d copies, 2 ranks on between"};
    static const char *const kind_words[] = {"in 5 layers\n", "in 7 layers, to the last 100 positions\n"};
    qdr_plan plan = plan_of(2, 2, 2, 2);
    check_explained(7, &plan, kind_words, sizeof kind_words / sizeof *kind_words);
    check_explained(0, &plan, words, sizeof words / sizeof *words);
    plan = plan_of(1, 1, 1, 8);
    plan.gradient_parts = 2;
    plan.optimizer_parts = 4;
    check_explained(0, &plan, level_words, sizeof level_words / sizeof *level_words);
}

TEST(refusals)
{
    qdr_model *model = model_of(12, 0);
    qdr_plan plan = plan_of(1, 1, 1, 1);
    double secs[QDR_N_PASSES] = {1, 1, 1};
    static seen all;
    CHECK_FAILS(qdr_model_timeline(NULL, &plan, see, &all, secs), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_model_timeline(model, &plan, NULL, &all, secs), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_model_timeline(model, &plan, see, &all, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_model_explain(model, NULL, stdout), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_model_explain(model, &plan, NULL), QDR_ERR_ARGUMENT, "NULL");
    plan.x = 0;
    CHECK_FAILS(qdr_model_timeline(model, &plan, see, &all, secs), QDR_ERR_ARGUMENT, "0x1x1x1");
    CHECK_FAILS(qdr_model_explain(model, &plan, stdout), QDR_ERR_ARGUMENT, "0x1x1x1");
    assert_true(secs[0] == 0 && secs[1] == 0 && secs[2] == 0);
    assert_int_equal(all.n, 0);
    qdr_model_destroy(&model);
}
