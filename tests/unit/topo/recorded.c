/* SPDX-License-Identifier: Apache-2.0 */
/* Machines recorded elsewhere by hwloc: what is found on them, and the links of axes. QDR_TEST_TOPOLOGIES names the
 * folder of their XML files; without it the test is skipped. */
#include <unistd.h>

#include "config.h"
#include "qdr_test.h"
#include "topo/machine.h"

#define GB 1e9
#define GIB (INT64_C(1) << 30)

static void path_of(const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s.xml", getenv("QDR_TEST_TOPOLOGIES"), name);
}

static qdr_topo *load(const char *name)
{
    char path[512];
    qdr_topo *topo = NULL;
    path_of(name, path);
    CHECK_OK(qdr_topo_load(&(qdr_topo_opts){QDR_INIT(qdr_topo_opts), .xml = path}, &topo));
    assert_false(topo->is_this_machine);
    assert_string_equal(topo->cpus, "");
    assert_string_equal(topo->gpu_source, "as hwloc recorded them");
    return topo;
}

static int count_caches(const qdr_topo *topo, int level)
{
    int n = 0;
    for (int i = 0; i < topo->n_caches; i++) n += topo->lists->caches[i].level == level;
    return n;
}

/* Counts: packages, NUMA nodes, cores, threads, GPUs, links, adapters, L3 caches. */
static void check_counts(const qdr_topo *topo, const int counts[8])
{
    assert_int_equal(topo->n_packages, counts[0]);
    assert_int_equal(topo->n_numas, counts[1]);
    assert_int_equal(topo->n_cores, counts[2]);
    assert_int_equal(topo->n_threads, counts[3]);
    assert_int_equal(topo->n_gpus, counts[4]);
    assert_int_equal(topo->n_gpu_links, counts[5]);
    assert_int_equal(topo->n_nics, counts[6]);
    assert_int_equal(count_caches(topo, 3), counts[7]);
    int n_cores = 0;
    for (int i = 0; i < topo->n_packages; i++) n_cores += topo->lists->packages[i].n_cores;
    assert_int_equal(n_cores, topo->n_cores);
}

static void check_gpu(const qdr_topo *topo, int index, const char *name, const char *bus, int package, int numa)
{
    const qdr_topo_gpu *gpu = &topo->lists->gpus[index];
    assert_string_equal(gpu->name, name);
    assert_string_equal(gpu->bus, bus);
    assert_int_equal(gpu->package, package);
    assert_int_equal(gpu->numa, numa);
}

/* Two GPUs of one node. */
static qdr_topo_place spread(const qdr_topo *topo, int on_gpus, int node, int index, int n_ranks)
{
    qdr_topo_place place;
    qdr_topo_spread(topo, on_gpus, node, index, n_ranks, &place);
    return place;
}

static void check_pair(const qdr_topo *topo, int a, int b, qdr_link link, double rate, int is_assumed)
{
    const qdr_topo_place left = spread(topo, 1, 0, a, topo->n_gpus);
    const qdr_topo_place right = spread(topo, 1, 0, b, topo->n_gpus);
    double got;
    int got_assumed;
    assert_int_equal(left.gpu, a);
    assert_string_equal(qdr_link_name(qdr_topo_between(topo, &left, &right, &got, &got_assumed)), qdr_link_name(link));
    assert_int_equal(got_assumed, is_assumed);
    assert_true(got == rate);
    assert_int_equal(qdr_topo_between(topo, &right, &left, NULL, NULL), link);
}

/* Lays a grid on nodes of n_on_node ranks, one for each GPU. */
static void map(const qdr_topo *topo, const int sizes[4], const char *order, int n_on_node, qdr_topo_axis axes[4])
{
    qdr_topo_place places[64];
    const int n = sizes[0] * sizes[1] * sizes[2] * sizes[3];
    for (int rank = 0; rank < n; rank++) places[rank] = spread(topo, 1, rank / n_on_node, rank % n_on_node, n_on_node);
    for (int axis = 0; axis < 4; axis++) {
        axes[axis].size = sizeof *axes;
        CHECK_OK(qdr_topo_map(topo, sizes, order, places, (qdr_axis)axis, &axes[axis]));
    }
}

TEST(eight_dies_in_four_modules)
{
    qdr_topo *topo = load("tioga-8xMI250X");
    check_counts(topo, (const int[]){1, 4, 64, 128, 8, 28, 5, 8});
    assert_string_equal(topo->host, "tioga29");
    assert_string_equal(topo->product, "HPE_CRAY_EX235A");
    assert_string_equal(topo->lists->packages[0].model, "AMD EPYC 7A53 64-Core Processor");
    check_gpu(topo, 0, "rsmi0", "0000:c1:00.0", 0, 3);
    check_gpu(topo, 4, "rsmi4", "0000:d1:00.0", 0, 0);
    assert_int_equal(topo->lists->gpus[0].bytes, INT64_C(67092480) * 1024);
    for (int a = 0; a < 8; a++)
        for (int b = a + 1; b < 8; b++)
            check_pair(topo, a, b, a / 2 == b / 2 ? QDR_LINK_XGMI_MODULE : QDR_LINK_XGMI, 100 * GB, 1);
    qdr_topo_axis axes[4];
    map(topo, (const int[]){2, 4, 2, 1}, "xyzd", 8, axes);
    assert_int_equal(axes[QDR_X].link, QDR_LINK_XGMI_MODULE);
    assert_int_equal(axes[QDR_X].n_siblings, 4);
    assert_int_equal(axes[QDR_Y].link, QDR_LINK_XGMI);
    assert_true(axes[QDR_Y].is_assumed);
    assert_int_equal(axes[QDR_Z].link, QDR_LINK_NETWORK);
    assert_int_equal(axes[QDR_Z].n_siblings, 8);
    assert_int_equal(axes[QDR_Z].inner, QDR_LINK_NONE);
    assert_int_equal(axes[QDR_D].link, QDR_LINK_NONE);
    qdr_topo_destroy(&topo);
}

/* Its file has no NVLink: what is left is PCI. */
TEST(four_gpus_without_a_matrix)
{
    qdr_topo *topo = load("lassen-4xV100");
    check_counts(topo, (const int[]){2, 2, 40, 160, 4, 2, 6, 20});
    assert_string_equal(topo->lists->gpus[0].model, "Tesla V100-SXM2-16GB");
    assert_int_equal(topo->lists->gpus[0].bytes, INT64_C(16515072) * 1024);
    assert_int_equal(topo->lists->numas[1].os_index, 8);
    check_gpu(topo, 0, "nvml0", "0004:04:00.0", 0, 0);
    check_gpu(topo, 3, "nvml3", "0035:04:00.0", 1, 1);
    check_pair(topo, 0, 1, QDR_LINK_PCI, topo->lists->gpus[0].pci_rate, 0);
    check_pair(topo, 0, 2, QDR_LINK_NODE, 0, 0);
    assert_true(topo->lists->gpus[0].pci_rate > 15 * GB && topo->lists->gpus[0].pci_rate < 16 * GB);
    qdr_topo_axis axes[4];
    map(topo, (const int[]){2, 2, 1, 2}, "dxyz", 4, axes);
    assert_int_equal(axes[QDR_D].link, QDR_LINK_PCI);
    assert_int_equal(axes[QDR_X].link, QDR_LINK_NODE);
    assert_int_equal(axes[QDR_X].n_siblings, 2);
    assert_int_equal(axes[QDR_Y].link, QDR_LINK_NETWORK);
    qdr_topo_destroy(&topo);
}

TEST(opencl_names_gpus)
{
    qdr_topo *topo = load("corona-epyc");
    check_counts(topo, (const int[]){2, 8, 48, 96, 4, 0, 3, 16});
    for (int i = 0; i < 4; i++) assert_string_equal(topo->lists->gpus[i].model, "Vega 20");
    check_gpu(topo, 0, "opencl0d0", "0000:13:00.0", 0, 1);
    check_pair(topo, 0, 1, QDR_LINK_PACKAGE, 0, 0);
    const qdr_topo_place first = spread(topo, 0, 0, 0, 48);
    const qdr_link expected[] = {QDR_LINK_SAME, QDR_LINK_CACHE, QDR_LINK_CACHE, QDR_LINK_NUMA};
    for (int i = 0; i < 4; i++) {
        const qdr_topo_place other = spread(topo, 0, 0, i, 48);
        assert_int_equal(qdr_topo_between(topo, &first, &other, NULL, NULL), expected[i]);
    }
    for (int i = 6; i < 48; i += 6) {
        const qdr_topo_place other = spread(topo, 0, 0, i, 48);
        assert_int_equal(qdr_topo_between(topo, &first, &other, NULL, NULL), i < 24 ? QDR_LINK_PACKAGE : QDR_LINK_NODE);
    }
    qdr_topo_destroy(&topo);
}

/* Six links of 25 GB/s to the switches of a half; what joins the halves is not in the file. */
TEST(sixteen_gpus_behind_switches)
{
    qdr_topo *topo = load("dgx2-16xV100");
    check_counts(topo, (const int[]){2, 2, 4, 4, 16, 120, 0, 2});
    for (int a = 0; a < 16; a++)
        for (int b = a + 1; b < 16; b++) check_pair(topo, a, b, QDR_LINK_NVSWITCH, a / 8 == b / 8 ? 150 * GB : 0, 0);
    check_gpu(topo, 0, "nvml0", "0000:34:00.0", 0, 0);
    check_gpu(topo, 8, "nvml8", "0000:b7:00.0", 1, 1);
    qdr_topo_axis axes[4];
    map(topo, (const int[]){8, 2, 1, 1}, NULL, 16, axes);
    assert_int_equal(axes[QDR_X].link, QDR_LINK_NVSWITCH);
    assert_true(axes[QDR_X].rate == 150 * GB);
    assert_true(axes[QDR_Y].rate == 0);
    map(topo, (const int[]){16, 1, 1, 1}, NULL, 16, axes); /* of some pairs it is known */
    assert_int_equal(axes[QDR_X].link, QDR_LINK_NVSWITCH);
    assert_true(axes[QDR_X].rate == 0);
    qdr_topo_destroy(&topo);
}

TEST(pairs_of_gpus)
{
    qdr_topo *topo = load("power8-gpu-pairs");
    check_counts(topo, (const int[]){2, 2, 8, 16, 4, 2, 0, 8});
    check_pair(topo, 0, 1, QDR_LINK_NVLINK, 40 * GB, 0);
    check_pair(topo, 2, 3, QDR_LINK_NVLINK, 40 * GB, 0);
    check_pair(topo, 1, 2, QDR_LINK_NODE, 0, 0);
    for (int i = 0; i < 4; i++) assert_true(topo->lists->gpus[i].host_rate == 40 * GB);
    assert_int_equal(topo->bytes / GIB, 127);
    qdr_topo_axis axes[4];
    map(topo, (const int[]){1, 2, 2, 2}, "yzdx", 4, axes);
    assert_int_equal(axes[QDR_Y].link, QDR_LINK_NVLINK);
    assert_int_equal(axes[QDR_Y].n_siblings, 2);
    assert_int_equal(axes[QDR_Z].link, QDR_LINK_NODE);
    assert_int_equal(axes[QDR_D].link, QDR_LINK_NETWORK);
    qdr_topo_destroy(&topo);
}

/* As many ranks of d as share a unit of these machines: on two nodes of one rank for each GPU, or core. */
static void check_levels(const qdr_topo *topo, int on_gpus, const char *words, int gradients, int state,
                         const char *note)
{
    qdr_topo_place places[128];
    qdr_topo_levels levels = {QDR_INIT(qdr_topo_levels)};
    const int n = on_gpus ? topo->n_gpus : topo->n_cores;
    assert_in_range(2 * n, 2, 128);
    for (int rank = 0; rank < 2 * n; rank++) places[rank] = spread(topo, on_gpus, rank / n, rank % n, n);
    CHECK_OK(qdr_topo_levels_read(topo, (const int[]){1, 1, 1, 2 * n}, NULL, places, words, &levels));
    assert_int_equal(levels.gradient_parts, gradients);
    assert_int_equal(levels.optimizer_parts, state);
    if (*note)
        assert_non_null(strstr(levels.note, note));
    else
        assert_string_equal(levels.note, "");
}

TEST(levels_in_words)
{
    qdr_topo *topo = load("tioga-8xMI250X");
    check_levels(topo, 1, "module,node", 2, 8, "");
    check_levels(topo, 1, "module,all", 2, 16, "");
    check_levels(topo, 0, "cache,numa", 8, 16, "");
    qdr_topo_destroy(&topo);
    topo = load("dgx2-16xV100");
    check_levels(topo, 1, "node,all", 16, 32, "");
    check_levels(topo, 1, "module,node", 8, 16, "'module' does not fit gradients (unknown which ranks share one)");
    check_levels(topo, 1, "package,node", 8, 16, "");
    qdr_topo_destroy(&topo);
    topo = load("power8-gpu-pairs");
    check_levels(topo, 1, "package,node", 2, 4, "");
    qdr_topo_destroy(&topo);
    topo = load("corona-epyc");
    check_levels(topo, 0, "cache,numa", 3, 6, "");
    check_levels(topo, 0, "package,node", 24, 48, "");
    qdr_topo_destroy(&topo);
}

/* Also by the variable that hwloc's own tools know. */
TEST(the_variable_names_a_file)
{
    char path[512];
    qdr_topo *topo = NULL;
    path_of("lassen-4xV100", path);
    setenv("HWLOC_XMLFILE", path, 1);
    CHECK_OK(qdr_topo_load(NULL, &topo));
    assert_string_equal(topo->host, "lassen28");
    assert_false(topo->is_this_machine);
    qdr_topo_destroy(&topo);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    CHECK_FAILS(qdr_topo_load(NULL, &topo), QDR_ERR_ARGUMENT, "HWLOC_THISSYSTEM");
    assert_null(topo);
    unsetenv("HWLOC_THISSYSTEM");
    unsetenv("HWLOC_XMLFILE");
}

int main(void)
{
    char path[512];
    const char *folder = getenv("QDR_TEST_TOPOLOGIES");
    if (!QDRI_HAVE_HWLOC) {
        puts("skipped: built without hwloc, which reads recorded machines");
        return QDR_TEST_SKIP;
    }
    if (folder) path_of("tioga-8xMI250X", path);
    if (!folder || access(path, R_OK) != 0) {
        printf("skipped: no recorded machines in %s\n", folder ? folder : "QDR_TEST_TOPOLOGIES");
        return QDR_TEST_SKIP;
    }
    return run_all_tests(NULL, NULL);
}
