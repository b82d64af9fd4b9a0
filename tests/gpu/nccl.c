/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of NCCL on which the library relies, with one rank, since one GPU allows no more: a non-blocking
 * communicator is split into blocking ones; these run collectives directly and recorded, are destroyed, and are aborted
 * as a group by another thread while a graph holds them. Linked without the library. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_PARTS = 2, N_ELEMS = 1 << 16, MAX_CTAS = 8, PATIENCE_MS = 20000 };

#define CUDA_OK(call) check_cuda((call), #call)
#define NCCL_OK(call) check_nccl((call), #call)

static void check(int is_right, const char *what, const char *why)
{
    if (is_right) return;
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check_cuda(cudaError_t error, const char *what)
{
    check(error == cudaSuccess, what, cudaGetErrorString(error));
}

static void check_nccl(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess) fprintf(stderr, "%s\n", ncclGetLastError(NULL));
    check(result == ncclSuccess, what, ncclGetErrorString(result));
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

typedef struct family {
    ncclComm_t stem, parts[N_PARTS];
    cudaStream_t streams[N_PARTS];
    float *from[N_PARTS], *to[N_PARTS]; /* of the GPU */
    cudaEvent_t fork, join;
    atomic_int is_over;
} family;

/* ---- making ---- */

/* Until what was begun has ended, and there is what it makes (NULL: nothing): the communicator that is split may be
 * done before its part is there. */
static void settle(ncclComm_t comm, ncclResult_t begun, ncclComm_t *made, const char *what)
{
    ncclResult_t state = begun;
    for (int ms = 0; state == ncclInProgress && ms < PATIENCE_MS; ms++) {
        pause_ms(1);
        NCCL_OK(ncclCommGetAsyncError(comm, &state));
        if (state == ncclSuccess && made && !__atomic_load_n(made, __ATOMIC_ACQUIRE)) state = ncclInProgress;
    }
    check(state == ncclSuccess, what, ncclGetErrorString(state));
}

static void split(family *f, int i)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.maxCTAs = MAX_CTAS;
    config.splitShare = 0;
    const ncclResult_t begun = ncclCommSplit(f->stem, 0, 0, &f->parts[i], &config);
    check(begun == ncclSuccess || begun == ncclInProgress, "ncclCommSplit", ncclGetErrorString(begun));
    settle(f->stem, ncclInProgress, &f->parts[i], "ncclCommSplit");
    settle(f->parts[i], ncclInProgress, NULL, "a part");
}

static void make_family(family *f)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    NCCL_OK(ncclGetUniqueId(&id));
    const ncclResult_t begun = ncclCommInitRankConfig(&f->stem, 1, id, 0, &config);
    check(f->stem != NULL, "ncclCommInitRankConfig", ncclGetErrorString(begun));
    settle(f->stem, begun, NULL, "ncclCommInitRankConfig");
    CUDA_OK(cudaEventCreateWithFlags(&f->fork, cudaEventDisableTiming));
    CUDA_OK(cudaEventCreateWithFlags(&f->join, cudaEventDisableTiming));
    for (int i = 0; i < N_PARTS; i++) {
        split(f, i);
        CUDA_OK(cudaStreamCreateWithPriority(&f->streams[i], cudaStreamNonBlocking, -i));
        CUDA_OK(cudaMalloc((void **)&f->from[i], N_ELEMS * sizeof(float)));
        CUDA_OK(cudaMalloc((void **)&f->to[i], N_ELEMS * sizeof(float)));
    }
}

static void free_rest(family *f)
{
    for (int i = 0; i < N_PARTS; i++) {
        CUDA_OK(cudaStreamSynchronize(f->streams[i]));
        CUDA_OK(cudaStreamDestroy(f->streams[i]));
        CUDA_OK(cudaFree(f->from[i]));
        CUDA_OK(cudaFree(f->to[i]));
    }
    CUDA_OK(cudaEventDestroy(f->fork));
    CUDA_OK(cudaEventDestroy(f->join));
}

/* ---- running ---- */

static void fill(const family *f, float first)
{
    static float numbers[N_ELEMS];
    for (int i = 0; i < N_ELEMS; i++) numbers[i] = first + (float)i;
    for (int i = 0; i < N_PARTS; i++) {
        CUDA_OK(cudaMemcpyAsync(f->from[i], numbers, sizeof numbers, cudaMemcpyDefault, f->streams[i]));
        CUDA_OK(cudaMemsetAsync(f->to[i], 0xff, sizeof numbers, f->streams[i]));
    }
    for (int i = 0; i < N_PARTS; i++) CUDA_OK(cudaStreamSynchronize(f->streams[i]));
}

static void expect(const family *f, float first, const char *what)
{
    static float numbers[N_ELEMS];
    for (int i = 0; i < N_PARTS; i++) {
        CUDA_OK(cudaMemcpyAsync(numbers, f->to[i], sizeof numbers, cudaMemcpyDefault, f->streams[i]));
        CUDA_OK(cudaStreamSynchronize(f->streams[i]));
        for (int j = 0; j < N_ELEMS; j++) check(numbers[j] == first + (float)j, what, "a number is wrong");
    }
}

/* On all streams, from the first and back to it. */
static void enqueue(const family *f)
{
    CUDA_OK(cudaEventRecord(f->fork, f->streams[0]));
    for (int i = 0; i < N_PARTS; i++) {
        if (i > 0) CUDA_OK(cudaStreamWaitEvent(f->streams[i], f->fork, cudaEventWaitDefault));
        NCCL_OK(ncclAllReduce(f->from[i], f->to[i], N_ELEMS, ncclFloat32, ncclSum, f->parts[i], f->streams[i]));
        if (i == 0) continue;
        CUDA_OK(cudaEventRecord(f->join, f->streams[i]));
        CUDA_OK(cudaStreamWaitEvent(f->streams[0], f->join, cudaEventWaitDefault));
    }
}

static cudaGraphExec_t record(const family *f)
{
    cudaGraph_t graph;
    cudaGraphExec_t made;
    CUDA_OK(cudaStreamBeginCapture(f->streams[0], cudaStreamCaptureModeRelaxed));
    enqueue(f);
    CUDA_OK(cudaStreamEndCapture(f->streams[0], &graph));
    CUDA_OK(cudaGraphInstantiate(&made, graph, cudaGraphInstantiateFlagUseNodePriority));
    CUDA_OK(cudaGraphDestroy(graph));
    return made;
}

static void run_all(const family *f, cudaGraphExec_t graph)
{
    fill(f, 1);
    enqueue(f);
    expect(f, 1, "an all-reduce");
    for (int round = 2; round < 5; round++) {
        fill(f, (float)round);
        CUDA_OK(cudaGraphLaunch(graph, f->streams[0]));
        CUDA_OK(cudaStreamSynchronize(f->streams[0]));
        expect(f, (float)round, "a recorded all-reduce");
    }
}

/* ---- the end ---- */

static void end(ncclComm_t comm)
{
    settle(comm, ncclCommFinalize(comm), NULL, "ncclCommFinalize");
    NCCL_OK(ncclCommDestroy(comm));
}

/* Communicators that block and one that does not, as one group. */
static void *abort_all(void *user)
{
    family *f = user;
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < N_PARTS; i++) NCCL_OK(ncclCommAbort(f->parts[i]));
    NCCL_OK(ncclCommAbort(f->stem));
    NCCL_OK(ncclGroupEnd());
    atomic_store(&f->is_over, 1);
    return NULL;
}

static void test_end(void)
{
    family f = {0};
    make_family(&f);
    cudaGraphExec_t graph = record(&f);
    run_all(&f, graph);
    CUDA_OK(cudaGraphExecDestroy(graph));
    for (int i = 0; i < N_PARTS; i++) end(f.parts[i]);
    end(f.stem);
    free_rest(&f);
    printf("communicators end\n");
}

static void test_abort(void)
{
    family f = {0};
    pthread_t thread;
    make_family(&f);
    cudaGraphExec_t graph = record(&f);
    run_all(&f, graph);
    check(pthread_create(&thread, NULL, abort_all, &f) == 0, "pthread_create", "no thread");
    pause_ms(500);
    const int is_early = atomic_load(&f.is_over);
    CUDA_OK(cudaGraphExecDestroy(graph));
    for (int ms = 0; !atomic_load(&f.is_over) && ms < PATIENCE_MS; ms++) pause_ms(1);
    check(atomic_load(&f.is_over), "ncclCommAbort", "it hangs, though no graph is left");
    pthread_join(thread, NULL);
    free_rest(&f);
    printf("communicators are aborted, %s their graph\n", is_early ? "without waiting for" : "after");
}

int main(void)
{
    int version;
    (void)setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    CUDA_OK(cudaSetDevice(0));
    NCCL_OK(ncclGetVersion(&version));
    printf("NCCL %d, built with %d\n", version, NCCL_VERSION_CODE);
    test_end();
    test_abort();
    return 0;
}
