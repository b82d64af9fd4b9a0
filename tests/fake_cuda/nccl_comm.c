/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of the fake NCCL: creating, splitting and destroying them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_internal.h"

#define COMM_MAGIC 0x66616b656e63636cu

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct ncclComm *comms; /* all that ever were: a handle that is no more is known */
static clan *clans; /* those that form */
static uint64_t n_ids;

void fake_nccl_lock(void) { fake_mutex_lock(&lock); }
void fake_nccl_unlock(void) { fake_mutex_unlock(&lock); }
void fake_nccl_wait(void) { fake_cond_wait(&changed, &lock); }
void fake_nccl_changed(void) { pthread_cond_broadcast(&changed); }

int64_t fake_nccl_live(void)
{
    int64_t n = 0;
    fake_nccl_lock();
    for (const struct ncclComm *each = comms; each; each = each->next) n += !each->is_gone;
    fake_nccl_unlock();
    return n;
}

__attribute__((destructor)) static void look_for_leaks(void)
{
    const int64_t n = fake_nccl_live();
    if (n > 0) fake_report(FAKE_NCCL, "%lld communicators are left", (long long)n);
}

/* ---- facts ---- */

int fake_nccl_setting(const char *name, int device, int otherwise)
{
    const char *list = getenv(name);
    if (!list || !*list) return otherwise;
    int number = atoi(list);
    for (const char *comma = strchr(list, ','); comma && device > 0; device--) {
        number = atoi(comma + 1);
        comma = strchr(comma + 1, ',');
    }
    return number;
}

ncclResult_t ncclGetVersion(int *version)
{
    int device = 0;
    *version = NCCL_VERSION_CODE;
    if (cudaGetDevice(&device) == cudaSuccess)
        *version = fake_nccl_setting("FAKE_NCCL_VERSIONS", device, NCCL_VERSION_CODE);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {"no error",         "unhandled cuda error", "system error", "internal error",
                                        "invalid argument", "invalid usage",        "remote error", "in progress"};
    return (unsigned)result < ncclNumResults ? texts[result] : "unknown";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "said by the fake NCCL";
}

int fake_nccl_check(ncclComm_t comm, const char *call)
{
    const int is_good = comm && comm->magic == COMM_MAGIC && !comm->is_gone;
    if (!is_good) fake_report(FAKE_NCCL, "%s on a communicator that is none, or no more", call);
    return is_good;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    fake_nccl_lock();
    const int is_good = fake_nccl_check(comm, "ncclCommGetAsyncError");
    *error = ncclSuccess;
    if (is_good && comm->error != ncclSuccess)
        *error = comm->error;
    else if (is_good && comm->of->state != ncclSuccess)
        *error = comm->of->state;
    else if (is_good && comm->n_splits_done < comm->n_splits)
        *error = ncclInProgress;
    fake_nccl_unlock();
    return is_good ? ncclSuccess : ncclInvalidArgument;
}

/* ---- making ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    if (fake_take_failure("nccl")) return ncclSystemError;
    fake_nccl_lock();
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "fake nccl %llu", (unsigned long long)++n_ids);
    fake_nccl_unlock();
    return ncclSuccess;
}

static clan *clan_create(int size)
{
    clan *made = fake_new(sizeof *made);
    made->size = size;
    made->state = ncclInProgress;
    made->members = fake_new((size_t)size * sizeof *made->members);
    made->connected = fake_new((size_t)(size * size) * sizeof *made->connected);
    return made;
}

static int number_or(int set, int otherwise) { return set == NCCL_CONFIG_UNDEF_INT ? otherwise : set; }

static ncclComm_t comm_create(clan *of, int rank, int device, const ncclConfig_t *config)
{
    const fake_settings *gpu = fake_get_settings();
    ncclComm_t made = fake_new(sizeof *made);
    made->magic = COMM_MAGIC;
    made->of = of;
    made->rank = rank;
    made->device = device;
    made->blocking = number_or(config->blocking, 1);
    made->is_sharing = number_or(config->splitShare, 0);
    made->max_ctas = number_or(config->maxCTAs, gpu->n_sms);
    if (made->max_ctas < 1) fake_report(FAKE_NCCL, "a communicator of %d CTAs", made->max_ctas);
    made->cluster = number_or(config->cgaClusterSize, gpu->capability >= 90 ? 4 : 1);
    made->next = comms;
    comms = made;
    of->members[rank] = made;
    of->n_here++;
    return made;
}

static clan *find_clan(const char *id, int size)
{
    clan *found = clans;
    while (found && memcmp(found->id, id, sizeof found->id) != 0) found = found->next;
    if (found) return found;
    found = clan_create(size);
    memcpy(found->id, id, sizeof found->id);
    found->next = clans;
    clans = found;
    return found;
}

/* NCCL joins one rank per GPU, or more if it is new enough and told to. */
static ncclResult_t verdict(const clan *of)
{
    const char *several = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    int version;
    (void)ncclGetVersion(&version);
    if (version >= 23000 && several && strcmp(several, "1") == 0) return ncclSuccess;
    for (int j = 0; j < of->size; j++)
        for (int i = 0; i < j; i++)
            if (of->members[i]->device == of->members[j]->device) return ncclInvalidUsage;
    return ncclSuccess;
}

static ncclResult_t join(clan *of, int rank, const ncclConfig_t *config, ncclComm_t *comm)
{
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
    *comm = comm_create(of, rank, device, config);
    of->n_here -= fake_take_failure("nccl_lost");
    if (of->n_here == of->size) of->state = verdict(of);
    fake_nccl_changed();
    if (!(*comm)->blocking) return ncclInProgress;
    while (of->state == ncclInProgress && !(*comm)->is_aborted) fake_nccl_wait();
    return of->state == ncclInProgress ? ncclInternalError : of->state;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    ncclResult_t result = ncclInvalidArgument;
    *comm = NULL;
    if (fake_take_failure("nccl")) return ncclSystemError;
    fake_nccl_lock();
    clan *of = find_clan(id.internal, size);
    if (size < 1 || size != of->size || rank < 0 || rank >= size || of->members[rank] || config->magic != 0xcafebeef)
        fake_report(FAKE_NCCL, "ncclCommInitRankConfig for rank %d of %d, a clan of %d", rank, size, of->size);
    else
        result = join(of, rank, config, comm);
    fake_nccl_unlock();
    return result;
}

/* ---- splitting ---- */

static splitting *find_splitting(clan *of, uint64_t number)
{
    splitting *found = of->splittings;
    while (found && found->number != number) found = found->next;
    if (found) return found;
    found = fake_new(sizeof *found);
    found->number = number;
    found->seats = fake_new((size_t)of->size * sizeof *found->seats);
    found->next = of->splittings;
    of->splittings = found;
    return found;
}

/* Where rank j comes among those of its colour, and how many there are. */
static int place_of(const splitting *all, int n, int j, int *size)
{
    int rank = 0;
    *size = 0;
    for (int i = 0; i < n; i++) {
        if (all->seats[i].colour != all->seats[j].colour) continue;
        (*size)++;
        rank += all->seats[i].key < all->seats[j].key || (all->seats[i].key == all->seats[j].key && i < j);
    }
    return rank;
}

static clan *find_part(const clan *of, const splitting *all, clan *const *parts, int j, int size)
{
    for (int i = 0; i < of->size; i++)
        if (parts[i] && all->seats[i].colour == all->seats[j].colour) return parts[i];
    clan *made = clan_create(size);
    made->state = ncclSuccess;
    return made;
}

/* The last to come makes all parts. */
static void split_all(clan *of, splitting *all)
{
    clan **parts = fake_new((size_t)of->size * sizeof *parts);
    for (int j = 0; j < of->size; j++) {
        int size;
        ncclComm_t member = of->members[j];
        member->n_splits_done++;
        if (all->seats[j].colour == NCCL_SPLIT_NOCOLOR) continue;
        const int rank = place_of(all, of->size, j, &size);
        parts[j] = find_part(of, all, parts, j, size);
        ncclComm_t made = comm_create(parts[j], rank, member->device, &all->seats[j].config);
        if (member->is_gone)
            made->is_gone = made->is_aborted = 1;
        else
            __atomic_store_n(all->seats[j].place, made, __ATOMIC_RELEASE);
        if (fake_take_failure("nccl_split")) member->error = ncclSystemError; /* and the part remains */
    }
    free(parts);
    fake_nccl_changed();
}

static ncclResult_t take_seat(ncclComm_t comm, int colour, int key, ncclComm_t *place, const ncclConfig_t *config)
{
    clan *of = comm->of;
    if (comm->n_enqueued > 0) fake_report(FAKE_NCCL, "ncclCommSplit while collectives are on their way");
    splitting *all = find_splitting(of, ++comm->n_splits);
    all->seats[comm->rank] = (struct split_seat){colour, key, 1, place, *config};
    if (++all->n_here == of->size) split_all(of, all);
    if (!comm->blocking) return ncclInProgress;
    while (comm->n_splits_done < comm->n_splits && !comm->is_aborted) fake_nccl_wait();
    return comm->is_aborted ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t *part, ncclConfig_t *config)
{
    ncclResult_t result = ncclInvalidArgument;
    const ncclConfig_t usual = NCCL_CONFIG_INITIALIZER;
    *part = NULL;
    if (fake_take_failure("nccl")) return ncclSystemError;
    fake_nccl_lock();
    if (fake_nccl_check(comm, "ncclCommSplit") && comm->of->state == ncclSuccess)
        result = take_seat(comm, colour, key, part, config ? config : &usual);
    fake_nccl_unlock();
    return result;
}

/* ---- the end ---- */

/* NCCL returns to the GPU that the runtime said was current: without one, to GPU 0. */
static int visit(ncclComm_t comm)
{
    int was = 0;
    (void)cudaGetDevice(&was);
    fake_set_device(comm->device);
    return was;
}

static ncclResult_t end(ncclComm_t comm, const char *call, int is_last)
{
    const int was = visit(comm);
    fake_nccl_lock();
    const int is_good = fake_nccl_check(comm, call);
    if (is_good && comm->n_in_graphs > 0)
        fake_report(FAKE_NCCL, "%s, and a graph has its collectives: NCCL waits for the graph's end", call);
    while (is_good && comm->n_enqueued > 0 && !comm->is_aborted) fake_nccl_wait();
    if (is_good && is_last) comm->is_gone = 1;
    const int n_left = is_good && is_last ? fake_nccl_end_registrations(comm) : 0;
    if (n_left > 0) fake_report(FAKE_NCCL, "%s, and memory is registered with it, %d times", call, n_left);
    fake_nccl_unlock();
    fake_set_device(was);
    return is_good ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) { return end(comm, "ncclCommFinalize", 0); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm, "ncclCommDestroy", 1); }

/* Of this thread's group: what is revoked or aborted. */
static _Thread_local struct ncclComm *ended;

void fake_nccl_end_aborts(void)
{
    fake_nccl_lock();
    for (; ended; ended = ended->next_ended) {
        while (ended->n_enqueued > 0 || ended->n_running > 0) fake_nccl_wait();
        while (ended->is_gone && ended->n_in_graphs > 0) fake_nccl_wait();
        if (ended->is_gone) (void)fake_nccl_end_registrations(ended);
    }
    fake_nccl_unlock();
}

static ncclResult_t stop(ncclComm_t comm, const char *call, int is_last)
{
    const int was = visit(comm);
    (void)ncclGroupStart();
    fake_nccl_lock();
    const int is_good = fake_nccl_check(comm, call);
    if (is_good && is_last && comm->n_calls > 0)
        fake_report(FAKE_NCCL, "%s frees what a call of another thread uses", call);
    if (is_good) {
        comm->is_gone = is_last;
        comm->is_aborted = 1;
        comm->next_ended = ended;
        ended = comm;
        fake_nccl_changed();
    }
    fake_nccl_unlock();
    (void)ncclGroupEnd();
    fake_set_device(was);
    return is_good ? ncclSuccess : ncclInvalidArgument;
}

/* What runs of it ends at once, what comes later does nothing. The end of the group waits for what is in front of it on
 * its streams, and of an abort until there are no graphs of it either. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags)
{
    return flags == 0 ? stop(comm, "ncclCommRevoke", 0) : ncclInvalidArgument;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { return stop(comm, "ncclCommAbort", 1); }
