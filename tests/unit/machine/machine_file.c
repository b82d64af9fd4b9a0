/* SPDX-License-Identifier: Apache-2.0 */
/* Machine files: every number is read and written, and invalid files are refused with line, key and the required
 * value. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qdr_test.h"
#include "quadrille/machine.h"

static char folder[] = "/tmp/quadrille-machine-file-XXXXXX";
static char path[128];

FIXTURE(make_folder) { return mkdtemp(folder) ? 0 : -1; }

FIXTURE(remove_folder) { return rmdir(folder); }

static const char *file_path(const char *name)
{
    snprintf(path, sizeof path, "%s/%s.json", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(file_path(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* ---- numbers by their keys ---- */

static void count_key(const char *key, void *user)
{
    (void)key;
    ++*(int *)user;
}

typedef struct walk {
    qdr_machine machine;
    int n_changed;
} walk;

/* The value moves away and back, and nothing else does. */
static void change_and_restore(const char *key, void *user)
{
    walk *w = user;
    const qdr_machine before = w->machine;
    double was = -1, is = -1;
    CHECK_OK(qdr_machine_get(&w->machine, key, &was));
    /* Shares lie between 0 and 1, whole numbers move by 1: one of these is possible for all. */
    const double others[] = {was > 0.5 ? was / 2 : was + 0.25, was + 1, was - 1};
    int i = 0;
    while (i < 3 && qdr_machine_set(&w->machine, key, others[i]) != QDR_OK) i++;
    if (i == 3) fail_msg("%s: it can be neither of %g, %g and %g", key, others[0], others[1], others[2]);
    CHECK_OK(qdr_machine_get(&w->machine, key, &is));
    assert_true(fabs(is - others[i]) <= 1e-12 * fabs(is));
    assert_true(memcmp(&w->machine, &before, sizeof before) != 0);
    CHECK_OK(qdr_machine_set(&w->machine, key, was));
    CHECK_OK(qdr_machine_get(&w->machine, key, &is));
    assert_true(fabs(is - was) <= 1e-12 * fabs(was));
    w->n_changed++;
}

TEST(each_number_by_its_key)
{
    int n_keys = 0;
    walk w = {.machine = {QDR_INIT(qdr_machine)}};
    CHECK_OK(qdr_machine_load("dgx-a100", &w.machine));
    qdr_machine_keys(&w.machine, count_key, &n_keys);
    qdr_machine_keys(&w.machine, change_and_restore, &w);
    assert_int_equal(w.n_changed, n_keys);
    assert_true(n_keys > 80);
}

/* Nothing that is no number, nor negative, gets in. */
static void refuse_bad_values(const char *key, void *user)
{
    qdr_machine *machine = user;
    const qdr_machine before = *machine;
    const double bad[] = {NAN, -1, INFINITY, -INFINITY, 1e300};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_FAILS(qdr_machine_set(machine, key, bad[i]), QDR_ERR_ARGUMENT, key);
        assert_memory_equal(machine, &before, sizeof before);
    }
}

TEST(bad_values_are_refused)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    double value = 1;
    CHECK_OK(qdr_machine_load("dgx-a100", &machine));
    qdr_machine_keys(&machine, refuse_bad_values, &machine);
    CHECK_FAILS(qdr_machine_set(&machine, "ranks_per_node", 2.5), QDR_ERR_ARGUMENT, "whole");
    CHECK_FAILS(qdr_machine_set(&machine, "bf16.mots", 1), QDR_ERR_ARGUMENT, "'bf16.most'");
    CHECK_FAILS(qdr_machine_get(&machine, "links[2].rank_GBps", &value), QDR_ERR_ARGUMENT, "links[0].rank_GBps");
    assert_true(value == 0);
    CHECK_FAILS(qdr_machine_set(NULL, "units", 1), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_machine_get(&machine, "units", NULL), QDR_ERR_ARGUMENT, "value pointer is NULL");
}

/* A machine that was filled by hand has the same ranges. */
TEST(machines_filled_by_hand_are_checked)
{
    qdr_machine good = {QDR_INIT(qdr_machine)}, bad = {QDR_INIT(qdr_machine)};
    CHECK_OK(qdr_machine_load("dgx-a100", &good));
    const struct {
        double *place;
        double value;
        const char *key;
    } cases[] = {
        {&bad.memory_bytes, NAN, "memory_GiB"},
        {&bad.memory_bytes, -1, "memory_GiB"},
        {&bad.memory_efficiency, 0, "memory_efficiency"},
        {&bad.bf16.most, NAN, "bf16.most"},
        {&bad.bf16.most, 0, "bf16.most"},
        {&bad.bf16.half_k, -1, "bf16.half_k"},
        {&bad.f32.peak_flops, NAN, "f32.peak_TFLOPS"},
        {&bad.links[1].adapter_bytes_per_sec, NAN, "links[1].adapter"},
        {&bad.links[1].step_secs, -1e-6, "links[1].step_us"},
        {&bad.collectives.protocols[1].rate_factor, 0, "protocols[1].rate_factor"},
        {&bad.tiles[4].m, 0, "tiles[4].m"},
        {&bad.software.host_secs, INFINITY, "software.host_us"},
        {&bad.processor_slowdown, -0.5, "processor_slowdown"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bad = good;
        *cases[i].place = cases[i].value;
        CHECK_FAILS(qdr_machine_check(&bad, "here"), QDR_ERR_ARGUMENT, cases[i].key);
        assert_non_null(strstr(qdr_last_error(), "here"));
    }
    bad = good;
    bad.n_tiles = QDR_MAX_TILES + 1;
    CHECK_FAILS(qdr_machine_check(&bad, "here"), QDR_ERR_ARGUMENT, "tiles");
    bad = good;
    bad.collectives.n_protocols = 0;
    CHECK_FAILS(qdr_machine_check(&bad, "here"), QDR_ERR_ARGUMENT, "protocols");
    bad = good;
    bad.f64 = (qdr_machine_products){0}; /* which it then cannot do */
    CHECK_OK(qdr_machine_check(&bad, "here"));
    CHECK_FAILS(qdr_machine_check(NULL, "here"), QDR_ERR_ARGUMENT, "NULL");
}

/* ---- files ---- */

#define MEMORY "\"ranks_per_node\": 4, \"memory_GiB\": 1, \"memory_GBps\": 1, "
#define PEAK "\"f32\": {\"peak_TFLOPS\": 1}, "
#define LINK "{\"ranks\": 0, \"rank_GBps\": 1}"

TEST(wrong_files_are_refused)
{
    static const struct {
        const char *text, *words, *also;
    } cases[] = {
        {"", "text", "line"},
        {"[]", "text", "object"},
        {"{}", "ranks_per_node", "missing"},
        {"{\"ranks_per_node\": 4}", "memory_GiB", "missing"},
        {"{" MEMORY "\"links\": [" LINK "]}", "bf16.peak_TFLOPS", "missing"},
        {"{" MEMORY PEAK "\"x\": \"1\"}", "links", "missing"},
        {"{" MEMORY PEAK "\"links\": []}", "links", "0 entries"},
        {"{" MEMORY PEAK "\"links\": 7}", "links", "is unknown"},
        {"{" MEMORY PEAK "\"links\": [7]}", "links[0]", "is 7; an object"},
        {"{" MEMORY PEAK "\n\"links\": [\n{\"ranks\": -1, \"rank_GBps\": 1}]}", "links[0].ranks", "is -1"},
        {"{" MEMORY PEAK "\"links\": [{\"ranks\": 0}]}", "links[0].rank_GBps", "missing"},
        {"{" MEMORY PEAK "\"links\": [{\"ranks\": 0, \"rank_GBps\": 1e-310}]}", "links[0].rank_GBps",
         "0 or a number from 1e-06"},
        {"{" MEMORY PEAK "\"links\": [{\"ranks\": 4, \"rank_GBps\": 1}, {\"ranks\": 0}]}", "links[1].adapters",
         "missing"},
        {"{" MEMORY PEAK "\"links\": [{\"ranks\": 4, \"rank_GBps\": 1}, {\"ranks\": 0, \"adapters\": 1}]}",
         "links[1].adapter_GBps", "missing"},
        {"{" MEMORY PEAK "\"links\": [{\"ranks\": 0, \"rank_GBps\": 1}, {\"ranks\": 0, "
         "\"adapters\": 1, \"adapter_GBps\": 1}]}",
         "links[0].ranks", "must exceed"},
        {"{" MEMORY PEAK "\"links\": [{\"ranks\": 4, \"rank_GBps\": 1}, {\"ranks\": 6, "
         "\"adapters\": 1, \"adapter_GBps\": 1}, {\"ranks\": 0, \"adapters\": 1, "
         "\"adapter_GBps\": 1}]}",
         "links[1].ranks", "not a multiple"},
        {"{" MEMORY PEAK "\"links\": [" LINK "," LINK "," LINK "," LINK "," LINK "]}", "links", "5 entries"},
        {"{\"ranks_per_node\": 4,\n\"memory_GiB\": \"much\"}", "memory_GiB", "is \"much\""},
        {"{\"ranks_per_node\": 4,\n\n\"memory_GiB\": -1}", "memory_GiB", "is -1"},
        {"{\"ranks_per_node\": 4.5}", "ranks_per_node", "is 4.5"},
        {"{\"ranks_per_node\": 1e9}", "ranks_per_node", "is 1e+09"},
        {"{\"ranks_per_node\": 4, \"ranks_per_node\": 8}", "text", "line 1"},
        {"{\"bf16\": 312}", "bf16", "is unknown"},
        {"{\"ranks_per_node\": 4,\n\"bf16\": {\"most\": 1}}", "bf16.peak_TFLOPS", "missing"},
        {"{\"ranks_per_node\": 4,\n\"memory_GB\": 80}", "'memory_GiB'", "'memory_GB' is unknown"},
        {"{" MEMORY PEAK "\"links\": [{\"ranks\": 0, \"rank_GBps\": 1,\n\"step\": 1}]}", "'step_us'",
         "'links[0].step' is unknown"},
        {"{\"software\": {\"host\": 1}}", "'host_us'", "software.host"},
        {"{\"file\": {\"rank_GBs\": 1}}", "'rank_GBps'", "'file.rank_GBs' is unknown"},
        {"{\"name\": 7}", "name", "is 7"},
        {"{\"based_on\": \"no-such-machine\"}", "no-such-machine", "machine"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qdr_machine machine = {QDR_INIT(qdr_machine)};
        memset(&machine, 1, sizeof machine);
        machine.size = sizeof machine;
        CHECK_FAILS(qdr_machine_parse(cases[i].text, strlen(cases[i].text), "text", &machine), QDR_ERR_ARGUMENT,
                    cases[i].words);
        if (!strstr(qdr_last_error(), cases[i].also)) fail_msg("'%s' has not '%s'", qdr_last_error(), cases[i].also);
        assert_int_equal(machine.n_links, 0);
    }
}

TEST(files_are_based_on_others)
{
    qdr_machine base = {QDR_INIT(qdr_machine)}, machine = {QDR_INIT(qdr_machine)};
    char text[256];
    CHECK_OK(qdr_machine_load("dgx-a100", &base));
    write_file("one", "{\"name\": \"one\", \"based_on\": \"dgx-a100\", \"memory_GBps\": 1000, "
                      "\"links\": [" LINK "]}");
    CHECK_OK(qdr_machine_load(file_path("one"), &machine));
    assert_string_equal(machine.name, "one");
    assert_true(machine.memory_bytes_per_sec == 1e12);
    assert_true(machine.bf16.most == base.bf16.most);
    assert_int_equal(machine.n_links, 1); /* a list replaces the other's */
    assert_int_equal(machine.n_tiles, base.n_tiles);
    write_file("one", "{\"based_on\": \"dgx-a100\", \"bf16\": {\"most\": 0.5}, \"about\": {\"x\": 7}, "
                      "\"remark\": \"notes are free\"}");
    CHECK_OK(qdr_machine_load(file_path("one"), &machine));
    assert_true(machine.bf16.most == 0.5 && machine.bf16.peak_flops == base.bf16.peak_flops);
    /* a -> b -> a */
    snprintf(text, sizeof text, "{\"based_on\": \"%s\"}", file_path("b"));
    write_file("a", text);
    snprintf(text, sizeof text, "{\"based_on\": \"%s\"}", file_path("a"));
    write_file("b", text);
    CHECK_FAILS(qdr_machine_load(file_path("a"), &machine), QDR_ERR_ARGUMENT, "cycle");
    assert_int_equal(machine.n_links, 0);
    unlink(file_path("one"));
    unlink(file_path("a"));
    unlink(file_path("b"));
    CHECK_FAILS(qdr_machine_load(file_path("gone"), &machine), QDR_ERR_IO, "gone.json");
    CHECK_FAILS(qdr_machine_load(NULL, &machine), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_machine_load("dgx-a100", NULL), QDR_ERR_ARGUMENT, "NULL");
}

/* ---- ranks of a node ---- */

static void check_ranks_per_node(const char *name, void *unused)
{
    (void)unused;
    for (int n = 1; n <= 16; n++) {
        qdr_machine machine = {QDR_INIT(qdr_machine)}, before = {QDR_INIT(qdr_machine)};
        assert_int_equal(qdr_machine_load(name, &machine), QDR_OK);
        before = machine;
        assert_int_equal(qdr_machine_set_ranks_per_node(&machine, n), QDR_OK);
        if (qdr_machine_check(&machine, name) != QDR_OK)
            fail_msg("%s with %d ranks a node: %s", name, n, qdr_last_error());
        assert_int_equal(machine.ranks_per_node, n);
        assert_string_equal(machine.links[machine.n_links - 1].name, before.links[before.n_links - 1].name);
        if (n == before.ranks_per_node) assert_memory_equal(&machine, &before, sizeof machine);
        if (n == 1 && before.ranks_per_node > 1 && before.n_links > 1) assert_true(machine.n_links < before.n_links);
    }
}

TEST(ranks_per_node)
{
    static const char text[] =
        "{\"ranks_per_node\": 8, \"memory_GiB\": 1, \"memory_GBps\": 1, \"f32\": {\"peak_TFLOPS\": 1}, \"links\": ["
        "{\"ranks\": 2, \"rank_GBps\": 200}, {\"ranks\": 8, \"adapters\": 4, \"adapter_GBps\": 50}, "
        "{\"ranks\": 32, \"adapters\": 4, \"adapter_GBps\": 25}, {\"ranks\": 0, \"adapters\": 1, \"adapter_GBps\": "
        "5}]}";
    static const struct {
        int n, n_links, ranks[4];
    } cases[] = {{8, 4, {2, 8, 32, 0}}, {4, 4, {2, 4, 16, 0}}, {3, 3, {3, 12, 0, 0}},
                 {2, 3, {2, 8, 0, 0}},  {1, 2, {4, 0, 0, 0}},  {16, 4, {2, 16, 64, 0}}};
    for (int i = 0; i < 6; i++) {
        qdr_machine machine = {QDR_INIT(qdr_machine)};
        assert_int_equal(qdr_machine_parse(text, strlen(text), "four levels", &machine), QDR_OK);
        assert_int_equal(qdr_machine_set_ranks_per_node(&machine, cases[i].n), QDR_OK);
        assert_int_equal(machine.n_links, cases[i].n_links);
        for (int l = 0; l < machine.n_links; l++) assert_int_equal(machine.links[l].n_ranks, cases[i].ranks[l]);
        if (cases[i].n == 1) assert_float_equal(machine.links[0].rank_bytes_per_sec, 100e9, 1);
    }
    /* Adapters go with GPUs, and stay with a node of processors. */
    static const struct {
        const char *name;
        int n, adapters;
    } shares[] = {{"dgx-h100", 4, 4}, {"dgx-h100", 1, 1}, {"dgx-h100", 16, 8}, {"jean-zay", 3, 2}, {"jean-zay", 1, 1}};
    for (int i = 0; i < 5; i++) {
        qdr_machine machine = {QDR_INIT(qdr_machine)};
        assert_int_equal(qdr_machine_load(shares[i].name, &machine), QDR_OK);
        assert_int_equal(qdr_machine_set_ranks_per_node(&machine, shares[i].n), QDR_OK);
        assert_int_equal(machine.links[machine.n_links - 1].n_adapters, shares[i].adapters);
        assert_int_equal(qdr_machine_load(shares[i].name, &machine), QDR_OK);
        const int all = machine.links[machine.n_links - 1].n_adapters;
        machine.is_gpu = 0;
        assert_int_equal(qdr_machine_set_ranks_per_node(&machine, shares[i].n), QDR_OK);
        assert_int_equal(machine.links[machine.n_links - 1].n_adapters, all);
    }
    assert_int_equal(qdr_machine_list(check_ranks_per_node, NULL), QDR_OK);
    assert_int_equal(qdr_machine_set_ranks_per_node(NULL, 2), QDR_ERR_ARGUMENT);
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    assert_int_equal(qdr_machine_load("laptop", &machine), QDR_OK);
    assert_int_equal(qdr_machine_set_ranks_per_node(&machine, 0), QDR_ERR_ARGUMENT);
}

int main(void) { return run_all_tests(make_folder, remove_folder); }
