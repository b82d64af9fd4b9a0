/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in regions of memory, which get addresses when they are bound. Pure bookkeeping. Functions that add keep a
 * failed allocation in `status`, to be checked once at the end. */
#ifndef QDRI_SCHEDULE_BUFFER_H
#define QDRI_SCHEDULE_BUFFER_H

#include "core/status.h"

/* Those that a stack has, with the members of its sizes and its memory; those before ACTIVATIONS last, and begin as
 * zeros. Feedback is what codecs of sums of gradients have lost; workspace is one buffer, in which each list places its
 * values (memory.h). */
#define QDRI_STACK_REGIONS(REGION)                                                                                     \
    REGION(PARAMETERS, parameters)                                                                                     \
    REGION(GRADIENTS, gradients)                                                                                       \
    REGION(FEEDBACK, feedback)                                                                                         \
    REGION(ACTIVATIONS, activations)                                                                                   \
    REGION(WORKSPACE, workspace)

typedef enum qdri_region {
#define REGION(constant, name) QDRI_##constant,
    QDRI_STACK_REGIONS(REGION)
#undef REGION
        QDRI_CALLER, /* memory passed with a call: x, y, dy, dx, and an optimizer's */
    QDRI_N_REGIONS
} qdri_region;

/* Bytes of a buffer, or of a value of a list, starting at `offset`; buffer -1 means none. */
typedef struct qdri_ref {
    int buffer;
    size_t offset, bytes;
} qdri_ref;
#define QDRI_NO_REF ((qdri_ref){-1, 0, 0})

typedef struct qdri_buffer {
    qdri_region region;
    size_t bytes, offset; /* offset within its region, set by qdri_buffers_finish() */
} qdri_buffer;

typedef struct qdri_buffers {
    qdri_buffer *items;
    int n, capacity;
    size_t region_bytes[QDRI_N_REGIONS];
    qdr_status status;
} qdri_buffers;

#define QDRI_BUFFER_ALIGN 64
/* Before the state of an optimizer: the numbers of a step. */
#define QDRI_STEP_BYTES ((size_t)2 * QDRI_BUFFER_ALIGN)

/* Adds a buffer, and refers to all of it. */
qdri_ref qdri_buffers_add(qdri_buffers *buffers, qdri_region region, size_t bytes);
/* Bytes of `ref` from `offset` on. */
qdri_ref qdri_slice(qdri_ref ref, size_t offset, size_t bytes);
/* Sets offsets and region sizes. @return the first failure */
QDR_NODISCARD qdr_status qdri_buffers_finish(qdri_buffers *buffers);
void qdri_buffers_free(qdri_buffers *buffers);

#endif
