/* SPDX-License-Identifier: Apache-2.0 */
/* The look-out: a thread that notices that this process has been in one blocking call of MPI for too long. Nothing can
 * end such a call but the end of the process. */
#ifndef QDRI_COMM_MPI_LOOKOUT_H
#define QDRI_COMM_MPI_LOOKOUT_H

#include "quadrille/launch.h"

/* Evaluates to name(arguments…), a call of MPI that waits for other ranks. */
#define QDRI_WAITS(name, ...) (qdri_mpi_enter(#name), qdri_mpi_left(name(__VA_ARGS__)))
void qdri_mpi_enter(const char *call);
int qdri_mpi_left(int code);

/* Starts the thread, which calls fn as described at qdr_launch_watch(). limit_secs 0: never. It is needed by programs
 * in trouble only, so that a failure to start it causes a warning. */
void qdri_lookout_begin(double limit_secs, qdr_stuck_fn fn, void *user);
void qdri_lookout_set_limit(double secs);
void qdri_lookout_end(void);

#endif
