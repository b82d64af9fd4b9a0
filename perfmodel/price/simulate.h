/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated time: runs a list of tasks on streams, as the runtime would, given the cost of each task alone.
 *
 * A stream runs its tasks one after the other; a task starts when those that it waits for have finished. Transfers that
 * run at the same time share links max-min fairly; processors and transfers slow each other down by two factors of the
 * machine. All ranks do the same at the same time, so one of them represents all, and a link counts what every rank
 * behind it sends. */
#ifndef QDRI_PERFMODEL_PRICE_SIMULATE_H
#define QDRI_PERFMODEL_PRICE_SIMULATE_H

#include "quadrille/machine.h"
#include "schedule/schedule.h"

/* The cost of one task alone. */
typedef struct qdri_price {
    double latency_secs; /* until its work begins; not affected by slowdowns */
    double work_secs;
    /* For a transfer: the rate of one of its flows alone, and the fraction of each link that all its flows then use, 0
     * to 1. Zero for work on the processor. */
    double flow_bytes_per_sec;
    double slowdown; /* of processor and transfer while both run, in addition to the machine's */
    double processor_slowdown, own_slowdown; /* the same of only the one, and of only the other: codecs */
    double use[QDR_MAX_LINKS];
} qdri_price;

typedef struct qdri_sim_times {
    double end_secs;
    double stream_end[QDRI_N_STREAMS]; /* end of the last task on each stream */
    double busy[QDRI_N_STREAMS];
    /* The time in which the compute stream was idle, assigned to the transfers that ran meanwhile (in equal parts); the
     * sum over all streams, including the compute stream's entry for time in which nothing ran, is end_secs -
     * busy[compute]. */
    double exposed[QDRI_N_STREAMS];
} qdri_sim_times;

/* When a task of the simulated list ran, for a timeline. NULL: not wanted. */
typedef struct qdri_sim_span {
    double start_secs, end_secs;
} qdri_sim_span;

/* Runs the list; prices[i] and spans[i] (or NULL) belong to task i, as next[i], which is only used here. Of the machine
 * only its slowdowns matter. A list with circular waits cannot be built with a qdri_builder. */
void qdri_simulate(const qdr_machine *machine, const qdri_schedule *schedule, const qdri_price *prices, int *next,
                   qdri_sim_times *times, qdri_sim_span *spans);

/* Max-min fair rates of n transfers on links of capacity 1: rates[i] in (0, 1], where 1 is a transfer's rate alone. As
 * in textbooks, the rates of all flows increase equally, and those on a full link stop (Bertsekas, Gallager: Data
 * Networks, 6.5.2). */
void qdri_share_links(int n, const qdri_price *const transfers[], double rates[]);

#endif
