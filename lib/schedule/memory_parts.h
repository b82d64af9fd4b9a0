/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the memory pass. */
#ifndef QDRI_SCHEDULE_MEMORY_PARTS_H
#define QDRI_SCHEDULE_MEMORY_PARTS_H

#include "schedule/memory.h"

/* A value that is used, from task `first` until before task `end`. */
typedef struct qdri_lifetime {
    int value, first, end;
    int stream; /* of the first task */
    int last_on[QDRI_N_STREAMS]; /* the last task on each stream; -1: none */
    size_t bytes, offset; /* aligned */
    int n_near, *near; /* lives that it overlaps with in time */
    int placed; /* the number of the try in which it got its place */
} qdri_lifetime;

typedef struct qdri_memory_pass {
    const qdri_schedule *schedule;
    qdri_lifetime *lives; /* by first task */
    int n, n_near;
    size_t sum_bytes, least_bytes; /* of all lives; of those at the same time */
    int (*after)[QDRI_N_STREAMS]; /* by task: the last task of each stream that has ended before it begins; -1: none */
    int *near; /* of all lives */
    qdri_lifetime **order, **taken; /* while places are found: the lives to be placed; neighbours that have places */
    size_t *best; /* offsets of the smallest placement so far */
    size_t best_bytes;
    int n_tries;
} qdri_memory_pass;

/* places.c: sets the offsets of all lives, and best_bytes. */
void qdri_memory_find_places(qdri_memory_pass *p);

#endif
