/* SPDX-License-Identifier: Apache-2.0 */
/* The memory plan of a stack: buffers in regions, and a pool of workspace slots that schedules use. Pure bookkeeping;
 * the regions get memory when they are bound. Functions that add keep a failed allocation in `status`, to be checked
 * once at the end. */
#ifndef QDRI_SCHEDULE_BUFFER_H
#define QDRI_SCHEDULE_BUFFER_H

#include "core/status.h"

typedef enum qdri_region {
    QDRI_PARAMETERS = 0,
    QDRI_GRADIENTS,
    QDRI_ACTIVATIONS,
    QDRI_WORKSPACE,
    QDRI_CALLER, /* memory passed with a call: x, y, dy, dx */
    QDRI_N_REGIONS
} qdri_region;

/* Bytes of a buffer, starting at `offset`; buffer -1 means none. */
typedef struct qdri_ref {
    int buffer;
    size_t offset, bytes; /* bytes 0: to the end */
} qdri_ref;
#define QDRI_NO_REF ((qdri_ref){-1, 0, 0})

typedef struct qdri_buffer {
    qdri_region region;
    size_t bytes, offset; /* offset within its region, set by qdri_buffers_finish() */
    int busy; /* workspace: current number of users */
    int64_t freed_at; /* workspace: the pool hands out the slot that has been free longest */
} qdri_buffer;

typedef struct qdri_buffers {
    qdri_buffer *items;
    int n, capacity;
    int pool_begin; /* no workspace slot has a lower number */
    int64_t clock;
    size_t region_bytes[QDRI_N_REGIONS];
    qdr_status status;
} qdri_buffers;

#define QDRI_BUFFER_ALIGN 64

/* Adds a buffer that is not part of the pool. */
qdri_ref qdri_buffers_add(qdri_buffers *buffers, qdri_region region, size_t bytes);
/* Takes a workspace slot of at least `bytes`: a free one that is large enough, else the largest free one, enlarged,
 * else a new one. */
qdri_ref qdri_buffers_take(qdri_buffers *buffers, size_t bytes);
/* Adds a user to a slot; each user ends with a give. Both ignore other buffers. */
void qdri_buffers_share(qdri_buffers *buffers, qdri_ref ref);
void qdri_buffers_give(qdri_buffers *buffers, qdri_ref ref);
/* Frees all slots, before the next schedule is built. */
void qdri_buffers_reset_pool(qdri_buffers *buffers);
/* Total size of the slots. The choice of a slot depends on the sizes of all: schedules that are rebuilt later fit only
 * if building all of them once more enlarges nothing. */
int64_t qdri_buffers_pool_bytes(const qdri_buffers *buffers);
/* Sets offsets and region sizes. @return the first failure */
QDR_NODISCARD qdr_status qdri_buffers_finish(qdri_buffers *buffers);
void qdri_buffers_free(qdri_buffers *buffers);

#endif
