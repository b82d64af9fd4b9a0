/* SPDX-License-Identifier: Apache-2.0 */
/* States in which a software's runs may be, and how many of them are. */
#include <math.h>

#include "price/price.h"

/* On so many nodes. */
static double share_on(const qdr_machine_state *state, double nodes)
{
    enum { N_POINTS = sizeof state->shares / sizeof *state->shares };
    const double place = fmin(log2(nodes) / 2, N_POINTS - 1); /* 1, 4, 16 and 64 are 0, 1, 2 and 3 */
    const int before = (int)fmin(place, N_POINTS - 2);
    const double *shares = &state->shares[before];
    return shares[0] + (place - before) * (shares[1] - shares[0]);
}

void qdri_state_shares(const qdr_machine *machine, const qdr_plan *plan, double memory_bytes,
                       double shares[QDR_MAX_STATES + 1])
{
    const double nodes = qdri_job_nodes(machine, plan);
    double left = 1; /* of the runs: those of the states before are in these */
    for (int i = 0; i < machine->n_states; i++) {
        const qdr_machine_state *state = &machine->states[i];
        const int is_full = state->memory_share > 0 && memory_bytes >= state->memory_share * machine->memory_bytes;
        const int applies = (nodes > 1 || is_full) && state->of_pipelines == (plan->pipeline > 1);
        shares[i + 1] = applies ? fmin(left, share_on(state, is_full ? fmax(nodes, 64) : nodes)) : 0;
        left -= shares[i + 1];
    }
    shares[0] = left;
}

void qdri_pricing_set_state(qdri_pricing *pricing, const qdr_machine_state *state)
{
    pricing->stall_secs = state ? state->stage_secs : 0;
    for (int axis = 0; axis < QDR_N_AXES && state; axis++)
        pricing->coll_host_secs[axis] = fmax(pricing->coll_host_secs[axis],
                                             state->rank_secs * pricing->ways[axis].n_ranks);
}
