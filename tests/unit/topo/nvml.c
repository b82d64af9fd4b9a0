/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs reported by NVML, using a stand-in for it (fake_nvml.c), which the loader finds first. */
#include "config.h"
#include "qdr_test.h"
#include "topo/machine.h"

static qdr_topo *load(const char *mode)
{
    qdr_topo *topo = NULL;
    setenv("FAKE_NVML", mode, 1);
    CHECK_OK(qdr_topo_load(NULL, &topo));
    return topo;
}

/* The index of NVML's GPU; hwloc may have found others here. */
static int find(const qdr_topo *topo, int number)
{
    char name[16];
    snprintf(name, sizeof name, "nvml%d", number);
    for (int i = 0; i < topo->n_gpus; i++)
        if (strcmp(topo->lists->gpus[i].name, name) == 0) return i;
    fail_msg("%s is missing", name);
    return -1;
}

static void check_link(const qdr_topo *topo, int a, int b, qdr_link link, double rate, int peer)
{
    const int first = find(topo, a), second = find(topo, b);
    for (int i = 0; i < topo->n_gpu_links; i++) {
        const qdr_topo_gpu_link *got = &topo->lists->gpu_links[i];
        if (got->a != first || got->b != second) continue;
        assert_string_equal(qdr_link_name(got->link), qdr_link_name(link));
        assert_true(got->rate == rate);
        assert_false(got->is_assumed);
        assert_int_equal(got->peer, peer);
        return;
    }
    fail_msg("no link from %d to %d", a, b);
}

static void check_all(const char *mode)
{
    qdr_topo *topo = load(mode);
    assert_string_equal(topo->gpu_source, "NVML, driver 1.2.3: 4 GPUs");
    for (int i = 0; i < 4; i++) {
        char text[24];
        const qdr_topo_gpu *gpu = &topo->lists->gpus[find(topo, i)];
        snprintf(text, sizeof text, "Fake %d", i);
        assert_string_equal(gpu->model, text);
        snprintf(text, sizeof text, "ffff:a%d:00.0", i);
        assert_string_equal(gpu->bus, text);
        assert_int_equal(gpu->bytes, INT64_C(1) << (30 + i));
        assert_int_equal(gpu->package, -1);
    }
    check_link(topo, 0, 1, QDR_LINK_NVLINK, 100e9, 1);
    check_link(topo, 2, 3, QDR_LINK_NVSWITCH, 150e9, 1);
    check_link(topo, 1, 2, QDR_LINK_PCI, 0, 1);
    check_link(topo, 0, 2, QDR_LINK_NUMA, 0, 0);
    check_link(topo, 0, 3, QDR_LINK_NODE, 0, 0);
    qdr_topo_destroy(&topo);
}

TEST(links_of_four_gpus)
{
    check_all("");
    check_all("old");
}

TEST(a_driver_that_does_not_run)
{
    qdr_topo *topo = load("broken");
    assert_string_equal(topo->gpu_source, "NVML could not be initialised: Driver Not Loaded");
    qdr_topo_destroy(&topo);
}

/* GPUs of this machine are not asked for when another is described. */
TEST(a_made_up_machine_has_none)
{
    if (!QDRI_HAVE_HWLOC) {
        puts("skipped: built without hwloc, which makes machines up");
        skip();
    }
    setenv("HWLOC_SYNTHETIC", "pack:1 numa:1 core:4 pu:1", 1);
    qdr_topo *topo = load("");
    unsetenv("HWLOC_SYNTHETIC");
    assert_int_equal(topo->n_gpus, 0);
    qdr_topo_destroy(&topo);
}
