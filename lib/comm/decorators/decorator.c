/* SPDX-License-Identifier: Apache-2.0 */
/* Decorators: delegation to the inner communicator. */
#include "comm/decorators/decorator.h"

size_t qdri_inner_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    return qdri_comm_scratch_bytes(comm->inner, coll);
}

int qdri_inner_summed_first(const qdri_comm *comm, const qdri_coll *coll)
{
    return qdri_comm_summed_first(comm->inner, coll);
}

qdr_status qdri_inner_agree(qdri_comm *comm, qdri_verdict *verdict) { return qdri_comm_exchange(comm->inner, verdict); }

qdr_status qdri_inner_broadcast(qdri_comm *comm, int root, void *data, size_t bytes)
{
    return qdri_comm_broadcast(comm->inner, root, data, bytes);
}

qdr_status qdri_inner_compare_clocks(qdri_comm *comm, int leaving, qdri_clock_offset *offset)
{
    return qdri_comm_compare_clocks(comm->inner, leaving, offset);
}

void qdri_inner_abort(qdri_comm *comm)
{
    if (comm->root == comm) qdri_comm_abort(comm->inner);
}

void qdri_decorate(qdri_comm *made, const qdri_comm_table *table, qdri_dev *dev, qdri_comm *inner, qdri_comm *parent)
{
    qdri_comm_init(made, table, dev, inner->rank, inner->size, parent);
    made->node_size = inner->node_size;
    made->nodes = inner->nodes;
    made->inner = inner;
}
