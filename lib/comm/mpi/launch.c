/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of the function table: level by level where the members allow it, otherwise flat. */
#include "comm/mpi/internal.h"

size_t qdri_mpi_scratch_bytes(const qdri_comm *comm, const qdri_coll *coll)
{
    if (qdri_mpi_levels_take((const mpi_comm *)comm, coll)) return qdri_mpi_levels_scratch_bytes(comm, coll);
    return qdri_mpi_flat_scratch_bytes(comm, coll);
}

int qdri_mpi_has_come(const qdri_coll_run *run, int member)
{
    const mpi_levels *levels = &((const mpi_comm *)run->comm)->levels;
    const int per_node = levels->per_node, rank = run->comm->rank;
    if (run->step != qdri_mpi_levels_step) return qdri_mpi_flat_has_come(run, member);
    /* Stages that this rank does not share with the member are not visible from here. */
    if (levels->run.comm == &levels->inner->base)
        return member / per_node != rank / per_node || qdri_mpi_flat_has_come(&levels->run, member % per_node);
    return member % per_node != rank % per_node || qdri_mpi_flat_has_come(&levels->run, member / per_node);
}

qdr_status qdri_mpi_launch(qdri_comm *comm, const qdri_coll *coll, qdr_stream *stream)
{
    QDR_TRY(qdri_mpi_check_runs());
    const qdri_mpi_step step = qdri_mpi_levels_take((const mpi_comm *)comm, coll) ? qdri_mpi_levels_step
                                                                                  : qdri_mpi_flat_step_of(comm, coll);
    return qdri_comm_enqueue(comm, coll, stream, step, qdri_mpi_scratch_bytes(comm, coll));
}
