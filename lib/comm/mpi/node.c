/* SPDX-License-Identifier: Apache-2.0 */
/* The node memory of the `mpi` backend: one block for each node and world, and its areas. */
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/mpi/internal.h"
#include "comm/mpi/lookout.h"
#include "core/size.h"
#include "topo/topo.h"

enum { SPIN_NS = 2000 };

int qdri_mpi_use_node_memory = 1;
int qdri_mpi_slot_bytes = NODE_SLOT_BYTES;

/* ---- collectives within the time limit ---- */

/* Waits, within the time limit, for a collective of MPI that was started when a world or a part of it is created.
 * @retval QDR_ERR_TIMEOUT  MPI may still use the collective's memory, and qdri_mpi_somebody_is_missing is set */
static qdr_status complete(mpi_comm *comm, MPI_Request request)
{
    const int64_t limit_ns = qdri_comm_timeout_ns(&comm->base);
    const qdri_comm *root = comm->base.root;
    qdri_patience patience = {0};
    for (int n_polls = 0;; n_polls += n_polls < INT_MAX - 1 ? 1 : 0) {
        int done = 0;
        QDR_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (done) return QDR_OK;
        if (limit_ns > 0 && qdri_waited_ns(&patience) > limit_ns) {
            const qdr_status status = qdri_mpi_fail_creation(root->rank, root->size, 1e-9 * (double)limit_ns);
            qdri_comm_abort(&comm->base);
            return status;
        }
        qdri_mpi_pause(n_polls);
    }
}

static qdr_status broadcast(mpi_comm *comm, void *data, size_t n, MPI_Datatype type, MPI_Comm handle)
{
    MPI_Request request;
    QDR_MPI(MPI_Ibcast(data, (int)n, type, 0, handle, &request));
    return complete(comm, request);
}

static qdr_status gather(mpi_comm *comm, const int *mine, int *all, MPI_Comm handle)
{
    MPI_Request request;
    QDR_MPI(MPI_Iallgather(mine, 1, MPI_INT, all, 1, MPI_INT, handle, &request));
    return complete(comm, request);
}

static qdr_status lowest(mpi_comm *comm, int *value, MPI_Comm handle)
{
    MPI_Request request;
    QDR_MPI(MPI_Iallreduce(MPI_IN_PLACE, value, 1, MPI_INT, MPI_MIN, handle, &request));
    return complete(comm, request);
}

/* ---- the node's memory ---- */

/* Maps the node's zeroed block, or none. The same for all ranks of the node. */
static qdr_status map_block(mpi_comm *root, MPI_Comm on_node)
{
    memory_file *file = &root->passed.file;
    const size_t bytes = root->node.bytes;
    void *at = NULL;
    int rank;
    QDR_MPI(MPI_Comm_rank(on_node, &rank));
    if (rank == 0 && qdri_mpi_use_node_memory) at = qdri_memory_file_create(bytes, file);
    const int is_made = at != NULL;
    qdr_status status = broadcast(root, file, sizeof *file, MPI_BYTE, on_node);
    if (rank != 0 && status == QDR_OK && file->bytes > 0) at = qdri_memory_file_map(file);
    root->passed.works = at != NULL;
    if (status == QDR_OK) status = lowest(root, &root->passed.works, on_node);
    if (is_made) qdri_memory_file_close(file);
    if (status == QDR_OK && root->passed.works)
        root->node.memory = at;
    else if (at)
        munmap(at, bytes);
    return status;
}

/* Sets each rank's share, in the order of the ranks on the node. */
static qdr_status hand_out(mpi_comm *root, MPI_Comm on_node, int n_on_node)
{
    node_share *shares = root->node.memory;
    QDR_TRY(gather(root, &root->base.rank, root->indices, on_node));
    for (int i = 0; i < n_on_node; i++) root->node.shares[root->indices[i]] = &shares[i];
    heap_share *mine = &root->node.shares[root->base.rank]->heap;
    return qdri_mpi_heap_create(mine, root->base.size, &root->node.heap);
}

/* Determines which ranks of the world share a node, and how nodes exchange data. */
static qdr_status find_nodes(mpi_comm *root, MPI_Comm on_node)
{
    int *first = &root->passed.first;
    *first = root->base.rank;
    qdr_status status = QDRI_NEW(root->base.size, "the nodes of all ranks", &root->nodes);
    QDR_TRY(qdri_comm_agree(&root->base, status));
    root->reads_remotely = qdri_topo_reads_remotely();
    QDR_TRY(lowest(root, &root->reads_remotely, root->handle));
    QDR_TRY(broadcast(root, first, 1, MPI_INT, on_node));
    QDR_TRY(gather(root, first, root->nodes, root->handle));
    root->base.nodes = root->nodes;
    return QDR_OK;
}

qdr_status qdri_mpi_node_create(mpi_comm *root)
{
    MPI_Comm on_node;
    int n_on_node = 0;
    const int split = QDRI_WAITS(MPI_Comm_split_type, root->handle, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &on_node);
    if (split != MPI_SUCCESS) return qdri_mpi_fail(split, "MPI_Comm_split_type");
    MPI_Comm_set_errhandler(on_node, MPI_ERRORS_RETURN);
    MPI_Comm_size(on_node, &n_on_node);
    root->base.node_size = n_on_node;
    root->node.spin_ns = n_on_node <= sysconf(_SC_NPROCESSORS_ONLN) ? SPIN_NS : 0;
    qdr_status status = find_nodes(root, on_node);
    if (status == QDR_OK && n_on_node > 1) {
        root->node.bytes = (size_t)n_on_node * sizeof(node_share);
        status = map_block(root, on_node);
    }
    if (status == QDR_OK && root->node.memory) /* the same on all ranks of the node */
        status = hand_out(root, on_node, n_on_node);
    if (!atomic_load(&qdri_mpi_somebody_is_missing)) (void)QDRI_WAITS(MPI_Comm_free, &on_node);
    return status;
}

void qdri_mpi_node_destroy(mpi_comm *root)
{
    qdri_mpi_heap_leave(root->node.heap);
    root->node.heap = NULL;
    if (root->node.memory) munmap(root->node.memory, root->node.bytes);
    root->node.memory = NULL;
}

/* Initialises this rank's first free area and returns its number; -1: none. */
static int take_area(node_share *share, int n_members)
{
    for (int i = 0; share && i < NODE_AREAS; i++) {
        node_area *area = &share->areas[i];
        if (area->n_members > 0 && atomic_load(&area->n_left) < area->n_members) continue;
        area->n_members = n_members;
        atomic_store(&area->n_left, 0);
        atomic_store(&area->n_entered, 0);
        atomic_store(&area->n_own, 0);
        atomic_store(&area->waiting, 0);
        return i;
    }
    return -1;
}

qdr_status qdri_mpi_node_join(mpi_comm *comm, qdr_status mine)
{
    if (mine != QDR_OK && atomic_load(&qdri_mpi_somebody_is_missing)) return mine; /* nobody waits for this one */
    const mpi_comm *root = (const mpi_comm *)comm->base.root;
    const int first = comm->levels.inner ? comm->levels.inner->handle_ranks[0] : 0;
    mpi_comm *group = comm->levels.inner ? comm->levels.inner : comm;
    const int size = group->base.size;
    int all_here = mine == QDR_OK && size > 1 && size <= NODE_SLOT_BYTES / 64;
    for (int j = 0; j < size; j++) all_here &= root->node.shares[group->world_ranks[j]] != NULL;
    node_share *share = root->node.shares[group->world_ranks[group->base.rank]];
    const int taken = comm->passed.taken = all_here ? take_area(share, size) : -1;
    QDR_TRY(gather(comm, &comm->passed.taken, comm->indices, comm->handle));
    const int *all_taken = comm->indices + first;
    int all_have = 1;
    for (int j = 0; j < size; j++) all_have &= all_taken[j] >= 0;
    if (!all_have && taken >= 0) share->areas[taken].n_members = 0;
    for (int j = 0; all_have && j < size; j++)
        group->node.areas[j] = &root->node.shares[group->world_ranks[j]]->areas[all_taken[j]];
    group->node.in_use = all_have;
    return QDR_OK;
}

void qdri_mpi_node_leave(mpi_comm *comm)
{
    for (int j = 0; comm->node.in_use && j < comm->base.size; j++) atomic_fetch_add(&comm->node.areas[j]->n_left, 1);
}

qdri_wake_event *qdri_mpi_wake_events(const qdri_comm *comm)
{
    const mpi_comm *mine = (const mpi_comm *)comm;
    node_share *share = mine->node.shares[comm->rank];
    return share ? share->wake_events : NULL;
}
