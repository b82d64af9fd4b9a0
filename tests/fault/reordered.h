/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator whose ranks are not in the order of MPI_COMM_WORLD: even ranks first. If each half of the world is a
 * node, neighbours in this communicator are on different nodes. */
#ifndef QDR_TEST_REORDERED_H
#define QDR_TEST_REORDERED_H

#include "config.h"
#include "quadrille/quadrille.h"

#if QDRI_HAVE_MPI
#include "quadrille/mpi.h"
/* Collective over MPI_COMM_WORLD. */
MPI_Comm reordered_world(void);
#endif
/* What qdr_launch() does under mpiexec, on that communicator. Fails without MPI. */
QDR_NODISCARD qdr_status reordered_launch(qdr_main_fn fn, void *user, int *exit_code);

#endif
