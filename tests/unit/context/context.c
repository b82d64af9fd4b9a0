/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts of one process: options, ranks as threads, streams, memory, launch, the shape of grids. */
#include "comm/launcher.h"
#include "grid/shape.h"
#include "qdr_test.h"
#include "quadrille/quadrille.h"
#include "quadrille_private/measure.h"
#include "topo/topo.h"

TEST(a_context_alone)
{
    qdr_context *ctx = NULL;
    int n_cores = 0;
    CHECK_OK(qdri_topo_cores(&n_cores));
    CHECK_OK(qdr_context_create_self(NULL, &ctx));
    assert_int_equal(qdr_context_rank(ctx), 0);
    assert_int_equal(qdr_context_size(ctx), 1);
    assert_int_equal(qdr_context_threads(ctx), n_cores);
    CHECK_OK(qdr_barrier(ctx));
    CHECK_OK(qdr_agree(ctx, QDR_OK));
    assert_int_equal(qdr_agree(ctx, QDR_ERR_SHAPE), QDR_ERR_SHAPE);
    int data = 5;
    CHECK_OK(qdr_broadcast(ctx, 0, &data, sizeof data));
    CHECK_FAILS(qdr_broadcast(ctx, 1, &data, sizeof data), QDR_ERR_ARGUMENT, "root 1");
    CHECK_FAILS(qdr_broadcast(ctx, 0, NULL, 3), QDR_ERR_ARGUMENT, "NULL");
    qdr_context_destroy(&ctx);
    assert_null(ctx);
    qdr_context_destroy(&ctx);
    qdr_context_destroy(NULL);
}

TEST(watching_is_asked_for_in_words_that_mean_something)
{
    static const struct {
        const char *name, *good[4], *bad[4];
    } variables[] = {
        {"QDR_CHECK", {"", "0", "1", NULL}, {"yes", "2", "1 ", NULL}},
        {"QDR_TIMEOUT", {"", "0", "2.5", "1e3"}, {"-1", "5s", "nan", "inf"}},
    };
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 4; j++) {
            const char *good = variables[i].good[j], *bad = variables[i].bad[j];
            qdr_context *ctx = NULL;
            if (good) assert_int_equal(setenv(variables[i].name, good, 1), 0);
            CHECK_OK(qdr_context_create_self(NULL, &ctx));
            qdr_context_destroy(&ctx);
            if (!bad) continue;
            assert_int_equal(setenv(variables[i].name, bad, 1), 0);
            CHECK_FAILS(qdr_context_create_self(NULL, &ctx), QDR_ERR_ARGUMENT, bad);
            assert_null(ctx);
            assert_int_equal(unsetenv(variables[i].name), 0);
        }
        assert_int_equal(unsetenv(variables[i].name), 0);
    }
}

/* What returns a status says so; what cannot returns nothing that could be right. */
TEST(null_is_nobody)
{
    int coordinates[QDR_N_AXES] = {1, 1, 1, 1};
    char picture[8] = "old";
    size_t now = 1, peak = 1;
    CHECK_FAILS(qdr_context_status(NULL), QDR_ERR_ARGUMENT, "NULL");
    assert_int_equal(qdr_context_rank(NULL), -1);
    assert_int_equal(qdr_context_size(NULL), 0);
    assert_int_equal(qdr_context_threads(NULL), 0);
    assert_null(qdr_context_stream(NULL));
    qdr_mem_usage(NULL, &now, &peak);
    assert_true(now == 0 && peak == 0);
    qdr_mem_usage(NULL, NULL, NULL);
    qdr_mem_reset_peak(NULL);
    CHECK_FAILS(qdr_grid_coordinates_of(NULL, 0, coordinates), QDR_ERR_ARGUMENT, "NULL");
    assert_int_equal(coordinates[0], 0);
    assert_null(qdr_grid_context(NULL));
    assert_int_equal(qdr_grid_size(NULL, QDR_X), 0);
    assert_int_equal(qdr_grid_coordinate(NULL, QDR_X), -1);
    assert_int_equal(qdr_grid_rank_at(NULL, coordinates), -1);
    assert_int_equal(qdr_grid_neighbour(NULL, QDR_X, 1), -1);
    assert_int_equal(qdr_grid_picture(NULL, picture, sizeof picture), 0);
    assert_string_equal(picture, "");
    qdr_traffic traffic = {QDR_INIT(qdr_traffic), .n_calls = 1};
    CHECK_FAILS(qdr_grid_traffic(NULL, QDR_CHANNEL_X_REDUCE, QDR_ALL_REDUCE, &traffic), QDR_ERR_ARGUMENT, "NULL");
    assert_int_equal(traffic.n_calls, 0);
    qdr_grid_reset_traffic(NULL);
}

TEST(options_are_checked)
{
    qdr_context *ctx = NULL;
    const qdr_context_opts old = {.size = 0}, less = {QDR_INIT(qdr_context_opts), .n_threads = -1},
                           one = {QDR_INIT(qdr_context_opts), .n_threads = 1},
                           odd = {QDR_INIT(qdr_context_opts), .device = "cuda:x"};
    CHECK_FAILS(qdr_context_create_self(&old, &ctx), QDR_ERR_ARGUMENT, "QDR_INIT");
    CHECK_FAILS(qdr_context_create_self(&less, &ctx), QDR_ERR_ARGUMENT, "n_threads is -1");
    CHECK_FAILS(qdr_context_create_self(&odd, &ctx), QDR_ERR_ARGUMENT, "cuda:x");
    CHECK_FAILS(qdr_context_create_self(&one, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_context_create_local(NULL, 0, NULL, &ctx), QDR_ERR_ARGUMENT, "qdr_local_run");
    assert_null(ctx);
    CHECK_OK(qdr_context_create_self(&one, &ctx));
    assert_int_equal(qdr_context_threads(ctx), 1);
    qdr_context_destroy(&ctx);
}

static const char *chosen_machine(const char *named)
{
    static qdr_auto_plan chosen = {QDR_INIT(qdr_auto_plan)};
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .machine = named};
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_context *ctx = NULL;
    CHECK_OK(qdr_network_load("gpt2", &network));
    network.layers = 1;
    CHECK_OK(qdr_context_create_self(&opts, &ctx));
    const qdr_status status = qdr_plan_auto(ctx, &network, NULL, NULL, &chosen);
    qdr_context_destroy(&ctx);
    return status == QDR_OK ? chosen.machine : qdr_last_error();
}

/* QDR_MACHINE, then the options, then this host's; tests have a user's folder that is empty. */
TEST(the_machine_in_force)
{
    unsetenv("QDR_MACHINE");
    assert_string_equal(chosen_machine(NULL), "laptop");
    assert_string_equal(chosen_machine("here"), "laptop");
    assert_string_equal(chosen_machine("dgx-a100"), "dgx-a100");
    assert_non_null(strstr(chosen_machine("dgx-a1000"), "dgx-a1000"));
    setenv("QDR_MACHINE", "summit", 1);
    assert_string_equal(chosen_machine("dgx-a100"), "summit");
    unsetenv("QDR_MACHINE");
}

static void add_one(void *user) { ++*(int *)user; }

TEST(streams_and_events)
{
    qdr_context *ctx = NULL;
    qdr_stream *stream = NULL;
    qdr_event *event = NULL;
    int n = 0;
    char from[100] = "some bytes", to[100] = "";
    CHECK_OK(qdr_context_create_self(NULL, &ctx));
    CHECK_OK(qdr_stream_create(ctx, &stream));
    CHECK_OK(qdr_event_create(ctx, &event));
    CHECK_OK(qdr_stream_call(stream, add_one, &n));
    CHECK_OK(qdr_event_record(event, stream));
    CHECK_OK(qdr_stream_wait(qdr_context_stream(ctx), event));
    CHECK_OK(qdr_stream_call(qdr_context_stream(ctx), add_one, &n));
    CHECK_OK(qdr_copy(ctx, to, from, sizeof from, NULL));
    CHECK_OK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    assert_int_equal(n, 2);
    assert_string_equal(to, from);
    CHECK_FAILS(qdr_copy(ctx, NULL, from, 1, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_stream_call(stream, NULL, &n), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_stream_call(NULL, add_one, &n), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_stream_synchronize(NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_stream_create(ctx, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_event_create(ctx, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_event_record(NULL, stream), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_stream_wait(stream, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_barrier(NULL), QDR_ERR_ARGUMENT, "NULL");
    qdr_event_destroy(&event);
    qdr_event_destroy(&event);
    qdr_stream_destroy(&stream);
    qdr_stream_destroy(&stream);
    qdr_context_destroy(&ctx);
}

/* In all types that layers have; what it needs is given back. */
TEST(products_have_a_rate)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    double rate = 7;
    CHECK_FAILS(qdr_measure_products(NULL, QDR_F32, &rate), QDR_ERR_ARGUMENT, "NULL");
    assert_true(qdr_measure_waits(NULL) == 0);
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = n_threads, .device = "cpu"};
        qdr_context *ctx;
        size_t first, now, peak;
        CHECK_OK(qdr_context_create_self(&opts, &ctx));
        CHECK_FAILS(qdr_measure_products(ctx, QDR_I32, &rate), QDR_ERR_DTYPE, "f32, f64, bf16 or f16");
        assert_true(rate == 0);
        CHECK_FAILS(qdr_measure_products(ctx, QDR_F32, NULL), QDR_ERR_ARGUMENT, "NULL");
        for (size_t i = 0; i < 4; i++) CHECK_OK(qdr_measure_products(ctx, dtypes[i], &rate)); /* what stays is there */
        qdr_mem_usage(ctx, &first, &peak);
        for (size_t i = 0; i < 4; i++) {
            qdr_mem_reset_peak(ctx);
            CHECK_OK(qdr_measure_products(ctx, dtypes[i], &rate));
            assert_true(rate > 0 && rate < 1e18);
            qdr_mem_usage(ctx, &now, &peak);
            assert_int_equal(now, first);
            assert_true(peak >= first + 3 * qdr_dtype_bytes(dtypes[i]) * 128 * 128);
        }
        qdr_context_destroy(&ctx);
    }
}

TEST(memory_is_counted)
{
    qdr_context *ctx = NULL;
    void *data = NULL, *more = NULL;
    size_t before = 0, now = 0, peak = 0;
    CHECK_OK(qdr_context_create_self(NULL, &ctx));
    qdr_mem_usage(ctx, &before, &peak);
    CHECK_OK(qdr_mem_alloc(ctx, 1000, &data));
    CHECK_OK(qdr_mem_alloc(ctx, 0, &more));
    assert_non_null(more);
    qdr_mem_usage(ctx, &now, &peak);
    assert_true(now >= before + 1000 && peak >= now);
    qdr_mem_free(ctx, &more);
    qdr_mem_free(ctx, &data);
    qdr_mem_free(ctx, &data);
    assert_null(data);
    qdr_mem_reset_peak(ctx);
    qdr_mem_usage(ctx, &now, &peak);
    assert_true(now == before && peak == before);
    CHECK_FAILS(qdr_mem_alloc(ctx, SIZE_MAX / 2, &data), QDR_ERR_MEMORY, "bytes");
    assert_null(data);
    qdr_context_destroy(&ctx);
}

static int result_of_rank(qdr_local_world *world, int rank, void *user)
{
    (void)world;
    return ((const int *)user)[rank];
}

TEST(ranks_return_results)
{
    const int results[4] = {0, 0, 9, 3};
    int result = -1;
    CHECK_OK(qdr_local_run(4, result_of_rank, (void *)(uintptr_t)results, &result));
    assert_int_equal(result, 9);
    CHECK_OK(qdr_local_run(2, result_of_rank, (void *)(uintptr_t)results, &result));
    assert_int_equal(result, 0);
    CHECK_OK(qdr_local_run(1, result_of_rank, (void *)(uintptr_t)results, NULL));
    CHECK_FAILS(qdr_local_run(0, result_of_rank, NULL, &result), QDR_ERR_ARGUMENT, "1 to 1024");
    CHECK_FAILS(qdr_local_run(1025, result_of_rank, NULL, &result), QDR_ERR_ARGUMENT, "1025");
    CHECK_FAILS(qdr_local_run(2, NULL, NULL, &result), QDR_ERR_ARGUMENT, "NULL");
}

/* Twice in one world; the second time rank 1 wants other threads, which is its own affair, then something
 * impossible. */
static int create_twice(qdr_local_world *world, int rank, void *user)
{
    (void)user;
    for (int i = 0; i < 3; i++) {
        const qdr_context_opts opts = {QDR_INIT(qdr_context_opts),
                                       .n_threads = rank == 1 && i == 2 ? -7 : 1 + (rank == 1 && i == 1)};
        qdr_context *ctx = NULL;
        const qdr_status status = qdr_context_create_local(world, rank, &opts, &ctx);
        const int wanted = i < 2 ? status == QDR_OK : status == QDR_ERR_ARGUMENT && strstr(qdr_last_error(), "-7");
        if (!wanted || (ctx != NULL) != (i < 2)) return 1;
        if (ctx && qdr_barrier(ctx) != QDR_OK) return 2;
        qdr_context_destroy(&ctx);
    }
    return qdr_context_create_local(world, 99, NULL, &(qdr_context *){NULL}) == QDR_ERR_ARGUMENT ? 0 : 3;
}

TEST(contexts_follow_one_another)
{
    int result = -1;
    CHECK_OK(qdr_local_run(3, create_twice, NULL, &result));
    assert_int_equal(result, 0);
}

/* Rank 0 goes home before the others have met: they do not wait. */
static int go_or_create(qdr_local_world *world, int rank, void *user)
{
    (void)user;
    qdr_context *ctx = NULL;
    if (rank == 0) return 0;
    return qdr_context_create_local(world, rank, NULL, &ctx) == QDR_ERR_PEER && !ctx ? 0 : 1;
}

TEST(a_rank_that_never_comes)
{
    int result = -1;
    CHECK_OK(qdr_local_run(3, go_or_create, NULL, &result));
    assert_int_equal(result, 0);
}

static int code_of_rank(qdr_context *ctx, void *user)
{
    return qdr_context_size(ctx) == *(const int *)user ? 2 * qdr_context_rank(ctx) : 99;
}

static int first_is(qdr_context *ctx, void *user) { return qdr_context_rank(ctx) == 0 ? *(const int *)user : 0; }

/* A shell would take the last three for 255, 0 and 1. */
TEST(what_is_no_exit_code_counts_as_1)
{
    static const struct {
        int returned, passed_on;
    } codes[] = {{0, 0}, {1, 1}, {255, 255}, {-1, 1}, {256, 1}, {257, 1}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        int code = -1;
        CHECK_OK(qdr_launch(2, NULL, first_is, (void *)(uintptr_t)&codes[i].returned, &code));
        assert_int_equal(code, codes[i].passed_on);
    }
}

TEST(launch_on_threads)
{
    const int size = 3;
    int code = -1;
    CHECK_OK(qdr_launch(3, NULL, code_of_rank, (void *)(uintptr_t)&size, &code));
    assert_int_equal(code, 4);
    setenv("PMI_SIZE", "3", 1);
    CHECK_FAILS(qdr_launch(2, NULL, code_of_rank, NULL, &code), QDR_ERR_ARGUMENT, "PMI_SIZE=3");
    unsetenv("PMI_SIZE");
    CHECK_FAILS(qdr_launch(-1, NULL, code_of_rank, NULL, &code), QDR_ERR_ARGUMENT, "-1");
    CHECK_FAILS(qdr_launch(2, NULL, NULL, NULL, &code), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_launch(5000, NULL, code_of_rank, NULL, &code), QDR_ERR_ARGUMENT, "5000");
    const qdr_context_opts less = {QDR_INIT(qdr_context_opts), .n_threads = -1};
    CHECK_FAILS(qdr_launch(2, &less, code_of_rank, NULL, &code), QDR_ERR_ARGUMENT, "n_threads");
    assert_int_equal(code, 1);
}

TEST(launchers_and_libraries_that_differ)
{
    CHECK_OK(qdri_launcher_check(1, "a library"));
    setenv("PMI_SIZE", "4", 1);
    CHECK_FAILS(qdri_launcher_check(1, "a library"), QDR_ERR_MPI, "PMI_SIZE=4");
    CHECK_FAILS(qdri_launcher_check(1, "a library"), QDR_ERR_MPI, "a library");
    CHECK_OK(qdri_launcher_check(4, "a library"));
    setenv("PMI_SIZE", "1", 1);
    CHECK_OK(qdri_launcher_check(1, "a library"));
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    CHECK_FAILS(qdri_launcher_check(1, "a library"), QDR_ERR_MPI, "Open MPI");
    unsetenv("PMI_SIZE");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    static const struct {
        const char *variable, *value, *beside, *says;
    } others[] = {
        {"MPI_LOCALNRANKS", "3", NULL, "MPICH's mpiexec started 3 ranks"},
        {"MV2_COMM_WORLD_SIZE", "3", NULL, "MVAPICH's mpiexec started 3 ranks"},
        {"MVP_COMM_WORLD_SIZE", "3", NULL, "MVAPICH's mpiexec started 3 ranks"},
        {"SLURM_STEP_NUM_TASKS", "3", NULL, "srun started 3 ranks"},
        {"SLURM_NTASKS", "3", "SLURM_STEP_ID", "srun started 3 ranks (SLURM_NTASKS=3)"},
        {"JSM_NAMESPACE_SIZE", "3", NULL, "jsrun started 3 ranks"},
        {"FLUX_JOB_SIZE", "3", "FLUX_TASK_RANK", "flux run started 3 ranks"},
        {"WORLD_SIZE", "3", "RANK", "torchrun, or a launcher like it, started 3 ranks (WORLD_SIZE=3)"},
        {"PALS_RANKID", "2", NULL, "PALS's mpiexec started at least 3 ranks"},
        {"ALPS_APP_PE", "2", NULL, "aprun started at least 3 ranks"},
        {"PMIX_RANK", "2", NULL, "started at least 3 ranks (PMIX_RANK=2)"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        setenv(others[i].variable, others[i].value, 1);
        if (others[i].beside) {
            CHECK_OK(qdri_launcher_check(1, "a library")); /* a batch script, say */
            setenv(others[i].beside, "0", 1);
        }
        CHECK_FAILS(qdri_launcher_check(1, "a library"), QDR_ERR_MPI, others[i].says);
        assert_int_equal(qdr_launched(), 3);
        unsetenv(others[i].variable);
        if (others[i].beside) unsetenv(others[i].beside);
        CHECK_OK(qdri_launcher_check(1, "a library"));
        assert_int_equal(qdr_launched(), 1);
    }
    /* The first process of a launcher that only numbers them, unless another variable counts them. */
    setenv("PMIX_RANK", "0", 1);
    CHECK_OK(qdri_launcher_check(1, "a library"));
    assert_int_equal(qdr_launched(), 0);
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    assert_int_equal(qdr_launched(), 1);
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("PMIX_RANK");
}

TEST(shapes_propose_others)
{
    qdri_grid_shape shape;
    const qdr_grid_opts eight = {QDR_INIT(qdr_grid_opts), .x = 2, .y = 2, .z = 2, .d = 1};
    CHECK_FAILS(qdri_shape_read(&eight, 6, &shape), QDR_ERR_ARGUMENT,
                "2x2x2x1 has 8 ranks but the context has 6; start 8 ranks (mpiexec -n 8), or choose axes whose product "
                "is 6, such as "
                "3x2x1x1");
    CHECK_FAILS(qdri_shape_read(&eight, 7, &shape), QDR_ERR_ARGUMENT, "such as 7x1x1x1");
    CHECK_FAILS(qdri_shape_read(&eight, 1, &shape), QDR_ERR_ARGUMENT, "such as 1x1x1x1");
    CHECK_OK(qdri_shape_read(&eight, 8, &shape));
}

TEST(pictures)
{
    static const char wanted[] = "grid 2x2x1x2, order dyxz, 8 ranks\n"
                                 "z=0 d=0\n"
                                 "           x=0    x=1\n"
                                 "  y=0        0      4\n"
                                 "  y=1        2      6\n"
                                 "z=0 d=1\n"
                                 "           x=0    x=1\n"
                                 "  y=0        1      5\n"
                                 "  y=1        3      7\n";
    qdri_grid_shape shape;
    char text[512], little[10];
    CHECK_OK(qdri_shape_read(&(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 2, .y = 2, .z = 1, .d = 2, .order = "dyxz"},
                             8, &shape));
    assert_int_equal(qdri_shape_picture(&shape, text, sizeof text), strlen(wanted));
    assert_string_equal(text, wanted);
    assert_int_equal(qdri_shape_picture(&shape, little, sizeof little), strlen(wanted));
    assert_string_equal(little, "grid 2x2x");
    assert_int_equal(qdri_shape_picture(&shape, NULL, 0), strlen(wanted));
}
