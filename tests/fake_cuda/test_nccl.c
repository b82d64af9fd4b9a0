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
    struct guest *guest; /* what else runs on each GPU */
    int cluster, priority, exchanges, waits; /* of a collective beside it, and whether it waits for the guest's end */
    atomic_int has_come;
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
    if (self->scene->cluster) config.cgaClusterSize = self->scene->cluster;
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

/* Each rank's first kernel runs before its second is enqueued, after both have run before: then nothing is left to
 * chance. */
static void *run_both(void *user)
{
    rank *self = user;
    const int first = self->scene->crosses && self->number == 1;
    join(self);
    split(self);
    for (int c = 0; c < 2; c++) {
        all_reduce(self, c);
        OK(cudaStreamSynchronize(self->streams[c]));
    }
    pthread_barrier_wait(&self->scene->all);
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
    const int64_t before = fake_counted("unordered");
    for (int i = 0; i < 20; i++) {
        scene s = {.max_ctas = 8, .blocking = 1};
        run_ranks(&s, add_twice);
    }
    assert_int_equal(fake_nccl_faults(), 0);
    assert_int_equal(fake_counted("unordered"), before);
}

/* After the first launch the environment is not read again. */
static void test_environment(void **state)
{
    (void)state;
    scene s = {.max_ctas = 1, .blocking = 1};
    run_ranks(&s, add_twice);
    const int64_t before = fake_counted("unordered");
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    run_ranks(&s, add_twice);
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    assert_int_equal(fake_counted("unordered") - before, 2 * RANKS);
}

/* ---- what runs beside what ---- */

/* A product of so many SMs, or another kernel (0), that runs until its gate opens. */
typedef struct guest {
    int n_sms, priority;
    atomic_int n_begun;
    gate end;
} guest;

static void run_guest(void *args)
{
    guest *self = *(guest **)args;
    fake_turn turn;
    fake_turn_begin(&turn, self->n_sms);
    atomic_fetch_add(&self->n_begun, 1);
    pass_gate(&self->end);
    fake_turn_end(&turn);
}

static cudaStream_t begin_guest(guest *self, int n_before)
{
    cudaStream_t stream = NULL;
    OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, self->priority));
    fake_enqueue(stream, run_guest, &self, sizeof self);
    while (atomic_load(&self->n_begun) < n_before) pause_ms(1);
    return stream;
}

static void send_and_receive(const rank *self, cudaStream_t stream)
{
    const int other = 1 - self->number;
    assert_int_equal(ncclGroupStart(), ncclSuccess);
    assert_int_equal(ncclSend(self->data[0], 10, ncclFloat32, other, self->comms[0], stream), ncclSuccess);
    assert_int_equal(ncclRecv(self->data[0] + 10, 10, ncclFloat32, other, self->comms[0], stream), ncclSuccess);
    assert_int_equal(ncclGroupEnd(), ncclSuccess);
}

static void *run_beside(void *user)
{
    rank *self = user;
    scene *s = self->scene;
    join(self);
    split(self);
    OK(cudaStreamDestroy(self->streams[0]));
    OK(cudaStreamCreateWithPriority(&self->streams[0], cudaStreamNonBlocking, s->priority));
    cudaStream_t stream = begin_guest(s->guest, RANKS);
    if (s->exchanges)
        send_and_receive(self, self->streams[0]);
    else
        all_reduce(self, 0);
    if (s->waits) pause_ms(30);
    if (s->waits)
        GIVES(cudaStreamQuery(self->streams[0]), cudaErrorNotReady);
    else
        OK(cudaStreamSynchronize(self->streams[0]));
    pthread_barrier_wait(&s->all);
    open_gate(&s->guest->end);
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamDestroy(stream));
    leave(self, 0);
    return NULL;
}

enum { URGENT = -5, WAITS = 1 };

static void beside(scene wanted, int n_sms, int guest_priority)
{
    guest other = {.n_sms = n_sms, .priority = guest_priority};
    wanted.guest = &other;
    wanted.blocking = 1;
    run_ranks(&wanted, run_beside);
    assert_int_equal(fake_nccl_faults(), 0);
}

/* Of 8 SMs. */
static void test_products(void **state)
{
    (void)state;
    beside((scene){.max_ctas = 3, .priority = URGENT}, 5, 0);
    beside((scene){.max_ctas = 4, .priority = URGENT, .waits = WAITS}, 5, 0);
    beside((scene){.max_ctas = 3, .exchanges = 1, .priority = URGENT, .waits = WAITS}, 5, 0); /* they take four */
    beside((scene){.max_ctas = 4, .cluster = 1, .priority = URGENT}, 4, 0);
    beside((scene){.max_ctas = 4, .priority = URGENT, .waits = WAITS}, 4, 0); /* in a cluster, as by default */
}

/* Their blocks give way to what is more urgent. */
static void test_kernels(void **state)
{
    (void)state;
    beside((scene){.max_ctas = 8, .priority = URGENT}, 0, 0);
    beside((scene){.max_ctas = 1, .waits = WAITS}, 0, 0);
    beside((scene){.max_ctas = 1, .priority = URGENT, .waits = WAITS}, 0, URGENT);
}

/* A kernel waits for a product that is not less urgent. */
static void test_kernel_behind_product(void **state)
{
    (void)state;
    guest product = {.n_sms = 7}, kernels[2] = {{.priority = 0}, {.priority = URGENT}};
    cudaStream_t streams[] = {begin_guest(&product, 1), begin_guest(&kernels[0], 0), begin_guest(&kernels[1], 1)};
    pause_ms(30);
    assert_int_equal(atomic_load(&kernels[0].n_begun), 0);
    guest *all[] = {&product, &kernels[0], &kernels[1]};
    for (int i = 0; i < 3; i++) open_gate(&all[i]->end);
    for (int i = 0; i < 3; i++) {
        OK(cudaStreamSynchronize(streams[i]));
        OK(cudaStreamDestroy(streams[i]));
    }
}

/* A collective that waits for a product begins before the next one. */
static void *run_between(void *user)
{
    rank *self = user;
    guest first = {.n_sms = 6}, second = {.n_sms = 6}, *next = &second;
    join(self);
    split(self);
    OK(cudaStreamDestroy(self->streams[0]));
    OK(cudaStreamCreateWithPriority(&self->streams[0], cudaStreamNonBlocking, URGENT));
    cudaStream_t stream = begin_guest(&first, 1);
    const int64_t before = fake_counted("collective behind a product");
    pthread_barrier_wait(&self->scene->all);
    all_reduce(self, 0);
    fake_enqueue(stream, run_guest, &next, sizeof next);
    while (fake_counted("collective behind a product") < before + RANKS) pause_ms(1);
    open_gate(&first.end);
    for (int ms = 0; ms < 5000 && cudaStreamQuery(self->streams[0]) == cudaErrorNotReady; ms++) pause_ms(1);
    OK(cudaStreamQuery(self->streams[0]));
    open_gate(&second.end);
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamDestroy(stream));
    leave(self, 0);
    return NULL;
}

static void test_urgency(void **state)
{
    (void)state;
    scene s = {.max_ctas = 3, .blocking = 1};
    run_ranks(&s, run_between);
}

/* Rank 1 comes late to each first call of a kind. */
static void *come_late(void *user)
{
    rank *self = user;
    scene *s = self->scene;
    join(self);
    split(self);
    for (int turn = 0; turn < 2; turn++) {
        if (self->number == 1) pause_ms(30);
        if (self->number == 1) atomic_fetch_add(&s->has_come, 1);
        if (turn == 0)
            all_reduce(self, 0);
        else
            send_and_receive(self, self->streams[0]);
        assert_int_equal(atomic_load(&s->has_come), turn + 1);
        OK(cudaStreamSynchronize(self->streams[0]));
        pthread_barrier_wait(&s->all);
    }
    leave(self, 0);
    return NULL;
}

static void test_first_use(void **state)
{
    (void)state;
    scene s = {.max_ctas = 1, .blocking = 1};
    run_ranks(&s, come_late);
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
    join(self);
    split(self);
    send_and_receive(self, self->streams[0]);
    OK(cudaStreamSynchronize(self->streams[0]));
    for (int i = 0; i < 10; i++) assert_int_equal((int)self->data[0][10 + i], 1 - self->number + i);
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
        NCCL_TEST(test_sums),
        NCCL_TEST(test_starvation),
        NCCL_TEST(test_room),
        NCCL_TEST(test_environment),
        NCCL_TEST(test_products),
        NCCL_TEST(test_kernels),
        NCCL_TEST(test_kernel_behind_product),
        NCCL_TEST(test_urgency),
        NCCL_TEST(test_first_use),
        NCCL_TEST(test_mismatch),
        NCCL_TEST(test_one_gpu),
        NCCL_TEST(test_graphs),
        NCCL_TEST(test_pairs),
        NCCL_TEST(test_registered),
        NCCL_TEST(test_misused_memory),
        NCCL_TEST(test_mixed_memory),
    };
    static const struct CMUnitTest in_order[] = {NCCL_TEST(test_order)};
    if (getenv("NCCL_LAUNCH_ORDER_IMPLICIT")) return cmocka_run_group_tests(in_order, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
