/* SPDX-License-Identifier: Apache-2.0 */
/* How contexts are made, for the files that make them. */
#ifndef QDRI_GRID_CONTEXT_H
#define QDRI_GRID_CONTEXT_H

#include "comm/comm.h"
#include "grid/device.h"
#include "quadrille/context.h"
#include "quadrille/launch.h"

/* What rank 0's QDR_TRACE asks for. */
typedef struct qdri_tracing {
    uint64_t id; /* of the run, the same on all ranks; 0: there is no trace */
    struct qdri_trace *trace; /* NULL: none, or no memory for it */
    char path[2048];
} qdri_tracing;

/* The environment's settings for watching other ranks. */
typedef struct qdri_watch_opts {
    int check; /* QDR_CHECK */
    double timeout_secs; /* QDR_TIMEOUT; 0: none */
} qdri_watch_opts;

/* A piece of memory of qdr_mem_alloc(). */
typedef struct qdri_mem_piece {
    void *data;
    struct qdri_mem_piece *next;
} qdri_mem_piece;

struct qdr_context {
    qdri_life life;
    qdr_context *next; /* of all that there are */
    qdri_dev *dev;
    qdri_dev *host_dev; /* drives MPI for a GPU; NULL: the device does */
    qdri_comm *world;
    qdr_stream *stream; /* the default one */
    int n_threads;
    qdri_tracing tracing;
    qdri_watch_opts watch; /* once the ranks have met: rank 0's */
    int is_recording; /* between qdr_graph_begin() and qdr_graph_end() */
    qdri_life **recorded; /* what the record needs */
    int n_recorded, recorded_capacity;
    qdri_mem_piece *pieces;
};

/* context_trace.c: when the world is there, and before it goes. Collective. */
void qdri_context_trace_begin(qdr_context *ctx);
void qdri_context_trace_end(qdr_context *ctx);

/* context_watch.c: @retval QDR_ERR_ARGUMENT  a variable has a value that means nothing */
QDR_NODISCARD qdr_status qdri_watch_opts_read(qdri_watch_opts *opts);
/* The first talk of ranks that have their devices: limits waits in `world`, as rank 0's environment asks, keeps that in
 * ctx->watch, and compares the kinds of devices. Collective: fails on all ranks or on none.
 * @retval QDR_ERR_ARGUMENT  a rank computes on a CPU, another on a GPU */
QDR_NODISCARD qdr_status qdri_context_greet(qdr_context *ctx, qdri_comm *world);
/* Names the world, and watches it as was agreed by qdri_context_greet(). Collective, as that. */
QDR_NODISCARD qdr_status qdri_context_watch_begin(qdr_context *ctx);

/* Reads the environment, too.
 * @retval QDR_ERR_ARGUMENT  opts have another version, n_threads < 0, or the environment a value that means nothing */
QDR_NODISCARD qdr_status qdri_context_check_opts(const qdr_context_opts *opts, qdri_watch_opts *watch);
/* Makes all of a context but its world, on this rank alone. n_node_ranks: ranks that share this machine; node_rank:
 * which of them this is. bells: of a CPU device; NULL: its own. */
QDR_NODISCARD qdr_status qdri_context_prepare(const qdr_context_opts *opts, int n_node_ranks, int node_rank,
                                              qdri_bell *bells, qdr_context **ctx);
/* Gives it its world. Collective: fails on all ranks, and the world stays the caller's, or on none. */
QDR_NODISCARD qdr_status qdri_context_join(qdr_context *ctx, qdri_comm *world);
/* Frees what prepare has made, and the world that it did not come to join: before the device that the world is bound
 * to, behind the stream, whose thread may sleep on the world's bells. Both may be NULL. */
void qdri_context_abandon(qdr_context **ctx, qdri_comm **world);
/* Frees what prepare has made. Takes NULL. */
void qdri_context_discard(qdr_context **ctx);

/* Ends a context whose rank is done: nobody will use, or destroy, what it has left of it. Takes NULL. */
void qdri_context_leave(qdr_context **ctx);

/* qdr_launch() with n_local = 0, in builds with MPI. */
QDR_NODISCARD qdr_status qdri_launch_mpi(const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code);

#endif
