/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks create and destroy NCCL communicators: what is compared first, the stem, splitting; and the time limits. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/nccl/internal.h"
#include "core/environment.h"
#include "core/log.h"
#include "core/size.h"
#include "dev/clock.h"

#define LOOK_NS INT64_C(20000000) /* interval at which the host is asked whether other ranks gave up */
#define LONGEST_PAUSE_NS INT64_C(1000000)
enum { CLOSE_SECS = 30 };
/* Communicators of a rank that may run collectives at the same time: those of a grid (for bulk data, each on its own
 * stream; for statistics, on any stream of the caller's), and that of the world for redistributions. The CTAs of all
 * fit on the GPU with some SMs to spare, so that no collective waits for an SM that is held by another one which waits
 * for it. USUAL_PARTS: of a grid without levels (near, far, copies); those of one with levels share the same SMs. */
enum {
    USUAL_PARTS = QDR_N_CHANNELS - 3,
    TOGETHER = USUAL_PARTS + 1,
    SMS_SPARED = 4,
    DEFAULT_MOST_CTAS = 16,
    MOST_CTAS = 64
};
enum { LEAST_VERSION = 22600 }; /* the first that keeps the order of launches */

static int had_nccl; /* the program had loaded NCCL before the plugin */

static const char *remedy_of(ncclResult_t result)
{
    switch (result) {
    case ncclRemoteError: return "another rank or its network failed; see the message of that rank";
    case ncclSystemError: return "see what NCCL_DEBUG=WARN says of the network, shared memory (/dev/shm) and limits";
    case ncclInvalidUsage:
        return "start one rank per GPU; if several threads launch NCCL's kernels, set NCCL_LAUNCH_RACE_FATAL=0, since "
               "NCCL_LAUNCH_ORDER_IMPLICIT=1 makes that an error; see NCCL_DEBUG=WARN";
    case ncclUnhandledCudaError: return "an earlier kernel may have failed; see NCCL_DEBUG=WARN";
    default: return "see what NCCL_DEBUG=WARN says";
    }
}

qdr_status qdri_nccl_status(ncclComm_t handle, ncclResult_t result, const char *call)
{
    if (result == ncclSuccess) return QDR_OK;
    const char *last = ncclGetLastError(handle);
    const char *more = last && *last ? last : "no more is known";
    if (result == ncclRemoteError)
        return QDR_FAIL(QDR_ERR_PEER, "nccl: %.60s failed: %s (%.160s); %s", call, ncclGetErrorString(result), more,
                        remedy_of(result));
    return QDR_FAIL(QDR_ERR_DEVICE, "nccl: %.60s failed: %s (%.160s); %s", call, ncclGetErrorString(result), more,
                    remedy_of(result));
}

qdri_comm *qdri_nccl_host(const nccl_comm *comm)
{
    qdri_comm_set_names(comm->host, comm->base.name, comm->base.describe, comm->base.describe_user);
    comm->host->root->timeout_ns = qdri_comm_timeout_ns(&comm->base);
    return comm->host;
}

static qdr_status find_version(const qdri_cuda_dev *dev, int *version)
{
    QDRI_CUDA_ENTER(dev);
    QDR_TRY(qdri_nccl_status(NULL, ncclGetVersion(version), "ncclGetVersion"));
    if (*version >= LEAST_VERSION) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "nccl: this is NCCL %d.%d.%d, but %d.%d or later is needed, which starts kernels in launch order; "
                    "put a newer libnccl.so.2 first in LD_LIBRARY_PATH",
                    *version / 10000, *version / 100 % 100, *version % 100, LEAST_VERSION / 10000,
                    LEAST_VERSION / 100 % 100);
}

qdr_status qdri_nccl_fits(qdri_comm *host, qdri_dev *dev)
{
    int version = 0;
    QDR_TRY(qdri_comm_agree(host, find_version((const qdri_cuda_dev *)dev, &version)));
    return qdri_nccl_check_sharing(host, (qdri_cuda_dev *)dev, version);
}

/* The largest power of two that is at most n; 1 for n < 1. */
static int round_down(int n)
{
    int power = 1;
    while (power <= n / 2) power *= 2;
    return power;
}

int qdri_nccl_sms(int max_ctas) { return round_down(2 * max_ctas - 1); }

/* Communicators that may run together on a GPU: threads that share it do not take turns. */
static int together(const qdri_cuda_dev *dev) { return TOGETHER * (dev->n_sharing > 1 ? dev->n_sharing : 1); }

/* SMs for each of them; one on the smallest GPU partitions. */
static int room_for_each(const qdri_cuda_dev *dev)
{
    const int room = (dev->gpu.n_sms - SMS_SPARED) / together(dev);
    return round_down(room > MOST_CTAS ? MOST_CTAS : room);
}

int qdri_nccl_part_ctas(int max_ctas, int n_parts)
{
    if (n_parts <= USUAL_PARTS) return max_ctas;
    const int part = round_down(qdri_nccl_sms(max_ctas) * TOGETHER / (n_parts + 1));
    return part < max_ctas ? part : max_ctas;
}

/* Makes NCCL's kernels start in the order in which the host launches them. Otherwise two communicators whose kernels do
 * not fit together could wait for each other on two GPUs. NCCL reads the variable once in a process, at its first
 * launch or, from 2.31 on, when it creates its first communicator; and it holds against all threads that launch. */
static void set_order(void)
{
    static const char name[] = "NCCL_LAUNCH_ORDER_IMPLICIT";
    const char *value = getenv(name);
    if (value && strcmp(value, "0") == 0)
        qdri_log(QDRI_LOG_WARNING, "nccl: %s is 0, so communicators may deadlock; unset it", name);
    if (value || setenv(name, "1", 0) != 0) return;
    if (had_nccl)
        qdri_log(
            QDRI_LOG_WARNING,
            "nccl: the program had loaded NCCL before; if it has also used it, it is too late for %s=1 and "
            "communicators may deadlock: set it before, with NCCL_LAUNCH_RACE_FATAL=0 if other threads launch, too",
            name);
    else
        qdri_log(
            QDRI_LOG_INFO,
            "nccl: %s=1 from now on; if other parts of the program launch NCCL's kernels from threads of their own, "
            "set NCCL_LAUNCH_RACE_FATAL=0",
            name);
}

void qdri_nccl_note_before(int is_loaded) { had_nccl = is_loaded; }

typedef struct greeting {
    int version, max_ctas;
} greeting;

static qdr_status greet(const qdri_cuda_dev *dev, greeting *mine)
{
    const int room = room_for_each(dev);
    double wanted = 0;
    QDR_TRY(find_version(dev, &mine->version));
    QDR_TRY(qdri_environment_number(QDRI_VARIABLE_NCCL_MAX_CTAS, &wanted));
    mine->max_ctas = wanted > 0 ? (int)wanted : room > DEFAULT_MOST_CTAS ? DEFAULT_MOST_CTAS : room;
    return QDR_OK;
}

/* Rank 0 has chosen the number of CTAs, and the GPUs of other ranks may be smaller. */
static qdr_status compare_greetings(const qdri_cuda_dev *dev, int rank, greeting mine, greeting first)
{
    const int room = room_for_each(dev), each = qdri_nccl_sms(first.max_ctas);
    if (mine.version != first.version)
        return QDR_FAIL(
            QDR_ERR_UNSUPPORTED,
            "nccl: rank %d has NCCL %d.%d.%d, rank 0 has %d.%d.%d; make all ranks load the same libnccl.so.2 "
            "(LD_LIBRARY_PATH)",
            rank, mine.version / 10000, mine.version / 100 % 100, mine.version % 100, first.version / 10000,
            first.version / 100 % 100, first.version % 100);
    if (each <= room && (dev->n_sharing <= 1 || together(dev) <= dev->gpu.n_sms - SMS_SPARED)) return QDR_OK;
    return QDR_FAIL(
        QDR_ERR_ARGUMENT,
        "nccl: %d communicators of %d thread blocks each (QDR_NCCL_MAX_CTAS, or rank 0's choice), %d SMs each with "
        "sends and receives, may run together, too many for the %d SMs of rank %d's GPU: they could deadlock; use "
        "QDR_NCCL_MAX_CTAS=%d or less%s",
        together(dev), first.max_ctas, each, dev->gpu.n_sms, rank, room,
        dev->n_sharing > 1 ? ", or fewer threads on the GPU" : "");
}

qdr_status qdri_nccl_prepare(qdri_comm *host, qdri_dev *dev, int *max_ctas)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    greeting mine = {0};
    if (((const qdri_cuda_dev *)dev)->n_sharing <= 1) pthread_once(&once, set_order);
    QDR_TRY(qdri_comm_agree(host, greet((const qdri_cuda_dev *)dev, &mine)));
    greeting first = mine;
    QDR_TRY(qdri_comm_broadcast(host, 0, &first, sizeof first));
    *max_ctas = first.max_ctas;
    return qdri_comm_agree(host, compare_greetings((const qdri_cuda_dev *)dev, host->rank, mine, first));
}

static ncclResult_t state_of(ncclComm_t handle, const ncclComm_t *place)
{
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = ncclCommGetAsyncError(handle, &state);
    if (asked != ncclSuccess) return asked;
    if (state != ncclSuccess || !place) return state;
    ncclComm_t made = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    return made ? state_of(made, NULL) : ncclInProgress;
}

qdr_status qdri_nccl_settle(qdri_comm *talker, ncclComm_t handle, const ncclComm_t *place, const char *call)
{
    const int64_t set_ns = qdri_comm_timeout_ns(talker);
    const int64_t limit_ns = set_ns > 0 ? set_ns : INT64_C(1000000000) * QDRI_NCCL_JOIN_SECS;
    int64_t looked_ns = qdri_now_ns(), pause_ns = 10000;
    qdri_patience patience = {0};
    for (;;) {
        const ncclResult_t state = state_of(handle, place);
        if (state != ncclInProgress) return qdri_nccl_status(handle, state, call);
        const int64_t now_ns = qdri_now_ns();
        if (qdri_waited_ns(&patience) > limit_ns)
            return QDR_FAIL(QDR_ERR_TIMEOUT,
                            "nccl: rank %d of %d has waited %g s in %s; check that all ranks are running, that "
                            "NCCL_SOCKET_IFNAME names a network that all nodes share and no firewall blocks, and what "
                            "NCCL_DEBUG=INFO says; or allow more with QDR_TIMEOUT",
                            talker->rank, talker->size, 1e-9 * (double)limit_ns, call);
        if (now_ns - looked_ns > LOOK_NS) {
            looked_ns = now_ns;
            if (talker->dev) QDR_TRY(qdri_dev_raise(talker->dev)); /* before the guard aborts */
            if (talker->table->look) QDR_TRY(talker->table->look(talker));
        }
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        if (pause_ns < LONGEST_PAUSE_NS) pause_ns *= 2;
    }
}

/* ---- closing: it may take forever, so it is done on a thread that is then abandoned ---- */

typedef struct closing {
    int gpu;
    ncclComm_t handle;
    int aborts;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int has_ended, is_left;
} closing;

static void closing_free(closing *self)
{
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->mutex);
    free(self);
}

static void close_now(ncclComm_t handle, int aborts)
{
    if (aborts) {
        (void)ncclCommAbort(handle);
        return;
    }
    const ncclResult_t result = ncclCommFinalize(handle);
    ncclResult_t state = result;
    while (state == ncclInProgress && ncclCommGetAsyncError(handle, &state) == ncclSuccess)
        nanosleep(&(struct timespec){.tv_nsec = LONGEST_PAUSE_NS}, NULL);
    (void)ncclCommDestroy(handle);
}

/* Freed by whichever thread finishes second: this one, or the one that waits. Without a choice of GPU, this thread's
 * calls would create a context on GPU 0, whichever GPU the rank uses. */
static void *run_closing(void *user)
{
    closing *self = user;
    qdri_cuda_stay(self->gpu);
    close_now(self->handle, self->aborts);
    pthread_mutex_lock(&self->mutex);
    const int is_left = self->is_left;
    self->has_ended = 1;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
    if (is_left) closing_free(self);
    return NULL;
}

int qdri_nccl_close(const qdri_dev *dev, ncclComm_t handle, int aborts)
{
    closing *self = NULL;
    pthread_t thread;
    struct timespec until;
    if (QDRI_NEW(1, "the end of a communicator", &self) != QDR_OK) {
        close_now(handle, aborts);
        return 1;
    }
    self->gpu = ((const qdri_cuda_dev *)dev)->opts.number;
    self->handle = handle;
    self->aborts = aborts;
    pthread_mutex_init(&self->mutex, NULL);
    pthread_cond_init(&self->changed, NULL);
    if (pthread_create(&thread, NULL, run_closing, self) != 0) {
        close_now(handle, aborts);
        closing_free(self);
        return 1;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CLOSE_SECS;
    pthread_mutex_lock(&self->mutex);
    while (!self->has_ended && !self->is_left)
        self->is_left = pthread_cond_timedwait(&self->changed, &self->mutex, &until) != 0 && !self->has_ended;
    const int is_left = self->is_left;
    pthread_mutex_unlock(&self->mutex);
    if (is_left) {
        pthread_detach(thread);
        qdri_log(QDRI_LOG_WARNING, "nccl: a communicator has not ended within %d s and is abandoned", CLOSE_SECS);
        return 0;
    }
    pthread_join(thread, NULL);
    closing_free(self);
    return 1;
}

static qdr_status started(ncclComm_t handle, ncclResult_t result, const char *call)
{
    return result == ncclInProgress ? QDR_OK : qdri_nccl_status(handle, result, call);
}

qdr_status qdri_nccl_open_stem(qdri_comm *host, const qdri_dev *dev, ncclComm_t *stem)
{
    static const char call[] = "ncclCommInitRankConfig";
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    qdr_status status = QDR_OK;
    *stem = NULL;
    if (host->size == 1) return QDR_OK;
    config.blocking = 0;
    memset(&id, 0, sizeof id);
    if (host->rank == 0) status = qdri_nccl_status(NULL, ncclGetUniqueId(&id), "ncclGetUniqueId");
    QDR_TRY(qdri_comm_agree(host, status));
    QDR_TRY(qdri_comm_broadcast(host, 0, &id, sizeof id));
    const ncclResult_t result = ncclCommInitRankConfig(stem, host->size, id, host->rank, &config);
    status = qdri_comm_agree(host, started(NULL, result, call));
    if (status == QDR_OK) status = qdri_nccl_settle(host, *stem, NULL, call);
    status = qdri_comm_agree(host, status);
    if (status == QDR_OK) return QDR_OK;
    if (*stem) (void)qdri_nccl_close(dev, *stem, 1);
    *stem = NULL;
    return status;
}

/* NCCL may have made it even if the split failed. */
void qdri_nccl_adopt(nccl_comm *comm)
{
    atomic_store(&comm->handle, __atomic_exchange_n(&comm->place, NULL, __ATOMIC_ACQ_REL));
}

qdr_status qdri_nccl_split_off(qdri_comm *talker, ncclComm_t stem, int colour, nccl_comm *comm)
{
    static const char call[] = "ncclCommSplit";
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const int is_in = colour >= 0 && comm->host->size > 1;
    config.blocking = 1;
    config.maxCTAs = comm->max_ctas;
    config.cgaClusterSize = 1; /* clusters need neighbouring SMs, which products do not leave free */
    config.splitShare = 0; /* communicators that share resources take turns */
    const ncclResult_t result = ncclCommSplit(stem, is_in ? colour : NCCL_SPLIT_NOCOLOR, is_in ? comm->host->rank : 0,
                                              &comm->place, &config);
    QDR_TRY(qdri_comm_agree(talker, started(stem, result, call)));
    const qdr_status status = qdri_nccl_settle(talker, stem, is_in ? &comm->place : NULL, call);
    if (status == QDR_OK && is_in) qdri_nccl_adopt(comm);
    return qdri_comm_agree(talker, status);
}
