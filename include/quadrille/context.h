/* SPDX-License-Identifier: Apache-2.0 */
/** @file context.h  A rank's context: its device, its memory, its world of ranks; ranks that are threads of one
 * process.
 *
 *  A context belongs to one rank and is used by one thread at a time. Collective functions are called by all ranks of
 * the context's world in the same order. Creating functions agree: on failure all ranks get the same status and
 * sentence. */
#ifndef QUADRILLE_CONTEXT_H
#define QUADRILLE_CONTEXT_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qdr_context_opts {
    uint32_t version; /**< QDR_OPTS_INIT */
    int n_threads; /**< BLAS threads per rank; 0: cores this rank may use (hwloc) over ranks on the
                      node, at least 1. OpenBLAS has one number of threads for the whole process:
                      while products of the library run on the CPU it is this one, for the
                      program's own calls of BLAS, too. When they are done (after
                      qdr_stream_synchronize(), say) it is again what the program had set */
    const char *device; /**< "cpu"; "cuda": the GPU with the rank's number on its node, modulo GPUs
                           (CUDA_VISIBLE_DEVICES counts); "cuda:N": GPU N. NULL: what the environment variable
                           QDR_DEVICE says, and without it the CPU. The same kind on all ranks. See cuda.h */
} qdr_context_opts;

/** Ranks of one process meet here; made by qdr_local_run(). */
typedef struct qdr_local_world qdr_local_world;
/** What one local rank runs; its result is kept. */
typedef int (*qdr_local_fn)(qdr_local_world *world, int rank, void *user);

/** Runs fn(world, rank, user) on n threads, one per rank, and waits for all of them. Blocking, not collective.
 *  @param n            number of ranks, 1 to 1024
 *  @param[out] result  the result of the lowest rank that returned non-zero, else 0; may be NULL
 *  @retval QDR_ERR_ARGUMENT  n is out of range or fn is NULL; nothing ran
 *  @retval QDR_ERR_THREAD    a thread could not be started; fn ran on no rank
 *  @retval QDR_ERR_MEMORY    nothing ran */
QDR_API QDR_NODISCARD qdr_status qdr_local_run(int n, qdr_local_fn fn, void *user, int *result);

/** Makes the context of one rank of a local world. Collective over the world. opts may be NULL.
 *  The context is destroyed by the same thread, before fn returns. What it was made with may go afterwards. */
QDR_API QDR_NODISCARD qdr_status qdr_context_create_local(qdr_local_world *world, int rank,
                                                          const qdr_context_opts *opts, qdr_context **ctx);
/** Makes a context for a single rank with no world around it. Not collective. opts may be NULL. */
QDR_API QDR_NODISCARD qdr_status qdr_context_create_self(const qdr_context_opts *opts, qdr_context **ctx);

/** How ranks that have neither MPI nor one process talk before NCCL does: two functions of the caller's, collective
 * over all ranks, which the library calls from the rank's own thread. Both return 0, or something else for a
 * failure. */
typedef struct qdr_boot {
    /** Copies `bytes` bytes at `data`, host memory, from rank `root` to all ranks. */
    int (*broadcast)(void *data, size_t bytes, int root, void *user);
    /** Returns when all ranks have called it. */
    int (*barrier)(void *user);
    void *user;
} qdr_boot;
/** Makes a rank's context over callbacks. Collective over all ranks; boot is copied, and its functions are called as
 * long as the context lives, in collective calls only. With more than one rank the device must be a GPU, one for each
 * rank, and collectives are NCCL's. A rank that fails cannot tell the others: set QDR_TIMEOUT, and let the callbacks
 * fail after a while. opts may be NULL.
 *  @retval QDR_ERR_UNSUPPORTED  the device is a CPU, two ranks share a GPU, ranks have different versions of NCCL, or
 *                               QDR_CHECK is set
 *  @retval QDR_ERR_PEER         a callback failed
 *  @retval QDR_ERR_TIMEOUT      ranks did not come to NCCL within QDR_TIMEOUT, or 300 s */
QDR_API QDR_NODISCARD qdr_status qdr_context_create_boot(int rank, int size, const qdr_boot *boot,
                                                         const qdr_context_opts *opts, qdr_context **ctx);

/* With the environment variable QDR_TRACE=FILE, in rank 0's process when the context is made, each rank of a context
 * (but one made by qdr_context_create_self()) writes FILE.RANK when the context is destroyed: when the tasks of its
 * schedules ran, as Chrome trace events, and how its clock stood to rank 0's. A file that cannot be written is a
 * warning in the log. Where ranks are on several nodes, destroying first waits for all of them, then writes. */

/* With QDR_CHECK=1 in the environment ranks exchange, before each collective, what they are about to call: its kind,
 * type, reduction, size, parts and peers, and the layer or operation that asks. Where they differ, all ranks of the
 * group fail with QDR_ERR_ARGUMENT and one sentence that names two of them, with their coordinates, and both calls. It
 * costs one small collective more for each, which traffic does not count. Calls of stack.h, linear.h and optim.h that
 * run in each step also compare what they are given, as the comments there say, and wait for all ranks. Results do not
 * change. With QDR_TIMEOUT=SECONDS a rank that waits longer than that for others, in a collective, an agreement, a
 * broadcast or a barrier, fails with QDR_ERR_TIMEOUT and a sentence that names the ranks that have not come, its own
 * call and the one before; the other ranks fail with it, or with QDR_ERR_PEER and that sentence. 0, the default: no
 * limit. The limit also holds while contexts, grids, stacks and optimizers are created, and while contexts on MPI are
 * destroyed: the log names the ranks that have not come, and the others wait three seconds more, then end without them.
 * MPI cannot tell which ranks have not come to qdr_context_create_mpi(); the caller's callbacks (qdr_boot) have no
 * limit. NCCL joins the ranks of a context, and of a grid, within QDR_TIMEOUT, or 300 s where that is 0. What runs from
 * a graph (graph.h) is not watched. Rank 0's environment holds for all ranks; while a context is created, each rank's
 * own. A wrong value on any rank is QDR_ERR_ARGUMENT when a context is made. */

/** Waits for the work of this rank on the context's stream, ends the context and sets *ctx to NULL. Takes NULL.
 * Collective over the world.
 *
 *  Objects may be destroyed in any order, the same on all ranks. One that others need (a context its grids, streams,
 * events and graphs; a grid its stacks; a stack its optimizers; whatever a recorded step uses its graph) stays until
 * the last of these has been destroyed, so that they can be used and queried until then. That last call is then
 * collective, as destroying the parent would have been. A rank that leaves such an object keeps its context, and
 * others may wait for it in this call; qdr_launch() ends the context all the same. Memory of qdr_mem_alloc() that is
 * left goes with the context. Where MPI has been finalised before, only memory is freed: no rank waits for another. */
QDR_API void qdr_context_destroy(qdr_context **ctx);

QDR_API int qdr_context_rank(const qdr_context *ctx); /**< 0 … size-1; NULL: -1 */
QDR_API int qdr_context_size(const qdr_context *ctx); /**< ranks in the world; NULL: 0 */
QDR_API int qdr_context_threads(const qdr_context *ctx); /**< BLAS threads of this rank; NULL: 0 */
/** The lowest rank that shares a node (a machine's memory) with `rank`, which is equal for all ranks of a node: as MPI
 * says; local ranks are on one node. -1 where there is no such rank. Local. */
QDR_API int qdr_context_node(const qdr_context *ctx, int rank);
/** The stream that calls use where a stream is NULL. A NULL context has none. */
QDR_API qdr_stream *qdr_context_stream(qdr_context *ctx);
/** The first asynchronous failure of this context; QDR_OK while there is none. After one, each call returns it at
 * once. */
QDR_API qdr_status qdr_context_status(const qdr_context *ctx);

/** Waits until all ranks of the world have called it. Collective, blocking. */
QDR_API QDR_NODISCARD qdr_status qdr_barrier(qdr_context *ctx);
/** Lets all ranks return the same: if any rank passes an error, all ranks return the status and the sentence of the
 * lowest such rank. Collective, blocking. */
QDR_API QDR_NODISCARD qdr_status qdr_agree(qdr_context *ctx, qdr_status mine);
/** Copies `bytes` bytes at `data` (host memory) from rank `root` to all ranks. Collective, blocking. */
QDR_API QDR_NODISCARD qdr_status qdr_broadcast(qdr_context *ctx, int root, void *data, size_t bytes);

/** Device memory of this context. It is aligned to 64 bytes and counted. bytes = 0 gives a valid pointer. MPI ranks of
 * one node read and write each other's blocks of 128 KiB and more in place, so collectives are faster there than in
 * other memory. Local, blocking.
 *  @retval QDR_ERR_MEMORY  *data is NULL; the sentence says how much was asked for and how much is in use */
QDR_API QDR_NODISCARD qdr_status qdr_mem_alloc(qdr_context *ctx, size_t bytes, void **data);
/** Frees memory of qdr_mem_alloc() and sets *data to NULL. Takes NULL. The memory must not be in use by a stream. Where
 * the context has gone, and the memory with it, it only sets *data to NULL; ctx may then be NULL, or what it was. */
QDR_API void qdr_mem_free(qdr_context *ctx, void **data);
/** Bytes of device memory this context holds now, and the most it ever held (the library's own and the caller's). Not
 * counted: small host structures, what MPI takes for itself, and the slots through which MPI ranks of one node exchange
 * what is small or not in memory of qdr_mem_alloc() (as much as a collective sends, at most 8 MiB for each
 * communicator). */
QDR_API void qdr_mem_usage(const qdr_context *ctx, size_t *bytes_now, size_t *bytes_peak);
/** Sets the remembered peak to what is held now. */
QDR_API void qdr_mem_reset_peak(qdr_context *ctx);
/** Copies between host or device memory, stream-ordered. Neither side may change until the copy has run.
 *  @retval QDR_ERR_ARGUMENT  NULL; dst and src overlap, and are not the same */
QDR_API QDR_NODISCARD qdr_status qdr_copy(qdr_context *ctx, void *dst, const void *src, size_t bytes,
                                          qdr_stream *stream);

/** A queue of work that runs in the order it was enqueued, apart from the caller. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_stream_create(qdr_context *ctx, qdr_stream **stream);
/** Waits for the stream's work, frees it and sets *stream to NULL. Takes NULL. */
QDR_API void qdr_stream_destroy(qdr_stream **stream);
/** Waits until the stream has nothing left to do; returns the context's status. Blocking. NULL is not allowed. */
QDR_API QDR_NODISCARD qdr_status qdr_stream_synchronize(qdr_stream *stream);
/** Runs fn(user) on the stream, in order. fn must not call the library. */
QDR_API QDR_NODISCARD qdr_status qdr_stream_call(qdr_stream *stream, void (*fn)(void *user), void *user);
/** An event marks a place in a stream; waiting for it makes another stream wait for that place. An event never recorded
 * is complete. Recording again moves the mark; waits already enqueued keep the old one. */
QDR_API QDR_NODISCARD qdr_status qdr_event_create(qdr_context *ctx, qdr_event **event);
QDR_API void qdr_event_destroy(qdr_event **event);
QDR_API QDR_NODISCARD qdr_status qdr_event_record(qdr_event *event, qdr_stream *stream);
QDR_API QDR_NODISCARD qdr_status qdr_stream_wait(qdr_stream *stream, qdr_event *event);

#ifdef __cplusplus
}
#endif
#endif
