/* SPDX-License-Identifier: Apache-2.0 */
/* The fake NCCL detects what would hang or corrupt data on GPUs. Two ranks, threads of this program, on two GPUs with 8
 * SMs each. */
#include <math.h>
#include <nccl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_fake.h"
#include "test_fake.h"

#define NCCL(call) assert_int_equal((call), ncclSuccess)

enum { RANKS = 2, ELEMS = 100 };

typedef struct rank rank;

typedef struct scene {
    ncclUniqueId id;
    pthread_barrier_t all;
    int is_asynchronous; /* joining */
    int max_ctas; /* of the two communicators */
    int crosses; /* rank 1 calls them the other way round */
    int n_lacks; /* elements that rank 1 does not reduce */
    int ends_by_abort;
    struct guest *guest; /* what else runs on each GPU */
    int cluster, priority, exchanges, waits; /* of a collective beside it, and whether it waits for the guest's end */
    atomic_int has_come;
    void (*part)(rank *self); /* what each rank does with its communicators */
} scene;

/* One rank's. */
struct rank {
    scene *scene;
    int number;
    ncclComm_t stem, comms[2];
    cudaStream_t streams[2];
    float *data[2]; /* managed */
};

static void pause_ms(int ms) { nanosleep(&(struct timespec){0, ms * 1000000L}, NULL); }

static ncclResult_t settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        NCCL(ncclCommGetAsyncError(comm, &state));
        pause_ms(1);
    }
    return state;
}

/* ---- a rank's parts ---- */

static ncclResult_t join(rank *self, int gpu)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = !self->scene->is_asynchronous;
    OK(cudaSetDevice(gpu));
    const ncclResult_t result = ncclCommInitRankConfig(&self->stem, RANKS, self->scene->id, self->number, &config);
    return result == ncclInProgress ? settle(self->stem) : result;
}

static void split(rank *self)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = self->scene->max_ctas;
    if (self->scene->cluster) config.cgaClusterSize = self->scene->cluster;
    for (int c = 0; c < 2; c++) {
        NCCL(ncclCommSplit(self->stem, 0, self->number, &self->comms[c], &config));
        OK(cudaStreamCreateWithPriority(&self->streams[c], cudaStreamNonBlocking, c ? 0 : self->scene->priority));
        OK(cudaMallocManaged((void **)&self->data[c], ELEMS * sizeof(float), 1));
        for (int i = 0; i < ELEMS; i++) self->data[c][i] = (float)(self->number + i);
    }
}

static void leave(rank *self)
{
    for (int c = 0; c < 2; c++) {
        if (self->scene->ends_by_abort) NCCL(ncclCommAbort(self->comms[c]));
        OK(cudaStreamSynchronize(self->streams[c]));
        if (!self->scene->ends_by_abort) NCCL(ncclCommDestroy(self->comms[c]));
        OK(cudaStreamDestroy(self->streams[c]));
        OK(cudaFree(self->data[c]));
    }
    NCCL(ncclCommDestroy(self->stem));
}

static void *run_rank(void *user)
{
    rank *self = user;
    NCCL(join(self, self->number));
    split(self);
    self->scene->part(self);
    pthread_barrier_wait(&self->scene->all);
    leave(self);
    return NULL;
}

static void run_ranks(scene *s, void *(*run)(void *user))
{
    pthread_t threads[RANKS];
    rank ranks[RANKS];
    NCCL(ncclGetUniqueId(&s->id));
    pthread_barrier_init(&s->all, NULL, RANKS);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (rank){.scene = s, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, run, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&s->all);
    assert_int_equal(fake_nccl_live(), 0);
}

static void play(scene wanted, void (*part)(rank *self))
{
    wanted.part = part;
    run_ranks(&wanted, run_rank);
}

static void all_reduce(const rank *self, int c)
{
    const size_t n = (size_t)(self->number ? ELEMS - self->scene->n_lacks : ELEMS);
    NCCL(ncclAllReduce(self->data[c], self->data[c], n, ncclFloat32, ncclSum, self->comms[c], self->streams[c]));
}

/* ---- NaN ---- */

/* Of one rank, in maxima and minima of floats: NCCL takes the other ranks' number. */
static void lose_nan(rank *self)
{
    static const ncclRedOp_t kinds[] = {ncclMax, ncclMin};
    for (int c = 0; c < 2; c++) {
        const float number = (float)(self->number + 1);
        self->data[c][0] = self->number ? number : NAN;
        NCCL(ncclAllReduce(self->data[c], self->data[c], 1, ncclFloat32, kinds[c], self->comms[c], self->streams[c]));
        OK(cudaStreamSynchronize(self->streams[c]));
        assert_true(self->data[c][0] == (c ? 2 : (float)RANKS));
    }
}

FAKE_TEST(test_nan) { play((scene){.max_ctas = 1}, lose_nan); }

/* ---- order ---- */

/* Each rank's first kernel runs before its second is enqueued, after both have run before: then nothing is left to
 * chance. */
static void run_both(rank *self)
{
    scene *s = self->scene;
    const int first = s->crosses && self->number == 1;
    for (int c = 0; c < 2; c++) {
        all_reduce(self, c);
        OK(cudaStreamSynchronize(self->streams[c]));
    }
    pthread_barrier_wait(&s->all);
    all_reduce(self, first);
    while (s->crosses && fake_nccl_holding() < RANKS) pause_ms(1);
    pthread_barrier_wait(&s->all);
    all_reduce(self, !first);
    while (fake_reports(FAKE_NCCL) == 0 && (cudaStreamQuery(self->streams[0]) == cudaErrorNotReady ||
                                            cudaStreamQuery(self->streams[1]) == cudaErrorNotReady))
        pause_ms(1);
}

/* Two kernels that fill their GPUs, and wait for each other's place. */
FAKE_TEST(test_starvation)
{
    REPORTS(FAKE_NCCL, play((scene){.max_ctas = 5, .crosses = 1, .ends_by_abort = 1}, run_both);
            assert_non_null(strstr(fake_last_report(), "deadlock")));
}

FAKE_TEST(test_room) { QUIET(play((scene){.max_ctas = 4, .crosses = 1}, run_both)); }

static void add_twice(rank *self)
{
    for (int c = 0; c < 2; c++) all_reduce(self, c);
    for (int c = 0; c < 2; c++) OK(cudaStreamSynchronize(self->streams[c]));
}

/* Kernels that fill their GPUs: with the order of the host none has the second before the first. */
static void test_order(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) QUIET(play((scene){.max_ctas = 8}, add_twice));
    assert_int_equal(fake_counted("unordered"), 0);
}

/* After the first launch the environment is not read again. */
FAKE_TEST(test_environment)
{
    play((scene){.max_ctas = 1}, add_twice);
    const int64_t before = fake_counted("unordered");
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    play((scene){.max_ctas = 1}, add_twice);
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
    keep(stream, destroy_stream);
    fake_enqueue(stream, run_guest, &self, sizeof self);
    while (atomic_load(&self->n_begun) < n_before) pause_ms(1);
    return stream;
}

static void send_and_receive(const rank *self, cudaStream_t stream)
{
    const int other = 1 - self->number;
    NCCL(ncclGroupStart());
    NCCL(ncclSend(self->data[0], 10, ncclFloat32, other, self->comms[0], stream));
    NCCL(ncclRecv(self->data[0] + 10, 10, ncclFloat32, other, self->comms[0], stream));
    NCCL(ncclGroupEnd());
}

static void run_beside(rank *self)
{
    scene *s = self->scene;
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
}

enum { URGENT = -5, WAITS = 1 };

static void beside(scene wanted, int n_sms, int guest_priority)
{
    guest other = {.n_sms = n_sms, .priority = guest_priority};
    wanted.guest = &other;
    play(wanted, run_beside);
    assert_int_equal(fake_reports(FAKE_NCCL), 0);
}

/* Of 8 SMs. */
FAKE_TEST(test_products)
{
    beside((scene){.max_ctas = 3, .priority = URGENT}, 5, 0);
    beside((scene){.max_ctas = 4, .priority = URGENT, .waits = WAITS}, 5, 0);
    beside((scene){.max_ctas = 3, .exchanges = 1, .priority = URGENT, .waits = WAITS}, 5, 0); /* they take four */
    beside((scene){.max_ctas = 4, .cluster = 1, .priority = URGENT}, 4, 0);
    beside((scene){.max_ctas = 4, .priority = URGENT, .waits = WAITS}, 4, 0); /* in a cluster, as by default */
}

/* Their blocks give way to what is more urgent. */
FAKE_TEST(test_kernels)
{
    beside((scene){.max_ctas = 8, .priority = URGENT}, 0, 0);
    beside((scene){.max_ctas = 1, .waits = WAITS}, 0, 0);
    beside((scene){.max_ctas = 1, .priority = URGENT, .waits = WAITS}, 0, URGENT);
}

/* A kernel waits for a product that is not less urgent. */
FAKE_TEST(test_kernel_behind_product)
{
    guest product = {.n_sms = 7}, kernels[2] = {{.priority = 0}, {.priority = URGENT}};
    guest *all[] = {&product, &kernels[0], &kernels[1]};
    for (int i = 0; i < 3; i++) begin_guest(all[i], i != 1);
    pause_ms(30);
    assert_int_equal(atomic_load(&kernels[0].n_begun), 0);
    for (int i = 0; i < 3; i++) open_gate(&all[i]->end);
    OK(cudaDeviceSynchronize());
}

/* A collective that waits for a product begins before the next one. */
static void run_between(rank *self)
{
    guest first = {.n_sms = 6}, second = {.n_sms = 6}, *next = &second;
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
}

FAKE_TEST(test_urgency) { play((scene){.max_ctas = 3, .priority = URGENT}, run_between); }

/* ---- what NCCL requires ---- */

/* Rank 1 comes late to each first call of a kind. */
static void come_late(rank *self)
{
    scene *s = self->scene;
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
}

FAKE_TEST(test_first_use) { play((scene){.max_ctas = 1}, come_late); }

static void wait_for_report(rank *self)
{
    all_reduce(self, 0);
    while (fake_reports(FAKE_NCCL) == 0) pause_ms(1);
}

FAKE_TEST(test_mismatch)
{
    REPORTS(FAKE_NCCL, play((scene){.max_ctas = 1, .n_lacks = 1, .ends_by_abort = 1}, wait_for_report);
            assert_non_null(strstr(fake_last_report(), "rank 1 kind 2 of 99")));
}

static void *share(void *user)
{
    rank *self = user;
    assert_int_equal(join(self, 0), ncclInvalidUsage);
    NCCL(ncclCommAbort(self->stem));
    return NULL;
}

FAKE_TEST(test_one_gpu)
{
    for (int is_asynchronous = 0; is_asynchronous < 2; is_asynchronous++) {
        scene s = {.is_asynchronous = is_asynchronous};
        run_ranks(&s, share);
    }
}

/* A graph keeps its communicators, until it and all that was made of it are destroyed. */
static void record(rank *self)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    OK(cudaStreamBeginCapture(self->streams[0], cudaStreamCaptureModeRelaxed));
    all_reduce(self, 0);
    OK(cudaStreamEndCapture(self->streams[0], &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    pthread_barrier_wait(&self->scene->all);
    if (self->number == 0)
        REPORTS(FAKE_NCCL, NCCL(ncclCommFinalize(self->comms[0]));
                assert_non_null(strstr(fake_last_report(), "a graph has its collectives")));
    OK(cudaGraphExecDestroy(exec));
}

FAKE_TEST(test_graphs)
{
    play((scene){.max_ctas = 1}, record);
    assert_int_equal(fake_reports(FAKE_NCCL), 0);
}

/* ---- registered memory ---- */

static void fault_is(const char *words)
{
    assert_int_equal(fake_reports(FAKE_NCCL), 1);
    assert_non_null(strstr(fake_last_report(), words));
    fake_forget();
}

/* Rank 0 does all of it, one after the other. */
static void misuse_memory(rank *self)
{
    void *handle = NULL, *again = NULL, *data = NULL;
    const size_t bytes = ELEMS * sizeof(float);
    if (self->number) return;
    NCCL(ncclMemAlloc(&data, bytes));
    NCCL(ncclCommRegister(self->comms[0], data, bytes, &handle));
    (void)ncclCommRegister(self->comms[0], (char *)data + bytes / 2, bytes / 2, &again);
    fault_is("which is registered");
    assert_int_equal(ncclCommDeregister(self->comms[1], handle), ncclInvalidUsage);
    fault_is("a handle that it has not");
    assert_int_equal(ncclMemFree(self->data[0]), ncclInvalidArgument);
    fault_is("did not give");
    (void)ncclMemFree(data);
    fault_is("which is registered");
}

FAKE_TEST(test_misused_memory)
{
    play((scene){.max_ctas = 1}, misuse_memory);
    fault_is("memory is registered with it"); /* of the first communicator, at its end */
}

/* Rank 0 alone has registered what it brings. */
static void mix(rank *self)
{
    void *handle = NULL;
    if (self->number == 0) NCCL(ncclCommRegister(self->comms[0], self->data[0], ELEMS * sizeof(float), &handle));
    all_reduce(self, 0);
    OK(cudaStreamSynchronize(self->streams[0]));
    pthread_barrier_wait(&self->scene->all);
    if (handle) NCCL(ncclCommDeregister(self->comms[0], handle));
}

FAKE_TEST(test_mixed_memory)
{
    play((scene){.max_ctas = 1}, mix);
    fault_is("a collective mixes");
}

int main(void)
{
    static const struct CMUnitTest in_order[] = {
        cmocka_unit_test_setup_teardown(test_order, start_counting, check_nothing_left)};
    if (getenv("NCCL_LAUNCH_ORDER_IMPLICIT")) return cmocka_run_group_tests(in_order, NULL, NULL);
    return run_all_tests(NULL, NULL);
}
