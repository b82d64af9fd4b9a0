/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the ranks of a node that map each other's buffers (heap.h): the owner of a part reads all
 * members' versions, adds them in rank order and writes the sum to all members; gathered data are read in place. No
 * intermediate copies.
 *
 * Before members access each other's memory, all must have mapped it, which takes a round of its own, unless all
 * remember that: a block stays mapped until its owner frees it. */
#include <string.h>

#include "comm/mpi/internal.h"
#include "core/size.h"

enum {
    CHUNK_BYTES = 32 << 10, /* a chunk stays in a core's cache between its sum and its copies */
    PAIR_BYTES = 2 << 10, /* from here on two members sum directly, if the machine does not say otherwise */
    GROUP_BYTES = 128 << 10 /* the same for more members */
};

/* Direct transfers take two rounds. Through slots an all-reduce takes up to two, the others one: for them direct
 * transfers pay off later. The second member of a pair is there at once: both have just left the first round. */
static int64_t border_of(const qdri_coll_run *run)
{
    const qdri_comm_machine *machine = &run->comm->root->machine;
    if (run->coll.kind != QDR_ALL_REDUCE) return machine->direct_bytes;
    if (machine->direct_all_reduce_bytes > 0) return machine->direct_all_reduce_bytes;
    return run->comm->size == 2 ? PAIR_BYTES : GROUP_BYTES;
}

int qdri_mpi_direct_wants(const qdri_coll_run *run)
{
    const mpi_comm *root = (const mpi_comm *)run->comm->root;
    const int64_t total = qdri_coll_total(&run->coll, run->comm->size);
    return root->node.heap && total * (int64_t)qdr_dtype_bytes(run->coll.dtype) >= border_of(run);
}

/* The memory of this member that others read. */
static const void *read_by_others(const qdri_coll_run *run, int64_t *n)
{
    const qdri_coll *coll = &run->coll;
    int64_t begin;
    *n = qdri_coll_total(coll, run->comm->size);
    if (coll->kind != QDR_ALL_GATHER) return qdri_coll_source(coll);
    qdri_coll_part(coll, run->comm->size, run->comm->rank, &begin, n);
    return coll->send ? coll->send : qdri_at(coll->recv, begin, coll->dtype);
}

void qdri_mpi_direct_offer(const qdri_coll_run *run, node_call *call)
{
    const mpi_comm *root = (const mpi_comm *)run->comm->root;
    const size_t bytes_each = qdr_dtype_bytes(run->coll.dtype);
    int64_t n;
    const void *source = read_by_others(run, &n);
    call->source = qdri_mpi_heap_find(root->node.heap, source, (size_t)n * bytes_each);
    call->target = (heap_range){0};
    if (run->coll.kind == QDR_ALL_REDUCE)
        call->target = qdri_mpi_heap_find(root->node.heap, run->coll.recv, (size_t)n * bytes_each);
}

int qdri_mpi_direct_is_offered(const qdri_coll_run *run, const node_call *call, int member)
{
    if (run->coll.kind == QDR_BROADCAST && member != run->coll.peer) return 1;
    return call->source.generation && (run->coll.kind != QDR_ALL_REDUCE || call->target.generation);
}

static void *map_of(const qdri_coll_run *run, int member, const heap_range *range)
{
    const mpi_comm *comm = (const mpi_comm *)run->comm, *root = (const mpi_comm *)run->comm->root;
    const int peer = comm->world_ranks[member];
    return qdri_mpi_heap_map(root->node.heap, &root->node.shares[peer]->heap, peer, range);
}

int qdri_mpi_direct_map(const qdri_coll_run *run, int member, const node_call *call)
{
    mpi_comm *comm = (mpi_comm *)run->comm;
    const qdri_coll *coll = &run->coll;
    int64_t n;
    comm->sources[member] = comm->node.targets[member] = NULL;
    if (member == run->comm->rank) {
        comm->sources[member] = read_by_others(run, &n);
        comm->node.targets[member] = coll->recv;
        return 1;
    }
    if (coll->kind == QDR_BROADCAST && member != coll->peer) return 1;
    comm->sources[member] = map_of(run, member, &call->source);
    if (coll->kind == QDR_ALL_REDUCE) comm->node.targets[member] = map_of(run, member, &call->target);
    return comm->sources[member] && (coll->kind != QDR_ALL_REDUCE || comm->node.targets[member]);
}

/* Numbers a block; no other block of its owner ever has that number. */
static uint64_t number_of(const heap_range *range) { return range->generation * HEAP_BLOCKS + (uint64_t)range->block; }

/* Where `member`'s blocks that end up in the same place are remembered: the last one. */
static uint64_t *known(const qdri_coll_run *run, int member, const heap_range *range)
{
    return &((const mpi_comm *)run->comm)->node.known[member * QDRI_KNOWN_BLOCKS + range->block % QDRI_KNOWN_BLOCKS];
}

int qdri_mpi_direct_is_known(const qdri_coll_run *run, const node_call *call, int member)
{
    if (run->coll.kind == QDR_BROADCAST && member != run->coll.peer) return 1;
    return *known(run, member, &call->source) == number_of(&call->source) &&
           (run->coll.kind != QDR_ALL_REDUCE || *known(run, member, &call->target) == number_of(&call->target));
}

void qdri_mpi_direct_know(const qdri_coll_run *run, const node_call *call, int member)
{
    if (run->coll.kind == QDR_BROADCAST && member != run->coll.peer) return;
    *known(run, member, &call->source) = number_of(&call->source);
    if (run->coll.kind == QDR_ALL_REDUCE) *known(run, member, &call->target) = number_of(&call->target);
}

/* Where the sum goes in the memory of the member `further` places after this one. */
static void *target_at(const qdri_coll_run *run, int further, int64_t at)
{
    void *const *targets = ((const mpi_comm *)run->comm)->node.targets;
    return qdri_at_mutable(targets[(run->comm->rank + further) % run->comm->size], at, run->coll.dtype);
}

/* Sums this member's part, chunk by chunk, to `to` and to the same place of all targets. */
static void sum_part(const qdri_coll_run *run)
{
    mpi_comm *comm = (mpi_comm *)run->comm;
    const qdri_coll *coll = &run->coll;
    const int size = run->comm->size, copies = coll->kind == QDR_ALL_REDUCE;
    const size_t bytes_each = qdr_dtype_bytes(coll->dtype);
    const int64_t n_chunk = CHUNK_BYTES / (int64_t)bytes_each;
    const void **chunks = comm->node.chunks;
    int64_t begin, n;
    qdri_coll_part(coll, size, run->comm->rank, &begin, &n);
    for (int64_t at = 0; at < n; at += n_chunk) {
        const int64_t n_now = qdri_least(n - at, n_chunk);
        void *to = qdri_at_mutable(coll->recv, copies ? begin + at : at, coll->dtype);
        for (int j = 0; j < size; j++) chunks[j] = qdri_at(comm->sources[j], begin + at, coll->dtype);
        void *next = copies ? target_at(run, 1, begin + at) : to;
        qdri_reduce_twice(coll->dtype, coll->op, to, next, chunks, size, n_now);
        for (int i = 2; copies && i < size; i++) memcpy(target_at(run, i, begin + at), to, (size_t)n_now * bytes_each);
    }
}

void qdri_mpi_direct_move(const qdri_coll_run *run)
{
    qdri_comm *base = run->comm;
    const void *const *sources = ((const mpi_comm *)base)->sources;
    const qdri_coll *coll = &run->coll;
    const int others = base->size - 1; /* bytes are counted as messages would carry them */
    int64_t begin, n;
    if (coll->kind == QDR_BROADCAST) {
        if (base->rank == coll->peer)
            qdri_count_sent(base, coll, others * coll->count);
        else
            qdri_coll_copy(coll->dtype, coll->recv, sources[coll->peer], coll->count);
        return;
    }
    if (qdri_coll_reduces(coll)) sum_part(run);
    for (int i = 0; coll->kind == QDR_ALL_GATHER && i < base->size; i++) {
        const int j = (base->rank + i) % base->size;
        qdri_coll_part(coll, base->size, j, &begin, &n);
        qdri_coll_copy(coll->dtype, qdri_at_mutable(coll->recv, begin, coll->dtype), sources[j], n);
    }
    qdri_coll_part(coll, base->size, base->rank, &begin, &n);
    if (qdri_coll_reduces(coll)) qdri_count_sent(base, coll, qdri_coll_total(coll, base->size) - n);
    if (coll->kind != QDR_REDUCE_SCATTER) qdri_count_sent(base, coll, others * n);
}
