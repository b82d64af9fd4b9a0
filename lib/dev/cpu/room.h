/* SPDX-License-Identifier: Apache-2.0 */
/* Room in the address space. OpenBLAS (0.3.21) takes a buffer of 128 MiB for each thread that multiplies, and where a
 * limit (ulimit -v) leaves none it asks again for ever. So under a limit the room is taken in advance, and an executor
 * gives it back when its first product begins. */
#ifndef QDRI_DEV_CPU_ROOM_H
#define QDRI_DEV_CPU_ROOM_H

#include "core/status.h"

/* Nothing where there is no limit. */
typedef struct qdri_room {
    void *start;
    size_t bytes;
} qdri_room;

/* Takes the room that products on one more thread need, with n_threads BLAS threads. */
QDR_NODISCARD qdr_status qdri_room_take(int n_threads, qdri_room *room);
void qdri_room_give_back(qdri_room *room);
/* The C library makes a heap for each new thread that allocates; this thread's shall exist before room is given back,
 * or it would lie there. */
void qdri_room_settle(void);

#endif
