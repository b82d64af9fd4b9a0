/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank of ranks.c does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu.h"
#include "ranks.h"

enum { PATIENCE_MS = 30000, SHARING_VERSION = 23000, SMS_SPARED = 4 };

static _Thread_local int this_rank;

void check(int is_right, const char *what, const char *why)
{
    if (is_right) return;
    fprintf(stderr, "rank %d: %s: %s\n", this_rank, what, why);
    gpu_end(1);
}

void check_nccl(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess) fprintf(stderr, "rank %d: %s\n", this_rank, ncclGetLastError(NULL));
    check(result == ncclSuccess, what, ncclGetErrorString(result));
}

void pause_ms(int ms) { nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL); }

void meet(rank *self) { check(!team_meet(self->team, self->number), "a meeting", "another rank is missing"); }

/* ---- beginning ---- */

void set_environment(const program *given)
{
    (void)setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    if (!given->as_threads) {
        (void)setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0); /* as the library */
        return;
    }
    /* Threads share a CUDA context. Kept in one order, kernels of one rank would wait for those of another that waits
     * for them; kernels that are loaded at their first launch wait for those that run; streams that share a queue wait
     * for each other. */
    (void)setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
}

/* NCCL gives sends and receives a power of two of channels. Kernels of threads that do not fit at once wait forever. */
static void check_room(const rank *self)
{
    int n_sms = 0, n_ctas = 1;
    char why[120];
    while (n_ctas < self->given->max_ctas) n_ctas *= 2;
    CUDA_OK(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, self->device));
    snprintf(why, sizeof why, "%d threads of %d parts of %d blocks do not fit on %d multiprocessors; take fewer",
             self->n, N_PARTS, n_ctas, n_sms);
    check(!self->given->as_threads || self->n * N_PARTS * n_ctas <= n_sms - SMS_SPARED, "--ctas", why);
}

void rank_begin(rank *self)
{
    int n_gpus = 0;
    char why[120];
    this_rank = self->number;
    NCCL_OK(ncclGetVersion(&self->version));
    const int version = self->version;
    const cudaError_t found = cudaGetDeviceCount(&n_gpus);
    if (found != cudaSuccess || n_gpus == 0) {
        fprintf(stderr, "rank %d: there is no GPU: %s\n", this_rank, cudaGetErrorString(found));
        gpu_end(NO_GPU);
    }
    snprintf(why, sizeof why, "this is %d.%d.%d; ranks share a GPU from 2.30 on", version / 10000, version / 100 % 100,
             version % 100);
    check(n_gpus >= self->n || version >= SHARING_VERSION, "NCCL", why);
    self->device = n_gpus >= self->n ? self->number : 0;
    CUDA_OK(cudaSetDevice(self->device));
    CUDA_OK(cudaFree(NULL)); /* makes the context */
    check_room(self);
    if (self->number == 0) fprintf(stderr, "NCCL %d, built with %d\n", version, NCCL_VERSION_CODE);
    self->host = malloc(MOST_ELEMS * sizeof *self->host);
    check(self->host != NULL, "malloc", "no memory");
    CUDA_OK(cudaEventCreateWithFlags(&self->fork, cudaEventDisableTiming));
    CUDA_OK(cudaEventCreateWithFlags(&self->join, cudaEventDisableTiming));
    for (int i = 0; i < N_PARTS; i++) {
        CUDA_OK(cudaStreamCreateWithPriority(&self->streams[i], cudaStreamNonBlocking, -i));
        CUDA_OK(cudaMalloc((void **)&self->from[i], MOST_ELEMS * sizeof(float)));
        CUDA_OK(cudaMalloc((void **)&self->to[i], MOST_ELEMS * sizeof(float)));
    }
}

void rank_end(rank *self)
{
    for (int i = 0; i < N_PARTS; i++) {
        CUDA_OK(cudaStreamDestroy(self->streams[i]));
        CUDA_OK(cudaFree(self->from[i]));
        CUDA_OK(cudaFree(self->to[i]));
    }
    CUDA_OK(cudaEventDestroy(self->fork));
    CUDA_OK(cudaEventDestroy(self->join));
    free(self->host);
}

/* ---- communicators ---- */

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
    check_nccl(state, what);
}

void make_stem(rank *self)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 0;
    if (self->number == 0) NCCL_OK(ncclGetUniqueId(&id));
    check(!team_copy(self->team, self->number, 0, &id, sizeof id), "the id", "another rank is missing");
    const ncclResult_t begun = ncclCommInitRankConfig(&self->stem, self->n, id, self->number, &config);
    check(self->stem != NULL, "ncclCommInitRankConfig", ncclGetErrorString(begun));
    settle(self->stem, begun, NULL, "ncclCommInitRankConfig");
}

void split_off(rank *self, int i)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.maxCTAs = self->given->max_ctas;
    config.splitShare = 0;
    const ncclResult_t begun = ncclCommSplit(self->stem, 0, self->number, &self->parts[i], &config);
    check(begun == ncclSuccess || begun == ncclInProgress, "ncclCommSplit", ncclGetErrorString(begun));
    settle(self->stem, ncclInProgress, &self->parts[i], "ncclCommSplit");
    settle(self->parts[i], ncclInProgress, NULL, "a part");
}

static void end(ncclComm_t comm)
{
    settle(comm, ncclCommFinalize(comm), NULL, "ncclCommFinalize");
    NCCL_OK(ncclCommDestroy(comm));
}

void end_all(rank *self)
{
    for (int i = 0; i < N_PARTS; i++) end(self->parts[i]);
    end(self->stem);
}

void *abort_all(void *user)
{
    rank *self = user;
    CUDA_OK(cudaSetDevice(self->device));
    NCCL_OK(ncclGroupStart());
    for (int i = 0; i < N_PARTS; i++) NCCL_OK(ncclCommAbort(self->parts[i]));
    NCCL_OK(ncclCommAbort(self->stem));
    NCCL_OK(ncclGroupEnd());
    atomic_store(&self->is_over, 1);
    return NULL;
}

/* ---- collectives ---- */

/* Exact, also in sums of eight ranks. */
static float value(int number, size_t k) { return (float)(1000 * (number + 1) + (int)(k % 977)); }

static int has_parts(int kind) { return kind == REDUCE_SCATTER || kind == ALL_TO_ALL; }

const char *kind_name(int kind)
{
    static const char *const names[] = {"all-reduce", "maximum",   "minimum",    "reduce-scatter",
                                        "all-gather", "broadcast", "all-to-all", "ring"};
    return names[kind];
}

void fill(rank *self, int i, int kind, size_t n)
{
    const size_t all = has_parts(kind) ? n * (size_t)self->n : n;
    for (size_t k = 0; k < all; k++) self->host[k] = value(self->number, k);
    CUDA_OK(cudaMemcpyAsync(self->from[i], self->host, all * sizeof(float), cudaMemcpyDefault, self->streams[i]));
    CUDA_OK(cudaMemsetAsync(self->to[i], 0xff, MOST_ELEMS * sizeof(float), self->streams[i]));
    CUDA_OK(cudaStreamSynchronize(self->streams[i]));
}

static void exchange(rank *self, int i, size_t n, int to, size_t to_at, int from, size_t from_at)
{
    NCCL_OK(ncclSend(self->from[i] + to_at, n, ncclFloat32, to, self->parts[i], self->streams[i]));
    NCCL_OK(ncclRecv(self->to[i] + from_at, n, ncclFloat32, from, self->parts[i], self->streams[i]));
}

static void run_pairs(rank *self, int kind, int i, size_t n)
{
    const int next = (self->number + 1) % self->n, last = (self->number + self->n - 1) % self->n;
    NCCL_OK(ncclGroupStart());
    if (kind == RING) exchange(self, i, n, next, 0, last, 0);
    for (int j = 0; kind == ALL_TO_ALL && j < self->n; j++) exchange(self, i, n, j, (size_t)j * n, j, (size_t)j * n);
    NCCL_OK(ncclGroupEnd());
}

void run_kind(rank *self, int kind, int i, size_t n)
{
    const float *from = self->from[i];
    float *to = self->to[i];
    ncclComm_t part = self->parts[i];
    cudaStream_t stream = self->streams[i];
    switch (kind) {
    case ALL_REDUCE: NCCL_OK(ncclAllReduce(from, to, n, ncclFloat32, ncclSum, part, stream)); break;
    case MAXIMUM: NCCL_OK(ncclAllReduce(from, to, n, ncclFloat32, ncclMax, part, stream)); break;
    case MINIMUM: NCCL_OK(ncclAllReduce(from, to, n, ncclFloat32, ncclMin, part, stream)); break;
    case REDUCE_SCATTER: NCCL_OK(ncclReduceScatter(from, to, n, ncclFloat32, ncclSum, part, stream)); break;
    case ALL_GATHER: NCCL_OK(ncclAllGather(from, to, n, ncclFloat32, part, stream)); break;
    case BROADCAST: NCCL_OK(ncclBroadcast(from, to, n, ncclFloat32, self->n - 1, part, stream)); break;
    default: run_pairs(self, kind, i, n);
    }
}

const float *take(rank *self, int i, size_t n)
{
    CUDA_OK(cudaMemcpyAsync(self->host, self->to[i], n * sizeof(float), cudaMemcpyDefault, self->streams[i]));
    CUDA_OK(cudaStreamSynchronize(self->streams[i]));
    return self->host;
}

static float expected(const rank *self, int kind, size_t n, size_t k)
{
    const size_t own = (size_t)self->number * n;
    float sum = 0;
    switch (kind) {
    case MAXIMUM:
    case BROADCAST: return value(self->n - 1, k);
    case MINIMUM: return value(0, k);
    case ALL_GATHER: return value((int)(k / n), k % n);
    case ALL_TO_ALL: return value((int)(k / n), own + k % n);
    case RING: return value((self->number + self->n - 1) % self->n, k);
    default:
        for (int j = 0; j < self->n; j++) sum += value(j, kind == REDUCE_SCATTER ? own + k : k);
        return sum;
    }
}

void expect(rank *self, int i, int kind, size_t n)
{
    const size_t all = kind == ALL_GATHER || kind == ALL_TO_ALL ? n * (size_t)self->n : n;
    const float *result = take(self, i, all);
    for (size_t k = 0; k < all; k++) {
        const float wanted = expected(self, kind, n, k);
        if (result[k] == wanted) continue;
        char why[120];
        snprintf(why, sizeof why, "element %zu of %zu on part %d is %g, not %g", k, all, i, (double)result[k],
                 (double)wanted);
        check(0, kind_name(kind), why);
    }
}

/* On all streams, from the first and back to it. */
cudaGraphExec_t record(rank *self, size_t n)
{
    cudaGraph_t graph;
    cudaGraphExec_t made;
    CUDA_OK(cudaStreamBeginCapture(self->streams[0], cudaStreamCaptureModeRelaxed));
    CUDA_OK(cudaEventRecord(self->fork, self->streams[0]));
    for (int i = 0; i < N_PARTS; i++) {
        if (i > 0) CUDA_OK(cudaStreamWaitEvent(self->streams[i], self->fork, cudaEventWaitDefault));
        run_kind(self, ALL_REDUCE, i, n);
        if (i == 0) continue;
        CUDA_OK(cudaEventRecord(self->join, self->streams[i]));
        CUDA_OK(cudaStreamWaitEvent(self->streams[0], self->join, cudaEventWaitDefault));
    }
    CUDA_OK(cudaStreamEndCapture(self->streams[0], &graph));
    CUDA_OK(cudaGraphInstantiate(&made, graph, cudaGraphInstantiateFlagUseNodePriority));
    CUDA_OK(cudaGraphDestroy(graph));
    return made;
}
