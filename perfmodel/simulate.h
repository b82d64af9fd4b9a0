/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual time: runs a list of tasks on streams, as the runtime would, with what each takes alone.
 *
 * A stream runs its tasks one after the other; a task starts when those that it waits for are done. Transfers that run
 * at the same time share links max-min fairly; processors and transfers slow each other by two factors of the machine.
 * All ranks do the same at the same time, so one of them stands for all, and a link counts what every rank behind it
 * sends. */
#ifndef QDRI_PERFMODEL_SIMULATE_H
#define QDRI_PERFMODEL_SIMULATE_H

#include "core/schedule.h"
#include "quadrille/machine.h"

/* What one task takes alone. */
typedef struct qdri_price {
    double latency_secs; /* until its work begins; nothing slows it */
    double work_secs;
    /* A transfer: what one of its flows carries alone, and the share of each link that all its flows take then, 0 to 1.
     * Work on the processor has none. */
    double flow_bytes_per_sec;
    double use[QDR_MAX_LINKS];
} qdri_price;

/* The order of a list: per stream, which task follows which, and what each waits for. */
typedef struct qdri_sim_list {
    int n_tasks;
    const qdri_task *tasks;
    const int *next; /* task behind it on its stream; -1: none */
    int first[QDRI_N_STREAMS];
} qdri_sim_list;

/* How processors and transfers slow each other while both run: each takes 1 + … times as long. */
typedef struct qdri_sim_slowdown {
    double processor, transfer;
} qdri_sim_slowdown;

static inline qdri_sim_slowdown qdri_sim_slowdown_of(const qdr_machine *machine)
{
    return (qdri_sim_slowdown){machine->processor_slowdown, machine->transfer_slowdown};
}

typedef struct qdri_sim_times {
    double end_secs;
    double stream_end[QDRI_N_STREAMS]; /* of the last task on it */
    double busy[QDRI_N_STREAMS];
    /* Time in which the compute stream stood still, by the transfers that ran meanwhile (in equal parts); the sum over
     * all streams, the compute stream's own entry among them for time in which nothing ran, is end_secs -
     * busy[compute]. */
    double exposed[QDRI_N_STREAMS];
} qdri_sim_times;

/* The processor's next task, on the way through a list: for a time-line. NULL: not wanted. */
typedef struct qdri_sim_span {
    double start_secs, end_secs;
} qdri_sim_span;

/* Fills next[n_tasks] and list. The list keeps pointers to both. */
void qdri_sim_list_make(const qdri_schedule *schedule, int *next, qdri_sim_list *list);
/* Runs the list; prices[i] and spans[i] (or NULL) belong to task i. A list whose tasks wait for one another in a circle
 * cannot be built by a qdri_builder. */
void qdri_simulate(const qdri_sim_list *list, const qdri_price *prices, const qdri_sim_slowdown *slowdown,
                   qdri_sim_times *times, qdri_sim_span *spans);

/* Max-min fair rates of n transfers on links of capacity 1: rates[i] in (0, 1], 1 is a transfer's rate alone. In the
 * textbook's form all flows grow by equally many bytes per second, and those on a full link stop (Bertsekas, Gallager:
 * Data Networks, 6.5.2). */
void qdri_share_links(int n, const qdri_price *const transfers[], double rates[]);

#endif
