/* SPDX-License-Identifier: Apache-2.0 */
/* The links of axes on machines made by hand; this machine; invalid files. */
#include <unistd.h>

#include "config.h"
#include "qdr_test.h"
#include "topo/machine.h"

/* ---- tables ---- */

/* A node of 4 GPUs in two NVLink pairs, one pair on each of its packages; two adapters as fast, one that is slower. */
static qdr_topo_gpu pair_gpus[] = {
    {.package = 0, .numa = 0}, {.package = 0, .numa = 0}, {.package = 1, .numa = 1}, {.package = 1, .numa = 1}};
static qdr_topo_gpu_link pair_links[] = {{.a = 0, .b = 1, .link = QDR_LINK_NVLINK, .rate = 40e9},
                                         {.a = 2, .b = 3, .link = QDR_LINK_NVLINK, .rate = 20e9, .is_assumed = 1}};
static qdr_topo_nic pair_nics[] = {{.rate = 1e9}, {.rate = 25e9}, {.rate = 25e9}, {.rate = 0}};
static struct qdr_topo_lists pair_lists = {.gpus = pair_gpus, .gpu_links = pair_links, .nics = pair_nics};
static const qdr_topo pairs = {.n_gpus = 4, .n_gpu_links = 2, .n_nics = 4, .lists = &pair_lists};

/* Packages of 2 NUMA nodes of 2 caches of 2 cores. */
static const qdr_topo *cores_of_eight(void)
{
    static qdr_topo_core cores[16];
    static struct qdr_topo_lists lists = {.cores = cores};
    static const qdr_topo topo = {.n_cores = 16, .lists = &lists};
    for (int i = 0; i < 16; i++) cores[i] = (qdr_topo_core){i / 8, i / 4, i / 2, 1, i};
    return &topo;
}

static qdr_topo_place spread(const qdr_topo *topo, int on_gpus, int node, int index, int n_ranks)
{
    qdr_topo_place place;
    qdr_topo_spread(topo, on_gpus, node, index, n_ranks, &place);
    return place;
}

/* qdr_topo_map() of x, y, z and d. */
static qdr_status map(const qdr_topo *topo, const int sizes[4], const char *order, const qdr_topo_place *places,
                      qdr_topo_axis axes[4])
{
    for (int axis = 0; axis < 4; axis++) {
        axes[axis].size = sizeof *axes;
        const qdr_status status = qdr_topo_map(topo, sizes, order, places, (qdr_axis)axis, &axes[axis]);
        if (status != QDR_OK) return status;
    }
    return QDR_OK;
}

/* ranks of nodes, one after the other, n_on_node on each */
static void lay(const qdr_topo *topo, const int sizes[4], const char *order, int n_on_node, int on_gpus,
                qdr_topo_axis axes[4])
{
    qdr_topo_place places[256];
    const int n = sizes[0] * sizes[1] * sizes[2] * sizes[3];
    for (int rank = 0; rank < n; rank++)
        places[rank] = spread(topo, on_gpus, rank / n_on_node, rank % n_on_node, n_on_node);
    CHECK_OK(map(topo, sizes, order, places, axes));
}

/* members, stride, nodes, members on a node, siblings, link, inner link */
static void check_axis(const qdr_topo_axis *axis, const int expected[7], double rate, double inner_rate)
{
    assert_int_equal(axis->n_ranks, expected[0]);
    assert_int_equal(axis->stride, expected[1]);
    assert_int_equal(axis->n_nodes, expected[2]);
    assert_int_equal(axis->n_on_node, expected[3]);
    assert_int_equal(axis->n_siblings, expected[4]);
    assert_string_equal(qdr_link_name(axis->link), qdr_link_name((qdr_link)expected[5]));
    assert_string_equal(qdr_link_name(axis->inner), qdr_link_name((qdr_link)expected[6]));
    assert_true(axis->rate == rate);
    assert_true(axis->inner_rate == inner_rate);
}

TEST(a_cube_on_two_nodes_of_four)
{
    qdr_topo_axis axes[4];
    lay(&pairs, (const int[]){2, 2, 2, 1}, "xyzd", 4, 1, axes);
    check_axis(&axes[QDR_X], (const int[]){2, 1, 1, 2, 2, QDR_LINK_NVLINK, QDR_LINK_NVLINK}, 20e9,
               20e9); /* the slower pair */
    assert_true(axes[QDR_X].is_assumed && axes[QDR_X].inner_is_assumed);
    check_axis(&axes[QDR_Y], (const int[]){2, 2, 1, 2, 2, QDR_LINK_NODE, QDR_LINK_NODE}, 0, 0);
    assert_false(axes[QDR_Y].is_assumed);
    check_axis(&axes[QDR_Z], (const int[]){2, 4, 2, 1, 4, QDR_LINK_NETWORK, QDR_LINK_NONE}, 50e9, 0);
    check_axis(&axes[QDR_D], (const int[]){1, 8, 1, 1, 0, QDR_LINK_NONE, QDR_LINK_NONE}, 0, 0);
}

TEST(an_order_moves_the_axes)
{
    qdr_topo_axis axes[4];
    lay(&pairs, (const int[]){2, 2, 2, 1}, "dzyx", 4, 1, axes);
    assert_int_equal(axes[QDR_Z].stride, 1);
    assert_int_equal(axes[QDR_Z].link, QDR_LINK_NVLINK);
    assert_int_equal(axes[QDR_Y].link, QDR_LINK_NODE);
    assert_int_equal(axes[QDR_X].link, QDR_LINK_NETWORK);
    assert_int_equal(axes[QDR_X].stride, 4);
}

/* An axis of 8 over two nodes of 4; and one of 2 over four nodes. */
TEST(an_axis_may_be_wider_than_a_node)
{
    qdr_topo_axis axes[4];
    lay(&pairs, (const int[]){8, 1, 1, 2}, NULL, 4, 1, axes);
    check_axis(&axes[QDR_X], (const int[]){8, 1, 2, 4, 1, QDR_LINK_NETWORK, QDR_LINK_NODE}, 50e9, 0);
    check_axis(&axes[QDR_D], (const int[]){2, 8, 2, 1, 4, QDR_LINK_NETWORK, QDR_LINK_NONE}, 50e9, 0);
}

/* 3 ranks on a node: one group of x lies across two nodes, one on GPUs 1 and 2. */
TEST(groups_may_lie_unevenly)
{
    qdr_topo_axis axes[4];
    lay(&pairs, (const int[]){2, 3, 1, 1}, "xyzd", 3, 1, axes);
    check_axis(&axes[QDR_X], (const int[]){2, 1, 2, 2, 1, QDR_LINK_NETWORK, QDR_LINK_NODE}, 50e9, 0);
    check_axis(&axes[QDR_Y], (const int[]){3, 2, 2, 2, 2, QDR_LINK_NETWORK, QDR_LINK_NODE}, 50e9, 0);
}

TEST(ranks_on_cores)
{
    const qdr_topo *topo = cores_of_eight();
    qdr_topo_axis axes[4];
    lay(topo, (const int[]){2, 2, 2, 2}, "xyzd", 16, 0, axes);
    check_axis(&axes[QDR_X], (const int[]){2, 1, 1, 2, 8, QDR_LINK_CACHE, QDR_LINK_CACHE}, 0, 0);
    check_axis(&axes[QDR_Y], (const int[]){2, 2, 1, 2, 8, QDR_LINK_NUMA, QDR_LINK_NUMA}, 0, 0);
    check_axis(&axes[QDR_Z], (const int[]){2, 4, 1, 2, 8, QDR_LINK_PACKAGE, QDR_LINK_PACKAGE}, 0, 0);
    check_axis(&axes[QDR_D], (const int[]){2, 8, 1, 2, 8, QDR_LINK_NODE, QDR_LINK_NODE}, 0, 0);
    lay(topo, (const int[]){2, 2, 1, 1}, "xyzd", 4, 0, axes); /* 4 cores each: a NUMA node */
    assert_int_equal(axes[QDR_X].link, QDR_LINK_PACKAGE);
    assert_int_equal(axes[QDR_Y].link, QDR_LINK_NODE);
    lay(topo, (const int[]){2, 16, 1, 1}, "xyzd", 32, 0, axes); /* two ranks on each core */
    assert_int_equal(axes[QDR_X].link, QDR_LINK_SAME);
    lay(topo, (const int[]){3, 1, 1, 1}, "xyzd", 3, 0, axes); /* 5, 5 and 6 cores */
    assert_int_equal(axes[QDR_X].link, QDR_LINK_NODE);
}

TEST(more_ranks_than_gpus_share_them)
{
    qdr_topo_axis axes[4];
    lay(&pairs, (const int[]){2, 2, 2, 1}, "xyzd", 8, 1, axes);
    assert_int_equal(axes[QDR_X].link, QDR_LINK_SAME);
    assert_int_equal(axes[QDR_Y].link, QDR_LINK_NVLINK);
    assert_int_equal(axes[QDR_Z].link, QDR_LINK_NODE);
}

/* Against the definition, pair by pair, on random places. */
TEST(random_places)
{
    uint64_t seed = test_seed();
    const qdr_topo *topo = cores_of_eight();
    for (int round = 0; round < 200; round++) {
        int sizes[4], stride = 1;
        qdr_topo_place places[256];
        qdr_topo_axis axes[4];
        for (int i = 0; i < 4; i++) sizes[i] = (int)test_between(&seed, 1, 4);
        const int n = sizes[0] * sizes[1] * sizes[2] * sizes[3];
        const int n_nodes = (int)test_between(&seed, 1, n < 6 ? n : 6);
        for (int rank = 0; rank < n; rank++)
            places[rank] = spread(topo, 0, (int)test_between(&seed, 0, n_nodes - 1), (int)test_between(&seed, 0, 15),
                                  16);
        CHECK_OK(map(topo, sizes, "xyzd", places, axes));
        for (int axis = 0; axis < 4; axis++) {
            qdr_link link = QDR_LINK_NONE, inner = QDR_LINK_NONE;
            for (int a = 0; a < n; a++) {
                for (int step = 1; a / stride % sizes[axis] + step < sizes[axis]; step++) {
                    const int b = a + step * stride;
                    const qdr_link got = qdr_topo_between(topo, &places[a], &places[b], NULL, NULL);
                    if (got > link) link = got;
                    if (got < QDR_LINK_NETWORK && got > inner) inner = got;
                }
            }
            assert_int_equal(axes[axis].stride, stride);
            assert_int_equal(axes[axis].link, link);
            assert_int_equal(axes[axis].inner, inner);
            stride *= sizes[axis];
        }
    }
}

TEST(wrong_grids)
{
    const qdr_topo_place one = {0, -1, -1, -1, -1, -1};
    qdr_topo_place bad = one;
    qdr_topo_axis axes[4];
    const int sizes[] = {1, 1, 1, 1};
    CHECK_OK(map(NULL, sizes, NULL, &one, axes));
    CHECK_FAILS(map(NULL, sizes, "xyz", &one, axes), QDR_ERR_ARGUMENT, "'xyz'");
    CHECK_FAILS(map(NULL, sizes, "xyzz", &one, axes), QDR_ERR_ARGUMENT, "permutation");
    CHECK_FAILS(map(NULL, (const int[]){1, 0, 1, 1}, NULL, &one, axes), QDR_ERR_ARGUMENT, "1x0x1x1");
    CHECK_FAILS(map(NULL, (const int[]){1 << 30, 1 << 30, 4, 4}, NULL, &one, axes), QDR_ERR_ARGUMENT, "at most");
    bad.node = 1;
    CHECK_FAILS(map(NULL, sizes, NULL, &bad, axes), QDR_ERR_ARGUMENT, "node 1");
    bad = one;
    bad.gpu = 4;
    CHECK_FAILS(map(&pairs, sizes, NULL, &bad, axes), QDR_ERR_ARGUMENT, "GPU 4");
    CHECK_FAILS(map(NULL, sizes, NULL, NULL, axes), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_topo_map(NULL, sizes, NULL, &one, QDR_X, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_topo_map(NULL, sizes, NULL, &one, (qdr_axis)4, axes), QDR_ERR_ARGUMENT, "axis 4");
    assert_string_equal(qdr_link_name((qdr_link)-1), "?");
    assert_string_equal(qdr_link_name(QDR_N_LINKS), "?");
    for (int link = 0; link < QDR_N_LINKS; link++) assert_true(strlen(qdr_link_name((qdr_link)link)) > 2);
}

/* ---- levels ---- */

typedef struct level_case {
    const qdr_topo *topo;
    int sizes[4], n_on_node, on_gpus;
    const char *order, *words;
    int parts[2];
    const char *note; /* words of it; NULL: none */
} level_case;

static qdr_status read_levels(const level_case *the_case, qdr_topo_levels *levels)
{
    qdr_topo_place places[256];
    const int *sizes = the_case->sizes, n = sizes[0] * sizes[1] * sizes[2] * sizes[3];
    for (int rank = 0; rank < n; rank++)
        places[rank] = spread(the_case->topo, the_case->on_gpus, rank / the_case->n_on_node, rank % the_case->n_on_node,
                              the_case->n_on_node);
    return qdr_topo_levels_read(the_case->topo, sizes, the_case->order, places, the_case->words, levels);
}

TEST(words_of_levels)
{
    const qdr_topo *cores = cores_of_eight();
    const level_case cases[] = {
        {cores, {1, 1, 1, 32}, 16, 0, NULL, "none", {1, 1}, NULL},
        {cores, {1, 1, 2, 16}, 16, 0, NULL, "zero1", {2, 32}, NULL},
        {cores, {1, 1, 2, 16}, 16, 0, NULL, "zero2", {32, 32}, NULL},
        {cores, {1, 1, 2, 16}, 16, 0, NULL, "4,16", {4, 16}, NULL},
        {cores, {1, 1, 1, 32}, 16, 0, NULL, "cache,numa", {2, 4}, NULL},
        {cores, {1, 1, 2, 16}, 16, 0, NULL, "package,node", {8, 16}, NULL},
        {cores, {1, 1, 2, 16}, 16, 0, NULL, "node,all", {16, 32}, NULL},
        {cores, {2, 1, 2, 8}, 16, 0, NULL, "numa,node", {2, 8}, NULL}, /* x takes half of each unit */
        {cores, {2, 1, 2, 8}, 16, 0, "zdxy", "numa,node", {4, 16}, NULL},
        {cores, {1, 1, 1, 4}, 1, 0, NULL, "node,all", {1, 4}, NULL}, /* a rank alone on its node */
        /* no multiple of z, or of the level before: the next larger one */
        {cores, {1, 1, 4, 8}, 16, 0, NULL, "cache,all", {4, 32}, "'cache' does not fit gradients (2 in each"},
        {cores, {1, 1, 1, 32}, 16, 0, NULL, "package,cache", {8, 8}, "optimizer state (2 in each, no multiple of 8"},
        {cores, {1, 1, 1, 32}, 16, 0, NULL, "4,cache", {4, 4}, "'numa' is taken, 4 parts"},
        /* ranks that follow one another in (z, d) lie apart: z = 2 is on two nodes */
        {cores, {1, 1, 2, 16}, 16, 0, "dzxy", "node,all", {32, 32}, "'node' does not fit gradients (1 in each"},
        /* 16, 16 and 8 on a node */
        {cores, {1, 1, 1, 40}, 16, 0, NULL, "node,all", {40, 40}, "(unequally many ranks): 'all' is taken, 40 parts"},
        {&pairs, {1, 1, 2, 4}, 4, 1, NULL, "numa,node", {2, 4}, NULL},
        {&pairs, {1, 1, 1, 8}, 4, 1, NULL, "module,all", {2, 8}, "(unknown which ranks share one): 'numa' is taken"},
        {&pairs, {1, 1, 1, 8}, 4, 1, NULL, "cache,cache", {2, 2}, "; 'cache' does not fit optimizer state"},
        {NULL, {1, 1, 1, 8}, 4, 0, NULL, "package,node", {4, 4}, "'node' is taken, 4 parts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qdr_topo_levels levels = {QDR_INIT(qdr_topo_levels)};
        CHECK_OK(read_levels(&cases[i], &levels));
        assert_int_equal(levels.gradient_parts, cases[i].parts[0]);
        assert_int_equal(levels.optimizer_parts, cases[i].parts[1]);
        if (cases[i].note)
            assert_non_null(strstr(levels.note, cases[i].note));
        else
            assert_string_equal(levels.note, "");
    }
}

/* What is shared is numbered; all else about places does not matter. Against the definition: any aligned run of so many
 * ranks shares a unit, and no longer one does. */
TEST(random_units)
{
    uint64_t seed = test_seed();
    int n_equal = 0;
    for (int round = 0; round < 500; round++) {
        qdr_topo_place places[64];
        qdr_topo_levels levels = {QDR_INIT(qdr_topo_levels)};
        const int d = (int)test_between(&seed, 1, 12), wide = (int)test_between(&seed, 1, 4);
        const int n_cut = test_between(&seed, 0, 3) ? d : (int)test_between(&seed, 1, d); /* another unit from there */
        for (int rank = 0; rank < d; rank++)
            places[rank] = (qdr_topo_place){0, -1, rank / wide + (rank >= n_cut ? 20 : 0), -1, -1, -1};
        CHECK_OK(qdr_topo_levels_read(NULL, (const int[]){1, 1, 1, d}, NULL, places, "numa,all", &levels));
        int n = 1, is_equal = 1;
        while (n < d && places[n].numa == places[0].numa) n++;
        for (int rank = 0; rank < d; rank++) {
            is_equal &= d % n == 0 && places[rank].numa == places[rank / n * n].numa;
            is_equal &= rank % n || !rank || places[rank].numa != places[rank - 1].numa;
        }
        assert_int_equal(levels.gradient_parts, is_equal ? n : d);
        assert_int_equal(levels.optimizer_parts, d);
        n_equal += is_equal;
    }
    assert_in_range(n_equal, 50, 450);
}

TEST(wrong_levels)
{
    static const char *const unknown[] = {"",         "8",      "8,",     ",8",    "8,all,all",
                                          "0,8",      "-1,all", "node",   "zero3", "nodes,all",
                                          "all, all", "+8,all", "8x,all", "None",  "08,all"};
    level_case the_case = {cores_of_eight(), {1, 1, 2, 8}, 16, 0, NULL, NULL, {0, 0}, NULL};
    qdr_topo_levels levels = {QDR_INIT(qdr_topo_levels)};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        the_case.words = unknown[i];
        CHECK_FAILS(read_levels(&the_case, &levels), QDR_ERR_ARGUMENT, "module, cache, numa, package, node or all");
        assert_int_equal(levels.gradient_parts, 0);
    }
    the_case.words = "3,all";
    CHECK_FAILS(read_levels(&the_case, &levels), QDR_ERR_ARGUMENT,
                "gradients in 3 parts; use a multiple of 2 that divides z*d = 16, such as 2 or 4");
    the_case.words = "8,99999999999999999999";
    CHECK_FAILS(read_levels(&the_case, &levels), QDR_ERR_ARGUMENT,
                "levels: '8,99999999999999999999' are more parts than z*d = 16");
    the_case.words = "4294967298,8";
    CHECK_FAILS(read_levels(&the_case, &levels), QDR_ERR_ARGUMENT, "'4294967298,8' are more parts than z*d = 16");
    the_case.words = "8,99999999999x";
    CHECK_FAILS(read_levels(&the_case, &levels), QDR_ERR_ARGUMENT, "is not known");
    the_case.words = "node,4";
    CHECK_FAILS(read_levels(&the_case, &levels), QDR_ERR_ARGUMENT, "optimizer state in 4 parts");
    assert_int_equal(levels.optimizer_parts, 0);
    the_case.order = "xy";
    CHECK_FAILS(read_levels(&the_case, &levels), QDR_ERR_ARGUMENT, "'xy'");
    CHECK_FAILS(read_levels(&the_case, NULL), QDR_ERR_ARGUMENT, "NULL");
    the_case.words = NULL;
    CHECK_FAILS(read_levels(&the_case, &levels), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_topo_levels_read(NULL, the_case.sizes, NULL, NULL, "all,all", &levels), QDR_ERR_ARGUMENT, "NULL");
}

/* ---- files and this machine ---- */

TEST(this_machine)
{
    qdr_topo *topo = NULL;
    CHECK_OK(qdr_topo_load(NULL, &topo));
    assert_true(topo->is_this_machine);
    assert_in_range(topo->n_threads, 1, sysconf(_SC_NPROCESSORS_CONF));
    assert_in_range(topo->n_cores, 1, topo->n_threads);
    assert_true(topo->bytes > 0);
    assert_true(*topo->host && *topo->cpus && *topo->gpu_source);
    int n_threads = 0, n_cores = 0;
    for (int i = 0; i < topo->n_cores; i++) {
        assert_in_range(topo->lists->cores[i].package + 1, 0, topo->n_packages);
        assert_in_range(topo->lists->cores[i].numa + 1, 0, topo->n_numas);
        assert_in_range(topo->lists->cores[i].cache + 1, 0, topo->n_caches);
        n_threads += topo->lists->cores[i].n_threads;
    }
    for (int i = 0; i < topo->n_numas; i++) n_cores += topo->lists->numas[i].n_cores;
    assert_int_equal(n_threads, topo->n_threads);
    assert_in_range(n_cores, 1, topo->n_cores);
    qdr_topo_destroy(&topo);
    assert_null(topo);
    qdr_topo_destroy(&topo);
    qdr_topo_destroy(NULL);
}

TEST(wrong_arguments)
{
    qdr_topo *topo = NULL;
    CHECK_FAILS(qdr_topo_load(&(qdr_topo_opts){.xml = NULL}, &topo), QDR_ERR_ARGUMENT, "size is 0");
    CHECK_FAILS(qdr_topo_load(NULL, NULL), QDR_ERR_ARGUMENT, "NULL");
}

#if QDRI_HAVE_HWLOC

/* hwloc would describe this machine instead. */
TEST(wrong_files)
{
    static const struct {
        const char *text, *words;
        qdr_status status;
    } files[] = {
        {"", "empty", QDR_ERR_ARGUMENT},
        {"<topology><object", "not a machine", QDR_ERR_ARGUMENT},
        {"<?xml version=\"1.0\"?><a></a>", "not a machine", QDR_ERR_ARGUMENT},
        {"a picture of a machine\n", "not a machine", QDR_ERR_ARGUMENT},
    };
    char path[] = "/tmp/quadrille-machine-XXXXXX";
    const int handle = mkstemp(path);
    qdr_topo *topo = NULL;
    assert_true(handle >= 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(files[i].text, file);
        fclose(file);
        const qdr_topo_opts opts = {QDR_INIT(qdr_topo_opts), .xml = path};
        CHECK_FAILS(qdr_topo_load(&opts, &topo), files[i].status, files[i].words);
        CHECK_FAILS(qdr_topo_load(&opts, &topo), files[i].status, path);
        assert_null(topo);
        setenv("HWLOC_XMLFILE", path, 1);
        CHECK_FAILS(qdr_topo_load(NULL, &topo), files[i].status, files[i].words);
        unsetenv("HWLOC_XMLFILE");
    }
    close(handle);
    unlink(path);
    CHECK_FAILS(qdr_topo_load(&(qdr_topo_opts){QDR_INIT(qdr_topo_opts), .xml = path}, &topo), QDR_ERR_IO,
                "No such file");
    CHECK_FAILS(qdr_topo_load(&(qdr_topo_opts){QDR_INIT(qdr_topo_opts), .xml = "/tmp"}, &topo), QDR_ERR_IO,
                "/tmp cannot be read");
}

/* hwloc makes machines up, too. */
TEST(made_up_machine)
{
    qdr_topo *topo = NULL;
    setenv("HWLOC_SYNTHETIC", "pack:2 numa:2 l3:1 core:4 pu:2", 1);
    CHECK_OK(qdr_topo_load(NULL, &topo));
    unsetenv("HWLOC_SYNTHETIC");
    assert_false(topo->is_this_machine);
    assert_int_equal(topo->n_packages, 2);
    assert_int_equal(topo->n_numas, 4);
    assert_int_equal(topo->n_caches, 4);
    assert_int_equal(topo->n_cores, 16);
    assert_int_equal(topo->n_threads, 32);
    for (int i = 0; i < 16; i++) {
        const qdr_topo_core *core = &topo->lists->cores[i];
        assert_int_equal(core->package, i / 8);
        assert_int_equal(core->numa, i / 4);
        assert_int_equal(core->cache, i / 4);
        assert_int_equal(core->first_cpu, 2 * i);
    }
    qdr_topo_destroy(&topo);
}

#else

/* Whoever asks for another machine does not get this one. */
TEST(only_hwloc_knows)
{
    qdr_topo *topo = NULL;
    CHECK_FAILS(qdr_topo_load(&(qdr_topo_opts){QDR_INIT(qdr_topo_opts), .xml = "a.xml"}, &topo), QDR_ERR_UNSUPPORTED,
                "a.xml");
    assert_null(topo);
    setenv("HWLOC_XMLFILE", "b.xml", 1);
    CHECK_FAILS(qdr_topo_load(NULL, &topo), QDR_ERR_UNSUPPORTED, "libhwloc-dev");
    unsetenv("HWLOC_XMLFILE");
    setenv("HWLOC_SYNTHETIC", "pack:1 core:2 pu:1", 1);
    CHECK_FAILS(qdr_topo_load(NULL, &topo), QDR_ERR_UNSUPPORTED, "HWLOC_SYNTHETIC");
    unsetenv("HWLOC_SYNTHETIC");
}

#endif
