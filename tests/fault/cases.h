/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that run cases, one after the other in one job, each with contexts of its own:
 *
 *   PROGRAM [--local P | --messages | --reordered] CASE...
 *
 * --local: P threads; without it: the ranks started by mpiexec. --messages: without the shared memory of nodes.
 * --reordered: on a communicator whose ranks are not in the order of MPI_COMM_WORLD: even ranks first. If each half of
 * the world is a node, neighbours in this communicator are on different nodes. */
#ifndef QDR_TEST_CASES_H
#define QDR_TEST_CASES_H

#include "config.h"
#include "quadrille/quadrille.h"

#if QDRI_HAVE_MPI
#include "quadrille/mpi.h"
/* Collective over MPI_COMM_WORLD. */
MPI_Comm reordered_world(void);
#endif

enum { AS_EXPECTED = 7, WRONG = 8 };

typedef struct case_ranks {
    int n_local; /* 0: started by mpiexec */
    int is_reordered;
} case_ranks;

/* 0 if it went as expected. Called by each process for each case. */
typedef int (*case_fn)(const case_ranks *ranks, const char *name);

/* The program's exit code: 0 if all cases went as expected, 2 if there is no such option. */
int cases_main(int argc, char **argv, case_fn run);

/* qdr_launch() on these ranks: 0 if fn returned AS_EXPECTED on all of them. */
int case_launch(const case_ranks *ranks, qdr_main_fn fn, void *user);

#endif
