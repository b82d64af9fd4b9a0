/* SPDX-License-Identifier: Apache-2.0 */
/** @file graph.h  A step recorded once and run many times: on a GPU, launching a recorded step costs the host a few
 * microseconds, whatever it is made of.
 *
 *  Between qdr_graph_begin() and qdr_graph_end() what is enqueued on the context's stream, and on streams that it is
 * joined to by events, is recorded and does not run. The record holds pointers and numbers as they were: memory must
 * stay where it is, and what is passed as a number (a loss's scale) is the same in each run. AdamW's rate need not be:
 * record qdr_adamw_step_as_set(), and call qdr_adamw_set_rate() between runs (optim.h); its count of steps is on the
 * device.
 *
 *  Possible on a GPU where a rank is alone, or joined to others by NCCL. Not possible are: the CPU; local ranks that
 * share their collectives on the host; collectives staged through MPI; a context that is traced (QDR_TRACE); functions
 * of the host (qdr_stream_call()). Then qdr_graph_begin(), or the call, fails and says which of these it is. Stacks
 * that are measured (QDR_REPORT, report.h) are recorded without stamps: their report is of the runs that are not
 * recorded. */
#ifndef QUADRILLE_GRAPH_H
#define QUADRILLE_GRAPH_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A recorded step. */
typedef struct qdr_graph qdr_graph;

/** Begins to record. While it lasts, qdr_stream_synchronize() of a stream that is recorded fails with QDR_ERR_STATE,
 * since nothing runs, and so does what waits for a result: qdr_stack_loss(), qdr_adamw_norm(), qdr_grad_norm(), loading
 * and gathering of parameters. The record goes on. Run the step once before, so that memory that is made at first use
 * is there. What cannot be recorded fails at once. If the record is lost by it, what is enqueued behind it fails, too,
 * until the end, and the context works on. Local; the ranks of a world record the same step together, as they would run
 * it, and run it only if all of them could (qdr_agree()).
 *  @retval QDR_ERR_UNSUPPORTED  nothing can be recorded here; the sentence says why
 *  @retval QDR_ERR_STATE        the context records already */
QDR_API QDR_NODISCARD qdr_status qdr_graph_begin(qdr_context *ctx);
/** Ends the record that qdr_graph_begin() has begun, and makes it ready to run. After an error there is no record,
 * *graph is NULL, and the context enqueues as before. Destroying the context, or one of its grids, stacks or
 * optimizers, ends it, too, and drops it. Local, blocking.
 *  @retval QDR_ERR_STATE        nothing was begun
 *  @retval QDR_ERR_UNSUPPORTED  something between cannot be recorded */
QDR_API QDR_NODISCARD qdr_status qdr_graph_end(qdr_context *ctx, qdr_graph **graph);
/** Runs the step on `stream` (NULL: the context's). Stream-ordered; on another stream it still comes behind what the
 * context's was given before, and before what that is given then, since both use the same workspaces. A run that the
 * device does not take poisons the context, as other work does; QDR_TIMEOUT does not watch runs.
 *  @retval QDR_ERR_DEVICE, QDR_ERR_MEMORY  it was not taken
 *  @retval QDR_ERR_STATE  the context records */
QDR_API QDR_NODISCARD qdr_status qdr_graph_launch(qdr_graph *graph, qdr_stream *stream);
/** Waits for its last run, frees the graph and sets *graph to NULL. Takes NULL. Grids, stacks and optimizers whose work
 * it records may be destroyed before: the graph keeps them (see qdr_context_destroy()), with what its redistributions
 * and uneven collectives take for staging. It is not run any more once a stream of the caller's has gone that was part
 * of the record, whose workspaces it uses: what else these are given, the caller puts in order with its runs, by
 * events. Streams on which it only ran may be gone by then. */
QDR_API void qdr_graph_destroy(qdr_graph **graph);

#ifdef __cplusplus
}
#endif
#endif
