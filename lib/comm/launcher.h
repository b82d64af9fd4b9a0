/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher such as mpiexec tells its processes through environment variables. */
#ifndef QDRI_COMM_LAUNCHER_H
#define QDRI_COMM_LAUNCHER_H

#include "core/status.h"

/* Compares the number of ranks that this process sees with the number that a launcher says it started.
 * @retval QDR_ERR_MPI  n_ranks is 1 but the launcher started more; `library` names what does not match it */
QDR_NODISCARD qdr_status qdri_launcher_check(int n_ranks, const char *why);
/* @retval QDR_ERR_ARGUMENT  a launcher started this program several times, and each would run local ranks of its own */
QDR_NODISCARD qdr_status qdri_launcher_check_local(int n_local);
/* The number of processes that a launcher started; 1 without a launcher; 0 if it only numbers them and this is the
 * first, which cannot know whether there are others. */
long qdri_launcher_ranks(void);
/* The number of ranks that a launcher started on this node, 1 if unknown; *index: the number of this one among them. */
long qdri_launcher_node_ranks(long *index);

#endif
