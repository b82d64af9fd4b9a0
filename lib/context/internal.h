/* SPDX-License-Identifier: Apache-2.0 */
/* The part of contexts that is visible to higher modules. */
#ifndef QDRI_CONTEXT_INTERNAL_H
#define QDRI_CONTEXT_INTERNAL_H

#include "comm/comm.h"
#include "quadrille/context.h"
#include "quadrille/machine.h"

/* The lifetime of a context, which lasts until its children have been destroyed. */
qdri_life *qdri_context_life(qdr_context *ctx);
qdri_dev *qdri_context_dev(const qdr_context *ctx);
qdri_comm *qdri_context_world(const qdr_context *ctx);
/* The machine set by qdr_context_set_machine(), or that of QDR_MACHINE, of the context's options, or of this host, with
 * the number of ranks on a node that this world has. */
QDR_NODISCARD qdr_status qdri_context_machine(const qdr_context *ctx, qdr_machine *machine);
int qdri_context_names_machine(const qdr_context *ctx); /* 0: it is that of this host */
/* The trace of this context's schedules; NULL: none. */
struct qdri_trace *qdri_context_trace(const qdr_context *ctx);
int qdri_context_is_recording(const qdr_context *ctx); /* a step, by qdr_graph_begin() */
/* How many records have been begun so far; how often one of them was launched. */
int64_t qdri_context_n_records(const qdr_context *ctx);
int64_t qdri_context_n_record_runs(const qdr_context *ctx);
/* Called before work that will be waited for is enqueued: QDR_ERR_STATE while the context is recording; the recording
 * continues. */
QDR_NODISCARD qdr_status qdri_context_check_runs(const qdr_context *ctx, const char *who);
/* While the context is recording: the recording needs this object, so the graph keeps it alive. */
QDR_NODISCARD qdr_status qdri_context_record_needs(qdr_context *ctx, qdri_life *life);
/* The list of the context's stacks that have memory, which lib/linear keeps. */
qdr_stack **qdri_context_stacks(qdr_context *ctx);
/* Agrees over the context's world like qdr_agree(), and compares facts: see qdri_comm_agree_same(). */
QDR_NODISCARD qdr_status qdri_context_agree_same(const qdr_context *ctx, qdr_status mine, const qdri_facts *facts,
                                                 const char *what, const char *rule);
/* The same with QDR_CHECK=1; otherwise returns `mine` without waiting for other ranks. For calls made in each step. */
QDR_NODISCARD qdr_status qdri_context_compare_call(const qdr_context *ctx, qdr_status mine, const qdri_facts *facts,
                                                   const char *what, const char *rule);
int qdri_context_is_checked(const qdr_context *ctx); /* QDR_CHECK=1, and there are other ranks */
/* Ends a recording, if there is one, and discards it: called before something that it would use is freed. */
void qdri_context_end_record(qdr_context *ctx);

#endif
