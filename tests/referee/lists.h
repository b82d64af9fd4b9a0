/* SPDX-License-Identifier: Apache-2.0 */
/* The input of the referee: the machine, the grid, and the task lists of a training step, with the times of work on a
 * processor and the bytes of transfers. The referee determines how long transfers take. */
#ifndef QDR_TEST_LISTS_H
#define QDR_TEST_LISTS_H

#include "quadrille/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { REFEREE_MOST_WAITS = 16, REFEREE_LISTS = 5 };

typedef struct referee_task {
    int stream;
    int n_waits, waits[REFEREE_MOST_WAITS];
    double secs; /* on the processor */
    int axis; /* of a collective; -1: none */
    int n_members, step; /* of its groups: every step-th rank of the axis */
    int n_turns; /* of a ring: 2 to sum and spread, 1 to gather or to sum and scatter */
    double bytes; /* of the whole vector */
} referee_task;

typedef struct referee_list {
    int n_tasks;
    referee_task *tasks;
    double model_secs; /* what the model says: the end of the last task */
} referee_list;

/* The lists of forwards and backwards of a few layers; without levels one is empty. The model's own words about each
 * axis' links are not among them. */
QDR_NODISCARD qdr_status referee_lists_make(const qdr_machine *machine, const qdr_network *network,
                                            const qdr_plan *plan, referee_list lists[REFEREE_LISTS]);
void referee_lists_free(referee_list lists[REFEREE_LISTS]);

#ifdef __cplusplus
}
#endif
#endif
