/* SPDX-License-Identifier: Apache-2.0 */
/* The fake NCCL: its results, and that it detects what would hang or corrupt data on GPUs. Two ranks, threads of this
 * program, on two GPUs with 8 SMs each. */
#include <nccl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_fake.h"
#include "test_fake.h"

enum { RANKS = 2, ELEMS = 100 };

typedef struct scene {
    ncclUniqueId id;
    pthread_barrier_t all;
    int max_ctas; /* of the two communicators */
    int crosses; /* rank 1 calls them the other way round */
    int blocking, gpus; /* on so many */
    int n_elems[RANKS];
} scene;

/* One rank's. */
typedef struct rank {
    scene *scene;
    int number;
    ncclComm_t stem, comms[2];
    cudaStream_t streams[2];
    float *data[2]; /* managed */
    ncclResult_t joined;
} rank;

static void pause_ms(int ms) { nanosleep(&(struct timespec){0, ms * 1000000L}, NULL); }

static ncclResult_t settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        assert_int_equal(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        pause_ms(1);
    }
    return state;
}

/* ---- a rank's parts ---- */

static void join(rank *self)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = self->scene->blocking;
    OK(cudaSetDevice(self->number % self->scene->gpus));
    self->joined = ncclCommInitRankConfig(&self->stem, RANKS, self->scene->id, self->number, &config);
    if (self->joined == ncclInProgress) self->joined = settle(self->stem);
}

static void split(rank *self)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = self->scene->max_ctas;
    for (int c = 0; c < 2; c++) {
        const ncclResult_t result = ncclCommSplit(self->stem, 0, self->number, &self->comms[c], &config);
        assert_int_equal(result, self->scene->blocking ? ncclSuccess : ncclInProgress);
        assert_int_equal(settle(self->stem), ncclSuccess);
        assert_non_null(self->comms[c]);
        self->streams[c] = new_stream();
        OK(cudaMallocManaged((void **)&self->data[c], ELEMS * sizeof(float), 1));
        for (int i = 0; i < ELEMS; i++) self->data[c][i] = (float)(self->number + i);
    }
}

static void all_reduce(const rank *self, int c)
{
    assert_int_equal(ncclAllReduce(self->data[c], self->data[c], (size_t)self->scene->n_elems[self->number],
                                   ncclFloat32, ncclSum, self->comms[c], self->streams[c]),
                     ncclSuccess);
}

static void leave(rank *self, int aborts)
{
    for (int c = 0; c < 2; c++) {
        if (aborts) assert_int_equal(ncclCommAbort(self->comms[c]), ncclSuccess);
        OK(cudaStreamSynchronize(self->streams[c]));
        if (!aborts) assert_int_equal(ncclCommDestroy(self->comms[c]), ncclSuccess);
        OK(cudaStreamDestroy(self->streams[c]));
        OK(cudaFree(self->data[c]));
    }
    assert_int_equal(ncclCommDestroy(self->stem), ncclSuccess);
}

static void run_ranks(scene *s, void *(*run)(void *user))
{
    pthread_t threads[RANKS];
    rank ranks[RANKS];
    assert_int_equal(ncclGetUniqueId(&s->id), ncclSuccess);
    pthread_barrier_init(&s->all, NULL, RANKS);
    if (!s->gpus) s->gpus = RANKS;
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (rank){.scene = s, .number = i};
        if (!s->n_elems[i]) s->n_elems[i] = ELEMS;
        assert_int_equal(pthread_create(&threads[i], NULL, run, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&s->all);
    assert_int_equal(fake_nccl_live(), 0);
}

static int count_faults(void **state)
{
    fake_nccl_count_faults(1);
    fake_nccl_forget();
    return start_counting(state);
}

#define NCCL_TEST(name) cmocka_unit_test_setup_teardown(name, count_faults, check_nothing_left)

/* ---- the tests ---- */

static void *add_twice(void *user)
{
    rank *self = user;
    join(self);
    assert_int_equal(self->joined, ncclSuccess);
    split(self);
    for (int c = 0; c < 2; c++) all_reduce(self, c);
    for (int c = 0; c < 2; c++) {
        OK(cudaStreamSynchronize(self->streams[c]));
        for (int i = 0; i < ELEMS; i++) assert_int_equal((int)self->data[c][i], 2 * i + 1);
    }
    leave(self, 0);
    return NULL;
}

static void test_sums(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        scene s = {.max_ctas = 4, .blocking = i % 2};
        run_ranks(&s, add_twice);
    }
    assert_int_equal(fake_nccl_faults(), 0);
}

/* Each rank's first kernel runs before its second is enqueued: then nothing is left to chance. */
static void *run_both(void *user)
{
    rank *self = user;
    const int first = self->scene->crosses && self->number == 1;
    join(self);
    split(self);
    all_reduce(self, first);
    while (self->scene->crosses && fake_nccl_holding() < RANKS) pause_ms(1);
    pthread_barrier_wait(&self->scene->all);
    all_reduce(self, !first);
    while (fake_nccl_faults() == 0 && (cudaStreamQuery(self->streams[0]) == cudaErrorNotReady ||
                                       cudaStreamQuery(self->streams[1]) == cudaErrorNotReady))
        pause_ms(1);
    pthread_barrier_wait(&self->scene->all);
    leave(self, fake_nccl_faults() > 0);
    return NULL;
}

/* Two kernels that fill their GPUs, and wait for each other's place. */
static void test_starvation(void **state)
{
    (void)state;
    scene crossed = {.max_ctas = 5, .crosses = 1, .blocking = 1};
    run_ranks(&crossed, run_both);
    assert_true(fake_nccl_faults() > 0);
    assert_non_null(strstr(fake_nccl_last_fault(), "deadlock"));
}

static void test_room(void **state)
{
    (void)state;
    scene crossed = {.max_ctas = 4, .crosses = 1, .blocking = 1};
    run_ranks(&crossed, run_both);
    assert_int_equal(fake_nccl_faults(), 0);
}

/* Kernels that fill their GPUs: with the order of the host none has the second before the first. */
static void test_order(void **state)
{
    (void)state;
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    for (int i = 0; i < 20; i++) {
        scene s = {.max_ctas = 8, .blocking = 1};
        run_ranks(&s, add_twice);
    }
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    assert_int_equal(fake_nccl_faults(), 0);
}

static void *call_other_sizes(void *user)
{
    rank *self = user;
    join(self);
    split(self);
    all_reduce(self, 0);
    while (fake_nccl_faults() == 0) pause_ms(1);
    pthread_barrier_wait(&self->scene->all);
    leave(self, 1);
    return NULL;
}

static void test_mismatch(void **state)
{
    (void)state;
    scene s = {.max_ctas = 1, .blocking = 1, .n_elems = {ELEMS, ELEMS - 1}};
    run_ranks(&s, call_other_sizes);
    assert_non_null(strstr(fake_nccl_last_fault(), "rank 1 kind 2 of 99"));
}

static void *share(void *user)
{
    rank *self = user;
    join(self);
    assert_int_equal(self->joined, ncclInvalidUsage);
    assert_int_equal(ncclCommAbort(self->stem), ncclSuccess);
    return NULL;
}

static void test_one_gpu(void **state)
{
    (void)state;
    for (int blocking = 0; blocking < 2; blocking++) {
        scene s = {.gpus = 1, .blocking = blocking};
        run_ranks(&s, share);
    }
}

/* A graph keeps its communicators, until it and all that was made of it are destroyed. */
static void *record(void *user)
{
    rank *self = user;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    join(self);
    split(self);
    OK(cudaStreamBeginCapture(self->streams[0], cudaStreamCaptureModeRelaxed));
    all_reduce(self, 0);
    OK(cudaStreamEndCapture(self->streams[0], &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    pthread_barrier_wait(&self->scene->all);
    if (self->number == 0) {
        assert_int_equal(ncclCommFinalize(self->comms[0]), ncclSuccess);
        assert_int_equal(fake_nccl_faults(), 1);
        assert_non_null(strstr(fake_nccl_last_fault(), "graph"));
    }
    OK(cudaGraphExecDestroy(exec));
    leave(self, 0);
    return NULL;
}

static void test_graphs(void **state)
{
    (void)state;
    scene s = {.max_ctas = 1, .blocking = 1};
    run_ranks(&s, record);
    assert_int_equal(fake_nccl_faults(), 1);
}

static void *exchange(void *user)
{
    rank *self = user;
    const int other = 1 - self->number;
    join(self);
    split(self);
    assert_int_equal(ncclGroupStart(), ncclSuccess);
    assert_int_equal(ncclSend(self->data[0], 10, ncclFloat32, other, self->comms[0], self->streams[0]), ncclSuccess);
    assert_int_equal(ncclRecv(self->data[0] + 10, 10, ncclFloat32, other, self->comms[0], self->streams[0]),
                     ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
    OK(cudaStreamSynchronize(self->streams[0]));
    for (int i = 0; i < 10; i++) assert_int_equal((int)self->data[0][10 + i], other + i);
    leave(self, 0);
    return NULL;
}

static void test_pairs(void **state)
{
    (void)state;
    scene s = {.max_ctas = 1, .blocking = 1};
    run_ranks(&s, exchange);
    assert_int_equal(fake_nccl_faults(), 0);
}

/* ---- registered memory ---- */

static void *register_all(void *user)
{
    rank *self = user;
    void *handles[2], *data = NULL;
    join(self);
    split(self);
    assert_int_equal(ncclMemAlloc(&data, ELEMS * sizeof(float)), ncclSuccess);
    for (int c = 0; c < 2; c++)
        assert_int_equal(ncclCommRegister(self->comms[c], data, ELEMS * sizeof(float), &handles[c]), ncclSuccess);
    OK(cudaMemsetAsync(data, 0, ELEMS * sizeof(float), self->streams[0]));
    assert_int_equal(ncclAllReduce(data, data, ELEMS, ncclFloat32, ncclSum, self->comms[0], self->streams[0]),
                     ncclSuccess);
    OK(cudaStreamSynchronize(self->streams[0]));
    for (int c = 0; c < 2; c++) assert_int_equal(ncclCommDeregister(self->comms[c], handles[c]), ncclSuccess);
    assert_int_equal(ncclMemFree(data), ncclSuccess);
    leave(self, 0);
    return NULL;
}

static void test_registered(void **state)
{
    (void)state;
    scene s = {.max_ctas = 1, .blocking = 1};
    const int64_t before = fake_counted("registered collective");
    run_ranks(&s, register_all);
    assert_int_equal(fake_nccl_faults(), 0);
    assert_int_equal(fake_counted("registered collective") - before, RANKS);
}

static void fault_is(const char *words)
{
    assert_int_equal(fake_nccl_faults(), 1);
    assert_non_null(strstr(fake_nccl_last_fault(), words));
    fake_nccl_forget();
}

/* Rank 0 does all of it, one after the other. */
static void *misuse_memory(void *user)
{
    rank *self = user;
    void *handle = NULL, *again = NULL, *data = NULL;
    const size_t bytes = ELEMS * sizeof(float);
    join(self);
    split(self);
    if (self->number == 0) {
        assert_int_equal(ncclMemAlloc(&data, bytes), ncclSuccess);
        assert_int_equal(ncclCommRegister(self->comms[0], data, bytes, &handle), ncclSuccess);
        (void)ncclCommRegister(self->comms[0], (char *)data + bytes / 2, bytes / 2, &again);
        fault_is("which is registered");
        assert_int_equal(ncclCommDeregister(self->comms[1], handle), ncclInvalidUsage);
        fault_is("a handle that it has not");
        assert_int_equal(ncclMemFree(self->data[0]), ncclInvalidArgument);
        fault_is("did not give");
        (void)ncclMemFree(data);
        fault_is("which is registered");
    }
    pthread_barrier_wait(&self->scene->all);
    leave(self, 0); /* registered with the first */
    return NULL;
}

static void test_misused_memory(void **state)
{
    (void)state;
    scene s = {.max_ctas = 1, .blocking = 1};
    run_ranks(&s, misuse_memory);
    fault_is("memory is registered with it");
}

/* Rank 0 alone has registered what it brings. */
static void *mix(void *user)
{
    rank *self = user;
    void *handle = NULL;
    join(self);
    split(self);
    if (self->number == 0)
        assert_int_equal(ncclCommRegister(self->comms[0], self->data[0], ELEMS * sizeof(float), &handle), ncclSuccess);
    all_reduce(self, 0);
    OK(cudaStreamSynchronize(self->streams[0]));
    pthread_barrier_wait(&self->scene->all);
    if (handle) assert_int_equal(ncclCommDeregister(self->comms[0], handle), ncclSuccess);
    leave(self, 0);
    return NULL;
}

static void test_mixed_memory(void **state)
{
    (void)state;
    scene s = {.max_ctas = 1, .blocking = 1};
    run_ranks(&s, mix);
    fault_is("a collective mixes");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        NCCL_TEST(test_sums),       NCCL_TEST(test_starvation),     NCCL_TEST(test_room),         NCCL_TEST(test_order),
        NCCL_TEST(test_mismatch),   NCCL_TEST(test_one_gpu),        NCCL_TEST(test_graphs),       NCCL_TEST(test_pairs),
        NCCL_TEST(test_registered), NCCL_TEST(test_misused_memory), NCCL_TEST(test_mixed_memory),
    };
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
