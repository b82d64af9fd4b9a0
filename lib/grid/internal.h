/* SPDX-License-Identifier: Apache-2.0 */
/* What rooms above lib/grid see of contexts and grids. */
#ifndef QDRI_GRID_INTERNAL_H
#define QDRI_GRID_INTERNAL_H

#include "comm/comm.h"
#include "quadrille/grid.h"

/* What keeps a context, and a grid, until their children have gone. */
qdri_life *qdri_context_life(qdr_context *ctx);
qdri_life *qdri_grid_life(qdr_grid *grid);
qdri_dev *qdri_context_dev(const qdr_context *ctx);
qdri_comm *qdri_context_world(const qdr_context *ctx);
/* Where schedules of this context are traced; NULL: they are not. */
struct qdri_trace *qdri_context_trace(const qdr_context *ctx);
int qdri_context_is_recording(const qdr_context *ctx); /* a step, by qdr_graph_begin() */
/* Before work that is waited for is enqueued: QDR_ERR_STATE while the context records, which goes on. */
QDR_NODISCARD qdr_status qdri_context_check_runs(const qdr_context *ctx, const char *who);
/* While the context records: the record needs this, so the graph keeps it. */
QDR_NODISCARD qdr_status qdri_context_record_needs(qdr_context *ctx, qdri_life *life);
/* Agrees over the context's world as qdr_agree(), and compares: see qdri_comm_agree_same(). */
QDR_NODISCARD qdr_status qdri_context_agree_same(const qdr_context *ctx, qdr_status mine, const qdri_facts *facts,
                                                 const char *what, const char *rule);
/* The same with QDR_CHECK=1; else no rank waits for another, and `mine` is returned. For calls of each step. */
QDR_NODISCARD qdr_status qdri_context_compare_call(const qdr_context *ctx, qdr_status mine, const qdri_facts *facts,
                                                   const char *what, const char *rule);
int qdri_context_is_checked(const qdr_context *ctx); /* QDR_CHECK=1, and there are other ranks */
/* Ends it, if there is one, and drops it: for who frees what it would use. */
void qdri_context_end_record(qdr_context *ctx);
/* The channel's communicator; a group of one where the axis has size 1. */
qdri_comm *qdri_grid_comm(const qdr_grid *grid, qdr_channel channel);
/* Of this axis' groups that span nodes: the largest power of two up to the members on one node; 0: none spans nodes.
 * Equal on all ranks. */
int qdri_grid_node_members(const qdr_grid *grid, qdr_axis axis);
/* The stream that carries a channel's bulk collectives (made with the grid, kind COMM). */
qdr_stream *qdri_grid_stream(const qdr_grid *grid, qdr_channel channel);
/* stream, or the context's if NULL. */
qdr_stream *qdri_stream_or_default(const qdr_grid *grid, qdr_stream *stream);
const char *qdri_grid_order(const qdr_grid *grid); /* fastest axis first, "xyzd" */
/* Coordinates of `rank` without checks. */
void qdri_grid_locate(const qdr_grid *grid, int rank, int coordinates[QDR_N_AXES]);
/* The operation whose calls are being enqueued, for sentences about its collectives; NULL: none. It lives until they
 * have run. `otherwise` is returned where there is none. */
void qdri_grid_set_label(qdr_grid *grid, const char *label);
const char *qdri_grid_label(const qdr_grid *grid, const char *otherwise);

/* Memory that work on a stream still needs when the call that enqueued it has returned (packed messages, arrays of
 * counts). Freed by the host thread, when a later qdri_hold_create() finds the work done, or with the grid.
 * lib/grid/hold.c. */
typedef struct qdri_hold qdri_hold;
struct qdri_hold {
    qdri_hold *next;
    void *host; /* zeroed */
    void *device; /* NULL at first; the holder may put memory of qdri_mem_alloc() here */
    qdr_event *done; /* recorded when it is released */
    int is_released;
};
/* Adds a hold to the grid. Call it before anything is enqueued. */
QDR_NODISCARD qdr_status qdri_hold_create(qdr_grid *grid, size_t host_bytes, qdri_hold **hold);
/* Enqueues the mark that says the hold is done with. On failure, and while a step is recorded, it stays until the grid
 * goes. */
void qdri_hold_release(qdr_grid *grid, qdri_hold *hold, qdr_stream *stream);
/* The grid's list, NULL at first; and what qdr_grid_destroy() calls, streams idle. */
qdri_hold **qdri_grid_holds(qdr_grid *grid);
void qdri_holds_free(qdr_grid *grid);

#endif
