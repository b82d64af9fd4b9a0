/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of stages. */
#include "network/stages.h"

#include <math.h>

double qdri_job_nodes(const qdr_machine *machine, const qdr_plan *plan)
{
    const double n_ranks = (double)plan->x * plan->y * plan->z * plan->d * fmax(1, plan->pipeline);
    return ceil(n_ranks / machine->ranks_per_node);
}

int qdri_is_staged(const qdr_machine *machine, const qdr_plan *plan)
{
    const double nodes = qdri_job_nodes(machine, plan);
    return nodes > 1 &&
           (plan->pipeline > 1 || (machine->software.stall_nodes > 0 && nodes >= machine->software.stall_nodes));
}

static double layer_elems(const qdr_network *n)
{
    const double q = (double)(n->heads * n->head_size), kv = (double)(n->kv_heads * n->head_size);
    return (double)n->hidden * (2 * q + 2 * kv + (2 + (n->gated != 0)) * (double)n->ffn);
}

/* Assigns layers to the current stage; the next stage begins when the running sum reaches its share. */
static qdri_stages balanced(const qdr_network *network, int n)
{
    const double layer = layer_elems(network), head = (double)network->vocab * (double)network->hidden;
    const double all = (double)network->layers * layer + head;
    qdri_stages stages = {.n = n};
    double sum = 0, here = 0;
    int stage = 0;
    for (int64_t i = 0; i < network->layers; i++) {
        here++;
        sum += layer;
        if (stage == 0) stages.first = here;
        if (stage > 0 && stage < n - 1) stages.middle = fmax(stages.middle, here);
        if (stage == n - 1) stages.last = here;
        if (stage >= n - 1 || sum < all * (stage + 1) / n) continue;
        stage++;
        here = 0;
    }
    return stages;
}

qdri_stages qdri_stages_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan)
{
    const int n = plan->pipeline > 1 ? plan->pipeline : 1;
    if (n > 1 && machine->software.balanced_stages) return balanced(network, n);
    const double each = ceil((double)network->layers / n);
    return (qdri_stages){n, each, each, each};
}
