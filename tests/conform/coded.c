/* SPDX-License-Identifier: Apache-2.0 */
/* Coded collectives of every communicator: errors within bounds derived here in float64, the same bits on all members
 * and for any length of chunks, bytes on the wire as the closed forms say, feedback that loses nothing.
 *
 *   conform_coded [--local P | --boot P] [SEED]     else mpiexec's ranks
 *
 * Nodes are made up: members are numbered node by node, with as many on each, or not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/decorators/compressed_plan.h"
#include "common/boot.h"
#include "conform/check.h"
#include "conform/coded_values.h"
#include "core/facts.h"
#include "grid/internal.h"
#include "quadrille/quadrille.h"

#define CHECK(condition, ...) CHECK_OF_RANK(self->rank, condition, __VA_ARGS__)

/* ---- one collective ---- */

static void draw_codec(trial *t, const member *self)
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
                                        "int4/128+hadamard+feedback",
                                        "lossless",
                                        "lossless", /* the last four on CPUs, */
                                        "zfp:8",
                                        "zfp:13"}; /* the last two if the library has them */
    const int no_zfp = strcmp(qdr_get_versions()->zfp, "none") == 0, is_gpu = qdr_context_gpu(self->ctx) >= 0;
    const int n_names = (int)(sizeof names / sizeof *names) - (is_gpu ? 4 : no_zfp ? 2 : 0);
    snprintf(t->name, sizeof t->name, "%s", names[draw(t->seed, 7, 1) % (uint64_t)n_names]);
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
    draw_codec(t, self);
    coll->kind = (qdr_coll_kind)(draw(seed, 8, 2) % 3);
    coll->dtype = dtypes[draw(seed, 8, 3) % 4];
    t->in_place = draw(seed, 8, 4) % 2 == 0;
    if (draw(seed, 8, 5) % 3 == 0) coll->row_elems = 1 + (int64_t)(draw(seed, 8, 6) % 200);
    const int64_t unit = coll->row_elems ? coll->row_elems : 1;
    coll->count = (int64_t)(draw(seed, 8, 7) % (uint64_t)(most / unit + 1)) * unit;
    const uint64_t mode = draw(seed, 8, 8) % 3;
    if (coll->kind == QDR_ALL_REDUCE || mode == 1) { /* of all, whom it need not divide among */
        coll->split_unit = coll->kind == QDR_ALL_REDUCE ? 0 : unit;
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
    const qdr_codec_kind kind = t->codec.kind;
    return t->coll.dtype == QDR_F32 || kind == QDR_CODEC_INT8 || kind == QDR_CODEC_INT4 ||
           (is_lossless(t) && t->coll.dtype == QDR_BF16) || (kind == QDR_CODEC_ZFP && t->codec.rate < 16);
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
        const int n_roundings = is_gather ? is_coded(t) && !is_lossless(t) : self->per_node + self->n_nodes + 2;
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
    const int64_t each = (int64_t)qdr_dtype_bytes(t->coll.dtype);
    const int64_t unit = t->coll.row_elems && is_coded(t) ? t->coll.row_elems : 1; /* coded parts are whole rows */
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

/* Sums without loss have the bits of sums without a codec, where these have no levels either. */
static int check_plain(trial *t, const member *self, uint64_t digest, size_t n_bytes)
{
    if (!is_lossless(t) || self->per_node > 1 || qdri_comm_summed_first(self->comm, &t->coll) > 1) return 0;
    t->coll.codec = NULL;
    if (run_once(t, self)) return 1;
    t->coll.codec = &t->codec;
    CHECK(qdri_digest_of(t->coll.recv, n_bytes) == digest, "%s of %s: other bits without a codec, seed %llu", t->name,
          qdr_dtype_name(t->coll.dtype), (unsigned long long)t->seed);
    return 0;
}

/* What would have been sent since then without a codec. */
static int check_plain_bytes(const trial *t, const member *self, const qdr_traffic *since)
{
    const qdr_traffic now = qdri_comm_traffic(self->comm, t->coll.kind);
    const int64_t plain = of_ranks(self, now.bytes_plain - since->bytes_plain);
    const int64_t raw = of_ranks(self, expected_bytes(t, self, 1));
    CHECK(plain == raw, "%s, %s: %lld plain bytes, not %lld, seed %llu", qdr_coll_kind_name(t->coll.kind), t->name,
          (long long)plain, (long long)raw, (unsigned long long)t->seed);
    return 0;
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
    const int is_checked = is_counted && (is_coded(&t) || self->per_node == 1);
    if (is_checked) {
        CHECK(bytes == wanted || is_lossless(&t), "%s of %s, %s, nodes %d x %d: %lld bytes, not %lld, seed %llu", name,
              type, t.name, self->n_nodes, self->per_node, (long long)bytes, (long long)wanted,
              (unsigned long long)seed);
        if (check_plain_bytes(&t, self, &before)) return 1;
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
    if (check_plain(&t, self, kept, n_bytes)) return 1;
    set_chunk_bytes(self, 1 + (int64_t)(draw(seed, 8, 10) % 20000));
    const qdr_traffic between = qdri_comm_traffic(self->comm, kind);
    if (run_once(&t, self) || (is_checked && check_plain_bytes(&t, self, &between))) return 1;
    const int is_same = qdri_digest_of(t.coll.recv, n_bytes) == kept;
    CHECK(is_same || (t.codec.flags & QDR_CODEC_STOCHASTIC),
          "%s, %s, rows %lld: other bits in chunks of %lld, seed %llu", name, t.name, (long long)t.coll.row_elems,
          (long long)qdri_code_chunk_bytes, (unsigned long long)seed);
    trial_free(&t, self);
    return 0;
}

/* What messages lose stays in the feedback: over all steps, the results add up to the exact sums, but for what is in it
 * at the end. The exact sums are reduced in f64 once, at the end. */
static int test_feedback(const member *self)
{
    enum { N = 9000, STEPS = 50 }; /* several chunks, each with its own part of the feedback */
    qdr_codec codec;
    void *memory = NULL;
    static const char *const names[] = {"int4/64+feedback", "int4+hadamard+feedback", "int8+feedback"};
    OK(qdr_mem_alloc(self->ctx, (2 * sizeof(double) + 2 * sizeof(float)) * N + sizeof(double), &memory));
    double *left = memory, *exact = left + N, *size = exact + N; /* the largest element of each member, added up */
    float *x = (float *)(size + 1), *lost = x + N;
    set_chunk_bytes(self, 1);
    for (size_t c = 0; c < sizeof names / sizeof *names; c++) {
        double got[N] = {0};
        OK(qdr_codec_parse(names[c], &codec));
        memset(lost, 0, N * sizeof *lost);
        memset(left, 0, (2 * N + 1) * sizeof *left);
        for (int step = 0; step < STEPS; step++) {
            const uint64_t seed = self->seed + 77 * (uint64_t)step;
            fill(x, seed, QDR_F32, self->rank, 0, N);
            for (int i = 0; i < N; i++) {
                exact[i] += (double)x[i];
                *size = fmax(*size, fabs((double)x[i]));
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
        const qdri_coll sum = {.kind = QDR_ALL_REDUCE, .dtype = QDR_F64, .recv = left, .count = 2 * N + 1};
        OK(qdri_comm_launch(self->comm, &sum, self->stream));
        OK(qdr_stream_synchronize(self->stream));
        const double bound = STEPS * (self->size + 3) * 0x1p-23 * *size;
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

/* Calls of one communicator that differ in their parts alone, each made twice, of numbers that bf16 has. */
static int test_parts(const member *self)
{
    enum { EACH = 40, MORE = 8, N_CASES = 5, SMALL = 61 /* bf16 has the sums of four */ };
    const qdr_codec codec = {.kind = QDR_CODEC_BF16};
    const int64_t most = EACH * self->size + MORE;
    void *memory = NULL;
    OK(qdr_mem_alloc(self->ctx, 2 * (size_t)most * sizeof(float), &memory));
    float *all = memory, *part = all + most;
    for (int i = 0; i < 4 * N_CASES; i++) {
        trial t = {.coll = {.kind = i % 2 ? QDR_ALL_GATHER : QDR_REDUCE_SCATTER, .codec = &codec}};
        const int which = i / 2 % N_CASES, more_at = which == 3 ? self->size - 1 : which == 4 ? 0 : -1;
        for (int j = 0; j < self->size; j++) t.counts[j] = EACH + (j == more_at ? MORE : 0);
        if (which < 2) t.coll.count = most, t.coll.split_unit = which ? MORE : 1;
        if (which >= 2) t.coll.counts = t.counts;
        const int64_t begin = part_begin(&t, self, self->rank), end = part_begin(&t, self, self->rank + 1),
                      n = part_begin(&t, self, self->size);
        for (int64_t k = 0; k < n; k++) all[k] = k >= begin && k < end ? (float)(k % SMALL) : (float)((k + i) % SMALL);
        t.coll.send = i % 2 ? NULL : all;
        t.coll.recv = i % 2 ? all : part;
        OK(qdri_comm_launch(self->comm, &t.coll, self->stream));
        OK(qdr_stream_synchronize(self->stream));
        for (int64_t k = i % 2 ? 0 : begin; k < (i % 2 ? n : end); k++) {
            const float sum = (float)(k % SMALL) + (float)(self->size - 1) * (float)((k + i) % SMALL);
            const float is = i % 2 ? all[k] : part[k - begin], wanted = i % 2 ? (float)(k % SMALL) : sum;
            CHECK(is == wanted, "call %d, element %lld of %lld: %g, not %g", i, (long long)k, (long long)n, (double)is,
                  (double)wanted);
        }
    }
    qdr_mem_free(self->ctx, &memory);
    return 0;
}

static qdr_status sleep_first(void *args)
{
    const struct timespec pause = {.tv_nsec = 300000000};
    (void)args;
    nanosleep(&pause, NULL);
    return QDR_OK;
}

/* Of more sizes than are remembered, before the first has begun. */
static int test_many_sizes(const member *self)
{
    enum { N_CALLS = 300, LEAST = 100 };
    const qdr_codec codec = {.kind = QDR_CODEC_BF16};
    void *memory = NULL;
    OK(qdr_mem_alloc(self->ctx, N_CALLS * (LEAST + N_CALLS) * sizeof(float), &memory));
    float *x = memory;
    for (int i = 0; i < N_CALLS * (LEAST + N_CALLS); i++) x[i] = 1;
    if (qdri_dev_runs_work(qdri_context_dev(self->ctx))) OK(qdri_work(self->stream, sleep_first, NULL, 0));
    for (int i = 0; i < N_CALLS; i++) {
        const qdri_coll coll = {
            .kind = QDR_ALL_REDUCE, .recv = x + i * (LEAST + N_CALLS), .count = LEAST + i, .codec = &codec};
        OK(qdri_comm_launch(self->comm, &coll, self->stream));
    }
    OK(qdr_stream_synchronize(self->stream));
    for (int i = 0; i < N_CALLS; i++)
        for (int k = 0; k < LEAST + N_CALLS; k++) {
            const float is = x[i * (LEAST + N_CALLS) + k], wanted = k < LEAST + i ? (float)self->size : 1;
            CHECK(is == wanted, "call %d, element %d: %g, not %g", i, k, (double)is, (double)wanted);
        }
    qdr_mem_free(self->ctx, &memory);
    return 0;
}

/* A call with a seed has the same bits whenever it is made; calls without have other ones each time. */
static int test_seeds(const member *self)
{
    enum { N = 2000, N_CALLS = 5 };
    static const uint64_t seeds[N_CALLS] = {7, 7, 8, 0, 0};
    uint64_t digests[N_CALLS] = {0};
    qdr_codec codec;
    void *x = NULL;
    OK(qdr_codec_parse("int8/64+stochastic", &codec));
    OK(qdr_mem_alloc(self->ctx, N * sizeof(float), &x));
    for (int i = 0; i < N_CALLS; i++) {
        const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .recv = x, .count = N, .codec = &codec, .seed = seeds[i]};
        fill(x, self->seed, QDR_F32, self->rank, 0, N);
        OK(qdri_comm_launch(self->comm, &coll, self->stream));
        OK(qdr_stream_synchronize(self->stream));
        digests[i] = qdri_digest_of(x, N * sizeof(float));
    }
    CHECK(digests[0] == digests[1], "the same seed, other bits");
    for (int i = 2; i < N_CALLS; i++)
        for (int j = 1; j < i; j++) CHECK(digests[i] != digests[j], "calls %d and %d have the same bits", j, i);
    qdr_mem_free(self->ctx, &x);
    return 0;
}

static int test_arguments(const member *self)
{
    void *x = NULL;
    OK(qdr_mem_alloc(self->ctx, 4 * sizeof(float), &x));
    qdr_codec codec = {.kind = QDR_CODEC_INT8}, odd = {.kind = QDR_CODEC_INT8, .block = 48},
              feedback = {.kind = QDR_CODEC_INT8, .flags = QDR_CODEC_FEEDBACK},
              zfp = {.kind = QDR_CODEC_ZFP, .rate = 2};
    const struct {
        qdri_coll coll;
        const char *says;
    } bad[] = {
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &odd}, "48"},
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &feedback}, "pass 4 floats"},
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &feedback, .feedback = x}, "overlap"},
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &codec, .feedback = x}, "+feedback"},
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &codec, .row_elems = 3}, "rows of 3"},
        {{.kind = QDR_ALL_REDUCE, .recv = x, .count = 4, .codec = &zfp}, "zfp with 2 bits"},
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
static int run_tests(member *self, const int *nodes, int n)
{
    const int n_trials = self->is_boot && !self->is_local ? n / 4 : n; /* processes take turns on a GPU */
    int failed = 0;
    OK(qdri_comm_split(qdri_context_world(self->ctx), 0, self->rank, &self->comm));
    OK(qdri_comm_compress(&self->comm, nodes));
    for (int i = 0; i < n_trials && !failed; i++)
        failed = run_trial(self, hash(self->seed + (uint64_t)(1000 * self->per_node + i)));
    if (!failed) failed = test_feedback(self);
    if (!failed) failed = test_nan(self);
    if (!failed) failed = test_parts(self);
    if (!failed && self->per_node == 1 && nodes[0] != nodes[1]) failed = test_many_sizes(self);
    if (!failed) failed = test_seeds(self);
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
        if (self.size % per_node || (self.is_boot && per_node > 1)) continue; /* callbacks connect no small groups */
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
    int n_local = 0, exit_code = 1, is_boot = argc > 2 && strcmp(argv[1], "--boot") == 0;
    if (is_boot || (argc > 2 && strcmp(argv[1], "--local") == 0)) {
        n_local = atoi(argv[2]);
        argc -= 2;
        argv += 2;
    }
    member start = {.is_boot = is_boot,
                    .is_local = is_boot ? boot_has_threads() : n_local > 0,
                    .seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20261125};
    const qdr_status status = (is_boot ? boot_launch : qdr_launch)(n_local, NULL, test_main, &start, &exit_code);
    if (status != QDR_OK) fprintf(stderr, "conform_coded: %s\n", qdr_last_error());
    if (exit_code) fprintf(stderr, "conform_coded: seed %llu\n", (unsigned long long)start.seed);
    return exit_code;
}
