/* SPDX-License-Identifier: Apache-2.0 */
/* A save: blocking, it ends with the call; in the background, a thread of this rank writes a copy. */
#ifndef QDRI_CHECKPOINT_SAVE_H
#define QDRI_CHECKPOINT_SAVE_H

#include <pthread.h>
#include <stdatomic.h>

#include "checkpoint/contents.h"
#include "files/partial.h"
#include "quadrille/checkpoint.h"

/* Host memory of a save, or of loading, in one block: what each part of it needs, in bytes. */
typedef struct qdri_host_plan {
    size_t copy; /* of this rank's elements, in the background */
    size_t elements; /* of a piece, where they are not in host memory, or not as in the file */
    size_t parameters; /* the same of BF16 and F16 parameters, beside their masters */
    size_t band; /* for transposed shards */
} qdri_host_plan;
enum { QDRI_PIECE_ELEMS = 1 << 19 /* at most 4 MiB */ };
qdri_host_plan qdri_host_plan_of(const qdri_contents *contents, int background);
static inline size_t qdri_host_plan_bytes(const qdri_host_plan *plan)
{
    return plan->copy + plan->elements + plan->parameters + plan->band;
}
/* The parts of a block; NULL where nothing is needed. */
typedef struct qdri_host_block {
    char *memory, *copy, *elements, *parameters, *band;
} qdri_host_block;
QDR_NODISCARD qdr_status qdri_host_block_make(const qdri_host_plan *plan, qdri_host_block *block);

/* Bytes of a file that are being moved, for traces: begun and ended in any thread. */
typedef struct qdri_file_event {
    const char *kind;
    int run; /* of the trace, when it began */
    int64_t begin_ns, end_ns;
} qdri_file_event;
/* trace.c. Host thread: begins one of this kind; adds one that has ended, if the context is traced. */
qdri_file_event qdri_file_event_begin(const qdr_context *ctx, const char *kind);
void qdri_file_event_add(const qdr_context *ctx, const char *path, const qdri_file_event *event, int64_t bytes);
/* Ends it, in the thread that has moved them. */
void qdri_file_event_end(qdri_file_event *event);

struct qdr_checkpoint {
    qdr_stack *stack; /* kept alive */
    qdri_contents contents;
    qdri_host_block host;
    char *path, *note;
    char optimizer[QDRI_OPTIMIZER_TEXT_BYTES];
    const char *metadata[9]; /* keys and values */
    int keep;
    qdri_partial *partial; /* on rank 0 */
    int descriptor;
    int64_t data_at; /* byte of the file at which elements begin */
    uint32_t *shares; /* of checksums, by tensor */
    int64_t n_written; /* bytes */
    qdri_file_event writing;
    /* In the background: */
    int background, has_thread;
    pthread_t thread;
    atomic_int has_written;
    qdr_status written; /* what the thread ended with, and its sentence */
    char sentence[QDRI_ERROR_BYTES];
    int is_complete; /* all ranks have ended with `status` */
    qdr_status status;
};

/* write.c: copies this rank's elements to host->copy. */
QDR_NODISCARD qdr_status qdri_checkpoint_copy(qdr_checkpoint *self);
/* Writes this rank's elements, from their copy if there is one, and waits for the disk. Rank 0 takes the room of the
 * whole file first. Without a copy: host thread only. */
QDR_NODISCARD qdr_status qdri_checkpoint_write(qdr_checkpoint *self);

/* combine.c: exclusive or of `shares`, and the sum of *bytes, over all ranks. Collective, agrees. */
QDR_NODISCARD qdr_status qdri_combine(qdr_grid *grid, uint32_t *shares, int n, int64_t *bytes);

#endif
