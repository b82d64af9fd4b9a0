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
    double use[QDR_MAX_LINKS];
} qdri_price;

/* The order of a list: the next task on each stream, and what each task waits for. */
typedef struct qdri_sim_list {
    int n_tasks;
    const qdri_task *tasks;
    const int *next; /* the next task on its stream; -1: none */
    int first[QDRI_N_STREAMS];
} qdri_sim_list;

/* How processors and transfers slow each other down while both run: each takes 1 + … times as long. */
typedef struct qdri_sim_slowdown {
    double processor, transfer;
} qdri_sim_slowdown;

static inline qdri_sim_slowdown qdri_sim_slowdown_of(const qdr_machine *machine)
{
    return (qdri_sim_slowdown){machine->processor_slowdown, machine->transfer_slowdown};
}

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

/* Sets next[n_tasks] and list. The list keeps pointers to both arguments. */
void qdri_sim_list_make(const qdri_schedule *schedule, int *next, qdri_sim_list *list);
/* Runs the list; prices[i] and spans[i] (or NULL) belong to task i. A list with circular waits cannot be built with a
 * qdri_builder. */
void qdri_simulate(const qdri_sim_list *list, const qdri_price *prices, const qdri_sim_slowdown *slowdown,
                   qdri_sim_times *times, qdri_sim_span *spans);

/* Max-min fair rates of n transfers on links of capacity 1: rates[i] in (0, 1], where 1 is a transfer's rate alone. As
 * in textbooks, the rates of all flows increase equally, and those on a full link stop (Bertsekas, Gallager: Data
 * Networks, 6.5.2). */
void qdri_share_links(int n, const qdri_price *const transfers[], double rates[]);

#endif
