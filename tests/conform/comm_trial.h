/* SPDX-License-Identifier: Apache-2.0 */
/* One collective with everything drawn, for comm.c: what each rank brings, what it should have and send. */
#ifndef TESTS_CONFORM_COMM_TRIAL_H
#define TESTS_CONFORM_COMM_TRIAL_H

#include <stdlib.h>
#include <string.h>

#include "comm/internal.h"
#include "conform/comm_values.h"
#include "core/block.h"
#include "quadrille/cuda.h"
#include "quadrille/quadrille.h"

typedef struct member {
    qdr_context *ctx;
    qdri_comm *comm;
    qdr_stream *stream;
    int rank, size;
    uint64_t seed;
    int is_local, is_boot, in_library_memory;
} member;

enum { MAX_RANKS = 64, MAX_PART = 5000, MAX_DIRECT_PART = 20000 /* sums of mapped memory go 32 KiB at a time */ };

typedef struct trial {
    qdri_coll coll;
    uint64_t seed;
    int64_t counts[MAX_RANKS], recv_counts[MAX_RANKS];
    int64_t n_send, n_recv;
    int in_place;
    char *memory, *apart, *send, *recv; /* apart: for what is received; NULL: in `memory` */
    qdr_context *owner, *apart_owner; /* NULL: the C library */
} trial;

/* The most elements of one member. */
static int64_t most_of(const trial *t, const member *self)
{
    if (draw(t->seed, 1, 2) % 4 != 0) return 40;
    return self->in_library_memory ? MAX_DIRECT_PART : MAX_PART;
}

/* Counts of a collective: equal, by split_unit, or drawn with zeros among them. */
static void draw_counts(trial *t, const member *self)
{
    const uint64_t mode = draw(t->seed, 1, 1) % 3;
    const int64_t most = most_of(t, self);
    qdri_coll *coll = &t->coll;
    coll->count = (int64_t)(draw(t->seed, 1, 3) % (uint64_t)(most + 1));
    if (coll->kind == QDR_ALL_REDUCE)
        coll->count = coll->count * self->size + (int64_t)(draw(t->seed, 1, 5) % (uint64_t)self->size);
    const int has_parts = coll->kind == QDR_ALL_GATHER || coll->kind == QDR_REDUCE_SCATTER;
    if (mode == 1 && has_parts) {
        coll->split_unit = 1 + (int64_t)(draw(t->seed, 1, 4) % 7);
        coll->count *= coll->split_unit;
    }
    if (mode != 2 || !(has_parts || coll->kind == QDR_ALL_TO_ALL)) return;
    for (int j = 0; j < self->size; j++) {
        const int from = has_parts ? 0 : self->rank, back = has_parts ? 0 : j;
        const uint64_t there = draw(t->seed, 100 + from, j);
        const uint64_t here = draw(t->seed, 100 + back, self->rank);
        t->counts[j] = there % 3 ? (int64_t)(there % (uint64_t)most) : 0;
        t->recv_counts[j] = here % 3 ? (int64_t)(here % (uint64_t)most) : 0;
    }
    coll->counts = t->counts;
    if (!has_parts) coll->recv_counts = t->recv_counts;
}

static void part(const trial *t, const member *self, int j, int64_t *begin, int64_t *n)
{
    const qdri_coll *coll = &t->coll;
    int64_t end;
    if (coll->split_unit > 0 || coll->kind == QDR_ALL_REDUCE) {
        qdri_split(coll->count, coll->split_unit ? coll->split_unit : 1, self->size, j, begin, &end);
        *n = end - *begin;
        return;
    }
    *begin = 0;
    for (int i = 0; i < j; i++) *begin += coll->counts ? coll->counts[i] : coll->count;
    *n = coll->counts ? coll->counts[j] : coll->count;
}

static int64_t sum(const int64_t *counts, int64_t count, int size)
{
    int64_t total = 0;
    for (int j = 0; j < size; j++) total += counts ? counts[j] : count;
    return total;
}

/* Who sends to whom in a SEND_RECV: around the ring, or only upwards with open ends. */
static void draw_peers(trial *t, const member *self)
{
    const int n = self->size, step = 1 + (int)(draw(t->seed, 2, 1) % (uint64_t)n) % n;
    if (draw(t->seed, 2, 2) % 2 == 0) {
        t->coll.peer = (self->rank + step) % n;
        t->coll.peer2 = (self->rank - step % n + n) % n;
    } else {
        t->coll.peer = self->rank + 1 < n ? self->rank + 1 : -1;
        t->coll.peer2 = self->rank - 1;
    }
    /* counts differ from sender to sender */
    t->coll.count = (int64_t)(draw(t->seed, 3, self->rank) % MAX_PART);
    t->coll.recv_count = t->coll.peer2 < 0 ? 0 : (int64_t)(draw(t->seed, 3, t->coll.peer2) % MAX_PART);
}

/* The library's memory, of large blocks, if asked for; `is_rest`: not here. */
static char *take_memory(const member *self, size_t bytes, int is_rest, qdr_context **owner)
{
    enum { LARGE = 300000 };
    const int is_cpu = qdr_context_gpu(self->ctx) < 0;
    void *memory = NULL;
    *owner = NULL;
    if (is_cpu && (!self->in_library_memory || is_rest)) return calloc(bytes, 1);
    if (qdr_mem_alloc(self->ctx, bytes + LARGE, &memory) == QDR_OK) *owner = self->ctx;
    return memory;
}

static void give_memory(char *taken, qdr_context *owner)
{
    void *memory = taken;
    if (!owner) free(memory);
    if (owner) qdr_mem_free(owner, &memory);
}

/* What is received lies in the same block as what is sent, or not; either not in the library's memory on some ranks. */
static void trial_alloc(trial *t, const member *self, size_t bytes_each)
{
    const int is_rest = draw(t->seed, 5, 1) % 4 == 0 && draw(t->seed, 6, self->rank) % 2 == 0;
    const int is_other = draw(t->seed, 5, 3) % 2 == 0 && draw(t->seed, 7, self->rank) % 2 == 0;
    t->memory = take_memory(self, (size_t)(t->n_send + t->n_recv + 1) * bytes_each, is_rest, &t->owner);
    if (draw(t->seed, 5, 2) % 2)
        t->apart = take_memory(self, (size_t)(t->n_recv + 1) * bytes_each, is_other, &t->apart_owner);
}

static void trial_free(trial *t)
{
    give_memory(t->memory, t->owner);
    give_memory(t->apart, t->apart_owner);
}

static int trial_draw(trial *t, const member *self, uint64_t seed)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16, QDR_I32, QDR_U8};
    memset(t, 0, sizeof *t);
    t->seed = seed;
    qdri_coll *coll = &t->coll;
    coll->kind = (qdr_coll_kind)(draw(seed, 0, 1) % QDR_N_COLL_KINDS);
    const int reduces = coll->kind == QDR_REDUCE_SCATTER || coll->kind == QDR_ALL_REDUCE;
    coll->dtype = dtypes[draw(seed, 0, 2) % (reduces ? 5 : 6)];
    coll->op = (qdr_reduce)(draw(seed, 0, 3) % 3);
    t->in_place = draw(seed, 0, 4) % 2 == 0;
    draw_counts(t, self);
    int64_t begin, n_part = 0, total = sum(coll->counts, coll->count, self->size);
    if (coll->split_unit) total = coll->count;
    if (coll->kind <= QDR_ALL_REDUCE) part(t, self, self->rank, &begin, &n_part);
    t->n_send = t->n_recv = coll->count;
    if (coll->kind == QDR_ALL_GATHER) t->n_send = n_part, t->n_recv = total;
    if (coll->kind == QDR_REDUCE_SCATTER) t->n_send = total, t->n_recv = n_part;
    if (coll->kind == QDR_ALL_TO_ALL) {
        t->n_send = total;
        t->n_recv = sum(coll->recv_counts, coll->count, self->size);
    }
    if (coll->kind == QDR_BROADCAST) coll->peer = (int)(draw(seed, 0, 5) % (uint64_t)self->size);
    if (coll->kind == QDR_SEND_RECV) {
        draw_peers(t, self);
        t->n_send = coll->count;
        t->n_recv = coll->recv_count;
    }
    const size_t bytes = qdr_dtype_bytes(coll->dtype);
    trial_alloc(t, self, bytes);
    t->send = t->memory;
    t->recv = t->apart ? t->apart : t->memory + (size_t)t->n_send * bytes;
    return t->memory != NULL;
}

/* Points send and recv as the kind and `in_place` want, and writes what this rank brings. */
static void trial_fill(trial *t, const member *self)
{
    qdri_coll *coll = &t->coll;
    const size_t bytes = qdr_dtype_bytes(coll->dtype);
    int64_t begin = 0, n = 0;
    if (coll->kind <= QDR_ALL_REDUCE) part(t, self, self->rank, &begin, &n);
    char *source = t->send;
    coll->send = t->send;
    coll->recv = t->recv;
    if (coll->kind == QDR_BROADCAST || (t->in_place && coll->kind == QDR_ALL_REDUCE)) {
        coll->send = NULL;
        source = t->recv;
    }
    if (t->in_place && coll->kind == QDR_ALL_GATHER) {
        coll->send = NULL;
        source = t->recv + (size_t)begin * bytes;
    }
    if (t->in_place && coll->kind == QDR_REDUCE_SCATTER) coll->recv = t->send + (size_t)begin * bytes;
    fill(source, t->seed, coll->dtype, self->rank, 0, t->n_send);
}

static int64_t expected_bytes(const trial *t, const member *self)
{
    const qdri_coll *coll = &t->coll;
    const int64_t others = self->size - 1;
    int64_t begin, n = 0, elems = 0;
    if (self->size == 1) return 0;
    if (coll->kind <= QDR_ALL_REDUCE) part(t, self, self->rank, &begin, &n);
    switch (coll->kind) {
    case QDR_ALL_GATHER: elems = others * n; break;
    case QDR_REDUCE_SCATTER: elems = t->n_send - n; break;
    case QDR_ALL_REDUCE: elems = t->n_send - n + others * n; break;
    case QDR_BROADCAST: elems = coll->peer == self->rank ? others * coll->count : 0; break;
    case QDR_ALL_TO_ALL: elems = t->n_send - (coll->counts ? coll->counts[self->rank] : coll->count); break;
    default: elems = coll->peer >= 0 && coll->peer != self->rank ? coll->count : 0;
    }
    return elems * (int64_t)qdr_dtype_bytes(coll->dtype);
}

/* What it sends to other nodes; where members of a node sum or gather among themselves, what all send, on rank 0: all
 * of it once to each other node. The nodes are known of a world's ranks only. */
static int64_t expected_off_node(const trial *t, const member *self)
{
    const qdri_coll *coll = &t->coll;
    const int together = qdri_comm_summed_first(self->comm, coll), is_sum = coll->kind == QDR_ALL_REDUCE;
    int64_t begin, mine = 0, n = 0, elems = 0;
    if (together > 1 && self->rank == 0) {
        const int64_t all = coll->kind == QDR_ALL_GATHER ? t->n_recv : t->n_send;
        elems = (self->size / together - 1) * all * (is_sum ? 2 : 1);
    }
    if (coll->kind <= QDR_ALL_REDUCE) part(t, self, self->rank, &begin, &mine);
    for (int j = 0; together == 1 && j < self->size; j++) {
        if (qdri_comm_node_of(self->comm, j) == qdri_comm_node_of(self->comm, self->rank)) continue;
        if (coll->kind <= QDR_ALL_REDUCE) part(t, self, j, &begin, &n);
        if (coll->kind == QDR_ALL_GATHER || is_sum) elems += mine;
        if (coll->kind == QDR_REDUCE_SCATTER || is_sum) elems += n;
        if (coll->kind == QDR_ALL_TO_ALL) elems += coll->counts ? coll->counts[j] : coll->count;
        if (coll->kind == QDR_SEND_RECV && j == coll->peer) elems += coll->count;
    }
    return elems * (int64_t)qdr_dtype_bytes(coll->dtype);
}

/* What `from` sent to this rank in an ALL_TO_ALL begins at this element of it. */
static int64_t sent_begin(const trial *t, const member *self, int from)
{
    int64_t begin = 0;
    for (int j = 0; j < self->rank; j++) {
        const int64_t most = most_of(t, self);
        const uint64_t there = draw(t->seed, 100 + from, j);
        begin += !t->coll.counts ? t->coll.count : there % 3 ? (int64_t)(there % (uint64_t)most) : 0;
    }
    return begin;
}

static int64_t trial_wrong(const trial *t, const member *self)
{
    const qdri_coll *coll = &t->coll;
    const summed ranks = {self->size, qdri_comm_summed_first(self->comm, coll)};
    const size_t bytes = qdr_dtype_bytes(coll->dtype);
    int64_t begin, n, at = 0;
    if (coll->kind == QDR_BROADCAST)
        return first_wrong(coll->recv, t->seed, coll->dtype, coll->op, ranks, coll->peer, 0, coll->count);
    if (coll->kind == QDR_SEND_RECV)
        return coll->peer2 < 0
                   ? -1
                   : first_wrong(coll->recv, t->seed, coll->dtype, coll->op, ranks, coll->peer2, 0, coll->recv_count);
    if (coll->kind == QDR_ALL_REDUCE)
        return first_wrong(coll->recv, t->seed, coll->dtype, coll->op, ranks, -1, 0, coll->count);
    if (coll->kind == QDR_REDUCE_SCATTER) {
        part(t, self, self->rank, &begin, &n);
        return first_wrong(coll->recv, t->seed, coll->dtype, coll->op, ranks, -1, begin, n);
    }
    for (int j = 0; j < self->size; j++) {
        if (coll->kind == QDR_ALL_GATHER) part(t, self, j, &at, &n);
        if (coll->kind == QDR_ALL_TO_ALL) n = coll->recv_counts ? coll->recv_counts[j] : coll->count;
        begin = coll->kind == QDR_ALL_TO_ALL ? sent_begin(t, self, j) : 0;
        const int64_t wrong = first_wrong((char *)coll->recv + (size_t)at * bytes, t->seed, coll->dtype, coll->op,
                                          ranks, j, begin, n);
        if (wrong >= 0) return at + wrong;
        at += n;
    }
    return -1;
}

#endif
