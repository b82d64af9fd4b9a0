/* SPDX-License-Identifier: Apache-2.0 */
/* Table functions of decorators that delegate to the communicator that does the work, their `inner`. */
#ifndef QDRI_COMM_DECORATORS_DECORATOR_H
#define QDRI_COMM_DECORATORS_DECORATOR_H

#include "comm/internal.h"

size_t qdri_inner_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll);
int qdri_inner_summed_first(const qdri_comm *comm, const qdri_coll *coll);
qdr_status qdri_inner_agree(qdri_comm *comm, qdri_verdict *verdict);
qdr_status qdri_inner_broadcast(qdri_comm *comm, int root, void *data, size_t bytes);
qdr_status qdri_inner_compare_clocks(qdri_comm *comm, int leaving, qdri_clock_offset *offset);
/* The inner communicators are a family, too: aborted with the root. */
void qdri_inner_abort(qdri_comm *comm);

/* Makes `made` a decorator of `inner`, equal to it in everything but its table and device. */
void qdri_decorate(qdri_comm *made, const qdri_comm_table *table, qdri_dev *dev, qdri_comm *inner, qdri_comm *parent);

#endif
