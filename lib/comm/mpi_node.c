/* SPDX-License-Identifier: Apache-2.0 */
/* The `mpi` backend's node memory: one window for each node and world, and its areas. */
#include <string.h>
#include <sys/statvfs.h>

#include "comm/mpi_internal.h"
#include "core/size.h"

int qdri_mpi_use_node_memory = 1;
int qdri_mpi_slot_bytes = NODE_SLOT_BYTES;

/* MPI takes this memory from a file system of limited size, and pages that it has no room for kill
 * the process when they are touched. */
static int has_room(int n_ranks)
{
    struct statvfs room;
    if (statvfs("/dev/shm", &room) != 0) return 0;
    return (uint64_t)room.f_bavail * room.f_frsize >= (uint64_t)n_ranks * sizeof(node_share);
}

/* Where the shares of the node's ranks lie. */
static qdr_status find_shares(mpi_comm *root, MPI_Comm on_node)
{
    MPI_Group mine, all;
    int size;
    QDR_MPI(MPI_Comm_size(on_node, &size));
    QDR_MPI(MPI_Comm_group(on_node, &mine));
    QDR_MPI(MPI_Comm_group(root->handle, &all));
    for (int i = 0; i < size; i++) {
        MPI_Aint bytes;
        int unit, rank;
        void *share;
        QDR_MPI(MPI_Group_translate_ranks(mine, 1, &i, all, &rank));
        QDR_MPI(MPI_Win_shared_query(root->node.window, i, &bytes, &unit, &share));
        root->node.shares[rank] = (node_share *)qdri_align_bytes((size_t)(uintptr_t)share, 64);
    }
    QDR_MPI(MPI_Group_free(&mine));
    QDR_MPI(MPI_Group_free(&all));
    return QDR_OK;
}

static qdr_status create_on(mpi_comm *root, MPI_Comm on_node)
{
    int size, use, failed;
    void *memory;
    QDR_MPI(MPI_Comm_set_errhandler(on_node, MPI_ERRORS_RETURN));
    QDR_MPI(MPI_Comm_size(on_node, &size));
    use = size > 1 && qdri_mpi_use_node_memory && has_room(size);
    QDR_MPI(MPI_Allreduce(MPI_IN_PLACE, &use, 1, MPI_INT, MPI_MIN, on_node));
    if (!use) return QDR_OK;
    failed = MPI_Win_allocate_shared((MPI_Aint)sizeof(node_share) + 64, 1, MPI_INFO_NULL, on_node,
                                     &memory, &root->node.window) != MPI_SUCCESS;
    QDR_MPI(MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, on_node));
    if (failed) return QDR_OK;
    QDR_TRY(find_shares(root, on_node));
    node_share *mine = root->node.shares[root->base.rank];
    memset(mine->bells, 0, sizeof mine->bells);
    for (int i = 0; i < NODE_AREAS; i++) mine->areas[i].n_members = 0;
    return QDR_OK;
}

qdr_status qdri_mpi_node_create(mpi_comm *root)
{
    MPI_Comm on_node;
    QDR_MPI(MPI_Comm_split_type(root->handle, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &on_node));
    const qdr_status status = create_on(root, on_node);
    QDR_MPI(MPI_Comm_free(&on_node));
    return status;
}

void qdri_mpi_node_destroy(mpi_comm *root)
{
    if (root->node.window != MPI_WIN_NULL) MPI_Win_free(&root->node.window);
}

/* ---- areas ---- */

/* This rank's first free area, made ready; -1: none. */
static int take_area(node_share *share, int n_members)
{
    for (int i = 0; share && i < NODE_AREAS; i++) {
        node_area *area = &share->areas[i];
        if (area->n_members > 0 && atomic_load(&area->n_left) < area->n_members) continue;
        area->n_members = n_members;
        atomic_store(&area->n_left, 0);
        atomic_store(&area->n_entered, 0);
        atomic_store(&area->waiting, 0);
        return i;
    }
    return -1;
}

qdr_status qdri_mpi_node_join(mpi_comm *comm)
{
    const mpi_comm *root = (const mpi_comm *)comm->base.root;
    const int size = comm->base.size, rank = comm->base.rank;
    int all_here = size > 1 && size <= NODE_SLOT_BYTES / 64;
    for (int j = 0; j < size; j++) all_here &= root->node.shares[comm->world_ranks[j]] != NULL;
    node_share *mine = root->node.shares[comm->world_ranks[rank]];
    const int taken = all_here ? take_area(mine, size) : -1;
    QDR_MPI(MPI_Allgather(&taken, 1, MPI_INT, comm->indices, 1, MPI_INT, comm->handle));
    for (int j = 0; j < size; j++) {
        if (comm->indices[j] >= 0) continue;
        if (taken >= 0) mine->areas[taken].n_members = 0;
        return QDR_OK;
    }
    for (int j = 0; j < size; j++)
        comm->node.areas[j] = &root->node.shares[comm->world_ranks[j]]->areas[comm->indices[j]];
    comm->node.in_use = 1;
    return QDR_OK;
}

void qdri_mpi_node_leave(mpi_comm *comm)
{
    for (int j = 0; comm->node.in_use && j < comm->base.size; j++)
        atomic_fetch_add(&comm->node.areas[j]->n_left, 1);
}

qdri_bell *qdri_mpi_bells(const qdri_comm *comm)
{
    const mpi_comm *mine = (const mpi_comm *)comm;
    node_share *share = mine->node.shares[comm->rank];
    return share ? share->bells : NULL;
}
