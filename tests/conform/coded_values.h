/* SPDX-License-Identifier: Apache-2.0 */
/* What coded.c expects, computed by itself in float64: whose elements are whose, how long messages are, how far results
 * may be off. */
#ifndef QDR_TESTS_CONFORM_CODED_VALUES_H
#define QDR_TESTS_CONFORM_CODED_VALUES_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "conform/comm_values.h"

enum { MAX_RANKS = 64, MAX_ELEMS = 40000 };

typedef struct member {
    qdr_context *ctx;
    qdri_comm *comm; /* with codecs */
    qdr_stream *stream;
    int is_local, is_boot, rank, size, n_nodes, per_node; /* per_node 1: every member is a node of its own */
    uint64_t seed;
} member;

typedef struct trial {
    uint64_t seed;
    qdri_coll coll;
    qdr_codec codec;
    char name[64];
    int64_t counts[MAX_RANKS], n_send, n_recv, total;
    int in_place;
    void *memory, *feedback_memory;
    char *send, *recv;
} trial;

/* Part j of n elements in units: the first ones are larger by one unit. */
static inline int64_t cut(int64_t n, int64_t unit, int n_parts, int j)
{
    const int64_t units = n / unit, each = units / n_parts, more = units % n_parts;
    return unit * (j * each + (j < more ? j : more));
}

static inline int64_t part_begin(const trial *t, const member *self, int j)
{
    int64_t begin = 0;
    if (t->coll.split_unit) return cut(t->coll.count, t->coll.split_unit, self->size, j);
    for (int i = 0; i < j; i++) begin += t->coll.counts ? t->counts[i] : t->coll.count;
    return begin;
}

static inline int is_lossless(const trial *t) { return t->codec.kind == QDR_CODEC_LOSSLESS; }

static inline int bits_of(const qdr_codec *codec)
{
    return codec->kind == QDR_CODEC_INT16 ? 16 : codec->kind == QDR_CODEC_INT8 ? 8 : 4;
}

/* Bytes of a message of n elements. */
static inline int64_t wire_bytes(const trial *t, int64_t n)
{
    int64_t bytes = 0;
    const int64_t row = t->coll.row_elems ? t->coll.row_elems : n;
    if (t->codec.kind == QDR_CODEC_BF16) return (2 * n + 15) / 16 * 16;
    for (int64_t left = n; left > 0 && t->codec.kind == QDR_CODEC_ZFP; left -= row)
        bytes += ((left < row ? left : row) + 3) / 4 * 4 * t->codec.rate / 64 * 8 +
                 (((left < row ? left : row) + 3) / 4 * 4 * t->codec.rate % 64 ? 8 : 0);
    for (int64_t left = n; left > 0 && t->codec.kind != QDR_CODEC_ZFP; left -= row) {
        const int64_t run = left < row ? left : row, block = t->codec.block ? t->codec.block : 128;
        bytes += 4 * ((run + block - 1) / block) + (run * bits_of(&t->codec) + 7) / 8;
    }
    return (bytes + 15) / 16 * 16;
}

/* An interval of elements with one owner, within which blocks begin anew. */
typedef struct interval {
    int64_t begin, end;
    int owner; /* member */
} interval;

/* Of element i: whose it is after a reduction, between which bounds its blocks lie. */
static inline interval owner_of(const trial *t, const member *self, int64_t i)
{
    const int64_t unit = t->coll.row_elems ? t->coll.row_elems : 1;
    interval found = {0, t->total, 0};
    if (t->coll.kind != QDR_ALL_REDUCE) {
        while (part_begin(t, self, found.owner + 1) <= i) found.owner++;
        found.begin = part_begin(t, self, found.owner);
        found.end = part_begin(t, self, found.owner + 1);
        return found;
    }
    int index = 0, node = 0;
    while (cut(t->total, unit, self->per_node, index + 1) <= i) index++;
    const int64_t slice = cut(t->total, unit, self->per_node, index),
                  n = cut(t->total, unit, self->per_node, index + 1) - slice;
    if (self->n_nodes == 2) return (interval){slice, slice + n, index};
    while (slice + cut(n, unit, self->n_nodes, node + 1) <= i) node++;
    found.begin = slice + cut(n, unit, self->n_nodes, node);
    found.end = slice + cut(n, unit, self->n_nodes, node + 1);
    found.owner = node * self->per_node + index;
    return found;
}

static inline double value_at(const trial *t, int rank, int64_t i)
{
    const element e = value(t->seed, t->coll.dtype, rank, i);
    return t->coll.dtype == QDR_F32 ? (double)e.f32 : narrow_value(t->coll.dtype, e.narrow);
}

static inline double roundoff(qdr_dtype dtype)
{
    return dtype == QDR_F32 ? 0x1p-24 : dtype == QDR_BF16 ? 0x1p-8 : 0x1p-11;
}

/* What one message changes at most: of a block with this largest element, and this sum of squares. */
static inline double bound_of(const trial *t, double most, double squares, int is_whole)
{
    const int block = t->codec.block ? t->codec.block : 128;
    const double levels = (double)((1 << (bits_of(&t->codec) - 1)) - 1);
    const double steps = t->codec.flags & QDR_CODEC_STOCHASTIC ? 1 : 0.5;
    if (is_lossless(t)) return 0;
    if (t->codec.kind == QDR_CODEC_ZFP)
        return 16 * ldexp(most, -(t->codec.rate * 4 - 9) / 4); /* none is known: roughly */
    if (t->codec.kind == QDR_CODEC_BF16) return 0x1p-8 * most;
    if (!(t->codec.flags & QDR_CODEC_HADAMARD) || !is_whole) return most * (steps / levels + 0x1p-21);
    return sqrt(block) * sqrt(squares) * (steps / levels + 0x1p-19);
}

/* The block of element i in an interval. */
static inline void find_block(const trial *t, interval of, int64_t i, int64_t *begin, int64_t *end)
{
    const int64_t row = t->coll.row_elems, block = t->codec.block ? t->codec.block : 128;
    int64_t first = of.begin, last = of.end;
    if (row) {
        first = of.begin + (i - of.begin) / row * row;
        if (first + row < last) last = first + row;
    }
    *begin = first + (i - first) / block * block;
    *end = *begin + block < last ? *begin + block : last;
}

/* By element: of each node, of all; and of absolute values. */
typedef struct sums {
    double *memory, *node[MAX_RANKS], *all, *all_size;
} sums;

static inline int sums_create(sums *s, const trial *t, const member *self)
{
    const size_t n = (size_t)t->total + 1;
    memset(s, 0, sizeof *s);
    s->memory = calloc((size_t)(self->n_nodes + 2) * n, sizeof *s->memory);
    if (!s->memory) return 1;
    for (int k = 0; k < self->n_nodes; k++) s->node[k] = s->memory + (size_t)k * n;
    s->all = s->memory + (size_t)self->n_nodes * n;
    s->all_size = s->all + n;
    for (int rank = 0; rank < self->size; rank++)
        for (int64_t i = 0; i < t->total; i++) {
            const double x = value_at(t, rank, i);
            s->node[rank / self->per_node][i] += x;
            s->all[i] += x;
            s->all_size[i] += fabs(x);
        }
    return 0;
}

static inline double message_bound(const trial *t, const double *x, int64_t begin, int64_t end)
{
    const int block = t->codec.block ? t->codec.block : 128;
    double most = 0, squares = 0;
    for (int64_t i = begin; i < end; i++) most = fmax(most, fabs(x[i])), squares += x[i] * x[i];
    return bound_of(t, most, squares, end - begin == block);
}

/* By how much messages change an element of a block of a sum at most: those of the versions that are coded, and that of
 * the sum. A message codes what has already been rounded: (1 + 2^-7) covers it. */
static inline double block_bound(const trial *t, const member *self, const sums *s, interval block)
{
    const int is_exchange = t->coll.kind == QDR_ALL_REDUCE && self->n_nodes == 2;
    double bound = 0;
    for (int k = 0; k < self->n_nodes; k++)
        if (k != block.owner / self->per_node || is_exchange)
            bound += message_bound(t, s->node[k], block.begin, block.end);
    if (t->coll.kind == QDR_ALL_REDUCE && !is_exchange) {
        /* the sum that is encoded has the errors of the versions: its block may be larger by as much */
        const double whole = message_bound(t, s->all, block.begin, block.end), n = (double)(block.end - block.begin);
        bound += whole + bound_of(t, bound, n * bound * bound, 1);
    }
    return bound * (1 + 0x1p-7);
}

#endif
