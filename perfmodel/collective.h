/* SPDX-License-Identifier: Apache-2.0 */
/* What a collective takes on a machine's links. */
#ifndef QDRI_PERFMODEL_COLLECTIVE_H
#define QDRI_PERFMODEL_COLLECTIVE_H

#include "group.h"
#include "quadrille/grid.h"
#include "simulate.h"

/* One way to do a collective: affine in the bytes of the whole vector. */
typedef struct qdri_way {
    double latency_secs, secs_per_byte;
} qdri_way;

enum { QDRI_MAX_WAYS = 2 * QDR_MAX_PROTOCOLS + 1 };

/* The ways of one group, while all groups of its axis do the same: one pass over the vector (all-gather,
 * reduce-scatter) and two (all-reduce). */
typedef struct qdri_ways {
    int n_ranks;
    double start_secs; /* of each, whatever the way */
    int n_once, n_twice;
    qdri_way once[QDRI_MAX_WAYS], twice[QDRI_MAX_WAYS];
    qdri_way message; /* from one rank to another */
    double full_rate[QDR_MAX_LINKS]; /* at which the group's flow fills each level; 0: not used */
    double n_flows; /* that share it: one for each adapter near the members of a unit */
} qdri_ways;

qdri_ways qdri_ways_make(const qdr_machine *machine, const qdri_group *group);
/* A collective of a kind over n_bytes in all (of an all-gather or reduce-scatter: of all members' parts together): the
 * fastest way alone. Nothing for a group of one. See docs/model.md. */
qdri_price qdri_coll_price(const qdri_ways *ways, qdr_coll_kind kind, double n_bytes);
/* latency_secs + work_secs of it. */
double qdri_coll_secs(const qdri_ways *ways, qdr_coll_kind kind, double n_bytes);

#endif
