/* SPDX-License-Identifier: Apache-2.0 */
/* Coded collectives of every communicator: errors within bounds derived here in float64, the same bits on all members
 * and for any length of chunks, bytes on the wire as the closed forms say, feedback that loses nothing.
 *
 *   conform_coded [--local P] [SEED]     without --local: mpiexec's ranks
 *
 * Nodes are made up: members are numbered node by node, with as many on each, or not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/decorators/compressed_plan.h"
#include "conform/comm_values.h"
#include "core/facts.h"
#include "grid/internal.h"
#include "quadrille/quadrille.h"

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__, self->rank, #condition);                       \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, " (%s)\n", qdr_last_error());                                                              \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define OK(expression) CHECK((expression) == QDR_OK, "failed")

enum { MAX_RANKS = 64, MAX_ELEMS = 40000 };

typedef struct member {
    qdr_context *ctx;
    qdri_comm *comm; /* with codecs */
    qdr_stream *stream;
    int is_local, rank, size, n_nodes, per_node; /* per_node 1: every member is a node of its own */
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

/* ---- what the test expects, computed by itself ---- */

/* Part j of n elements in units: the first ones are larger by one unit. */
static int64_t cut(int64_t n, int64_t unit, int n_parts, int j)
{
    const int64_t units = n / unit, each = units / n_parts, more = units % n_parts;
    return unit * (j * each + (j < more ? j : more));
}

static int64_t part_begin(const trial *t, const member *self, int j)
{
    int64_t begin = 0;
    if (t->coll.split_unit) return cut(t->coll.count, t->coll.split_unit, self->size, j);
    for (int i = 0; i < j; i++) begin += t->coll.counts ? t->counts[i] : t->coll.count;
    return begin;
}

static int bits_of(const qdr_codec *codec)
{
    return codec->kind == QDR_CODEC_INT16 ? 16 : codec->kind == QDR_CODEC_INT8 ? 8 : 4;
}

/* Bytes of a message of n elements. */
static int64_t wire_bytes(const trial *t, int64_t n)
{
    int64_t bytes = 0;
    const int64_t row = t->coll.row_elems ? t->coll.row_elems : n;
    if (t->codec.kind == QDR_CODEC_BF16) return (2 * n + 15) / 16 * 16;
    for (int64_t left = n; left > 0; left -= row) {
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
static interval owner_of(const trial *t, const member *self, int64_t i)
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

static double value_at(const trial *t, int rank, int64_t i)
{
    const element e = value(t->seed, t->coll.dtype, rank, i);
    return t->coll.dtype == QDR_F32 ? (double)e.f32 : narrow_value(t->coll.dtype, e.narrow);
}

static double roundoff(qdr_dtype dtype) { return dtype == QDR_F32 ? 0x1p-24 : dtype == QDR_BF16 ? 0x1p-8 : 0x1p-11; }

/* What one message changes at most: of a block with this largest element, and this sum of squares. */
static double bound_of(const trial *t, double most, double squares, int is_whole)
{
    const int block = t->codec.block ? t->codec.block : 128;
    const double levels = (double)((1 << (bits_of(&t->codec) - 1)) - 1);
    const double steps = t->codec.flags & QDR_CODEC_STOCHASTIC ? 1 : 0.5;
    if (t->codec.kind == QDR_CODEC_BF16) return 0x1p-8 * most;
    if (!(t->codec.flags & QDR_CODEC_HADAMARD) || !is_whole) return most * (steps / levels + 0x1p-21);
    return sqrt(block) * sqrt(squares) * (steps / levels + 0x1p-19);
}

/* The block of element i in an interval. */
static void find_block(const trial *t, interval of, int64_t i, int64_t *begin, int64_t *end)
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

static int sums_create(sums *s, const trial *t, const member *self)
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

static double message_bound(const trial *t, const double *x, int64_t begin, int64_t end)
{
    const int block = t->codec.block ? t->codec.block : 128;
    double most = 0, squares = 0;
    for (int64_t i = begin; i < end; i++) most = fmax(most, fabs(x[i])), squares += x[i] * x[i];
    return bound_of(t, most, squares, end - begin == block);
}

/* By how much messages change an element of a block of a sum at most: those of the versions that are coded, and that of
 * the sum. A message codes what has already been rounded: (1 + 2^-7) covers it. */
static double block_bound(const trial *t, const member *self, const sums *s, interval block)
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

/* ---- one collective ---- */

static void draw_codec(trial *t)
{
    static const char *const names[] = {"bf16",
                                        "int16",
                                        "int8",
                                        "int8/32",
                                        "int4/64",
                                        "int4/256+hadamard",
                                        "int8/128+hadamard",
                                        "int8/64+stochastic",
                                        "int4+feedback",
                                        "int4/128+hadamard+feedback"};
    snprintf(t->name, sizeof t->name, "%s", names[draw(t->seed, 7, 1) % (sizeof names / sizeof *names)]);
    const qdr_status status = qdr_codec_parse(t->name, &t->codec);
    (void)status;
    t->coll.codec = &t->codec;
}

static int trial_draw(trial *t, const member *self, uint64_t seed)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F32, QDR_BF16, QDR_F16};
    const int64_t most = draw(seed, 8, 1) % 3 ? MAX_ELEMS / self->size : 300;
    memset(t, 0, sizeof *t);
    t->seed = seed;
    qdri_coll *coll = &t->coll;
    draw_codec(t);
    coll->kind = (qdr_coll_kind)(draw(seed, 8, 2) % 3);
    coll->dtype = dtypes[draw(seed, 8, 3) % 4];
    t->in_place = draw(seed, 8, 4) % 2 == 0;
    if (draw(seed, 8, 5) % 3 == 0) coll->row_elems = 1 + (int64_t)(draw(seed, 8, 6) % 200);
    const int64_t unit = coll->row_elems ? coll->row_elems : 1;
    coll->count = (int64_t)(draw(seed, 8, 7) % (uint64_t)(most / unit + 1)) * unit;
    const uint64_t mode = draw(seed, 8, 8) % 3;
    if (coll->kind == QDR_ALL_REDUCE) coll->count *= self->size;
    if (coll->kind != QDR_ALL_REDUCE && mode == 1) {
        coll->split_unit = unit;
        coll->count *= self->size;
        coll->count += unit * (int64_t)(draw(seed, 8, 9) % (uint64_t)self->size);
    }
    for (int j = 0; j < self->size; j++)
        t->counts[j] = draw(seed, 9, j) % 4 ? (int64_t)(draw(seed, 10, j) % (uint64_t)(most / unit + 1)) * unit : 0;
    if (coll->kind != QDR_ALL_REDUCE && mode == 2) coll->counts = t->counts;
    t->total = coll->kind == QDR_ALL_REDUCE ? coll->count : part_begin(t, self, self->size);
    const int64_t mine = part_begin(t, self, self->rank + 1) - part_begin(t, self, self->rank);
    t->n_send = coll->kind == QDR_ALL_GATHER ? mine : t->total;
    t->n_recv = coll->kind == QDR_REDUCE_SCATTER ? mine : t->total;
    const size_t each = qdr_dtype_bytes(coll->dtype);
    if (qdr_mem_alloc(self->ctx, (size_t)(t->n_send + t->n_recv + 1) * each, &t->memory) != QDR_OK) return 1;
    if (qdr_mem_alloc(self->ctx, (size_t)(t->n_send + 1) * sizeof(float), &t->feedback_memory) != QDR_OK) return 1;
    memset(t->feedback_memory, 0, (size_t)(t->n_send + 1) * sizeof(float));
    if (t->codec.flags & QDR_CODEC_FEEDBACK) coll->feedback = t->feedback_memory;
    t->send = t->memory;
    t->recv = t->send + (size_t)t->n_send * each;
    return 0;
}

static void trial_free(trial *t, const member *self)
{
    qdr_mem_free(self->ctx, &t->memory);
    qdr_mem_free(self->ctx, &t->feedback_memory);
}

static void trial_fill(trial *t, const member *self)
{
    qdri_coll *coll = &t->coll;
    const size_t each = qdr_dtype_bytes(coll->dtype);
    const int64_t begin = coll->kind == QDR_ALL_REDUCE ? 0 : part_begin(t, self, self->rank);
    char *source = t->send;
    coll->send = t->send;
    coll->recv = t->recv;
    if (t->in_place && coll->kind == QDR_REDUCE_SCATTER) coll->recv = t->send + (size_t)begin * each;
    if (t->in_place && coll->kind != QDR_REDUCE_SCATTER) {
        coll->send = NULL;
        source = t->recv + (coll->kind == QDR_ALL_GATHER ? (size_t)begin * each : 0);
    }
    fill(source, t->seed, coll->dtype, self->rank, coll->kind == QDR_ALL_GATHER ? begin : 0, t->n_send);
}

static double result_at(const trial *t, int64_t i)
{
    if (t->coll.dtype == QDR_F32) return (double)((const float *)t->coll.recv)[i];
    return narrow_value(t->coll.dtype, ((const uint16_t *)t->coll.recv)[i]);
}

static int is_coded(const trial *t)
{
    return t->coll.dtype == QDR_F32 || t->codec.kind == QDR_CODEC_INT8 || t->codec.kind == QDR_CODEC_INT4;
}

/* @return the first element that is wrong; -1: none. A gather's element comes from its owner alone. */
static int64_t trial_wrong(const trial *t, const member *self, double *error, double *bound)
{
    sums s;
    int64_t wrong = -1;
    if (sums_create(&s, t, self)) return 0;
    const int64_t begin = t->coll.kind == QDR_REDUCE_SCATTER ? part_begin(t, self, self->rank) : 0;
    const int is_gather = t->coll.kind == QDR_ALL_GATHER;
    double *owned = calloc((size_t)t->total + 1, sizeof *owned);
    for (int64_t i = 0; owned && is_gather && i < t->total; i++) owned[i] = value_at(t, owner_of(t, self, i).owner, i);
    interval block = {0, 0, 0};
    double changed = 0;
    for (int64_t i = begin; i < begin + t->n_recv && wrong < 0; i++) {
        if (i >= block.end && is_coded(t)) {
            block = owner_of(t, self, i);
            find_block(t, block, i, &block.begin, &block.end);
            changed = is_gather ? message_bound(t, owned, block.begin, block.end) : block_bound(t, self, &s, block);
        }
        const double size = is_gather ? fabs(owned[i]) : s.all_size[i];
        const int n_roundings = is_gather ? is_coded(t) : self->per_node + self->n_nodes + 2;
        *bound = changed + n_roundings * roundoff(t->coll.dtype) * (size + changed) + 1e-30;
        *error = fabs(result_at(t, i - begin) - (is_gather ? owned[i] : s.all[i]));
        if (!(*error <= *bound)) wrong = i - begin;
    }
    free(owned);
    free(s.memory);
    return wrong;
}

/* What this member sends: coded between nodes, as it is inside. */
static int64_t expected_bytes(const trial *t, const member *self, int is_plain)
{
    const int64_t each = (int64_t)qdr_dtype_bytes(t->coll.dtype), unit = t->coll.row_elems ? t->coll.row_elems : 1;
    const int r = self->per_node, n_nodes = self->n_nodes, node = self->rank / r, index = self->rank % r;
    int64_t coded = 0, raw = 0;
#define WIRE(n) (is_plain ? (n)*each : wire_bytes(t, n))
    if (t->coll.kind == QDR_ALL_REDUCE) {
        const int64_t begin = cut(t->total, unit, r, index), n = cut(t->total, unit, r, index + 1) - begin;
        const int64_t mine = cut(n, unit, n_nodes, node + 1) - cut(n, unit, n_nodes, node);
        raw = t->total - n + (r - 1) * n;
        if (n_nodes == 2) return raw * each + WIRE(n);
        for (int k = 0; k < n_nodes; k++)
            if (k != node) coded += WIRE(cut(n, unit, n_nodes, k + 1) - cut(n, unit, n_nodes, k)) + WIRE(mine);
        return raw * each + coded;
    }
    for (int k = 0; k < n_nodes; k++)
        for (int i = 0; i < r; i++) {
            const int j = k * r + i;
            const int64_t n = part_begin(t, self, j + 1) - part_begin(t, self, j);
            if (t->coll.kind == QDR_REDUCE_SCATTER && i != index) raw += n;
            if (t->coll.kind == QDR_REDUCE_SCATTER && i == index && k != node) coded += WIRE(n);
            if (t->coll.kind == QDR_ALL_GATHER && i == index) raw += (r - 1) * n;
            if (t->coll.kind == QDR_ALL_GATHER && j == self->rank) coded += (n_nodes - 1) * WIRE(n);
        }
#undef WIRE
    return raw * each + coded;
}

static int same_on_all(const member *self, const void *data, size_t bytes)
{
    int differs = 0;
    const uint64_t digest = qdri_digest_of(data, bytes) | 1;
    return qdri_comm_agree_on(qdri_context_world(self->ctx), QDR_OK, digest, &differs) == QDR_OK && !differs;
}

static int run_once(trial *t, const member *self)
{
    memset(t->feedback_memory, 0, (size_t)(t->n_send + 1) * sizeof(float));
    trial_fill(t, self);
    OK(qdri_comm_launch(self->comm, &t->coll, self->stream));
    OK(qdr_stream_synchronize(self->stream));
    return 0;
}

/* Local ranks share it. */
static void set_chunk_bytes(const member *self, int64_t bytes)
{
    int failed = qdr_barrier(self->ctx) != QDR_OK;
    if (self->rank == 0 || !self->is_local) qdri_code_chunk_bytes = bytes;
    failed |= qdr_barrier(self->ctx) != QDR_OK;
    if (failed) fprintf(stderr, "conform_coded: a barrier failed: %s\n", qdr_last_error());
}

/* This rank's number; of ranks on several nodes, the sum. */
static int64_t of_ranks(const member *self, int64_t mine)
{
    int64_t sum = 0;
    if (qdri_comm_node_size(self->comm) == self->size) return mine;
    for (int rank = 0; rank < self->size; rank++) {
        int64_t theirs = mine;
        if (qdr_broadcast(self->ctx, rank, &theirs, sizeof theirs) != QDR_OK) return -1;
        sum += theirs;
    }
    return sum;
}

static int run_trial(const member *self, uint64_t seed)
{
    trial t;
    double error = 0, bound = 0;
    qdri_need need = {0};
    CHECK(!trial_draw(&t, self, seed), "out of memory");
    const qdr_coll_kind kind = t.coll.kind;
    const char *name = qdr_coll_kind_name(kind), *type = qdr_dtype_name(t.coll.dtype);
    set_chunk_bytes(self, INT64_C(1) << 20);
    qdri_comm_need(self->comm, &t.coll, &need);
    OK(qdri_comm_reserve(self->comm, &need));
    const qdr_traffic before = qdri_comm_traffic(self->comm, kind);
    if (run_once(&t, self)) return 1;
    const int64_t wrong = trial_wrong(&t, self, &error, &bound);
    CHECK(wrong < 0,
          "%s of %s, %s, rows %lld, nodes %d x %d: element %lld of %lld is wrong by %g, more than %g, seed %llu", name,
          type, t.name, (long long)t.coll.row_elems, self->n_nodes, self->per_node, (long long)wrong,
          (long long)t.n_recv, error, bound, (unsigned long long)seed);
    const qdr_traffic after = qdri_comm_traffic(self->comm, kind);
    /* Where the made-up nodes are not the real ones, the backend's own levels have other ranks send the same bytes. */
    const int64_t bytes = of_ranks(self, after.bytes_sent - before.bytes_sent);
    const int64_t wanted = of_ranks(self, expected_bytes(&t, self, !is_coded(&t)));
    const int is_counted = is_coded(&t) || qdri_comm_summed_first(self->comm, &t.coll) == 1;
    if (is_counted && (is_coded(&t) || self->per_node == 1)) {
        CHECK(bytes == wanted, "%s of %s, %s, nodes %d x %d: %lld bytes, not %lld, seed %llu", name, type, t.name,
              self->n_nodes, self->per_node, (long long)bytes, (long long)wanted, (unsigned long long)seed);
        const int64_t plain = of_ranks(self, after.bytes_plain - before.bytes_plain);
        const int64_t raw = of_ranks(self, expected_bytes(&t, self, 1));
        CHECK(plain == raw, "%s, %s: %lld plain bytes, not %lld, seed %llu", name, t.name, (long long)plain,
              (long long)raw, (unsigned long long)seed);
    }
    const int saves = after.bytes_plain - before.bytes_plain != after.bytes_sent - before.bytes_sent,
              is_timed = qdr_context_gpu(self->ctx) < 0;
    CHECK(!saves || !is_timed || after.codec_secs > before.codec_secs, "no seconds of codecs");
    CHECK(after.n_calls - before.n_calls == 1, "%lld calls", (long long)(after.n_calls - before.n_calls));
    const size_t n_bytes = (size_t)t.n_recv * qdr_dtype_bytes(t.coll.dtype);
    if (kind != QDR_REDUCE_SCATTER)
        CHECK(same_on_all(self, t.coll.recv, n_bytes), "members differ, seed %llu", (unsigned long long)seed);
    /* In short chunks: the same bits, the same bytes. Random numbers follow messages. */
    const uint64_t kept = qdri_digest_of(t.coll.recv, n_bytes);
    set_chunk_bytes(self, 1 + (int64_t)(draw(seed, 8, 10) % 20000));
    if (run_once(&t, self)) return 1;
    const int is_same = qdri_digest_of(t.coll.recv, n_bytes) == kept;
    CHECK(is_same || (t.codec.flags & QDR_CODEC_STOCHASTIC),
          "%s, %s, rows %lld: other bits in chunks of %lld, seed %llu", name, t.name, (long long)t.coll.row_elems,
          (long long)qdri_code_chunk_bytes, (unsigned long long)seed);
    trial_free(&t, self);
    return 0;
}

/* What messages lose stays in the feedback: over all steps, the results add up to the exact sums, but for what is in it
 * at the end. */
static int test_feedback(const member *self)
{
    enum { N = 1000, STEPS = 50 };
    qdr_codec codec;
    void *memory = NULL;
    static const char *const names[] = {"int4/64+feedback", "int4+hadamard+feedback", "int8+feedback"};
    OK(qdr_mem_alloc(self->ctx, (sizeof(double) + 2 * sizeof(float)) * N, &memory));
    double *left = memory;
    float *x = (float *)(left + N), *lost = x + N;
    for (size_t c = 0; c < sizeof names / sizeof *names; c++) {
        double exact[N] = {0}, got[N] = {0}, size = 0;
        OK(qdr_codec_parse(names[c], &codec));
        memset(lost, 0, N * sizeof *lost);
        memset(left, 0, N * sizeof *left);
        for (int step = 0; step < STEPS; step++) {
            const uint64_t seed = self->seed + 77 * (uint64_t)step;
            fill(x, seed, QDR_F32, self->rank, 0, N);
            for (int rank = 0; rank < self->size; rank++)
                for (int i = 0; i < N; i++) {
                    const double one = (double)value(seed, QDR_F32, rank, i).f32;
                    exact[i] += one;
                    size = fmax(size, fabs(one));
                }
            const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .recv = x, .count = N, .codec = &codec, .feedback = lost};
            OK(qdri_comm_launch(self->comm, &coll, self->stream));
            OK(qdr_stream_synchronize(self->stream));
            for (int i = 0; i < N; i++) got[i] += (double)x[i];
        }
        /* Members with the same number have the same slice: their feedback begins with it. */
        const int index = self->rank % self->per_node;
        const int64_t begin = cut(N, 1, self->per_node, index), n = cut(N, 1, self->per_node, index + 1) - begin;
        for (int64_t i = 0; i < n; i++) left[begin + i] = (double)lost[i];
        const qdri_coll sum = {.kind = QDR_ALL_REDUCE, .dtype = QDR_F64, .recv = left, .count = N};
        OK(qdri_comm_launch(self->comm, &sum, self->stream));
        OK(qdr_stream_synchronize(self->stream));
        const double bound = STEPS * (self->size + 3) * 0x1p-23 * size * self->size;
        for (int i = 0; i < N; i++)
            CHECK(fabs(got[i] + left[i] - exact[i]) <= bound, "%s, element %d: %g + %g is not %g", names[c], i, got[i],
                  left[i], exact[i]);
    }
    qdr_mem_free(self->ctx, &memory);
    return 0;
}

/* A NaN stays in its block, on all members; other blocks are as without it. */
static int test_nan(const member *self)
{
    enum { N = 3000, AT = 1234 };
    qdr_codec codec;
    void *memory = NULL;
    OK(qdr_codec_parse("int8", &codec));
    OK(qdr_mem_alloc(self->ctx, N * sizeof(float), &memory));
    float *x = memory;
    for (int from = 0; from < self->size; from++) {
        int64_t n_nan = 0;
        for (int i = 0; i < N; i++) x[i] = (float)(i % 7);
        if (self->rank == from) x[AT] = NAN;
        const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .recv = x, .count = N, .codec = &codec};
        OK(qdri_comm_launch(self->comm, &coll, self->stream));
        OK(qdr_stream_synchronize(self->stream));
        CHECK(isnan(x[AT]), "the NaN of rank %d is lost", from);
        for (int i = 0; i < N; i++) n_nan += isnan(x[i]) != 0;
        CHECK(n_nan <= 256, "%lld NaN", (long long)n_nan);
        CHECK(same_on_all(self, x, N * sizeof *x), "members differ");
    }
    qdr_mem_free(self->ctx, &memory);
    return 0;
}

static int test_arguments(const member *self)
{
    void *x = NULL;
    OK(qdr_mem_alloc(self->ctx, 4 * sizeof(float), &x));
    qdr_codec codec = {.kind = QDR_CODEC_INT8}, odd = {.kind = QDR_CODEC_INT8, .block = 48},
              feedback = {.kind = QDR_CODEC_INT8, .flags = QDR_CODEC_FEEDBACK},
              zfp = {.kind = QDR_CODEC_ZFP, .rate = 8};
    const struct {
        qdri_coll coll;
        const char *says;
    } bad[] = {
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &odd}, "48"},
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &feedback}, "pass 4 floats"},
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &feedback, .feedback = x}, "overlap"},
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &codec, .feedback = x}, "+feedback"},
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &codec, .row_elems = 3}, "rows of 3"},
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &zfp}, "zfp"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const qdr_status status = qdri_comm_launch(self->comm, &bad[i].coll, self->stream);
        CHECK(status < 0 && strstr(qdr_last_error(), bad[i].says), "case %zu", i);
    }
    qdr_mem_free(self->ctx, &x);
    OK(qdr_context_status(self->ctx));
    return run_trial(self, self->seed);
}

/* Of a group of the world, whose members are on nodes of these numbers. */
static int run_tests(member *self, const int *nodes, int n_trials)
{
    int failed = 0;
    OK(qdri_comm_split(qdri_context_world(self->ctx), 0, self->rank, &self->comm));
    OK(qdri_comm_compress(&self->comm, nodes));
    for (int i = 0; i < n_trials && !failed; i++)
        failed = run_trial(self, hash(self->seed + (uint64_t)(1000 * self->per_node + i)));
    if (!failed) failed = test_feedback(self);
    if (!failed) failed = test_nan(self);
    if (!failed) failed = test_arguments(self);
    qdri_comm_destroy(&self->comm);
    return failed;
}

static int test_main(qdr_context *ctx, void *user)
{
    member self = *(const member *)user;
    int nodes[MAX_RANKS], failed = 0;
    self.ctx = ctx;
    self.rank = qdr_context_rank(ctx);
    self.size = qdr_context_size(ctx);
    if (self.size < 2 || self.size > MAX_RANKS) return self.size > MAX_RANKS;
    if (qdri_stream_create(qdri_context_dev(ctx), QDRI_STREAM_COMM, &self.stream) != QDR_OK) return 1;
    for (int per_node = 1; per_node < self.size && !failed; per_node++) {
        if (self.size % per_node) continue;
        self.per_node = per_node;
        self.n_nodes = self.size / per_node;
        for (int j = 0; j < self.size; j++) nodes[j] = 7 * (j / per_node);
        failed = run_tests(&self, nodes, self.size < 8 ? 40 : 15);
    }
    /* One node, and unequal ones: all are counterparts. */
    self.per_node = 1;
    self.n_nodes = self.size;
    for (int j = 0; j < self.size; j++) nodes[j] = 0;
    if (!failed) failed = run_tests(&self, nodes, 20);
    nodes[self.size - 1] = 1;
    if (!failed && self.size > 2) failed = run_tests(&self, nodes, 10);
    qdri_stream_destroy(&self.stream);
    return failed;
}

int main(int argc, char **argv)
{
    int n_local = 0, exit_code = 1;
    if (argc > 2 && strcmp(argv[1], "--local") == 0) {
        n_local = atoi(argv[2]);
        argc -= 2;
        argv += 2;
    }
    member start = {.is_local = n_local > 0, .seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20261125};
    const qdr_status status = qdr_launch(n_local, NULL, test_main, &start, &exit_code);
    if (status != QDR_OK) fprintf(stderr, "conform_coded: %s\n", qdr_last_error());
    if (exit_code) fprintf(stderr, "conform_coded: seed %llu\n", (unsigned long long)start.seed);
    return exit_code;
}
