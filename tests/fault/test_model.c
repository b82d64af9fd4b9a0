/* SPDX-License-Identifier: Apache-2.0 */
/* Machines and models while the n-th allocation fails: QDR_ERR_MEMORY, no results, no leaks, and the model can still be
 * used for the next call. */
#include "fault/inject.h"
#include "qdr_test.h"
#include "search/search.h"

typedef struct scene {
    qdr_machine machine;
    qdr_network network;
} scene;

static void load_scene(scene *s)
{
    *s = (scene){{QDR_INIT(qdr_machine)}, {QDR_INIT(qdr_network)}};
    CHECK_OK(qdr_machine_load("perlmutter", &s->machine));
    CHECK_OK(qdr_network_load("gpt2", &s->network));
}

static const qdr_plan plan = {QDR_INIT(qdr_plan), .x = 2,           .y = 2,           .z = 2, .d = 2,
                              .batch = 64,        .micro_batch = 4, .dtype = QDR_BF16};

/* One call of each function that allocates; `kept` lives through it. */
static qdr_status predict(qdr_model *kept)
{
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    memset(&result, 1, sizeof result);
    result.size = sizeof result;
    const qdr_status status = qdr_model_predict(kept, &plan, &result);
    assert_true(status == QDR_OK ? result.secs > 0 : result.secs == 0);
    return status;
}

static qdr_status bound(qdr_model *kept)
{
    double secs = 1;
    const qdr_status status = qdr_model_bound(kept, &plan, &secs);
    assert_true(status == QDR_OK ? secs > 0 : secs == 0);
    return status;
}

static qdr_status search(qdr_model *kept)
{
    static qdri_search_result result;
    const qdr_search_opts opts = {
        QDR_INIT(qdr_search_opts), .n_ranks = 2, .ranks = {[QDR_Z] = 2}, .layouts = 1, .recomputes = 1,
        .micro_batch = 1,          .batch = 2,   .dtype = QDR_BF16,      .n_best = 1};
    memset(&result, 1, sizeof result);
    const qdr_status status = qdri_model_search(kept, &opts, &result);
    assert_int_equal(result.n_best, status == QDR_OK ? 1 : 0);
    return status;
}

static qdr_status layers(qdr_model *kept)
{
    double forward_secs = 1, backward_secs = 1;
    const qdr_status status = qdr_model_layers_time(kept, &plan, 1, &forward_secs, &backward_secs);
    assert_true(status == QDR_OK ? forward_secs > 0 : forward_secs == 0);
    assert_true(status == QDR_OK ? backward_secs > 0 : backward_secs == 0);
    return status;
}

static void nothing(const qdr_timeline_span *span, void *user)
{
    (void)span;
    (void)user;
}

static qdr_status timeline(qdr_model *kept)
{
    double secs[QDR_N_PASSES];
    return qdr_model_timeline(kept, &plan, nothing, NULL, secs);
}

/* Every stride-th allocation fails. */
static void check_call(const scene *s, long first, long stride, qdr_status (*call)(qdr_model *kept))
{
    long n_failed = 0;
    for (long n = first;; n += stride) {
        qdr_model *model = NULL;
        CHECK_OK(qdr_model_create(&s->machine, &s->network, &model));
        inject_begin(INJECT_MEMORY, n, INJECT_ONCE);
        const qdr_status status = call(model);
        inject_end();
        if (!inject_happened()) {
            CHECK_OK(status);
            qdr_model_destroy(&model);
            break;
        }
        CHECK_FAILS(status, QDR_ERR_MEMORY, "memory");
        CHECK_OK(call(model));
        qdr_model_destroy(&model);
        n_failed++;
    }
    assert_true(n_failed > 10);
}

TEST(each_allocation_of_a_call)
{
    scene s;
    load_scene(&s);
    check_call(&s, 0, 1, predict);
    check_call(&s, 0, 1, bound);
    check_call(&s, 0, 1, search);
    check_call(&s, 0, 1, layers);
    check_call(&s, 0, 1, timeline);
}

TEST(each_allocation_of_a_machine_and_a_model)
{
    for (long n = 0;; n++) {
        scene s;
        qdr_model *model = (qdr_model *)&s;
        load_scene(&s);
        inject_begin(INJECT_MEMORY, n, INJECT_ONCE);
        qdr_status status = qdr_machine_load("perlmutter-80gb", &s.machine);
        if (status == QDR_OK) status = qdr_model_create(&s.machine, &s.network, &model);
        inject_end();
        if (!inject_happened()) {
            CHECK_OK(status);
            qdr_model_destroy(&model);
            assert_true(n > 0);
            return;
        }
        CHECK_FAILS(status, QDR_ERR_MEMORY, "memory");
        assert_true(s.machine.n_links == 0 || model == NULL);
    }
}
