/* SPDX-License-Identifier: Apache-2.0 */
/* The part of grids that is visible to modules above lib/grid. */
#ifndef QDRI_GRID_INTERNAL_H
#define QDRI_GRID_INTERNAL_H

#include "context/internal.h"
#include "core/coded.h"
#include "core/layout.h"
#include "quadrille/grid.h"

/* The lifetime of a grid, which lasts until its children have been destroyed. */
qdri_life *qdri_grid_life(qdr_grid *grid);
/* The channel's communicator, which may be a group of one. */
qdri_comm *qdri_grid_comm(const qdr_grid *grid, qdr_channel channel);
/* The channel's members, by node. */
QDR_NODISCARD qdr_status qdri_grid_coded_group(const qdr_grid *grid, qdr_channel channel, qdri_coded_group *group);
/* Makes the channel's communicator one that codes, see qdri_comm_compress(), unless it is. Collective over its members:
 * fails on all or on none. */
QDR_NODISCARD qdr_status qdri_grid_compress(qdr_grid *grid, qdr_channel channel);
/* The stream that runs a channel's bulk collectives (created with the grid, kind COMM). */
qdr_stream *qdri_grid_stream(const qdr_grid *grid, qdr_channel channel);
/* stream, or the context's if it is NULL. */
qdr_stream *qdri_stream_or_default(const qdr_grid *grid, qdr_stream *stream);
const char *qdri_grid_order(const qdr_grid *grid); /* fastest axis first, "xyzd" */
/* Coordinates of `rank`, without checks. */
void qdri_grid_locate(const qdr_grid *grid, int rank, int coordinates[QDR_N_AXES]);
/* Of this rank, with the levels. */
const qdri_position *qdri_grid_position(const qdr_grid *grid);
/* "2x1x1x4 order xyzd", and the levels if there are any. */
void qdri_grid_words(const qdr_grid *grid, char *text, size_t capacity);
/* Sets the operation whose calls are being enqueued, for error messages about its collectives; NULL: none. It must live
 * until they have run. The second function returns `otherwise` if there is none. */
void qdri_grid_set_label(qdr_grid *grid, const char *label);
const char *qdri_grid_label(const qdr_grid *grid, const char *otherwise);

/* Memory that work on a stream needs after the call that enqueued it has returned (packed messages, arrays of counts).
 * Freed by the host thread, when a later qdri_retained_create() finds that the work has finished, or with the grid. */
typedef struct qdri_retained qdri_retained;
struct qdri_retained {
    qdri_retained *next;
    void *host; /* zeroed */
    void *device; /* initially NULL; the caller may store memory of qdri_mem_alloc() here */
    qdr_event *done; /* recorded when it is released */
    int is_released;
};
/* Adds retained memory to the grid. Call it before anything is enqueued. */
QDR_NODISCARD qdr_status qdri_retained_create(qdr_grid *grid, size_t host_bytes, qdri_retained **retained);
/* Enqueues an event that marks the work on it as finished. On failure, and while a step is being recorded, it lives as
 * long as the grid. */
void qdri_retained_release(qdr_grid *grid, qdri_retained *retained, qdr_stream *stream);

#endif
