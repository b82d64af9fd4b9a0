/* SPDX-License-Identifier: Apache-2.0 */
/* How contexts are created; for the files that create them. */
#ifndef QDRI_CONTEXT_CONTEXT_H
#define QDRI_CONTEXT_CONTEXT_H

#include "comm/comm.h"
#include "quadrille/context.h"
#include "quadrille/launch.h"
#include "quadrille/machine.h"

/* The trace requested by rank 0's QDR_TRACE. */
typedef struct qdri_tracing {
    uint64_t id; /* of the run, the same on all ranks; 0: no trace */
    struct qdri_trace *trace; /* NULL: none, or out of memory */
    char path[2048];
} qdri_tracing;

/* Environment settings for checking calls and limiting waits. */
typedef struct qdri_watch_opts {
    int check; /* QDR_CHECK */
    double timeout_secs; /* QDR_TIMEOUT; 0: none */
} qdri_watch_opts;

/* A block of memory from qdr_mem_alloc(). */
typedef struct qdri_mem_piece {
    void *data;
    struct qdri_mem_piece *next;
} qdri_mem_piece;

struct qdr_context {
    qdri_life life;
    qdr_context *next; /* in the list of all contexts */
    qdri_dev *dev;
    qdri_dev *host_dev; /* drives MPI for a GPU; NULL: dev itself does */
    qdri_comm *world;
    qdr_stream *stream; /* the default one */
    int n_threads;
    char *machine_name; /* NULL: none was named */
    int has_machine; /* by qdr_context_set_machine() */
    qdr_machine machine;
    qdri_tracing tracing;
    qdri_watch_opts watch; /* after the ranks have communicated: rank 0's */
    int is_recording; /* between qdr_graph_begin() and qdr_graph_end() */
    int64_t n_records, n_record_runs; /* begun so far; number of times that one of them was launched */
    qdri_life **recorded; /* objects that the recording needs */
    int n_recorded, recorded_capacity;
    qdri_mem_piece *pieces;
    qdr_stack *stacks; /* the first of those that have memory */
};

/* context_trace.c: after the world has been created, and before it is destroyed. Collective. */
void qdri_context_trace_begin(qdr_context *ctx);
void qdri_context_trace_end(qdr_context *ctx);

/* context_machine.c: what collectives between processes know becomes what rank 0's machine says; nothing, if it cannot
 * be read. Collective: fails on all ranks, or on none.
 * @retval QDR_ERR_MEMORY  rank 0 had no memory to read it */
QDR_NODISCARD qdr_status qdri_context_tell_machine(const qdr_context *ctx, qdri_comm *world);

/* context_watch.c: the first communication between ranks that have their devices: sets the time limit of `world` from
 * rank 0's environment, stores the settings in ctx->watch, and compares the kinds of devices. Collective: fails on all
 * ranks or on none.
 * @retval QDR_ERR_ARGUMENT  some ranks compute on CPUs, others on GPUs */
QDR_NODISCARD qdr_status qdri_context_greet(qdr_context *ctx, qdri_comm *world);
/* Names the world, and applies the settings agreed by qdri_context_greet(). Collective, like that. */
QDR_NODISCARD qdr_status qdri_context_watch_begin(qdr_context *ctx);

/* The options of a caller, who may have passed none, and what the environment says.
 * @retval QDR_ERR_ARGUMENT  no size, n_threads < 0, or an invalid value in the environment */
QDR_NODISCARD qdr_status qdri_context_take_opts(const qdr_context_opts *given, qdr_context_opts *opts,
                                                qdri_watch_opts *watch);
/* Creates everything in a context except its world, on this rank alone. n_node_ranks: number of ranks on this machine;
 * node_rank: the number of this one among them. wake_events: for a CPU device; NULL: its own. */
QDR_NODISCARD qdr_status qdri_context_prepare(const qdr_context_opts *opts, int n_node_ranks, int node_rank,
                                              qdri_wake_event *wake_events, qdr_context **ctx);
/* Sets the context's world. Collective: fails on all ranks, and then the caller keeps the world, or on none. */
QDR_NODISCARD qdr_status qdri_context_join(qdr_context *ctx, qdri_comm *world);
/* Ends the creation of a context that this rank has prepared, or failed to, with `status`: all ranks agree, and each
 * joins its world, which may be replaced. Takes `made` and `world`. */
typedef qdr_status (*qdri_context_join_fn)(qdr_context *ctx, qdri_comm **world);
QDR_NODISCARD qdr_status qdri_context_complete(qdr_status status, qdr_context *made, qdri_comm *world,
                                               qdri_context_join_fn join, qdr_context **ctx);
/* Ends the context of a rank that is done: everything left of it is no longer used or destroyed by anyone. Accepts
 * NULL. */
void qdri_context_leave(qdr_context **ctx);

/* Which communicator connects the GPUs of a world: the words of QDR_CUDA_COMM, in their order. */
typedef enum qdri_pairing {
    QDRI_PAIR_AUTO,
    QDRI_PAIR_NCCL,
    QDRI_PAIR_MPI, /* through host memory */
    QDRI_PAIR_LOCAL
} qdri_pairing;

/* pairing.c: gives a world whose devices are GPUs the communicator requested by rank 0's environment: NCCL, which then
 * owns the previous world, or `own`, the one that a world of this kind has without NCCL (AUTO: none). "auto" means NCCL
 * if it can be used, or `own`. The world's time limit applies while communicators of NCCL are created. Collective:
 * fails on all ranks, and then the world is unchanged, or on none.
 * @retval QDR_ERR_ARGUMENT     unknown value, or not possible for this kind of world
 * @retval QDR_ERR_UNSUPPORTED  requested, but cannot be used */
QDR_NODISCARD qdr_status qdri_pair(qdri_comm **world, qdri_dev *dev, qdri_pairing own, qdri_pairing *pairing);

/* What qdr_launch_watch() was called with. */
typedef struct qdri_stuck_watch {
    qdr_stuck_fn fn;
    void *user;
} qdri_stuck_watch;

/* qdr_launch() with n_local = 0, in builds with MPI. */
QDR_NODISCARD qdr_status qdri_launch_mpi(const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code,
                                         const qdri_stuck_watch *watch);

#endif
