/* SPDX-License-Identifier: Apache-2.0 */
/* Which members have arrived, according to the `mpi` backend: by the rounds that members of a node have entered, by the
 * messages that are not complete, or by either in the current stage of a collective with stages. */
#include "comm/mpi/internal.h"

static int has_entered(const qdri_run *run, int member)
{
    const mpi_comm *comm = (const mpi_comm *)run->comm;
    return atomic_load(&comm->node.areas[member]->n_own) > run->round;
}

static int has_sent(const qdri_run *run, int member)
{
    const mpi_comm *comm = (const mpi_comm *)run->comm;
    for (int i = 0; i < comm->n_messages; i++) {
        if (comm->messages[i].peer == member && qdri_mpi_is_open(comm, i)) return 0;
    }
    return 1;
}

/* In a stage that this rank shares with the member; the stages of other groups are not visible from here. */
static int has_come_to_stage(const qdri_run *run, int member)
{
    const mpi_levels *levels = &((const mpi_comm *)run->comm)->levels;
    const int per_node = levels->per_node, rank = run->comm->rank;
    const int is_inner = levels->run.comm == &levels->inner->base;
    if (is_inner && member / per_node == rank / per_node) return qdri_mpi_has_come(&levels->run, member % per_node);
    if (!is_inner && member % per_node == rank % per_node) return qdri_mpi_has_come(&levels->run, member / per_node);
    return 1;
}

int qdri_mpi_has_come(const qdri_run *run, int member)
{
    if (run->step == qdri_mpi_levels_step) return has_come_to_stage(run, member);
    return run->step == qdri_mpi_node_step ? has_entered(run, member) : has_sent(run, member);
}
