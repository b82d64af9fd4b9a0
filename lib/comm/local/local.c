/* SPDX-License-Identifier: Apache-2.0 */
/* The `local` backend: ranks are threads of one process and read each other's memory. Groups, barriers, splits; the
 * collectives are in coll.c. */
#include "comm/local/local.h"

#include <stdlib.h>

#include "core/size.h"

struct qdr_local_world {
    qdri_barrier barrier;
};

static void group_free(local_group *group)
{
    if (!group) return;
    qdri_barrier_free(&group->barrier);
    free(group->slots_memory);
    free(group);
}

static qdr_status group_create(int size, local_group **created)
{
    local_group *made = NULL;
    qdr_status status = QDRI_NEW(1, "a group of ranks", &made);
    if (status != QDR_OK) return status;
    made->size = size;
    atomic_init(&made->n_members, size);
    QDR_TRY_OUT(status, qdri_barrier_init(&made->barrier, size));
    QDR_TRY_OUT(status,
                qdri_calloc((size_t)size + 1, sizeof(local_slot), "slots of a group of ranks", &made->slots_memory));
    made->slots = (local_slot *)qdri_align_bytes((size_t)(uintptr_t)made->slots_memory, 64);
    *created = made;
    return QDR_OK;
out:
    group_free(made);
    return status;
}

/* why: "" if there was no error. */
static void group_give_up(local_group *group, const char *why)
{
    qdri_reason_set(&group->why, why);
    qdri_barrier_give_up(&group->barrier, why);
    const uint64_t before = atomic_fetch_or(&group->n_entered, GIVEN_UP);
    if (!(before & GIVEN_UP)) qdri_local_wake(group, -1);
}

static void local_abort(qdri_comm *comm) { group_give_up(((local_comm *)comm)->group, qdr_last_error()); }

/* What this rank has launched is still completed: the others may need it, and are on their way to it. */
static void local_leave(qdri_comm *comm)
{
    const local_comm *mine = (const local_comm *)comm;
    char name[QDRI_MEMBER_BYTES];
    qdri_comm_name_member(comm, comm->rank, name, sizeof name);
    qdri_barrier_leave(&mine->group->barrier, name);
    atomic_store(&mine->group->slots[comm->rank].left_after, mine->n_launched + 1);
    atomic_store(&mine->group->some_left, 1);
    qdri_local_wake(mine->group, -1);
}

static void member_free(local_comm *member)
{
    if (!member) return;
    free(member->sources);
    free(member);
}

static void local_destroy(qdri_comm *comm)
{
    local_comm *mine = (local_comm *)comm;
    local_leave(comm);
    qdri_event_destroy(&mine->ready);
    qdri_event_destroy(&mine->done);
    group_give_up(mine->group, ""); /* nobody waits for this one in a group that has finished */
    if (atomic_fetch_sub(&mine->group->n_members, 1) == 1) group_free(mine->group);
    member_free(mine);
}

static qdr_status local_agree(qdri_comm *comm, qdri_verdict *verdict)
{
    return qdri_barrier_exchange(&((local_comm *)comm)->group->barrier, comm->rank, comm, verdict);
}

static qdr_status local_broadcast(qdri_comm *comm, int root, void *data, size_t bytes)
{
    return qdri_barrier_broadcast(&((local_comm *)comm)->group->barrier, comm, root, data, bytes);
}

static qdr_status local_look(qdri_comm *comm) { return qdri_barrier_look(&((local_comm *)comm)->group->barrier); }

static qdr_status local_split(qdri_comm *comm, int colour, int key, qdri_comm **part);

/* What does not depend on whether the device runs work on the host. */
#define ON_THE_HOST                                                                                                    \
    .name = "local", .split = local_split, .agree = local_agree, .broadcast = local_broadcast, .look = local_look,     \
    .leave = local_leave, .abort = local_abort, .destroy = local_destroy

static const qdri_comm_table local_table = {
    .launch = qdri_local_launch,
    .has_come = qdri_local_has_come,
    ON_THE_HOST,
};

/* For devices that run no host work. */
static const qdri_comm_table local_device_table = {
    .unrecorded = "local ranks meet on the host, where one of them enqueues a collective for all; use "
                  "NCCL, or one rank",
    .launch = qdri_local_device_launch,
    ON_THE_HOST,
};

/* All members' devices must be of the same kind, and there must not be too many if kernels compute sums. */
static qdr_status check_devices(const qdri_seat *seats, int n, int rank)
{
    for (int j = 0; j < n; j++)
        if (seats[j].runs_work != seats[rank].runs_work)
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "context: local rank %d computes on the %s, rank %d on the %s; give all the same device",
                            rank, seats[rank].runs_work ? "CPU" : "GPU", j, seats[j].runs_work ? "CPU" : "GPU");
    if (!seats[rank].runs_work && n > QDRI_REDUCE_MOST)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "context: %d local ranks on GPUs; at most %d, or use one process a GPU", n,
                        QDRI_REDUCE_MOST);
    return QDR_OK;
}

/* Splits the ranks of a barrier into groups; parent is NULL for a world's first communicator. */
static qdr_status split(qdri_barrier *barrier, int rank, int colour, int key, qdri_dev *dev, qdri_comm *parent,
                        qdri_comm **part)
{
    const qdri_seat *seats;
    qdri_seat seat = {.purpose = QDRI_TO_SPLIT, .colour = colour, .key = key, .runs_work = qdri_dev_runs_work(dev)};
    local_comm *member = NULL;
    local_group *group = NULL;
    int size = 0, part_rank = 0, leader = rank; /* of the new group; the rank (here) of its first member */
    *part = NULL;
    qdr_status status = QDRI_NEW(1, "a communicator", &member);
    if (status == QDR_OK) status = QDRI_NEW(barrier->size, "a communicator's sources", &member->sources);
    QDR_TRY_OUT(status, qdri_barrier_agree(barrier, rank, parent, status));
    QDR_TRY_OUT(status, qdri_barrier_join(barrier, rank, parent, &seat, &seats));
    QDR_TRY_OUT(status, check_devices(seats, barrier->size, rank)); /* the same on all ranks */
    for (int j = 0; j < barrier->size; j++) {
        if (seats[j].colour != colour) continue;
        const qdri_seat *first = &seats[leader];
        size++;
        part_rank += seats[j].key < key || (seats[j].key == key && j < rank);
        if (seats[j].key < first->key || (seats[j].key == first->key && j < leader)) leader = j;
    }
    if (leader == rank && colour >= 0) status = group_create(size, &group);
    QDR_TRY_OUT(status, qdri_barrier_agree(barrier, rank, parent, status));
    seat.data = group;
    QDR_TRY_OUT(status, qdri_barrier_join(barrier, rank, parent, &seat, &seats));
    if (colour < 0) goto out;
    member->group = (struct local_group *)(uintptr_t)seats[leader].data;
    member->group->slots[part_rank].comm = member;
    qdri_comm_init(&member->base, seat.runs_work ? &local_table : &local_device_table, dev, part_rank, size, parent);
    *part = &member->base;
    return QDR_OK;
out:
    group_free(group);
    member_free(member);
    return status;
}

static qdr_status local_split(qdri_comm *comm, int colour, int key, qdri_comm **part)
{
    return split(&((local_comm *)comm)->group->barrier, comm->rank, colour, key, comm->dev, comm, part);
}

qdr_status qdri_comm_create_local(qdr_local_world *world, int rank, qdri_dev *dev, qdri_comm **comm)
{
    QDR_TRY(split(&world->barrier, rank, 0, rank, dev, NULL, comm));
    (*comm)->timeout_ns = world->barrier.limit_ns;
    return QDR_OK;
}

void qdri_local_world_set_timeout(qdr_local_world *world, double secs)
{
    pthread_mutex_lock(&world->barrier.mutex);
    world->barrier.limit_ns = (int64_t)(secs * 1e9);
    pthread_mutex_unlock(&world->barrier.mutex);
}

qdr_status qdri_local_world_create(int n, qdr_local_world **world)
{
    qdr_local_world *made = NULL;
    *world = NULL;
    QDR_TRY(QDRI_NEW(1, "a world of local ranks", &made));
    const qdr_status status = qdri_barrier_init(&made->barrier, n);
    if (status == QDR_OK)
        *world = made;
    else
        free(made);
    return status;
}

void qdri_local_world_destroy(qdr_local_world **world)
{
    if (!world || !*world) return;
    qdri_barrier_free(&(*world)->barrier);
    free(*world);
    *world = NULL;
}

int qdri_local_world_size(const qdr_local_world *world) { return world->barrier.size; }

qdr_status qdri_local_world_agree(qdr_local_world *world, int rank, qdr_status mine)
{
    return qdri_barrier_agree(&world->barrier, rank, NULL, mine);
}

void qdri_local_world_leave(qdr_local_world *world) { qdri_barrier_give_up(&world->barrier, ""); }
