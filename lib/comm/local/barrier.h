/* SPDX-License-Identifier: Apache-2.0 */
/* Barriers: the ranks of one process wait for each other on their host threads, asleep. Used to create communicators,
 * to agree, and for small messages. */
#ifndef QDRI_COMM_LOCAL_BARRIER_H
#define QDRI_COMM_LOCAL_BARRIER_H

#include <pthread.h>

#include "comm/internal.h"

/* What a barrier is for: the same for all members. */
typedef enum qdri_purpose { QDRI_TO_AGREE = 0, QDRI_TO_BROADCAST, QDRI_TO_SPLIT, QDRI_TO_RUN } qdri_purpose;

/* What one rank contributes to a barrier. */
typedef struct qdri_seat {
    qdri_purpose purpose;
    qdri_verdict verdict;
    int colour, key;
    int runs_work; /* copied from the table of its device */
    const char *where; /* what the rank is doing, for messages; NULL: it agrees or broadcasts */
    unsigned generation; /* number of the barrier, from 1; set by qdri_barrier_join() */
    int holds; /* the same on all members; if set, no member leaves the next barrier before member 0 has joined it, even
                * if the barrier is given up meanwhile */
    const void *data;
    size_t bytes;
    int root;
} qdri_seat;

typedef struct qdri_barrier {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int size, n_here, given_up, is_held;
    int64_t limit_ns; /* for members without a communicator; 0: no limit */
    int n_reading; /* members that are still copying the data of a broadcast's root, and wait for nobody meanwhile */
    char why[QDRI_ERROR_BYTES]; /* "": no error */
    char leaver[QDRI_MEMBER_BYTES]; /* the rank that left, if that was why; otherwise "" */
    unsigned generation;
    qdri_seat *seats[2]; /* indexed by the parity of the generation: no rank can be two barriers ahead of another */
} qdri_barrier;

QDR_NODISCARD qdr_status qdri_barrier_init(qdri_barrier *barrier, int size);
void qdri_barrier_free(qdri_barrier *barrier);
/* Sets the time limit for members that have no communicator yet. Every member sets the same limit before it joins. */
void qdri_barrier_set_limit(qdri_barrier *barrier, int64_t limit_ns);
/* Joins the barrier and waits for all other members. comm: the communicator of the members, which supplies names and
 * the time limit; NULL: none. *seats: the contributions of all members, valid until this rank has joined the barrier
 * after the next.
 * @retval QDR_ERR_PEER      a member gave up
 * @retval QDR_ERR_TIMEOUT   a member is missing; the barrier is given up
 * @retval QDR_ERR_ARGUMENT  on all members: they came for different purposes */
QDR_NODISCARD qdr_status qdri_barrier_join(qdri_barrier *barrier, int rank, const qdri_comm *comm,
                                           const qdri_seat *mine, const qdri_seat **seats);
/* *verdict: in: this rank's; out: that of all ranks. */
QDR_NODISCARD qdr_status qdri_barrier_exchange(qdri_barrier *barrier, int rank, const qdri_comm *comm,
                                               qdri_verdict *verdict);
/* Returns the status and the message of the lowest rank that passes an error. */
QDR_NODISCARD qdr_status qdri_barrier_agree(qdri_barrier *barrier, int rank, const qdri_comm *comm, qdr_status mine);
/* After it returns, with or without success, no member reads the root's data any more.
 * @retval QDR_ERR_ARGUMENT  on all members: they passed different roots or sizes */
QDR_NODISCARD qdr_status qdri_barrier_broadcast(qdri_barrier *barrier, const qdri_comm *comm, int root, void *data,
                                                size_t bytes);
/* Fails if the barrier was given up because of an error. Any thread. */
QDR_NODISCARD qdr_status qdri_barrier_look(qdri_barrier *barrier);
/* Makes all present and future waits here fail. why: "" if there was no error. */
void qdri_barrier_give_up(qdri_barrier *barrier, const char *why);
/* The same, without an error: the rank that is named `leaver` comes to no other barrier. */
void qdri_barrier_leave(qdri_barrier *barrier, const char *leaver);

#endif
