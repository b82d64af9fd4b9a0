/* SPDX-License-Identifier: Apache-2.0 */
/* Meetings of ranks that are threads of one process. */
#include "comm/meeting.h"

#include <stdlib.h>
#include <string.h>

#include "core/size.h"

qdr_status qdri_meeting_init(qdri_meeting *meeting, int size)
{
    *meeting = (qdri_meeting){.size = size};
    QDR_TRY(QDRI_NEW(2 * size, "seats of a meeting of ranks", &meeting->seats[0]));
    meeting->seats[1] = meeting->seats[0] + size;
    pthread_mutex_init(&meeting->mutex, NULL);
    pthread_cond_init(&meeting->all_here, NULL);
    return QDR_OK;
}

void qdri_meeting_free(qdri_meeting *meeting)
{
    if (!meeting->seats[0]) return;
    pthread_mutex_destroy(&meeting->mutex);
    pthread_cond_destroy(&meeting->all_here);
    free(meeting->seats[0]);
    meeting->seats[0] = NULL;
}

qdr_status qdri_meeting_join(qdri_meeting *meeting, int rank, const qdri_seat *mine,
                             const qdri_seat **seats)
{
    pthread_mutex_lock(&meeting->mutex);
    const unsigned generation = meeting->generation;
    *seats = meeting->seats[generation & 1];
    meeting->seats[generation & 1][rank] = *mine;
    if (!meeting->given_up && ++meeting->n_here == meeting->size) {
        meeting->n_here = 0;
        meeting->generation++;
        pthread_cond_broadcast(&meeting->all_here);
    }
    while (meeting->generation == generation && !meeting->given_up)
        pthread_cond_wait(&meeting->all_here, &meeting->mutex);
    const int met = meeting->generation != generation;
    pthread_mutex_unlock(&meeting->mutex);
    if (met) return QDR_OK;
    return QDR_FAIL(QDR_ERR_PEER, "comm: another rank left or failed before all %d had met",
                    meeting->size);
}

qdr_status qdri_meeting_agree(qdri_meeting *meeting, int rank, qdr_status mine)
{
    const qdri_seat *seats;
    qdri_seat seat = {.status = mine};
    if (mine < 0) strncpy(seat.sentence, qdr_last_error(), sizeof seat.sentence - 1);
    QDR_TRY(qdri_meeting_join(meeting, rank, &seat, &seats));
    for (int j = 0; j < meeting->size; j++) {
        if (seats[j].status >= 0) continue;
        qdri_set_last_error(seats[j].sentence);
        return seats[j].status;
    }
    return QDR_OK;
}

qdr_status qdri_meeting_broadcast(qdri_meeting *meeting, int rank, int root, void *data,
                                  size_t bytes)
{
    const qdri_seat *seats;
    const qdri_seat seat = {.data = data, .bytes = bytes};
    qdr_status status = QDR_OK;
    QDR_TRY(qdri_meeting_join(meeting, rank, &seat, &seats));
    if (seats[root].bytes != bytes)
        status = QDR_FAIL(QDR_ERR_SHAPE, "broadcast: rank %d sends %zu bytes, rank %d expects %zu",
                          root, seats[root].bytes, rank, bytes);
    else if (rank != root && bytes > 0)
        memcpy(data, seats[root].data, bytes);
    return qdri_meeting_agree(meeting, rank, status); /* the root's memory is no longer read */
}

void qdri_meeting_give_up(qdri_meeting *meeting)
{
    pthread_mutex_lock(&meeting->mutex);
    meeting->given_up = 1;
    pthread_cond_broadcast(&meeting->all_here);
    pthread_mutex_unlock(&meeting->mutex);
}
