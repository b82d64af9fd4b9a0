/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers of ranks that are threads of one process. */
#include "comm/local/local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/size.h"
#include "dev/clock.h"

enum { NS_PER_S = 1000000000, MISSING_BYTES = 300 };

qdr_status qdri_barrier_init(qdri_barrier *barrier, int size)
{
    *barrier = (qdri_barrier){.size = size};
    QDR_TRY(QDRI_NEW(2 * size, "seats of a barrier of ranks", &barrier->seats[0]));
    barrier->seats[1] = barrier->seats[0] + size;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&barrier->mutex, NULL);
    pthread_cond_init(&barrier->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return QDR_OK;
}

void qdri_barrier_free(qdri_barrier *barrier)
{
    if (!barrier->seats[0]) return;
    pthread_mutex_destroy(&barrier->mutex);
    pthread_cond_destroy(&barrier->changed);
    free(barrier->seats[0]);
    barrier->seats[0] = NULL;
}

static int is_over(const qdri_barrier *barrier, unsigned generation)
{
    return barrier->generation != generation || (barrier->given_up && !barrier->is_bound);
}

/* Waits until all are here, or the barrier is given up, or the time limit is exceeded: then returns 0. The mutex must
 * be held. */
static int wait_for_all(qdri_barrier *barrier, unsigned generation, int64_t limit_ns)
{
    qdri_patience patience = {0};
    while (!is_over(barrier, generation)) {
        if (limit_ns == 0 || barrier->is_bound) {
            pthread_cond_wait(&barrier->changed, &barrier->mutex);
            continue;
        }
        const int64_t left_ns = limit_ns - qdri_waited_ns(&patience);
        if (left_ns <= 0) return 0;
        const int64_t until_ns = qdri_now_ns() + (left_ns < QDRI_LOOK_NS ? left_ns : QDRI_LOOK_NS);
        const struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
        (void)pthread_cond_timedwait(&barrier->changed, &barrier->mutex, &until);
    }
    return 1;
}

static int is_missing(const void *user, int member)
{
    const qdri_barrier *barrier = user;
    const unsigned generation = barrier->generation;
    return barrier->seats[generation & 1][member].generation != generation + 1;
}

/* The mutex must be held. */
static void give_up(qdri_barrier *barrier, const char *why)
{
    if (!barrier->given_up) snprintf(barrier->why, sizeof barrier->why, "%s", why);
    barrier->given_up = 1;
    pthread_cond_broadcast(&barrier->changed);
}

/* comm = NULL: the members are about to create a world. */
static qdr_status fail_timeout(qdri_barrier *barrier, int rank, const qdri_comm *comm, const char *where)
{
    char missing[MISSING_BYTES];
    qdri_comm future = {.name = "world", .describe = qdri_describe_rank, .rank = rank, .size = barrier->size};
    future.root = &future;
    future.timeout_ns = barrier->limit_ns;
    if (!comm) where = "the creation of contexts";
    if (!comm) comm = &future;
    const int n = qdri_comm_name_missing(comm, is_missing, barrier, missing, sizeof missing);
    const qdr_status status = qdri_comm_fail_timeout(comm, where ? where : "an agreement or broadcast", missing, n);
    give_up(barrier, qdr_last_error());
    return status;
}

static qdr_status fail_left(const qdri_barrier *barrier)
{
    const char *left = barrier->leaver[0] && !barrier->why[0] ? " has left" : "";
    const char *why = *left ? barrier->leaver : barrier->why;
    return QDR_FAIL(QDR_ERR_PEER, "comm: another rank left or failed before all %d had arrived%s%s%s", barrier->size,
                    *why ? ": " : "", why, left);
}

/* The first member that came for another purpose than member 0; 0: none. */
static int find_stranger(const qdri_barrier *barrier, const qdri_seat *seats)
{
    for (int j = 1; j < barrier->size; j++)
        if (seats[j].purpose != seats[0].purpose) return j;
    return 0;
}

/* All members find the same. */
static qdr_status compare_purposes(const qdri_barrier *barrier, const qdri_seat *seats)
{
    static const char *const names[] = {[QDRI_TO_AGREE] = "an agreement",
                                        [QDRI_TO_BROADCAST] = "a broadcast",
                                        [QDRI_TO_SPLIT] = "the creation of groups",
                                        [QDRI_TO_RUN] = "a collective"};
    const int j = find_stranger(barrier, seats);
    if (j == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "comm: rank 0 is in %s, rank %d in %s; all %d ranks must call the same functions in the same order",
                    names[seats[0].purpose], j, names[seats[j].purpose], barrier->size);
}

qdr_status qdri_barrier_join(qdri_barrier *barrier, int rank, const qdri_comm *comm, const qdri_seat *mine,
                             const qdri_seat **seats)
{
    qdr_status status = QDR_OK;
    pthread_mutex_lock(&barrier->mutex);
    const int64_t limit_ns = comm ? qdri_comm_timeout_ns(comm) : barrier->limit_ns;
    const unsigned generation = barrier->generation;
    *seats = barrier->seats[generation & 1];
    qdri_seat *seat = &barrier->seats[generation & 1][rank];
    *seat = *mine;
    seat->generation = generation + 1;
    if (rank == 0 && barrier->is_bound) {
        barrier->is_bound = 0;
        pthread_cond_broadcast(&barrier->changed);
    }
    if (!barrier->given_up && ++barrier->n_here == barrier->size) {
        barrier->n_here = 0;
        barrier->generation++;
        barrier->is_bound = mine->binds && find_stranger(barrier, *seats) == 0;
        pthread_cond_broadcast(&barrier->changed);
    }
    if (!wait_for_all(barrier, generation, limit_ns))
        status = fail_timeout(barrier, rank, comm, mine->where);
    else if (barrier->generation == generation)
        status = fail_left(barrier);
    else
        status = compare_purposes(barrier, *seats);
    pthread_mutex_unlock(&barrier->mutex);
    return status;
}

qdr_status qdri_barrier_exchange(qdri_barrier *barrier, int rank, const qdri_comm *comm, qdri_verdict *verdict)
{
    const qdri_seat *seats;
    const qdri_seat seat = {.verdict = *verdict};
    QDR_TRY(qdri_barrier_join(barrier, rank, comm, &seat, &seats));
    *verdict = seats[0].verdict;
    for (int j = 1; j < barrier->size; j++) qdri_verdict_add(verdict, &seats[j].verdict, j);
    return QDR_OK;
}

qdr_status qdri_barrier_agree(qdri_barrier *barrier, int rank, const qdri_comm *comm, qdr_status mine)
{
    qdri_verdict verdict = qdri_verdict_of(mine, 0);
    QDR_TRY(qdri_barrier_exchange(barrier, rank, comm, &verdict));
    if (verdict.status != QDR_OK) qdri_set_last_error(verdict.sentence);
    return (qdr_status)verdict.status;
}

qdr_status qdri_barrier_broadcast(qdri_barrier *barrier, const qdri_comm *comm, int root, void *data, size_t bytes)
{
    const int rank = comm->rank;
    const qdri_seat *seats;
    const qdri_seat seat = {.purpose = QDRI_TO_BROADCAST, .data = data, .bytes = bytes, .root = root};
    QDR_TRY(qdri_barrier_join(barrier, rank, comm, &seat, &seats));
    for (int j = 1; j < barrier->size; j++) {
        if (seats[j].root == seats[0].root && seats[j].bytes == seats[0].bytes) continue;
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "broadcast: %zu bytes from root %d on rank 0, %zu bytes from root %d on rank %d; pass the same "
                        "on all ranks",
                        seats[0].bytes, seats[0].root, seats[j].bytes, seats[j].root, j);
    }
    if (rank != root && bytes > 0) memcpy(data, seats[root].data, bytes);
    /* The root waits for all others, even if the barrier is given up meanwhile: they may read its data until then. It
     * needs no time limit, since all others have arrived with the same root, and only copy. */
    pthread_mutex_lock(&barrier->mutex);
    barrier->n_reading += rank == root ? barrier->size - 1 : -1;
    pthread_cond_broadcast(&barrier->changed);
    while (rank == root && barrier->n_reading > 0) pthread_cond_wait(&barrier->changed, &barrier->mutex);
    pthread_mutex_unlock(&barrier->mutex);
    return QDR_OK;
}

qdr_status qdri_barrier_look(qdri_barrier *barrier)
{
    pthread_mutex_lock(&barrier->mutex);
    const qdr_status status = barrier->why[0] ? fail_left(barrier) : QDR_OK;
    pthread_mutex_unlock(&barrier->mutex);
    return status;
}

void qdri_barrier_give_up(qdri_barrier *barrier, const char *why)
{
    pthread_mutex_lock(&barrier->mutex);
    give_up(barrier, why);
    pthread_mutex_unlock(&barrier->mutex);
}

void qdri_barrier_leave(qdri_barrier *barrier, const char *leaver)
{
    pthread_mutex_lock(&barrier->mutex);
    if (!barrier->given_up) snprintf(barrier->leaver, sizeof barrier->leaver, "%s", leaver);
    give_up(barrier, "");
    pthread_mutex_unlock(&barrier->mutex);
}
