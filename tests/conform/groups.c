/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that come and go, so that neither the nodes nor the ranks of a node have used up alike what they have for
 * groups: sums of whole numbers, which are the same in any order, and copies.
 *
 *   conform_groups [--local P] [SEED]     without --local: mpiexec's ranks */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "conform/check.h"
#include "conform/comm_values.h"
#include "grid/internal.h"
#include "quadrille/quadrille.h"

#define CHECK(condition, ...) CHECK_OF_RANK(self->rank, condition, __VA_ARGS__)

enum { N_GROUPS = 20 /* of which a rank is in more than its node has room for */, N_USES = 400, MOST_ELEMS = 3000 };

typedef struct member {
    qdr_context *ctx;
    uint64_t seed;
    int rank, size;
    uint64_t drawn[N_GROUPS]; /* 0: there is no such group */
    qdri_comm *groups[N_GROUPS]; /* NULL: without this rank */
} member;

/* All ranks, one half of them or a quarter, which are of one node; odd and even ones; any. -1: not in the group. */
static int colour_of(uint64_t drawn, int size, int rank)
{
    switch (drawn % 6) {
    case 0: return 0;
    case 1: return rank < size / 2 ? 0 : -1;
    case 2: return rank < size / 2 ? -1 : 0;
    case 3: return rank < size - size / 4 ? -1 : 0;
    case 4: return rank % 2;
    default: return (int)(draw(drawn, 1, rank) % 3) - 1;
    }
}

static int64_t number_of(uint64_t seed, int rank, int64_t i) { return (int64_t)(draw(seed, rank, i) % 2000) - 1000; }

/* The numbers of a rank of the world, from element `begin` on. */
static void set(int32_t *data, uint64_t seed, int rank, int64_t begin, int64_t n)
{
    for (int64_t i = 0; i < n; i++) data[i] = (int32_t)number_of(seed, rank, begin + i);
}

/* The ranks of the world that are in this rank's group, in order. */
static int find_mates(const member *self, int group, int mates[])
{
    const int mine = colour_of(self->drawn[group], self->size, self->rank);
    int n = 0;
    for (int rank = 0; rank < self->size; rank++)
        if (colour_of(self->drawn[group], self->size, rank) == mine) mates[n++] = rank;
    return n;
}

/* One collective of n elements for each member. */
static int use(const member *self, int group, uint64_t seed)
{
    static const qdr_coll_kind kinds[] = {QDR_ALL_REDUCE, QDR_ALL_GATHER, QDR_REDUCE_SCATTER, QDR_BROADCAST};
    qdri_comm *comm = self->groups[group];
    int mates[64], at = 0;
    void *memory = NULL;
    if (!comm) return 0;
    const int n_mates = find_mates(self, group, mates), root = (int)(draw(seed, 2, 1) % (uint64_t)n_mates);
    const int64_t n = 1 + (int64_t)(draw(seed, 2, 2) % MOST_ELEMS), all = n_mates * n;
    while (mates[at] != self->rank) at++;
    CHECK(qdri_comm_size(comm) == n_mates && qdri_comm_rank(comm) == at, "%d of %d", at, n_mates);
    OK(qdr_mem_alloc(self->ctx, (size_t)all * sizeof(int32_t), &memory));
    int32_t *data = memory, *own = data + at * n;
    const qdr_coll_kind kind = kinds[draw(seed, 2, 3) % 4];
    const int is_copy = kind == QDR_ALL_GATHER || kind == QDR_BROADCAST;
    memset(data, 0, (size_t)all * sizeof *data);
    if (kind == QDR_ALL_GATHER)
        set(own, seed, self->rank, at * n, n);
    else if (kind != QDR_BROADCAST || at == root)
        set(data, seed, self->rank, 0, all);
    const int is_part = kind == QDR_ALL_GATHER || kind == QDR_REDUCE_SCATTER;
    const qdri_coll coll = {.kind = kind,
                            .dtype = QDR_I32,
                            .send = kind == QDR_REDUCE_SCATTER ? data : NULL,
                            .recv = kind == QDR_REDUCE_SCATTER ? own : data,
                            .count = is_part ? n : all,
                            .peer = kind == QDR_BROADCAST ? root : 0};
    qdr_stream *stream = qdr_context_stream(self->ctx);
    OK(qdri_comm_launch(comm, &coll, stream));
    OK(qdr_stream_synchronize(stream));
    const int64_t begin = kind == QDR_REDUCE_SCATTER ? at * n : 0, end = kind == QDR_REDUCE_SCATTER ? begin + n : all;
    for (int64_t i = begin; i < end; i++) {
        int64_t wanted = 0;
        for (int j = 0; j < n_mates && !is_copy; j++) wanted += number_of(seed, mates[j], i);
        if (is_copy) wanted = number_of(seed, mates[kind == QDR_BROADCAST ? root : (int)(i / n)], i);
        CHECK(data[i] == wanted, "%s in group %d of %d, kind %d: element %lld of %lld is %d, not %lld",
              qdr_coll_kind_name(kind), group, n_mates, (int)(self->drawn[group] % 6), (long long)i, (long long)all,
              (int)data[i], (long long)wanted);
    }
    qdr_mem_free(self->ctx, &memory);
    return 0;
}

static int replace(member *self, int group, uint64_t seed)
{
    qdri_comm *world = qdri_context_world(self->ctx);
    qdri_comm_destroy(&self->groups[group]);
    self->drawn[group] = seed;
    const int colour = colour_of(seed, self->size, self->rank);
    OK(qdri_comm_split(world, colour, self->rank, &self->groups[group]));
    return 0;
}

static int test_main(qdr_context *ctx, void *user)
{
    member own = {.ctx = ctx, .seed = *(const uint64_t *)user}, *self = &own;
    self->rank = qdr_context_rank(ctx);
    self->size = qdr_context_size(ctx);
    for (int i = 0; i < N_USES; i++) {
        const uint64_t seed = draw(self->seed, 3, i);
        const int group = (int)(draw(seed, 4, 1) % N_GROUPS);
        const int is_new = !self->drawn[group] || draw(seed, 4, 2) % 4 == 0;
        if (is_new && replace(self, group, draw(seed, 4, 3))) return 1;
        if (use(self, group, seed)) return 1;
    }
    for (int group = 0; group < N_GROUPS; group++) qdri_comm_destroy(&self->groups[group]);
    return 0;
}

int main(int argc, char **argv)
{
    int n_local = 0, exit_code = 1;
    if (argc > 2 && strcmp(argv[1], "--local") == 0) {
        n_local = atoi(argv[2]);
        argc -= 2, argv += 2;
    }
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20261126;
    const qdr_status status = qdr_launch(n_local, NULL, test_main, &seed, &exit_code);
    if (status != QDR_OK) fprintf(stderr, "conform_groups: %s\n", qdr_last_error());
    if (exit_code) fprintf(stderr, "conform_groups: seed %llu\n", (unsigned long long)seed);
    return exit_code;
}
