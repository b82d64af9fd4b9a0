/* SPDX-License-Identifier: Apache-2.0 */
/* A team: the ranks of a test on this machine, without MPI: processes that are forked here, or threads. They meet in
 * memory that they share, which has no name and so leaves nothing behind. */
#ifndef TESTS_COMMON_TEAM_H
#define TESTS_COMMON_TEAM_H

#include <stddef.h>

enum { TEAM_MOST = 64, TEAM_LATE = 124 /* exit code, as timeout(1) has it */ };

typedef struct team team;

typedef struct team_opts {
    int size; /* 1 to TEAM_MOST */
    int as_threads;
    double meet_secs; /* a rank waits for others so long */
    double grace_secs; /* after one has failed, the others may run on so long */
    double all_secs; /* all of it may take so long */
} team_opts;

/* Its result is the rank's exit code. */
typedef int (*team_fn)(team *ours, int rank, void *user);

/* Runs fn on each rank and waits for all. If a rank fails, dies, or takes too long, the others are ended; a sentence on
 * standard error names it and what happened. A team of threads that takes too long ends its process.
 * codes: of all ranks, 128 + the signal for one that was killed; NULL: not wanted.
 * @return  0 if all ranks returned 0, else the code of the first that did not; TEAM_LATE after all_secs */
int team_run(const team_opts *opts, team_fn fn, void *user, int *codes);

/* Returns when all ranks have called it. @return 0; 1: a rank has failed, or has not come in time */
int team_meet(team *ours, int rank);
/* Copies data from rank root to all ranks. @return as team_meet() */
int team_copy(team *ours, int rank, int root, void *data, size_t bytes);

#endif
