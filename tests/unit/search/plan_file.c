/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as files: what is written is read again, and everything else is refused. */
#include <unistd.h>

#include "core/codec.h"
#include "qdr_test.h"
#include "quadrille/plan.h"

static char folder[] = "/tmp/qdr_plan_XXXXXX", path[64];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/plan.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static qdr_stored_plan any_plan(uint64_t *seed)
{
    static const char *const orders[] = {"xyzd", "dzyx", "zxdy"};
    qdr_stored_plan stored = {.version = QDR_OPTS_INIT,
                              .network = "gpt2 \"best\"\\",
                              .machine = "dgx-a100",
                              .secs = 1 / 3.0,
                              .memory_bytes = 123456789012.0};
    qdr_plan *plan = &stored.plan;
    static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    *plan = (qdr_plan){.version = QDR_OPTS_INIT, .dtype = types[test_random(seed) % 4]};
    plan->x = 1 + (int)(test_random(seed) % 9);
    plan->y = 1 + (int)(test_random(seed) % 9);
    plan->z = 1 + (int)(test_random(seed) % 9);
    plan->d = 1 + (int)(test_random(seed) % 100000);
    strcpy(plan->order, orders[test_random(seed) % 3]);
    plan->layout = (qdr_layout)(test_random(seed) % 2);
    plan->recompute = (qdr_recompute)(test_random(seed) % 3);
    plan->batch = 1 + (int64_t)(test_random(seed) % 100000);
    plan->micro_batch = (int64_t)(test_random(seed) % 100);
    plan->sequence = (int64_t)(test_random(seed) % 100000);
    plan->gradient_parts = (int)(test_random(seed) % 64);
    plan->optimizer_parts = (int)(test_random(seed) % 64);
    plan->overlap = (int)(test_random(seed) % 8);
    plan->pipeline = (int)(test_random(seed) % 4);
    plan->interleave = (int)(test_random(seed) % 3);
    static const char *const codecs[] = {"none", "hybrid", "aggressive,least=1000,inside", "none,x.activation=zfp:9",
                                         "safe,d.gradient=int4/64+hadamard+feedback+stochastic,xy=raw"};
    CHECK_OK(qdr_codecs_parse(codecs[test_random(seed) % 5], &plan->codecs));
    return stored;
}

static void check_same(const qdr_plan *a, const qdr_plan *b)
{
    assert_true(a->version == b->version && a->x == b->x && a->y == b->y && a->z == b->z);
    assert_true(a->d == b->d && a->layout == b->layout && a->recompute == b->recompute);
    assert_true(a->dtype == b->dtype && a->batch == b->batch && a->micro_batch == b->micro_batch);
    assert_true(a->sequence == b->sequence && a->overlap == b->overlap);
    assert_true(a->gradient_parts == b->gradient_parts && a->optimizer_parts == b->optimizer_parts);
    assert_true(a->pipeline == b->pipeline && a->interleave == b->interleave);
    assert_string_equal(a->order, b->order);
    assert_true(qdri_codecs_are_same(&a->codecs, &b->codecs));
}

static void same_again(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (int i = 0; i < 200; i++) {
        const qdr_stored_plan stored = any_plan(&seed);
        qdr_stored_plan loaded;
        CHECK_OK(qdr_plan_store(&stored, path)); /* in place of the one before */
        CHECK_OK(qdr_plan_load(path, &loaded));
        assert_string_equal(loaded.network, stored.network);
        assert_string_equal(loaded.machine, stored.machine);
        assert_true(loaded.secs == stored.secs && loaded.memory_bytes == stored.memory_bytes);
        check_same(&loaded.plan, &stored.plan);
    }
    assert_int_equal(remove(path), 0);
}

static void least_file(void **state)
{
    (void)state;
    qdr_stored_plan loaded;
    write_text("{\"quadrille_plan\": 1, \"grid\": [1, 2, 3, 4], \"batch\": 24}");
    CHECK_OK(qdr_plan_load(path, &loaded));
    assert_string_equal(loaded.plan.order, "xyzd");
    assert_int_equal(loaded.plan.dtype, QDR_BF16);
    assert_int_equal(loaded.plan.d, 4);
    assert_int_equal(loaded.plan.batch, 24);
    assert_int_equal(loaded.plan.micro_batch, 0);
    assert_int_equal(remove(path), 0);
}

#define HEAD "{\"quadrille_plan\": 1, \"grid\": [1, 2, 3, 4], \"batch\": 24"
static const struct {
    const char *text, *words;
} bad[] = {
    {"", "plan.json"},
    {"[1]", "plan.json"},
    {"{}", "'quadrille_plan'"},
    {"{\"quadrille_plan\": 2}", "'quadrille_plan'"},
    {"{\"quadrille_plan\": 1}", "'grid'"},
    {"{\"quadrille_plan\": 1, \"grid\": [1, 2, 3], \"batch\": 1}", "[x, y, z, d]"},
    {"{\"quadrille_plan\": 1, \"grid\": [1, 2, 0, 4], \"batch\": 1}", "'grid[2]'"},
    {"{\"quadrille_plan\": 1, \"grid\": [65536, 65536, 65536, 65536], \"batch\": 1}", "2147483647"},
    {"{\"quadrille_plan\": 1, \"grid\": \"1x2x3x4\", \"batch\": 1}", "'grid'"},
    {"{\"quadrille_plan\": 1, \"grid\": [1, 2, 3, 4]}", "'batch'"},
    {HEAD ", \"ranks\": 25}", "25, but the grid has 24"},
    {HEAD ", \"order\": \"xyz\"}", "permutation"},
    {HEAD ", \"order\": \"xyzz\"}", "permutation"},
    {HEAD ", \"layout\": \"both\"}", "'layout'"},
    {HEAD ",\n \"recompute\": 1}", "key 'recompute'"},
    {HEAD ", \"dtype\": \"i32\"}", "'dtype'"},
    {HEAD ", \"micro_batch\": -1}", "'micro_batch'"},
    {HEAD ", \"gradient_parts\": 4294967296}", "'gradient_parts'"},
    {HEAD ", \"axis_bytes_ratio\": [1, 1, 1, 1]}", "plans have codecs instead"},
    {HEAD ", \"codecs\": \"hybird\"}", "nearest: hybrid"},
    {HEAD ", \"predicted_secs\": -1}", "'predicted_secs'"},
    {HEAD ", \"network\": 7}", "'network'"},
};

static void bad_files(void **state)
{
    (void)state;
    static const qdr_stored_plan zero;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        qdr_stored_plan loaded;
        write_text(bad[i].text);
        CHECK_FAILS(qdr_plan_load(path, &loaded), QDR_ERR_ARGUMENT, bad[i].words);
        assert_memory_equal(&loaded, &zero, sizeof zero);
    }
    assert_int_equal(remove(path), 0);
}

static void others_stay(void **state)
{
    (void)state;
    uint64_t seed = 1;
    char line[64];
    const qdr_stored_plan stored = any_plan(&seed);
    static const char *const texts[] = {"my notes\n", "{\"grid\": 1}\n", "[]\n"};
    for (int i = 0; i < 3; i++) {
        write_text(texts[i]);
        CHECK_FAILS(qdr_plan_store(&stored, path), QDR_ERR_ARGUMENT, "is not a plan file");
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        assert_non_null(fgets(line, sizeof line, file));
        assert_string_equal(line, texts[i]);
        fclose(file);
    }
    assert_int_equal(remove(path), 0);
}

static void bad_calls(void **state)
{
    (void)state;
    uint64_t seed = 1;
    qdr_stored_plan stored = any_plan(&seed), loaded;
    char missing[80];
    snprintf(missing, sizeof missing, "%s/none/plan.json", folder);
    CHECK_FAILS(qdr_plan_store(&stored, missing), QDR_ERR_ARGUMENT, "none/plan.json");
    CHECK_FAILS(qdr_plan_load(missing, &loaded), QDR_ERR_IO, "none/plan.json");
    CHECK_FAILS(qdr_plan_store(&stored, folder), QDR_ERR_ARGUMENT, folder);
    CHECK_FAILS(qdr_plan_store(&stored, "-"), QDR_ERR_ARGUMENT, "standard output");
    CHECK_FAILS(qdr_plan_store(&stored, ""), QDR_ERR_ARGUMENT, "is empty");
    CHECK_FAILS(qdr_plan_store(&stored, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_plan_store(NULL, path), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_plan_load(NULL, &loaded), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_plan_load(path, NULL), QDR_ERR_ARGUMENT, "result");
    stored.plan.x = 0;
    CHECK_FAILS(qdr_plan_store(&stored, path), QDR_ERR_ARGUMENT, "grid");
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_again),  cmocka_unit_test(least_file), cmocka_unit_test(bad_files),
        cmocka_unit_test(others_stay), cmocka_unit_test(bad_calls),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
