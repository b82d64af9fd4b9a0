/* SPDX-License-Identifier: Apache-2.0 */
/* What this runtime can run: the only place that says so. The model prices more. */
#include <stdarg.h>
#include <stdio.h>

#include "core/sized.h"
#include "quadrille/plan.h"
#include "schedule/network.h"

__attribute__((format(printf, 3, 4))) static int refuse(qdr_obstacle *obstacle, const char *what, const char *why, ...)
{
    va_list arguments;
    snprintf(obstacle->what, sizeof obstacle->what, "%s", what);
    va_start(arguments, why);
    vsnprintf(obstacle->why, sizeof obstacle->why, why, arguments);
    va_end(arguments);
    return 0;
}

static int network_runs(const qdr_network *network, qdr_obstacle *obstacle)
{
    qdr_activation_function function;
    if (qdri_activation_named(network->activation, &function)) return 1;
    return refuse(
        obstacle, "activation",
        "the network's activation is %s, but this runtime has only gelu, gelu_new, silu, relu, relu2 and their "
        "synonyms; use a network with one of them",
        network->activation);
}

static int plan_runs(const qdr_plan *plan, qdr_obstacle *obstacle)
{
    if (plan->pipeline > 1)
        return refuse(obstacle, "pipeline",
                      "a pipeline of %d stages, but this runtime has no pipelines; plan again without one",
                      plan->pipeline);
    if (plan->context_parts > 1)
        return refuse(obstacle, "context_parts",
                      "sequences in %" PRId64
                      " parts, but this runtime has no context parallelism; plan again without it",
                      plan->context_parts);
    return 1;
}

int qdr_plan_runs(const qdr_network *network, const qdr_plan *plan, qdr_obstacle *obstacle)
{
    qdr_obstacle found = {.what = ""};
    qdr_network its_network;
    qdr_plan its_plan;
    int runs = 1;
    if (network)
        runs = QDRI_TAKE(qdr_network, network, &its_network) == QDR_OK
                   ? network_runs(&its_network, &found)
                   : refuse(&found, "network", "%s", qdr_last_error());
    if (plan && runs)
        runs = QDRI_TAKE(qdr_plan, plan, &its_plan) == QDR_OK ? plan_runs(&its_plan, &found)
                                                              : refuse(&found, "plan", "%s", qdr_last_error());
    if (obstacle) QDRI_GIVE(qdr_obstacle, obstacle, &found);
    return runs;
}
