/* SPDX-License-Identifier: Apache-2.0 */
/* Which stage of a pipeline has how many layers. */
#ifndef QDRI_PERFMODEL_STAGES_H
#define QDRI_PERFMODEL_STAGES_H

#include "quadrille/plan.h"

typedef struct qdri_stages {
    int n; /* 1: no pipeline */
    double first, middle, last; /* layers; of the middle ones, the most */
} qdri_stages;

/* Layers are dealt equally, or so that the head counts as its parameters. */
qdri_stages qdri_stages_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan);
/* Nodes that the whole job takes. */
double qdri_job_nodes(const qdr_machine *machine, const qdr_plan *plan);
/* Stages wait for one another over nodes. */
int qdri_is_staged(const qdr_machine *machine, const qdr_plan *plan);

#endif
