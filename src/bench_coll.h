/* SPDX-License-Identifier: Apache-2.0 */
/* One collective of one size along an axis, its data and its exact result. */
#ifndef QUADRILLE_SRC_BENCH_COLL_H
#define QUADRILLE_SRC_BENCH_COLL_H

#include "bench.h"

typedef struct coll_case {
    /* set before coll_case_create() */
    qdr_grid *grid;
    qdr_axis axis;
    qdr_dtype dtype;
    /* set when it is there */
    qdr_coll_kind kind;
    /* of coll_case_create(): */
    int size, rank; /* along the axis */
    int is_callers; /* memory: malloc, not qdr_mem_alloc */
    void *send, *recv;
    int64_t capacity; /* elements of each */
    int64_t *counts, *recv_counts; /* of all members */
    /* of coll_case_size(): */
    int64_t n; /* elements: the size */
    /* of coll_case_check(): */
    int64_t n_wrong; /* elements on this rank */
} coll_case;

/* Memory for sizes up to most_elems. Collective over the grid, the same result on all ranks; destroy it in any case. */
int coll_case_create(coll_case *made, int64_t most_elems, int caller_memory, failure *why);
void coll_case_destroy(coll_case *gone);
/* Makes the size n elements: the vector of all-reduce, all-gather, reduce-scatter and broadcast, all that a member
 * sends in all-to-all and send-recv. Parts differ by at most one. */
void coll_case_size(coll_case *sized, int64_t n_elems);
/* Zeros to measure with: sums of sums in place stay finite. */
void coll_case_clear(coll_case *cleared);
/* A bench_subject's call, user is the case. */
qdr_status coll_case_call(void *user, int series);
/* Runs it once more on whole numbers whose sums are exact in every type, and counts what is wrong on this rank.
 * Collective. */
qdr_status coll_case_check(coll_case *checked);
/* What a member must send or receive, as a share of the size. */
double coll_bus_factor(qdr_coll_kind kind, int size);

#endif
