/* SPDX-License-Identifier: Apache-2.0 */
/** @file graph.h  A step recorded once and run many times: on a GPU, launching a recorded step costs the host a few
 * microseconds, however long the step.
 *
 * Between qdr_graph_begin() and qdr_graph_end() the work enqueued on the context's stream, and on streams joined to it
 * by events, is recorded and does not run. The record holds pointers and numbers as they were: memory must stay where
 * it is, and what was passed as a number (such as a loss scale) is the same in each run. AdamW's rate is an exception:
 * record qdr_adamw_step_as_set(), and call qdr_adamw_set_rate() between runs (optim.h); its step count is kept on the
 * device.
 *
 * Recording needs a GPU, and a rank that is alone or uses NCCL. It is not possible on the CPU, with local ranks whose
 * collectives meet on the host, with collectives staged through MPI, in a traced context (QDR_TRACE), or with host
 * functions (qdr_stream_call()). Then qdr_graph_begin(), or the call in question, fails with a sentence that names the
 * reason. Stacks that are measured (QDR_REPORT, report.h) are recorded without timestamps: their report covers only
 * runs that are not recorded. */
#ifndef QUADRILLE_GRAPH_H
#define QUADRILLE_GRAPH_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A recorded step. */
typedef struct qdr_graph qdr_graph;

/** Starts recording. Meanwhile qdr_stream_synchronize() of a recorded stream fails with QDR_ERR_STATE, since nothing
 * runs, as does everything that waits for a result: qdr_stack_loss(), qdr_adamw_norm(), qdr_grad_norm(), loading and
 * gathering parameters. Recording continues after such a failure. Run the step once before recording it, so that memory
 * allocated at first use exists, and NCCL has connected the ranks (the first collective of a kind waits for them on the
 * host, see cuda.h). Calls that cannot be recorded fail immediately. If such a call invalidates the record, all later
 * calls fail as well until qdr_graph_end(); after that the context works as before. Local; the ranks of a world record
 * the same step together, as they would run it, and run it only if all of them could (qdr_agree()).
 *  @retval QDR_ERR_UNSUPPORTED  nothing can be recorded here; the sentence says why
 *  @retval QDR_ERR_STATE        the context is already recording */
QDR_API QDR_NODISCARD qdr_status qdr_graph_begin(qdr_context *ctx);
/** Ends the recording that qdr_graph_begin() started, and prepares it to run. After an error the record is gone, *graph
 * is NULL, and the context enqueues as before. Destroying the context, or one of its grids, stacks or optimizers, also
 * ends the recording, and discards it. Local, blocking.
 *  @retval QDR_ERR_STATE        nothing was begun
 *  @retval QDR_ERR_UNSUPPORTED  something that was enqueued cannot be recorded */
QDR_API QDR_NODISCARD qdr_status qdr_graph_end(qdr_context *ctx, qdr_graph **graph);
/** Runs the step on `stream` (NULL: the context's). Stream-ordered; on another stream it still runs after work enqueued
 * on the context's stream before this call, and before work enqueued there later, since both use the same workspaces. A
 * run that the device rejects poisons the context, as other work does; QDR_TIMEOUT does not limit runs.
 *  @retval QDR_ERR_DEVICE, QDR_ERR_MEMORY  the device rejected it
 *  @retval QDR_ERR_STATE  the context is recording */
QDR_API QDR_NODISCARD qdr_status qdr_graph_launch(qdr_graph *graph, qdr_stream *stream);
/** Waits for the graph's last run, frees the graph and sets *graph to NULL. NULL is allowed. Grids, stacks and
 * optimizers whose work it records may be destroyed before: the graph keeps them (see qdr_context_destroy()), with the
 * staging memory of its redistributions and uneven collectives. Do not run the graph after destroying a stream of the
 * caller's that was part of the record: the graph uses the stream's workspaces. The caller orders other work on such a
 * stream with the graph's runs, by events. Streams on which the graph was only launched may be destroyed earlier. */
QDR_API void qdr_graph_destroy(qdr_graph **graph);

#ifdef __cplusplus
}
#endif
#endif
