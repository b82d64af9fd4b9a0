/* SPDX-License-Identifier: Apache-2.0 */
/* The number of layers in each stage of a pipeline. */
#ifndef QDRI_PERFMODEL_NETWORK_STAGES_H
#define QDRI_PERFMODEL_NETWORK_STAGES_H

#include "quadrille/plan.h"

typedef struct qdri_stages {
    int n; /* 1: no pipeline */
    double first, middle, last; /* layers; for the middle stages, the largest number */
} qdri_stages;

/* Layers are distributed equally, or so that the head counts in proportion to its parameters. */
qdri_stages qdri_stages_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan);
/* Number of nodes used by the whole job. */
double qdri_job_nodes(const qdr_machine *machine, const qdr_plan *plan);
/* Whether stages on different nodes wait for one another. */
int qdri_is_staged(const qdr_machine *machine, const qdr_plan *plan);

#endif
