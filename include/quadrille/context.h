/* SPDX-License-Identifier: Apache-2.0 */
/** @file context.h  A rank's context: its device, its memory, its world of ranks; ranks that are threads.
 *
 * A context belongs to one rank and is used by one thread at a time. Collective functions are called by all ranks of
 * the context's world in the same order. Functions that create objects agree: on failure all ranks get the same status
 * and sentence. */
#ifndef QUADRILLE_CONTEXT_H
#define QUADRILLE_CONTEXT_H

#include "machine.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qdr_context_opts {
    size_t size; /**< QDR_INIT(qdr_context_opts) */
    int n_threads; /**< threads per rank that compute on the CPU; 0: the cores this rank may use (hwloc) divided by the
                      ranks on the node, at least 1. Results do not depend on it. OpenBLAS has one number of threads for
                      the whole process: while products of the library run on the CPU it is 1, also for the program's
                      own calls of BLAS. Once they have finished (for example after qdr_stream_synchronize()) it is
                      again what the program had set */
    const char *device; /**< "cpu"; "cuda": the GPU with the rank's number on its node, modulo GPUs
                           (CUDA_VISIBLE_DEVICES counts); "cuda:N": GPU N. NULL: the value of the environment variable
                           QDR_DEVICE, or the CPU if it is not set. The same kind on all ranks. See cuda.h */
    const char *machine; /**< a name or a file as for qdr_machine_load(), copied: the machine for which stacks choose
                            panels, collectives inside a node their way, and for which qdr_plan_auto() and reports
                            predict; rank 0's applies. The environment variable QDR_MACHINE takes precedence. NULL:
                            "here" */
} qdr_context_opts;

/** Ranks of one process meet here; made by qdr_local_run(). */
typedef struct qdr_local_world qdr_local_world;
/** What one local rank runs; for its result see qdr_local_run(). */
typedef int (*qdr_local_fn)(qdr_local_world *world, int rank, void *user);

/** Runs fn(world, rank, user) on n threads, one per rank, and waits for all of them. Blocking, not collective.
 *  @param n            number of ranks, 1 to 1024
 *  @param[out] result  the result of the lowest rank that returned non-zero, else 0; may be NULL
 *  @retval QDR_ERR_ARGUMENT  n is out of range or fn is NULL; nothing ran
 *  @retval QDR_ERR_THREAD    a thread could not be started; fn ran on no rank
 *  @retval QDR_ERR_MEMORY    nothing ran */
QDR_API QDR_NODISCARD qdr_status qdr_local_run(int n, qdr_local_fn fn, void *user, int *result);

/** Makes the context of one rank of a local world. Collective over the world. opts may be NULL.
 * The context must be destroyed by the same thread, before fn returns. The world may be released
 * afterwards. */
QDR_API QDR_NODISCARD qdr_status qdr_context_create_local(qdr_local_world *world, int rank,
                                                          const qdr_context_opts *opts, qdr_context **ctx);
/** Makes a context for a single rank, alone in its world. Not collective. opts may be NULL. */
QDR_API QDR_NODISCARD qdr_status qdr_context_create_self(const qdr_context_opts *opts, qdr_context **ctx);

/** How ranks that neither use MPI nor share a process communicate before NCCL is available: two functions of the
 * caller's, collective over all ranks, which the library calls from the rank's own thread. Both return 0 on success and
 * anything else on failure. */
typedef struct qdr_boot {
    size_t size; /**< QDR_INIT(qdr_boot) */
    /** Copies `bytes` bytes at `data`, host memory, from rank `root` to all ranks. */
    int (*broadcast)(void *data, size_t bytes, int root, void *user);
    /** Returns when all ranks have called it. */
    int (*barrier)(void *user);
    void *user;
} qdr_boot;
/** Makes a rank's context over callbacks. Collective over all ranks; boot is copied; its functions may be called as
 * long as the context exists, in collective calls only. With more than one rank the device must be a GPU, one for each
 * rank (see cuda.h), and NCCL runs the collectives. A rank that fails cannot notify the others: set QDR_TIMEOUT, and
 * let the callbacks fail after their own time limit. opts may be NULL.
 *  @retval QDR_ERR_UNSUPPORTED  the device is a CPU, two ranks share a GPU, ranks have different versions of NCCL, or
 *                               QDR_CHECK is set
 *  @retval QDR_ERR_PEER         a callback failed
 *  @retval QDR_ERR_TIMEOUT      some ranks did not join NCCL within QDR_TIMEOUT, or 300 s */
QDR_API QDR_NODISCARD qdr_status qdr_context_create_boot(int rank, int size, const qdr_boot *boot,
                                                         const qdr_context_opts *opts, qdr_context **ctx);

/* If the environment variable QDR_TRACE=FILE is set in rank 0's process when the context is made, each rank writes
 * FILE.RANK when the context is destroyed (unless it was made by qdr_context_create_self()): when the tasks of its
 * schedules ran, as Chrome trace events, and the offset of its clock from rank 0's. A file that cannot be written
 * causes a warning in the log. If the ranks are on several nodes, destroying first waits for all of them, then
 * writes. */

/* With QDR_CHECK=1 in the environment, ranks exchange before each collective what they are about to call: its kind,
 * type, reduction, size, parts, peers and codec, and the layer or operation that calls it. If they differ, all ranks of
 * the group fail with QDR_ERR_ARGUMENT and one sentence that names two of them, with their coordinates, and both calls.
 * This costs an additional small collective for each one, which traffic does not count. The functions of stack.h,
 * linear.h and optim.h that run in each step also compare their arguments, as documented there, and wait for all ranks.
 * Results do not change. With QDR_TIMEOUT=SECONDS, a rank that waits longer than that for others, in a collective, an
 * agreement, a broadcast or a barrier, fails with QDR_ERR_TIMEOUT and a sentence that names the missing ranks, its own
 * call and the one before; the other ranks fail with it, or with QDR_ERR_PEER and that sentence. 0, the default: no
 * limit. The limit also holds while contexts, grids, stacks and optimizers are created, and while contexts on MPI are
 * destroyed: the log names the missing ranks, and the others wait three more seconds, then finish without them. In
 * qdr_context_create_mpi() MPI cannot tell which ranks are missing: the sentence names the ranks of this node that are
 * stopped. There are calls of MPI that nothing can end, and so the limit does not hold for a rank that is stopped or
 * killed inside one: MPI_Comm_split and MPI_Comm_split_type, by which contexts and grids are made, MPI_Comm_free, and
 * MPI_Init_thread and MPI_Finalize in qdr_launch(), which can look out for them (qdr_launch_watch()). The caller's
 * callbacks (qdr_boot) have no limit. The time during which a process itself was stopped does not count.
 * NCCL joins the ranks of a context, and of a grid, within QDR_TIMEOUT, or 300 s if that is 0. Runs of a graph
 * (graph.h) are not watched. Rank 0's environment holds for all ranks; while a context is created, each rank's own
 * does. An invalid value on any rank is QDR_ERR_ARGUMENT when a context is made. */

/** Waits for the work of this rank on the context's stream, destroys the context and sets *ctx to NULL. NULL is
 * allowed. Collective over the world.
 *
 * Objects may be destroyed in any order that is the same on all ranks. An object that others need (a context is needed
 * by its grids, streams, events and graphs, a grid by its stacks, a stack by its optimizers, and whatever a recorded
 * step uses by its graph) exists until the last of these has been destroyed, so that they can be used and queried until
 * then. That last call is then collective, as destroying the parent would have been. A rank that never destroys such an
 * object keeps its context, and others may wait for it in this call; qdr_launch() ends the context in any case. Memory
 * from qdr_mem_alloc() that has not been freed is freed with the context. If MPI has already been finalised, only
 * memory is freed: no rank waits for another. */
QDR_API void qdr_context_destroy(qdr_context **ctx);

QDR_API int qdr_context_rank(const qdr_context *ctx); /**< 0 … size-1; NULL: -1 */
QDR_API int qdr_context_size(const qdr_context *ctx); /**< ranks in the world; NULL: 0 */
QDR_API int qdr_context_threads(const qdr_context *ctx); /**< threads of this rank that compute on the CPU; NULL: 0 */
/** The lowest rank on the same node (sharing its memory) as `rank`; the same for all ranks of a node. MPI determines
 * the nodes; local ranks are on one node. -1 if `rank` does not exist. Local. */
QDR_API int qdr_context_node(const qdr_context *ctx, int rank);
/** The stream that calls use if they are passed NULL as a stream. NULL for a NULL context. */
QDR_API qdr_stream *qdr_context_stream(qdr_context *ctx);
/** The first asynchronous failure of this context; QDR_OK while there is none. After a failure, each call returns it
 * immediately. */
QDR_API qdr_status qdr_context_status(const qdr_context *ctx);

/** Sets the machine of this context, which then takes precedence over QDR_MACHINE and qdr_context_opts.machine, for
 * stacks and plans made and collectives enqueued from now on. Collective over the world, blocking; there must be no
 * work on the context's streams. machine is rank 0's, copied; other ranks may pass NULL.
 *  @retval QDR_ERR_ARGUMENT  on all ranks: rank 0's machine is NULL, or qdr_machine_check() refuses it
 *  @retval QDR_ERR_STATE     a step is being recorded */
QDR_API QDR_NODISCARD qdr_status qdr_context_set_machine(qdr_context *ctx, const qdr_machine *machine);

/** Waits until all ranks of the world have called it. Collective, blocking. */
QDR_API QDR_NODISCARD qdr_status qdr_barrier(qdr_context *ctx);
/** Makes all ranks return the same status: if any rank passes an error, all ranks return the status and the sentence of
 * the lowest such rank. Collective, blocking. */
QDR_API QDR_NODISCARD qdr_status qdr_agree(qdr_context *ctx, qdr_status mine);
/** A setting of a program, such as an option of its command line. No members will be added: lists of it are passed. */
typedef struct qdr_setting {
    const char *name; /**< as the user knows it: "--lr", "the batch" */
    const char *value; /**< as text; NULL: "not given" */
} qdr_setting;
/** Compares the settings of a program on all ranks: the same names and values in the same order, byte by byte, however
 * long they are. Ranks that go on with other numbers of steps, say, would wait for each other for ever, or train
 * something else without a word; so a program calls this with all of its settings as soon as it has a context, before
 * any other collective. Collective, blocking; the context stays usable. As long as all ranks have the same it costs no
 * more than qdr_agree(), with which it may be paired: ranks that call qdr_agree() with an error pass that on instead.
 *  @retval QDR_ERR_ARGUMENT  on all ranks: they differ. The sentence names the first difference of the lowest rank that
 *                            has others than rank 0, and both values (of long ones the part around the difference):
 *                            "--lr is 0.01 on rank 0 and 0.001 on rank 1; give every rank the same", "--save is
 *                            run.safetensors on rank 0 and not given on rank 1; …", or, where a list has ended, "--new
 *                            is 3 on rank 0 and nothing on rank 1; …". Also if on one rank the list is
 *                            NULL, or a name is NULL or empty
 *  @retval QDR_ERR_MEMORY    on all ranks: one of them had no memory for its list
 *  @retval QDR_ERR_PEER, QDR_ERR_TIMEOUT  a rank has left or failed, or is missing (QDR_TIMEOUT) */
QDR_API QDR_NODISCARD qdr_status qdr_settings_compare(qdr_context *ctx, const qdr_setting *settings, int n_settings);
/** Copies `bytes` bytes at `data` (host memory) from rank `root` to all ranks. Collective, blocking. The ranks first
 * agree, with or without QDR_CHECK.
 *  @retval QDR_ERR_ARGUMENT  on all ranks, and nothing is copied: an argument is invalid on one of them, `root` or
 *                            `bytes` differ, or another rank is in qdr_barrier() or in qdr_agree() with QDR_OK */
QDR_API QDR_NODISCARD qdr_status qdr_broadcast(qdr_context *ctx, int root, void *data, size_t bytes);

/** Allocates device memory of this context, aligned to 64 bytes and counted by qdr_mem_usage(). bytes = 0 gives a valid
 * pointer. MPI ranks of one node read and write each other's blocks of 128 KiB and more in place, so collectives are
 * faster on this memory than on other memory. Local, blocking.
 *  @retval QDR_ERR_MEMORY  *data is NULL; the sentence states how much was requested and how much is in use */
QDR_API QDR_NODISCARD qdr_status qdr_mem_alloc(qdr_context *ctx, size_t bytes, void **data);
/** Frees memory from qdr_mem_alloc() and sets *data to NULL. NULL is allowed. The memory must not be in use by a
 * stream. If the context has already been destroyed, and the memory with it, this only sets *data to NULL; ctx may then
 * be NULL or its former value. */
QDR_API void qdr_mem_free(qdr_context *ctx, void **data);
/** Bytes of device memory this context holds now, and the most it ever held (the library's own and the caller's). Not
 * counted: small host structures, memory that MPI allocates itself, and the slots through which MPI ranks of one node
 * exchange blocks that are small or not from qdr_mem_alloc() (as much as a collective sends, at most 8 MiB for each
 * communicator). */
QDR_API void qdr_mem_usage(const qdr_context *ctx, size_t *bytes_now, size_t *bytes_peak);
/** Resets the peak to the number of bytes held now. */
QDR_API void qdr_mem_reset_peak(qdr_context *ctx);
/** Copies between host or device memory, stream-ordered. Neither buffer may change until the copy has run.
 *  @retval QDR_ERR_ARGUMENT  NULL; dst and src overlap and are not equal */
QDR_API QDR_NODISCARD qdr_status qdr_copy(qdr_context *ctx, void *dst, const void *src, size_t bytes,
                                          qdr_stream *stream);

/** Makes a queue of work that runs in the order in which it was enqueued, asynchronously to the caller. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_stream_create(qdr_context *ctx, qdr_stream **stream);
/** Waits for the stream's work, destroys the stream and sets *stream to NULL. NULL is allowed. */
QDR_API void qdr_stream_destroy(qdr_stream **stream);
/** Waits until the stream has nothing left to do; returns the context's status. Blocking. NULL is not allowed. */
QDR_API QDR_NODISCARD qdr_status qdr_stream_synchronize(qdr_stream *stream);
/** Runs fn(user) on the stream, in order. fn must not call the library. */
QDR_API QDR_NODISCARD qdr_status qdr_stream_call(qdr_stream *stream, void (*fn)(void *user), void *user);
/** Writes the time on CLOCK_MONOTONIC, in nanoseconds, at which the stream reaches this place. A GPU reads its own
 * clock, whose difference from the host's is known to some microseconds, and is measured once a second at most.
 * *nanosecs is valid after qdr_stream_synchronize(), and must exist until then.
 *  @retval QDR_ERR_ARGUMENT     NULL
 *  @retval QDR_ERR_UNSUPPORTED  the step is being recorded: its times would belong to one run */
QDR_API QDR_NODISCARD qdr_status qdr_stream_stamp(qdr_stream *stream, int64_t *nanosecs);
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
