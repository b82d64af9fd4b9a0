/* SPDX-License-Identifier: Apache-2.0 */
/* The `boot` backend. All host communication is broadcasts over all ranks: to agree, each rank broadcasts its
 * contribution. */
#include "comm/boot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/internal.h"
#include "core/size.h"

enum { NODE_BYTES = 64 };

typedef struct boot_comm {
    qdri_comm base;
    qdr_boot callbacks; /* none in a part that has not all ranks */
    int *nodes; /* the world's, which owns them */
} boot_comm;

static boot_comm *own(qdri_comm *comm) { return (boot_comm *)comm; }

static qdr_status tell(const boot_comm *comm, int root, void *data, size_t bytes)
{
    const int code = comm->callbacks.broadcast(data, bytes, root, comm->callbacks.user);
    if (code == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_PEER, "boot: the caller's broadcast of %zu bytes from rank %d returned %d on rank %d",
                    bytes, root, code, comm->base.rank);
}

static qdr_status boot_broadcast(qdri_comm *base, int root, void *data, size_t bytes)
{
    return bytes ? tell(own(base), root, data, bytes) : QDR_OK;
}

/* Messages are long: only the one that applies is broadcast. */
static qdr_status boot_exchange(qdri_comm *base, qdri_verdict *verdict)
{
    struct {
        uint64_t digest;
        int64_t status;
    } brought;
    const qdri_verdict mine = *verdict;
    int whose = -1;
    for (int j = 0; j < base->size; j++) {
        brought.digest = mine.digest;
        brought.status = mine.status;
        QDR_TRY(tell(own(base), j, &brought, sizeof brought));
        const qdri_verdict theirs = {.status = (int)brought.status, .digest = brought.digest};
        if (whose < 0 && theirs.status != QDR_OK) whose = j;
        if (j == 0)
            *verdict = theirs;
        else
            qdri_verdict_add(verdict, &theirs, j);
    }
    if (whose < 0) return QDR_OK;
    if (whose == base->rank) memcpy(verdict->sentence, mine.sentence, sizeof mine.sentence);
    return tell(own(base), whose, verdict->sentence, sizeof verdict->sentence);
}

qdr_status qdri_boot_barrier(qdri_comm *base)
{
    const int code = own(base)->callbacks.barrier(own(base)->callbacks.user);
    if (code == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_PEER, "boot: the caller's barrier returned %d on rank %d", code, base->rank);
}

static qdr_status boot_launch(qdri_comm *base, const qdri_coll *coll, qdr_stream *stream)
{
    (void)stream;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "boot: %s among %d ranks that have only callbacks; use GPUs with NCCL, or MPI",
                    qdr_coll_kind_name(coll->kind), base->size);
}

static qdr_status fail_part(const qdri_comm *base, const char *what)
{
    return QDR_FAIL(
        QDR_ERR_UNSUPPORTED,
        "boot: %d of the ranks cannot %s on their own because the caller's broadcast spans all ranks; use MPI",
        base->size, what);
}

static qdr_status part_exchange(qdri_comm *base, qdri_verdict *verdict)
{
    return verdict->status != QDR_OK ? QDR_OK : fail_part(base, "agree");
}

static qdr_status part_broadcast(qdri_comm *base, int root, void *data, size_t bytes)
{
    (void)root;
    (void)data;
    (void)bytes;
    return fail_part(base, "broadcast");
}

static qdr_status part_split(qdri_comm *base, int colour, int key, qdri_comm **part)
{
    (void)colour;
    (void)key;
    *part = NULL;
    return fail_part(base, "split");
}

static void boot_destroy(qdri_comm *base)
{
    if (base->root == base) free(own(base)->nodes);
    free(own(base));
}

static const qdri_comm_table part_table = {
    .name = "boot",
    .launch = boot_launch,
    .split = part_split,
    .agree = part_exchange,
    .broadcast = part_broadcast,
    .destroy = boot_destroy,
};

typedef struct seat {
    int colour, key;
} seat;

static qdr_status boot_split(qdri_comm *base, int colour, int key, qdri_comm **part);

/* Of the world, and of a part that has all ranks in its order: its messages are the world's. */
static const qdri_comm_table boot_table = {
    .name = "boot",
    .is_only_world = 1,
    .launch = boot_launch,
    .split = boot_split,
    .agree = boot_exchange,
    .broadcast = boot_broadcast,
    .destroy = boot_destroy,
};

/* Whether a split gives one part, with all ranks in their order. */
static int is_whole(const seat *seats, int n)
{
    int whole = 1;
    for (int j = 1; j < n; j++) whole &= seats[j].colour == seats[0].colour && seats[j].key >= seats[j - 1].key;
    return whole;
}

static qdr_status boot_split(qdri_comm *base, int colour, int key, qdri_comm **part)
{
    boot_comm *made = NULL;
    seat *seats = NULL;
    const int *nodes = own(base)->nodes, me = base->rank;
    int rank = 0, size = 0, node_size = 0;
    *part = NULL;
    qdr_status status = QDRI_NEW(base->size, "seats of ranks", &seats);
    if (status == QDR_OK) status = QDRI_NEW(1, "a communicator", &made);
    QDR_TRY_OUT(status, qdri_comm_agree(base, status));
    for (int j = 0; j < base->size; j++) {
        seats[j] = (seat){colour, key};
        QDR_TRY_OUT(status, tell(own(base), j, &seats[j], sizeof seats[j]));
    }
    if (colour < 0) goto out;
    for (int j = 0; j < base->size; j++) {
        if (seats[j].colour != colour) continue;
        size++;
        node_size += nodes[j] == nodes[me];
        rank += seats[j].key < key || (seats[j].key == key && j < me);
    }
    qdri_comm_init(&made->base, is_whole(seats, base->size) ? &boot_table : &part_table, base->dev, rank, size, base);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): agreed, so it was allocated */
    made->base.node_size = node_size;
    if (made->base.table == &boot_table) {
        made->callbacks = own(base)->callbacks;
        made->nodes = own(base)->nodes;
    }
    *part = &made->base;
    made = NULL;
out:
    free(made);
    free(seats);
    return status;
}

/* The boot ID of the machine, which is the same in all its containers; else the host name. */
static void read_node(char name[NODE_BYTES])
{
    memset(name, 0, NODE_BYTES);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    const int is_read = file && fgets(name, NODE_BYTES, file);
    if (file) fclose(file);
    if (!is_read && gethostname(name, NODE_BYTES - 1) != 0) name[0] = '\0';
}

static qdr_status find_nodes(boot_comm *world, char (*names)[NODE_BYTES])
{
    const int size = world->base.size;
    world->base.node_size = 0;
    for (int j = 0; j < size; j++) {
        read_node(names[j]);
        QDR_TRY(tell(world, j, names[j], NODE_BYTES));
        world->nodes[j] = j;
        for (int i = j - 1; i >= 0; i--)
            if (memcmp(names[i], names[j], NODE_BYTES) == 0) world->nodes[j] = i;
    }
    for (int j = 0; j < size; j++) world->base.node_size += world->nodes[j] == world->nodes[world->base.rank];
    world->base.nodes = world->nodes;
    return QDR_OK;
}

qdr_status qdri_comm_create_boot(const qdr_boot *boot, int rank, int size, qdr_status mine, qdri_comm **comm)
{
    boot_comm *made = NULL, spare = {.nodes = NULL};
    char(*names)[NODE_BYTES] = NULL;
    int first = size;
    *comm = NULL;
    const qdr_status created = QDRI_NEW(1, "a communicator", &made);
    boot_comm *world = made ? made : &spare; /* the other ranks wait for this one, to learn that it has failed */
    world->callbacks = *boot;
    qdri_comm_init(&world->base, &boot_table, NULL, rank, size, NULL);
    qdr_status status = tell(world, 0, &first, sizeof first); /* the first exchange between all ranks */
    if (status == QDR_OK && first != size)
        status = QDR_FAIL(QDR_ERR_ARGUMENT, "boot: rank %d says %d ranks, rank 0 says %d; all must agree", rank, size,
                          first);
    if (status == QDR_OK) status = mine != QDR_OK ? mine : created;
    if (status == QDR_OK) status = QDRI_NEW(size, "names of nodes", &names);
    if (status == QDR_OK) status = QDRI_NEW(size, "nodes of ranks", &world->nodes);
    status = qdri_comm_agree(&world->base, status);
    if (status == QDR_OK && names) status = find_nodes(world, names);
    free(names);
    if (!made) return status;
    *comm = &made->base;
    if (status != QDR_OK) qdri_comm_destroy(comm);
    return status;
}

void qdri_boot_bind(qdri_comm *comm, qdri_dev *dev) { comm->dev = dev; }
