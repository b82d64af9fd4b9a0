/* SPDX-License-Identifier: Apache-2.0 */
/** @file report.h  Predicted against measured: how long the tasks of a stack took, and what the model predicts for the
 * same tasks. */
#ifndef QUADRILLE_REPORT_H
#define QUADRILLE_REPORT_H

#include <stdio.h>

#include "calibrate.h"
#include "machine.h"
#include "stack.h"

#ifdef __cplusplus
extern "C" {
#endif

/* With the environment variable QDR_REPORT=1 in rank 0's process, rank 0 measures every stack, and prints the report on
 * standard error when the stack is destroyed, for the machine of QDR_MACHINE or of the context's options. If a
 * report cannot be made, there is a warning in the log. */

/** From now on this rank timestamps the start and end of the tasks of the stack's schedules, whenever the stack runs as
 * a whole. The first run of each schedule is skipped, and the last 32 of the later ones are kept; recorded runs
 * (graph.h) have no timestamps. Results do not change. Local; other ranks need not call it.
 *  @retval QDR_ERR_MEMORY  nothing is measured */
QDR_API QDR_NODISCARD qdr_status qdr_stack_measure(qdr_stack *stack);

/** Writes, for one forward and one backward (the mean over kinds of each, with and without returns or sums, as often as
 * each ran):
 *
 *    each kind of task   how many there are; the sum of the times that the model predicts for each alone; the sum of
 *                        the measured medians; and the ratio of the two. A collective is timed from the moment its own
 *                        rank's data is ready, so its time includes how late the other ranks were
 *    forward, backward   the simulated end, where tasks overlap, and the median time from the begin of the first task
 *                        to the end of the last
 *
 * Waits for the stack's work. Local, blocking.
 *  @param machine  NULL: the context's (qdr_context_opts)
 *  @retval QDR_ERR_ARGUMENT  NULL, or the machine lacks something
 *  @retval QDR_ERR_STATE     nothing was measured: no qdr_stack_measure(), or no second run
 *  @retval QDR_ERR_DTYPE     the machine does not support the stack's type
 *  @retval QDR_ERR_MEMORY    nothing was written
 *  @retval others            as qdr_machine_load(), and the context's status */
QDR_API QDR_NODISCARD qdr_status qdr_stack_report(qdr_stack *stack, const qdr_machine *machine, FILE *file);

/** Receives a sample; it and its group are valid during the call. */
typedef void (*qdr_sample_fn)(const qdr_sample *sample, void *user);
/** Passes each task of the measured schedules to `each`, as a sample for qdr_machine_fit(): its work as the model
 * counts it, the measured median, and its kind as in the report ("product NT", "all-reduce x") as the group. Tasks to
 * whose time the model does not give, and callers' operations, are left out. A task is measured beside whatever
 * runs at the same time: for times of tasks alone, build the stack with QDR_OVERLAP_NONE. Waits for the stack's work.
 * Local, blocking.
 *  @retval QDR_ERR_ARGUMENT  NULL
 *  @retval QDR_ERR_STATE     nothing was measured, as above */
QDR_API QDR_NODISCARD qdr_status qdr_stack_samples(qdr_stack *stack, qdr_sample_fn each, void *user);

/* With the environment variable QDR_CODEC_CHECK=1 on any rank, codecs are checked while stacks run: each message is
 * decoded again and held to its codec's bound (codec.h), sums are added again, and the members of a group compare what
 * a sum or a gather has left them. On CPUs only: stacks with codecs, and coded collectives, fail on GPUs with
 * QDR_ERR_UNSUPPORTED. What is wrong poisons the context with QDR_ERR_DEVICE; the message names layer, rank and
 * element. Rank 0 prints the following on standard error when a stack is destroyed. */

/** Writes what the codecs of the stack's channels have changed so far in messages of this rank, for each layer, class
 * of traffic and codec: the relative L2 error of what was encoded, gradients with the feedback of earlier messages, and
 * the largest error as a share of the codec's bound. Other stacks of the same grid are included. Waits for the stack's
 * work. Local, blocking.
 *  @retval QDR_ERR_ARGUMENT  NULL
 *  @retval QDR_ERR_STATE     nothing was checked: QDR_CODEC_CHECK is not set, or nothing was coded yet
 *  @retval others            the context's status */
QDR_API QDR_NODISCARD qdr_status qdr_stack_codec_report(qdr_stack *stack, FILE *file);

#ifdef __cplusplus
}
#endif
#endif
