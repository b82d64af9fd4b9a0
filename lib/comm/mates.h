/* SPDX-License-Identifier: Apache-2.0 */
/* The other processes of a job on this node, as the system shows them: who is stopped, and who is in another call. */
#ifndef QDRI_COMM_MATES_H
#define QDRI_COMM_MATES_H

#include <stddef.h>

/* This process's rank according to its launcher; -1: unknown. */
int qdri_mates_rank(void);
/* Names those processes that the same launcher started on this node and that are stopped, or have no thread of the name
 * `thread`: "rank 1 (process 4711) is stopped". NULL: only those that are stopped. @return how many; 0: text is "" */
int qdri_mates_missing(const char *thread, char *text, size_t bytes);

#endif
