/* SPDX-License-Identifier: Apache-2.0 */
/* The `mpi` backend: creating and destroying communicators and their levels, giving up. */
#include "comm/mpi/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "comm/launcher.h"
#include "comm/mpi/internal.h"
#include "comm/mpi/lookout.h"
#include "core/group.h"
#include "core/size.h"

int qdri_mpi_use_levels = 1;

static qdr_status check_state(void)
{
    int provided = MPI_THREAD_SINGLE, size = 0;
    if (!qdri_mpi_is_initialised() || qdri_mpi_is_over())
        return QDR_FAIL(QDR_ERR_STATE,
                        "MPI: it is %s; call MPI_Init_thread(…, MPI_THREAD_MULTIPLE, …) before creating a context, and "
                        "MPI_Finalize after destroying it",
                        qdri_mpi_is_initialised() ? "finalised" : "not initialised");
    QDR_MPI(MPI_Query_thread(&provided));
    if (provided < MPI_THREAD_MULTIPLE)
        return QDR_FAIL(
            QDR_ERR_STATE,
            "MPI: thread level %d is provided, but MPI_THREAD_MULTIPLE (%d) is needed; request it in MPI_Init_thread",
            provided, MPI_THREAD_MULTIPLE);
    QDR_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
    char version[101], why[256];
    qdri_mpi_describe(version, sizeof version);
    snprintf(why, sizeof why,
             "the program uses %s; start it with that library's mpiexec, "
             "or under Slurm with srun --mpi=pmi2 (a Cray: cray_shasta)",
             version);
    return qdri_launcher_check(size, why);
}

/* ---- creating and destroying ---- */

static void member_free(mpi_comm *member)
{
    if (!member) return;
    qdri_mpi_heap_leave(member->node.heap);
    void *const arrays[] = {member->messages,    member->requests,   member->statuses,     member->indices,
                            member->world_ranks, member->left,       member->notes,        member->sources,
                            member->node.shares, member->node.areas, member->node.targets, member->node.chunks,
                            member->node.known,  member->nodes};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
    free(member);
}

static qdr_status member_create(int size, mpi_comm **member)
{
    mpi_comm *made = NULL;
    qdr_status status = QDRI_NEW(1, "a communicator", &made);
    QDR_TRY_OUT(status, status);
    made->handle = MPI_COMM_NULL;
    const int n_pieces = 2 * size * QDRI_MPI_PIECES;
    QDR_TRY_OUT(status, QDRI_NEW(2 * size, "messages of a communicator", &made->messages));
    QDR_TRY_OUT(status, QDRI_NEW(n_pieces, "requests of a communicator", &made->requests));
    QDR_TRY_OUT(status, QDRI_NEW(n_pieces, "statuses of a communicator", &made->statuses));
    QDR_TRY_OUT(status, QDRI_NEW(n_pieces, "indices of a communicator", &made->indices));
    made->owns_handle = 1;
    made->tag = TAG_COLLECTIVE;
    QDR_TRY_OUT(status, QDRI_NEW(2 * size, "ranks of a communicator", &made->world_ranks));
    made->handle_ranks = made->world_ranks + size;
    for (int j = 0; j < size; j++) made->handle_ranks[j] = j;
    QDR_TRY_OUT(status, QDRI_NEW(size, "notes of a communicator", &made->left));
    QDR_TRY_OUT(status, QDRI_NEW(2 * size, "notes of a communicator", &made->notes));
    for (int i = 0; i < 2 * size; i++) made->notes[i] = MPI_REQUEST_NULL;
    QDR_TRY_OUT(status, QDRI_NEW(size, "sources of a communicator", &made->sources));
    QDR_TRY_OUT(status, QDRI_NEW(size, "shares of a node's memory", &made->node.shares));
    QDR_TRY_OUT(status, QDRI_NEW(size, "areas of a communicator", &made->node.areas));
    QDR_TRY_OUT(status, QDRI_NEW(size, "targets of a communicator", &made->node.targets));
    QDR_TRY_OUT(status, QDRI_NEW(size, "chunks of a communicator", &made->node.chunks));
    QDR_TRY_OUT(status, QDRI_NEW(QDRI_KNOWN_BLOCKS * size, "blocks of a communicator", &made->node.known));
    *member = made;
    return QDR_OK;
out:
    member_free(made);
    return status;
}

/* MPI gives the number of a freed communicator to the next one, which would receive what was sent on the old one and
 * received by nobody: those of a world that was given up are kept until the end of MPI. */
enum { MOST_KEPT = 256 };
static MPI_Comm kept[MOST_KEPT];
static atomic_int n_kept;

void qdri_mpi_free_kept(void)
{
    const int n = atomic_exchange(&n_kept, 0);
    for (int i = 0; i < n && i < MOST_KEPT; i++) (void)QDRI_WAITS(MPI_Comm_free, &kept[i]);
}

static void free_handle(mpi_comm *comm)
{
    const mpi_comm *root = (const mpi_comm *)comm->base.root;
    if (!comm->owns_handle || comm->handle == MPI_COMM_NULL) return;
    if (!atomic_load(&comm->given_up) && !atomic_load(&root->given_up)) {
        (void)QDRI_WAITS(MPI_Comm_free, &comm->handle);
        return;
    }
    const int at = atomic_fetch_add(&n_kept, 1);
    if (at < MOST_KEPT) kept[at] = comm->handle;
}

/* If a rank is missing, MPI still has messages to it, and keeps their buffers. */
static void mpi_destroy(qdri_comm *comm)
{
    mpi_comm *mine = (mpi_comm *)comm;
    const int is_root = comm->root == comm;
    if (qdri_mpi_is_over()) { /* only memory is left: MPI has no operations in progress */
        if (is_root) qdri_mpi_node_destroy(mine);
        member_free(mine);
        return;
    }
    qdri_mpi_leave(mine);
    /* No rank continues while a note is in flight: connecting to a rank for the first time needs that rank's
     * cooperation, and MPI_Finalize would wait for it forever. After that, the memory that ranks share can be freed. */
    if (is_root && mine->all_leave && qdri_mpi_notes_end(mine)) qdri_mpi_node_destroy(mine);
    if (atomic_load(&qdri_mpi_somebody_is_missing)) return;
    free_handle(mine);
    member_free(mine);
}

/* For the whole family; the root notifies all other ranks. */
static void mpi_abort(qdri_comm *comm)
{
    mpi_comm *mine = (mpi_comm *)comm;
    if (!atomic_exchange(&mine->given_up, 1) && comm->root == comm && mine->notes && !qdri_mpi_is_over())
        qdri_mpi_send_notes(mine, NOTE_FAILED, qdr_last_error());
}

static void levels_destroy(qdri_comm *comm)
{
    mpi_levels *levels = &((mpi_comm *)comm)->levels;
    mpi_comm *const made[] = {levels->outer, levels->inner};
    for (int i = 0; i < 2; i++) {
        qdri_comm *level = made[i] ? &made[i]->base : NULL;
        qdri_comm_destroy(&level);
    }
    free(levels->counts);
    levels->outer = levels->inner = NULL;
    levels->counts = NULL;
}

static qdr_status mpi_split(qdri_comm *comm, int colour, int key, qdri_comm **part);

static int mpi_summed_first(const qdri_comm *comm, const qdri_coll *coll)
{
    const mpi_comm *mine = (const mpi_comm *)comm;
    return qdri_mpi_levels_take(mine, coll) ? mine->levels.per_node : 1;
}

static const qdri_comm_table mpi_table = {
    .name = "mpi",
    .launch = qdri_mpi_launch,
    .has_come = qdri_mpi_has_come,
    .scratch_bytes = qdri_mpi_scratch_bytes,
    .split = mpi_split,
    .agree = qdri_mpi_exchange,
    .broadcast = qdri_mpi_broadcast,
    .look = qdri_mpi_look,
    .summed_first = mpi_summed_first,
    .compare_clocks = qdri_mpi_compare_clocks,
    .abort = mpi_abort,
    .destroy_parts = levels_destroy,
    .destroy = mpi_destroy,
};

/* Initialises a member whose handle is valid. */
static qdr_status member_init(mpi_comm *member, qdri_dev *dev, qdri_comm *parent)
{
    int rank, size;
    QDR_MPI(MPI_Comm_set_errhandler(member->handle, MPI_ERRORS_RETURN));
    QDR_MPI(MPI_Comm_rank(member->handle, &rank));
    QDR_MPI(MPI_Comm_size(member->handle, &size));
    qdri_comm_init(&member->base, &mpi_table, dev, rank, size, parent);
    return QDR_OK;
}

/* The members' ranks in the root. The caller frees the groups that were made, also after an error. */
static qdr_status translate_ranks(mpi_comm *member, MPI_Group *mine, MPI_Group *world)
{
    const int size = member->base.size;
    for (int j = 0; j < size; j++) member->indices[j] = j;
    QDR_MPI(MPI_Comm_group(member->handle, mine));
    QDR_MPI(MPI_Comm_group(((mpi_comm *)member->base.root)->handle, world));
    QDR_MPI(MPI_Group_translate_ranks(*mine, size, member->indices, *world, member->world_ranks));
    return QDR_OK;
}

/* The members' ranks in the root, and how many of them are on this rank's node. */
static qdr_status find_members(mpi_comm *member)
{
    MPI_Group mine = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
    const int size = member->base.size;
    const qdr_status status = translate_ranks(member, &mine, &world);
    if (mine != MPI_GROUP_NULL) MPI_Group_free(&mine);
    if (world != MPI_GROUP_NULL) MPI_Group_free(&world);
    QDR_TRY(status);
    member->base.node_size = 0;
    for (int j = 0; j < size; j++) member->base.node_size += !qdri_mpi_is_off_node(member, j);
    return QDR_OK;
}

/* A subset of a communicator that uses its handle: member j is member first + j·step of `comm`. Not collective. */
static qdr_status make_level(mpi_comm *comm, int first, int step, int size, int tag, mpi_comm **level)
{
    QDR_TRY(member_create(size, level));
    mpi_comm *made = *level;
    made->handle = comm->handle;
    made->owns_handle = 0;
    made->tag = tag;
    for (int j = 0; j < size; j++) {
        made->handle_ranks[j] = first + j * step;
        made->world_ranks[j] = comm->world_ranks[first + j * step];
    }
    qdri_comm_init(&made->base, &mpi_table, comm->base.dev, (comm->base.rank - first) / step, size, &comm->base);
    return QDR_OK;
}

/* Creates the levels of a communicator, if its members allow it. Not collective. */
static qdr_status levels_create(mpi_comm *comm)
{
    mpi_levels *levels = &comm->levels;
    const int *nodes = ((const mpi_comm *)comm->base.root)->nodes;
    const int per_node = qdri_mpi_use_levels ? qdri_members_per_node(nodes, comm->world_ranks, comm->base.size) : 0;
    if (per_node == 0) return QDR_OK;
    const int index = comm->base.rank % per_node, n_nodes = comm->base.size / per_node;
    QDR_TRY(QDRI_NEW(per_node + n_nodes, "counts of a communicator", &levels->counts));
    QDR_TRY(make_level(comm, comm->base.rank - index, 1, per_node, TAG_INNER, &levels->inner));
    QDR_TRY(make_level(comm, index, per_node, n_nodes, TAG_OUTER, &levels->outer));
    levels->per_node = per_node;
    levels->n_nodes = n_nodes;
    return QDR_OK;
}

/* Creates its levels and its areas. mine: this rank's status so far; other members wait for it in the second step, even
 * if something has failed here. */
static qdr_status join_groups(mpi_comm *member, qdr_status mine)
{
    const qdr_status made = mine == QDR_OK ? levels_create(member) : mine;
    const qdr_status joined = qdri_mpi_node_join(member, made);
    return made != QDR_OK ? made : joined;
}

static qdr_status mpi_split(qdri_comm *comm, int colour, int key, qdri_comm **part)
{
    mpi_comm *parent = (mpi_comm *)comm, *member = NULL;
    qdr_status status = member_create(comm->size, &member);
    QDR_TRY_OUT(status, qdri_comm_agree(comm, status));
    const int code = QDRI_WAITS(MPI_Comm_split, parent->handle, colour < 0 ? MPI_UNDEFINED : colour, key,
                                &member->handle);
    if (code != MPI_SUCCESS) status = qdri_mpi_fail(code, "MPI_Comm_split");
    if (status == QDR_OK && member->handle != MPI_COMM_NULL) { /* also the same on all ranks: MPI works, or does not */
        status = member_init(member, comm->dev, comm);
        if (status == QDR_OK) status = join_groups(member, find_members(member)); /* the same on all ranks */
    }
    /* MPI may still use the member. */
    const int is_lost = status != QDR_OK && atomic_load(&qdri_mpi_somebody_is_missing);
    if (is_lost) return status; /* the same on all ranks that are there */
    QDR_TRY_OUT(status, qdri_comm_agree(comm, status));
    if (member->handle == MPI_COMM_NULL) goto out;
    *part = &member->base;
    return QDR_OK;
out:
    if (member && member->base.root) {
        qdri_comm *made = &member->base;
        qdri_comm_destroy(&made);
    } else {
        if (member && member->handle != MPI_COMM_NULL) MPI_Comm_free(&member->handle);
        member_free(member);
    }
    return status;
}

static int is_predefined(MPI_Errhandler handler)
{
#ifdef MPI_ERRORS_ABORT /* MPI 4 */
    if (handler == MPI_ERRORS_ABORT) return 1;
#endif
    return handler == MPI_ERRORS_ARE_FATAL || handler == MPI_ERRORS_RETURN;
}

/* Errors of an invalid handle go to the error handlers of MPI_COMM_WORLD or MPI_COMM_SELF, which abort the program
 * unless it has set others. For this one call they are made to return. */
static int test_inter(MPI_Comm comm, int *is_inter)
{
    const MPI_Comm asked[] = {MPI_COMM_WORLD, MPI_COMM_SELF};
    MPI_Errhandler before[2];
    for (int i = 0; i < 2; i++) {
        MPI_Comm_get_errhandler(asked[i], &before[i]);
        MPI_Comm_set_errhandler(asked[i], MPI_ERRORS_RETURN);
    }
    const int code = MPI_Comm_test_inter(comm, is_inter);
    for (int i = 0; i < 2; i++) {
        MPI_Comm_set_errhandler(asked[i], before[i]);
        if (!is_predefined(before[i])) MPI_Errhandler_free(&before[i]);
    }
    return code;
}

static qdr_status check_handle(MPI_Comm comm)
{
    int is_inter = 0;
    if (comm == MPI_COMM_NULL)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "context: the communicator is MPI_COMM_NULL; pass one that this rank belongs to, "
                        "such as MPI_COMM_WORLD");
    if (test_inter(comm, &is_inter) != MPI_SUCCESS)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "context: MPI does not know the communicator; make the context before it is freed");
    if (is_inter)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "context: the communicator is an intercommunicator; merge its two groups by "
                                          "MPI_Intercomm_merge first");
    return QDR_OK;
}

/* MPI_Comm_dup that sleeps while it waits for late ranks; limit_secs 0: no limit. */
static qdr_status duplicate(MPI_Comm original, double limit_secs, MPI_Comm *copy)
{
    const struct timespec pause = {.tv_nsec = 200000};
    qdri_patience patience = {0};
    MPI_Request request;
    int done = 0, rank = -1, size = 0;
    QDR_MPI(MPI_Comm_idup(original, copy, &request));
    while (1) {
        QDR_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (done) return QDR_OK;
        if (limit_secs > 0 && 1e-9 * (double)qdri_waited_ns(&patience) > limit_secs) break;
        nanosleep(&pause, NULL);
    }
    MPI_Comm_rank(original, &rank);
    MPI_Comm_size(original, &size);
    return qdri_mpi_fail_creation(rank, size, limit_secs);
}

qdr_status qdri_comm_create_mpi(const void *comm_handle, qdr_status mine, double timeout_secs, qdri_comm **comm)
{
    const MPI_Comm original = *(const MPI_Comm *)comm_handle;
    mpi_comm *member = NULL, boot = {.handle = MPI_COMM_NULL};
    int size = 0;
    *comm = NULL;
    QDR_TRY(check_state()); /* the same on all ranks; without MPI there is no agreement */
    QDR_TRY(check_handle(original)); /* the same on all ranks that have the communicator */
    QDR_MPI(MPI_Comm_size(original, &size));
    const qdr_status created = member_create(size, &member);
    /* After a timeout MPI may still write to the handle, so the member is not freed. */
    MPI_Comm *handle = member ? &member->handle : &boot.handle;
    QDR_TRY(duplicate(original, member ? timeout_secs : 0, handle));
    boot.handle = *handle;
    qdr_status status = member_init(&boot, NULL, NULL);
    qdri_comm_set_timeout(&boot.base, timeout_secs);
    qdri_comm_set_names(&boot.base, "world", qdri_describe_rank, NULL);
    if (status == QDR_OK) /* the same on all ranks: MPI works */
        status = qdri_comm_agree(&boot.base, mine != QDR_OK ? mine : created);
    if (*qdri_reason_get(&boot.base.lateness)) {
        atomic_store(&qdri_mpi_somebody_is_missing, 1);
        return status;
    }
    if (status != QDR_OK) {
        MPI_Comm_free(&boot.handle);
        member_free(member);
        return status;
    }
    qdri_comm_init(&member->base, &mpi_table, NULL, boot.base.rank, size, NULL);
    qdri_comm_set_timeout(&member->base, timeout_secs);
    qdri_comm_set_names(&member->base, "world", qdri_describe_rank, NULL);
    for (int j = 0; j < size; j++) member->world_ranks[j] = j;
    status = join_groups(member, qdri_mpi_node_create(member));
    const int is_lost = status != QDR_OK && atomic_load(&qdri_mpi_somebody_is_missing);
    if (is_lost) return status; /* the same on all ranks that are there */
    *comm = &member->base;
    status = qdri_comm_agree(*comm, status);
    if (status != QDR_OK) qdri_comm_destroy(comm);
    return status;
}

void qdri_comm_bind(qdri_comm *comm, qdri_dev *dev)
{
    mpi_heap *heap = ((mpi_comm *)comm)->node.heap;
    mpi_levels *levels = &((mpi_comm *)comm)->levels;
    comm->dev = dev;
    if (levels->inner) levels->inner->base.dev = levels->outer->base.dev = dev;
    if (heap) qdri_dev_use_memory(dev, qdri_mpi_heap_source(heap));
}
