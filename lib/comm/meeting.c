/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings of ranks that are threads of one process. */
#include "comm/meeting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/size.h"
#include "dev/clock.h"

enum { NS_PER_S = 1000000000, MISSING_BYTES = 300 };

qdr_status qdri_meeting_init(qdri_meeting *meeting, int size)
{
    *meeting = (qdri_meeting){.size = size};
    QDR_TRY(QDRI_NEW(2 * size, "seats of a meeting of ranks", &meeting->seats[0]));
    meeting->seats[1] = meeting->seats[0] + size;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&meeting->mutex, NULL);
    pthread_cond_init(&meeting->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return QDR_OK;
}

void qdri_meeting_free(qdri_meeting *meeting)
{
    if (!meeting->seats[0]) return;
    pthread_mutex_destroy(&meeting->mutex);
    pthread_cond_destroy(&meeting->changed);
    free(meeting->seats[0]);
    meeting->seats[0] = NULL;
}

/* ---- waiting ---- */

static int is_over(const qdri_meeting *meeting, unsigned generation)
{
    return meeting->generation != generation || (meeting->given_up && !meeting->is_held);
}

/* Waits until all are here, or the meeting is given up, or the time limit is exceeded: then returns 0. The mutex must
 * be held. */
static int wait_for_all(qdri_meeting *meeting, unsigned generation, int64_t limit_ns)
{
    const int64_t until_ns = qdri_now_ns() + limit_ns;
    const struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
    while (!is_over(meeting, generation)) {
        if (limit_ns == 0 || meeting->is_held)
            pthread_cond_wait(&meeting->changed, &meeting->mutex);
        else if (pthread_cond_timedwait(&meeting->changed, &meeting->mutex, &until) == ETIMEDOUT)
            return is_over(meeting, generation);
    }
    return 1;
}

static int is_missing(const void *user, int member)
{
    const qdri_meeting *meeting = user;
    const unsigned generation = meeting->generation;
    return meeting->seats[generation & 1][member].generation != generation + 1;
}

/* The mutex must be held. */
static void give_up(qdri_meeting *meeting, const char *why)
{
    if (!meeting->given_up) snprintf(meeting->why, sizeof meeting->why, "%s", why);
    meeting->given_up = 1;
    pthread_cond_broadcast(&meeting->changed);
}

static void describe_rank(const void *user, int member, char *text, size_t capacity)
{
    (void)user;
    snprintf(text, capacity, "rank %d", member);
}

/* comm = NULL: the members are about to create a world. */
static qdr_status fail_timeout(qdri_meeting *meeting, int rank, const qdri_comm *comm, const char *where)
{
    char missing[MISSING_BYTES];
    qdri_comm future = {.name = "world", .describe = describe_rank, .rank = rank, .size = meeting->size};
    future.root = &future;
    future.timeout_ns = meeting->limit_ns;
    if (!comm) where = "the creation of contexts";
    if (!comm) comm = &future;
    const int n = qdri_comm_name_missing(comm, is_missing, meeting, missing, sizeof missing);
    const qdr_status status = qdri_comm_fail_timeout(comm, where ? where : "an agreement or broadcast", missing, n);
    give_up(meeting, qdr_last_error());
    return status;
}

static qdr_status fail_left(const qdri_meeting *meeting)
{
    const char *left = meeting->leaver[0] && !meeting->why[0] ? " has left" : "";
    const char *why = *left ? meeting->leaver : meeting->why;
    return QDR_FAIL(QDR_ERR_PEER, "comm: another rank left or failed before all %d had arrived%s%s%s", meeting->size,
                    *why ? ": " : "", why, left);
}

/* The first member that came for another purpose than member 0; 0: none. */
static int find_stranger(const qdri_meeting *meeting, const qdri_seat *seats)
{
    for (int j = 1; j < meeting->size; j++)
        if (seats[j].purpose != seats[0].purpose) return j;
    return 0;
}

/* All members find the same. */
static qdr_status compare_purposes(const qdri_meeting *meeting, const qdri_seat *seats)
{
    static const char *const names[] = {[QDRI_TO_AGREE] = "an agreement",
                                        [QDRI_TO_BROADCAST] = "a broadcast",
                                        [QDRI_TO_SPLIT] = "the creation of groups",
                                        [QDRI_TO_RUN] = "a collective"};
    const int j = find_stranger(meeting, seats);
    if (j == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "comm: rank 0 is in %s, rank %d in %s; all %d ranks must call the same functions in the same order",
                    names[seats[0].purpose], j, names[seats[j].purpose], meeting->size);
}

/* The mutex must be held. */
static void sit_down(qdri_meeting *meeting, int rank, const qdri_seat *mine)
{
    qdri_seat *seat = &meeting->seats[meeting->generation & 1][rank];
    *seat = *mine;
    seat->generation = meeting->generation + 1;
    if (rank == 0 && meeting->is_held) {
        meeting->is_held = 0;
        pthread_cond_broadcast(&meeting->changed);
    }
    if (meeting->given_up || ++meeting->n_here < meeting->size) return;
    meeting->n_here = 0;
    meeting->generation++;
    meeting->is_held = mine->holds && find_stranger(meeting, meeting->seats[(meeting->generation - 1) & 1]) == 0;
    pthread_cond_broadcast(&meeting->changed);
}

qdr_status qdri_meeting_join(qdri_meeting *meeting, int rank, const qdri_comm *comm, const qdri_seat *mine,
                             const qdri_seat **seats)
{
    qdr_status status = QDR_OK;
    pthread_mutex_lock(&meeting->mutex);
    const int64_t limit_ns = comm ? qdri_comm_timeout_ns(comm) : meeting->limit_ns;
    const unsigned generation = meeting->generation;
    *seats = meeting->seats[generation & 1];
    sit_down(meeting, rank, mine);
    if (!wait_for_all(meeting, generation, limit_ns))
        status = fail_timeout(meeting, rank, comm, mine->where);
    else if (meeting->generation == generation)
        status = fail_left(meeting);
    else
        status = compare_purposes(meeting, *seats);
    pthread_mutex_unlock(&meeting->mutex);
    return status;
}

qdr_status qdri_meeting_exchange(qdri_meeting *meeting, int rank, const qdri_comm *comm, qdri_verdict *verdict)
{
    const qdri_seat *seats;
    const qdri_seat seat = {.verdict = *verdict};
    QDR_TRY(qdri_meeting_join(meeting, rank, comm, &seat, &seats));
    *verdict = seats[0].verdict;
    for (int j = 1; j < meeting->size; j++) qdri_verdict_add(verdict, &seats[j].verdict, j);
    return QDR_OK;
}

qdr_status qdri_meeting_agree(qdri_meeting *meeting, int rank, const qdri_comm *comm, qdr_status mine)
{
    qdri_verdict verdict = qdri_verdict_of(mine, 0);
    QDR_TRY(qdri_meeting_exchange(meeting, rank, comm, &verdict));
    if (verdict.status != QDR_OK) qdri_set_last_error(verdict.sentence);
    return (qdr_status)verdict.status;
}

/* The root waits for all others, even if the meeting is given up meanwhile: they may read its data until then. It needs
 * no time limit, since all others have arrived with the same root, and only copy. */
static void end_reading(qdri_meeting *meeting, int is_root)
{
    pthread_mutex_lock(&meeting->mutex);
    meeting->n_reading += is_root ? meeting->size - 1 : -1;
    pthread_cond_broadcast(&meeting->changed);
    while (is_root && meeting->n_reading > 0) pthread_cond_wait(&meeting->changed, &meeting->mutex);
    pthread_mutex_unlock(&meeting->mutex);
}

/* All members find the same. */
static qdr_status compare_broadcasts(const qdri_meeting *meeting, const qdri_seat *seats)
{
    for (int j = 1; j < meeting->size; j++) {
        if (seats[j].root == seats[0].root && seats[j].bytes == seats[0].bytes) continue;
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "broadcast: %zu bytes from root %d on rank 0, %zu bytes from root %d on rank %d; pass the same "
                        "on all ranks",
                        seats[0].bytes, seats[0].root, seats[j].bytes, seats[j].root, j);
    }
    return QDR_OK;
}

qdr_status qdri_meeting_broadcast(qdri_meeting *meeting, const qdri_comm *comm, int root, void *data, size_t bytes)
{
    const int rank = comm->rank;
    const qdri_seat *seats;
    const qdri_seat seat = {.purpose = QDRI_TO_BROADCAST, .data = data, .bytes = bytes, .root = root};
    QDR_TRY(qdri_meeting_join(meeting, rank, comm, &seat, &seats));
    QDR_TRY(compare_broadcasts(meeting, seats));
    if (rank != root && bytes > 0) memcpy(data, seats[root].data, bytes);
    end_reading(meeting, rank == root);
    return QDR_OK;
}

qdr_status qdri_meeting_look(qdri_meeting *meeting)
{
    pthread_mutex_lock(&meeting->mutex);
    const qdr_status status = meeting->why[0] ? fail_left(meeting) : QDR_OK;
    pthread_mutex_unlock(&meeting->mutex);
    return status;
}

void qdri_meeting_give_up(qdri_meeting *meeting, const char *why)
{
    pthread_mutex_lock(&meeting->mutex);
    give_up(meeting, why);
    pthread_mutex_unlock(&meeting->mutex);
}

void qdri_meeting_leave(qdri_meeting *meeting, const char *leaver)
{
    pthread_mutex_lock(&meeting->mutex);
    if (!meeting->given_up) snprintf(meeting->leaver, sizeof meeting->leaver, "%s", leaver);
    give_up(meeting, "");
    pthread_mutex_unlock(&meeting->mutex);
}

void qdri_meeting_set_limit(qdri_meeting *meeting, int64_t limit_ns)
{
    pthread_mutex_lock(&meeting->mutex);
    meeting->limit_ns = limit_ns;
    pthread_mutex_unlock(&meeting->mutex);
}
