/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of one process meet on their host threads, asleep while waiting: creation, agreement, small
 * messages. */
#ifndef QDRI_COMM_MEETING_H
#define QDRI_COMM_MEETING_H

#include <pthread.h>

#include "comm/internal.h"

/* What one rank brings to a meeting. */
typedef struct qdri_seat {
    qdri_verdict verdict;
    int colour, key;
    int runs_work; /* as the table of its device says */
    const char *where; /* what the rank does here, for sentences; NULL: it agrees or broadcasts */
    unsigned generation; /* of the meeting, from 1; set by qdri_meeting_join() */
    int holds; /* all do: until member 0 comes again, nobody leaves, be it given up meanwhile */
    const void *data;
    size_t bytes;
} qdri_seat;

typedef struct qdri_meeting {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int size, n_here, given_up, is_held;
    int64_t limit_ns; /* of waits of members that have no communicator; 0: none */
    int n_reading; /* members that still copy what the root of a broadcast brought */
    char why[QDRI_ERROR_BYTES];
    unsigned generation;
    qdri_seat *seats[2]; /* by the generation's parity: no rank can be two meetings ahead of another */
} qdri_meeting;

QDR_NODISCARD qdr_status qdri_meeting_init(qdri_meeting *meeting, int size);
void qdri_meeting_free(qdri_meeting *meeting);
/* Of waits of members that have no communicator yet. Each member sets the same, before it joins. */
void qdri_meeting_set_limit(qdri_meeting *meeting, int64_t limit_ns);
/* Takes a seat and waits for all others. comm: whose members meet, with its names and the limit of its waits; NULL:
 * none. *seats: what all have brought, valid until this rank's next meeting but one.
 * @retval QDR_ERR_PEER     someone gave up
 * @retval QDR_ERR_TIMEOUT  someone did not come; the meeting is given up */
QDR_NODISCARD qdr_status qdri_meeting_join(qdri_meeting *meeting, int rank, const qdri_comm *comm,
                                           const qdri_seat *mine, const qdri_seat **seats);
/* *verdict: this rank's, then that of all. */
QDR_NODISCARD qdr_status qdri_meeting_exchange(qdri_meeting *meeting, int rank, const qdri_comm *comm,
                                               qdri_verdict *verdict);
/* Returns the status and the sentence of the lowest rank that brings an error. */
QDR_NODISCARD qdr_status qdri_meeting_agree(qdri_meeting *meeting, int rank, const qdri_comm *comm, qdr_status mine);
/* However it ends: afterwards nobody reads the root's data. */
QDR_NODISCARD qdr_status qdri_meeting_broadcast(qdri_meeting *meeting, const qdri_comm *comm, int root, void *data,
                                                size_t bytes);
/* Fails if it was given up because something went wrong. Any thread. */
QDR_NODISCARD qdr_status qdri_meeting_look(qdri_meeting *meeting);
/* All who wait here, now or later, fail. why: "" where nothing went wrong. */
void qdri_meeting_give_up(qdri_meeting *meeting, const char *why);

#endif
