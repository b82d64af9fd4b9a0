/* SPDX-License-Identifier: Apache-2.0 */
/* What this runtime can run: the only place that says so. The model prices more. */
#include <stdio.h>

#include "core/sized.h"
#include "quadrille/plan.h"
#include "schedule/network.h"

static int refuse(qdr_obstacle *obstacle, const char *what, const char *why)
{
    snprintf(obstacle->what, sizeof obstacle->what, "%s", what);
    snprintf(obstacle->why, sizeof obstacle->why, "%s", why);
    return 0;
}

static int network_runs(const qdr_network *network, qdr_obstacle *obstacle)
{
    qdr_activation_function function;
    if (!qdri_activation_named(network->activation, &function)) {
        refuse(obstacle, "activation", "");
        snprintf(
            obstacle->why, sizeof obstacle->why,
            "the network's activation is %s, but this runtime has only gelu, gelu_new, silu, relu, relu2 and their "
            "synonyms; use a network with one of them",
            network->activation);
        return 0;
    }
    return 1;
}

static int plan_runs(const qdr_plan *plan, qdr_obstacle *obstacle)
{
    static const char *const words[] = {"none", "attention", "full"};
    if (plan->pipeline > 1) {
        refuse(obstacle, "pipeline", "");
        snprintf(obstacle->why, sizeof obstacle->why,
                 "a pipeline of %d stages, but this runtime has no pipelines; plan again without one", plan->pipeline);
        return 0;
    }
    if (plan->recompute != QDR_RECOMPUTE_NONE) {
        refuse(obstacle, "recompute", "");
        snprintf(obstacle->why, sizeof obstacle->why,
                 "recompute is %s, but this runtime keeps all activations; plan again with --recompute none",
                 (unsigned)plan->recompute < 3 ? words[plan->recompute] : "unknown");
        return 0;
    }
    return 1;
}

int qdr_plan_runs(const qdr_network *network, const qdr_plan *plan, qdr_obstacle *obstacle)
{
    qdr_obstacle found = {.what = ""};
    qdr_network its_network;
    qdr_plan its_plan;
    int runs = 1;
    if (network)
        runs = QDRI_TAKE(qdr_network, network, &its_network) == QDR_OK ? network_runs(&its_network, &found)
                                                                       : refuse(&found, "network", qdr_last_error());
    if (plan && runs)
        runs = QDRI_TAKE(qdr_plan, plan, &its_plan) == QDR_OK ? plan_runs(&its_plan, &found)
                                                              : refuse(&found, "plan", qdr_last_error());
    if (obstacle) QDRI_GIVE(qdr_obstacle, obstacle, &found);
    return runs;
}
