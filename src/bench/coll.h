/* SPDX-License-Identifier: Apache-2.0 */
/* One collective of one size along an axis, with its data and its exact result. */
#ifndef QUADRILLE_SRC_BENCH_COLL_H
#define QUADRILLE_SRC_BENCH_COLL_H

#include "bench/bench.h"

typedef struct coll_case {
    /* set by the caller before coll_case_create() */
    qdr_grid *grid;
    qdr_axis axis;
    qdr_dtype dtype;
    const qdr_codec *codec; /* of sums and gathers; NULL: none */
    /* set by the caller after it */
    qdr_coll_kind kind;
    /* set by coll_case_create() */
    int size, rank; /* number of members along the axis, and this rank */
    int is_callers; /* buffers from malloc, not qdr_mem_alloc */
    void *send, *recv, *feedback; /* feedback: of a codec that has it */
    void *here; /* memory of the host, as large as each of the first two */
    int64_t capacity; /* elements of each buffer */
    int64_t *counts, *recv_counts; /* of all members */
    /* set by coll_case_size() */
    int64_t n; /* the size, in elements */
    /* set to 0 by coll_case_clear(); checks add to it */
    int64_t n_wrong; /* wrong elements on this rank */
} coll_case;

/* Allocates memory for sizes up to most_elems. Collective over the grid, with the same result on all ranks; destroy it
 * in any case. */
int coll_case_create(coll_case *made, int64_t most_elems, int caller_memory, failure *why);
void coll_case_destroy(coll_case *gone);
/* Sets the size to n elements: of the vector for all-reduce, all-gather, reduce-scatter and broadcast; of all that one
 * member sends for all-to-all and send-recv. Parts differ by at most one element. */
void coll_case_size(coll_case *sized, int64_t n_elems);
/* Whether the collective can find this member's part in the result's place, too, and not only there. */
int coll_case_has_both(const coll_case *the_case);
/* Fills the data for measuring: with zeros, since repeated sums in place stay finite; with a codec, for which zeros
 * would be less work, with small numbers that have room to grow. */
qdr_status coll_case_clear(coll_case *cleared);
/* How often the collective may be called in a row before its numbers have grown too large; then it is to be renewed. */
int coll_case_most_calls(const coll_case *called);
/* What calls have changed is again as coll_case_clear() left it. */
qdr_status coll_case_renew(const coll_case *renewed);
/* Enqueues the collective. in_place: of one that has both. */
qdr_status coll_case_start(const coll_case *started, qdr_stream *stream, int in_place);
/* The call of a bench_subject: user is the case, series whether it is in place. */
qdr_status coll_case_call(void *user, int series);
/* Counts the elements of the last call's result, which was out of place or has no other place, that are not finite. */
qdr_status coll_case_check_timed(coll_case *checked);
/* Runs the collective once more on whole numbers whose sums are exact in every type, and counts the wrong elements on
 * this rank. Collective. */
qdr_status coll_case_check(coll_case *checked, int in_place);
/* What a member must send or receive, as a fraction of the size. */
double coll_bus_factor(qdr_coll_kind kind, int size);

#endif
