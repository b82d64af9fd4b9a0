/* SPDX-License-Identifier: Apache-2.0 */
/* What a collective takes on a machine's links. */
#ifndef QDRI_PERFMODEL_COLLECTIVE_H
#define QDRI_PERFMODEL_COLLECTIVE_H

#include "group.h"
#include "quadrille/grid.h"
#include "simulate.h"

/* A collective of a kind over n_bytes in all (of an all-gather or reduce-scatter: of all members'
 * parts together), while all groups of the axis do the same. The algorithm that is fastest alone:
 * see docs/model.md. Nothing for a group of one. */
qdri_price qdri_coll_price(const qdr_machine *machine, const qdri_group *group, qdr_coll_kind kind,
                           double n_bytes);
/* latency_secs + work_secs of it. */
double qdri_coll_secs(const qdr_machine *machine, const qdri_group *group, qdr_coll_kind kind,
                      double n_bytes);

#endif
