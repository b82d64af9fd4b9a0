/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives along an axis: every kind, uneven and empty parts, in place, on streams; calls that are invalid or do not
 * match each other. */
#include "dist.h"

enum { MOST_ELEMS = 400, MOST_MEMBERS = 16, GUARD_ELEMS = 3 };

static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16, QDR_I32, QDR_U8};

/* One call: where it runs, and its parts. Equal on the members. */
typedef struct trial {
    qdr_context *ctx;
    qdr_grid *grid;
    qdr_axis axis;
    qdr_dtype dtype;
    qdr_stream *stream; /* NULL: the context's */
    uint64_t seed; /* of the values, other ones in each group */
    int size, rank; /* along the axis */
    int64_t cuts[MOST_MEMBERS + 1], counts[MOST_MEMBERS], n; /* uneven parts of n elements */
} trial;

static trial make_trial(qdr_grid *grid, int n_types, uint64_t *seed)
{
    trial t = {.ctx = qdr_grid_context(grid), .grid = grid};
    t.axis = (qdr_axis)dist_below(seed, QDR_N_AXES);
    t.size = qdr_grid_size(t.grid, t.axis);
    t.rank = qdr_grid_coordinate(t.grid, t.axis);
    t.dtype = dtypes[dist_below(seed, n_types)];
    t.n = dist_below(seed, MOST_ELEMS);
    if (dist_below(seed, 2)) DIST_OK(qdr_stream_create(t.ctx, &t.stream));
    dist_random_cuts(seed, t.n, t.size, t.cuts);
    if (dist_below(seed, 3) == 0) { /* equal parts */
        t.n -= t.n % t.size;
        for (int j = 0; j <= t.size; j++) t.cuts[j] = t.n / t.size * j;
    }
    for (int j = 0; j < t.size; j++) t.counts[j] = t.cuts[j + 1] - t.cuts[j];
    t.seed = dist_random(seed) + (uint64_t)dist_group(t.grid, t.axis);
    return t;
}

/* Making a grid takes long under mpiexec: each serves several trials. */
static void try_often(qdr_context *ctx, uint64_t seed, int n_types, void (*try_one)(trial *t, uint64_t *seed))
{
    for (int round = dist_rounds(6); round > 0; round--) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        for (int i = 0; i < 8; i++) {
            trial t = make_trial(grid, n_types, &seed);
            try_one(&t, &seed);
            qdr_stream_destroy(&t.stream);
        }
        qdr_grid_destroy(&grid);
    }
}

/* NULL, which means equal parts, where they are, as often as not. */
static const int64_t *counts_of(const trial *t, uint64_t *seed)
{
    const int may_omit = dist_below(seed, 2) == 0;
    for (int j = 1; j < t->size; j++)
        if (t->counts[j] != t->counts[0]) return t->counts;
    return may_omit ? NULL : t->counts;
}

static void synchronize(const trial *t)
{
    DIST_OK(qdr_stream_synchronize(t->stream ? t->stream : qdr_context_stream(t->ctx)));
}

/* Element i of what member j holds: 1 … 11, so that sums of 16 are exact in every type. */
static double value(const trial *t, int j, int64_t i)
{
    uint64_t seed = t->seed + (uint64_t)i * 64 + (uint64_t)j;
    return 1 + (double)dist_below(&seed, 11);
}

static double sum(const trial *t, int64_t i)
{
    double all = 0;
    for (int j = 0; j < t->size; j++) all += value(t, j, i);
    return all;
}

/* Space for n elements and a guard after them, all 0xff. */
static void *room(const trial *t, int64_t n) { return dist_memory(t->ctx, n + GUARD_ELEMS, t->dtype); }

static void fill(const trial *t, void *data, int64_t begin, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dist_set(data, t->dtype, i, value(t, t->rank, begin + i));
}

static void check_guard(const trial *t, const void *data, int64_t n)
{
    const size_t bytes = qdr_dtype_bytes(t->dtype);
    const unsigned char *guard = (const unsigned char *)data + (size_t)n * bytes;
    for (size_t i = 0; i < GUARD_ELEMS * bytes; i++)
        DIST_CHECK(guard[i] == 0xff, "byte %d after %d elements", (int)i, (int)n);
}

static void check_element(const trial *t, const void *data, int64_t i, double want)
{
    const double got = dist_get(data, t->dtype, i);
    DIST_CHECK(got == want, "%s, element %d: %g, not %g", qdr_dtype_name(t->dtype), (int)i, got, want);
}

static void gather(trial *t, uint64_t *seed)
{
    const int in_place = (int)dist_below(seed, 2);
    const int64_t *counts = counts_of(t, seed), mine = t->counts[t->rank];
    void *send = room(t, mine), *recv = room(t, t->n);
    fill(t, send, t->cuts[t->rank], mine);
    if (in_place)
        memcpy((char *)recv + (size_t)t->cuts[t->rank] * qdr_dtype_bytes(t->dtype), send,
               (size_t)mine * qdr_dtype_bytes(t->dtype));
    DIST_OK(qdr_all_gather(t->grid, t->axis, in_place ? NULL : send, recv, mine, counts, t->dtype, t->stream));
    synchronize(t);
    for (int j = 0; j < t->size; j++)
        for (int64_t i = t->cuts[j]; i < t->cuts[j + 1]; i++) check_element(t, recv, i, value(t, j, i));
    check_guard(t, recv, t->n);
    qdr_mem_free(t->ctx, &send);
    qdr_mem_free(t->ctx, &recv);
}

DIST_TEST(gathers) { try_often(ctx, seed, 6, gather); }

static void reduce_scatter(trial *t, uint64_t *seed)
{
    const int in_place = (int)dist_below(seed, 2);
    const int64_t *counts = counts_of(t, seed), mine = t->counts[t->rank], at = t->cuts[t->rank];
    void *send = room(t, t->n), *recv = room(t, mine);
    void *place = in_place ? (char *)send + (size_t)at * qdr_dtype_bytes(t->dtype) : recv;
    fill(t, send, 0, t->n);
    DIST_OK(qdr_reduce_scatter(t->grid, t->axis, QDR_SUM, send, place, mine, counts, t->dtype, t->stream));
    synchronize(t);
    for (int64_t i = 0; i < mine; i++) check_element(t, place, i, sum(t, at + i));
    for (int64_t i = 0; i < t->n; i++) /* the other parts of send are as they were */
        if (!in_place || i < at || i >= at + mine) check_element(t, send, i, value(t, t->rank, i));
    check_guard(t, send, t->n);
    if (!in_place) check_guard(t, recv, mine);
    qdr_mem_free(t->ctx, &send);
    qdr_mem_free(t->ctx, &recv);
}

DIST_TEST(reductions_that_scatter) { try_often(ctx, seed, 5, reduce_scatter); /* not u8 */ }

static void broadcast(trial *t, uint64_t *seed)
{
    const int root = (int)dist_below(seed, t->size);
    void *data = room(t, t->n);
    if (t->rank == root) fill(t, data, 0, t->n);
    DIST_OK(qdr_grid_broadcast(t->grid, t->axis, root, data, t->n, t->dtype, t->stream));
    synchronize(t);
    for (int64_t i = 0; i < t->n; i++) check_element(t, data, i, value(t, root, i));
    check_guard(t, data, t->n);
    qdr_mem_free(t->ctx, &data);
}

DIST_TEST(broadcasts) { try_often(ctx, seed, 6, broadcast); }

/* Elements from member i to member j: every third pair has none. */
static int64_t pair_count(const trial *t, int i, int j)
{
    uint64_t seed = t->seed * 31 + (uint64_t)(i * MOST_MEMBERS + j);
    return dist_below(&seed, 3) ? dist_below(&seed, 40) : 0;
}

static void exchange(trial *t, uint64_t *seed)
{
    const int is_even = (int)dist_below(seed, 2);
    const int64_t each = dist_below(seed, 40);
    int64_t out[MOST_MEMBERS], in[MOST_MEMBERS], n_out = 0, n_in = 0, at = 0;
    for (int j = 0; j < t->size; j++) {
        out[j] = is_even ? each : pair_count(t, t->rank, j);
        in[j] = is_even ? each : pair_count(t, j, t->rank);
        n_out += out[j];
        n_in += in[j];
    }
    void *send = room(t, n_out), *recv = room(t, n_in);
    for (int j = 0; j < t->size; j++)
        for (int64_t i = 0; i < out[j]; i++) dist_set(send, t->dtype, at++, value(t, t->rank, INT64_C(1000) * j + i));
    DIST_OK(qdr_all_to_all(t->grid, t->axis, send, is_even ? NULL : out, recv, is_even ? NULL : in, is_even ? each : 0,
                           t->dtype, t->stream));
    synchronize(t);
    at = 0;
    for (int j = 0; j < t->size; j++)
        for (int64_t i = 0; i < in[j]; i++) check_element(t, recv, at++, value(t, j, INT64_C(1000) * t->rank + i));
    check_guard(t, recv, n_in);
    qdr_mem_free(t->ctx, &send);
    qdr_mem_free(t->ctx, &recv);
}

DIST_TEST(exchanges) { try_often(ctx, seed, 6, exchange); }

/* A shift by some members, around the end or not; each member sends another number of elements. */
static void shift(trial *t, uint64_t *seed)
{
    const int step = (int)dist_below(seed, t->size), is_ring = (int)dist_below(seed, 2);
    int to = t->rank + step, from = t->rank - step;
    if (is_ring) {
        to %= t->size;
        from = (from + t->size) % t->size;
    }
    if (to >= t->size) to = -1;
    const int64_t n_out = t->counts[t->rank], n_in = from < 0 ? 0 : t->counts[from];
    void *send = room(t, n_out), *recv = room(t, n_in);
    fill(t, send, 0, n_out);
    DIST_OK(qdr_send_recv(t->grid, t->axis, to, send, n_out, from < 0 ? -1 : from, recv, n_in, t->dtype, t->stream));
    synchronize(t);
    for (int64_t i = 0; i < n_in; i++) check_element(t, recv, i, value(t, from, i));
    check_guard(t, recv, n_in);
    qdr_mem_free(t->ctx, &send);
    qdr_mem_free(t->ctx, &recv);
}

DIST_TEST(shifts) { try_often(ctx, seed, 6, shift); }

/* ---- with codecs ---- */

/* By how much element i, of at most 11 from each of n members, may change. */
static double coded_bound(const trial *t, const qdr_codec *codec, int n, double wanted)
{
    const double levels = codec->kind == QDR_CODEC_INT16 ? 32767 : 127;
    const double each = codec->kind == QDR_CODEC_BF16 ? 0x1p-8 : 0.5 / levels;
    const double unit = t->dtype == QDR_BF16 ? 0x1p-8 : t->dtype == QDR_F16 ? 0x1p-11 : 0x1p-23;
    if (t->dtype == QDR_F64 || (t->dtype != QDR_F32 && levels > 127) || (t->dtype != QDR_F32 && each == 0x1p-8))
        return 0; /* not coded, and exact */
    return (each + 0x1p-20) * 11 * n * 2 * 1.01 + unit * wanted * 1.1;
}

static void check_coded(const trial *t, const void *data, int64_t i, double wanted, double bound)
{
    const double got = dist_get(data, t->dtype, i);
    DIST_CHECK(got >= wanted - bound && got <= wanted + bound, "%s, element %d: %g, not %g", qdr_dtype_name(t->dtype),
               (int)i, got, wanted);
}

/* The three kinds, one after the other. */
static void coded(trial *t, uint64_t *seed)
{
    static const char *const names[] = {"int8", "int16/32", "bf16", "int8/256+feedback"};
    const int64_t *counts = counts_of(t, seed), mine = t->counts[t->rank], at = t->cuts[t->rank];
    const char *name = names[dist_below(seed, 4)];
    qdr_codec codec;
    DIST_OK(qdr_codec_parse(name, &codec));
    void *all = room(t, t->n), *part = room(t, mine), *lost = dist_memory(t->ctx, t->n, QDR_F32);
    float *feedback = codec.flags ? lost : NULL;
    memset(lost, 0, (size_t)t->n * sizeof(float));
    fill(t, all, 0, t->n);
    DIST_OK(qdr_reduce_scatter_coded(t->grid, t->axis, QDR_SUM, all, part, mine, counts, t->dtype, t->stream, &codec,
                                     feedback));
    synchronize(t);
    for (int64_t i = 0; i < mine; i++)
        check_coded(t, part, i, sum(t, at + i), coded_bound(t, &codec, t->size, sum(t, at + i)));
    memset(lost, 0, (size_t)t->n * sizeof(float));
    DIST_OK(qdr_all_reduce_coded(t->grid, t->axis, QDR_SUM, all, t->n, t->dtype, t->stream, &codec, feedback));
    synchronize(t);
    for (int64_t i = 0; i < t->n; i++) check_coded(t, all, i, sum(t, i), coded_bound(t, &codec, t->size, sum(t, i)));
    memset(lost, 0, (size_t)t->n * sizeof(float));
    fill(t, part, at, mine);
    DIST_OK(qdr_all_gather_coded(t->grid, t->axis, part, all, mine, counts, t->dtype, t->stream, &codec, feedback));
    synchronize(t);
    for (int j = 0; j < t->size; j++)
        for (int64_t i = t->cuts[j]; i < t->cuts[j + 1]; i++)
            check_coded(t, all, i, value(t, j, i), coded_bound(t, &codec, 1, value(t, j, i)));
    check_guard(t, all, t->n);
    check_guard(t, part, mine);
    qdr_mem_free(t->ctx, &all);
    qdr_mem_free(t->ctx, &part);
    qdr_mem_free(t->ctx, &lost);
}

DIST_TEST(coded_ones) { try_often(ctx, seed, 4, coded); }

/* Bytes are counted on the axis' own channel, and on no other. */
DIST_TEST(traffic)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const int64_t g = qdr_grid_size(grid, (qdr_axis)axis);
        float *send = dist_memory(ctx, 5 * g, QDR_F32), *recv = dist_memory(ctx, 5 * g, QDR_F32);
        qdr_grid_reset_traffic(grid);
        DIST_OK(qdr_all_gather(grid, (qdr_axis)axis, send, recv, 5, NULL, QDR_F32, NULL));
        DIST_OK(qdr_all_to_all(grid, (qdr_axis)axis, send, NULL, recv, NULL, 5, QDR_F32, NULL));
        dist_synchronize(ctx);
        for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
            for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
                const qdr_traffic sent = dist_traffic(grid, (qdr_channel)channel, (qdr_coll_kind)kind);
                const int is_used = channel == QDR_CHANNEL_X_STAT + axis &&
                                    (kind == QDR_ALL_GATHER || kind == QDR_ALL_TO_ALL);
                DIST_CHECK(sent.bytes_sent == (is_used ? 20 * (g - 1) : 0), "%d bytes on %s", (int)sent.bytes_sent,
                           qdr_channel_name((qdr_channel)channel));
            }
        DIST_OK(qdr_barrier(ctx));
        qdr_mem_free(ctx, (void **)&send);
        qdr_mem_free(ctx, (void **)&recv);
    }
    qdr_grid_destroy(&grid);
}

static qdr_traffic all_traffic(const qdr_grid *grid)
{
    qdr_traffic all = {QDR_INIT(qdr_traffic)};
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
            const qdr_traffic sent = dist_traffic(grid, (qdr_channel)channel, (qdr_coll_kind)kind);
            all.n_calls += sent.n_calls;
            all.bytes_sent += sent.bytes_sent;
            all.bytes_off_node += sent.bytes_off_node;
            all.bytes_plain += sent.bytes_plain;
            all.secs += sent.secs;
            all.codec_secs += sent.codec_secs;
        }
    return all;
}

/* A reset forgets all levels of a coded sum: each of the same sums sends the same bytes. */
DIST_TEST(coded_traffic)
{
    enum { N_ELEMS = 3000, N_SUMS = 3 };
    float *data = dist_memory(ctx, N_ELEMS, QDR_F32);
    qdr_codec codec;
    qdr_traffic first = {QDR_INIT(qdr_traffic)};
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = qdr_context_size(ctx), .y = 1, .z = 1, .d = 1});
    DIST_OK(qdr_codec_parse("int8", &codec));
    for (int i = 0; i < N_SUMS; i++) {
        for (int64_t j = 0; j < N_ELEMS; j++) data[j] = (float)dist_value(seed, 0, j);
        DIST_OK(qdr_all_reduce_coded(grid, QDR_X, QDR_SUM, data, N_ELEMS, QDR_F32, NULL, &codec, NULL));
        dist_synchronize(ctx);
        const qdr_traffic sent = all_traffic(grid);
        if (i == 0) first = sent;
        DIST_CHECK(sent.n_calls == first.n_calls && sent.bytes_sent == first.bytes_sent &&
                       sent.bytes_off_node == first.bytes_off_node && sent.bytes_plain == first.bytes_plain,
                   "sum %d: %lld bytes, not %lld", i, (long long)sent.bytes_sent, (long long)first.bytes_sent);
        DIST_OK(qdr_barrier(ctx));
        qdr_grid_reset_traffic(grid);
        const qdr_traffic none = all_traffic(grid);
        DIST_CHECK(none.n_calls == 0 && none.bytes_sent == 0 && none.bytes_off_node == 0 && none.bytes_plain == 0 &&
                       none.secs == 0 && none.codec_secs == 0,
                   "%lld bytes, %g and %g s after a reset", (long long)none.bytes_sent, none.secs, none.codec_secs);
        DIST_OK(qdr_barrier(ctx));
    }
    DIST_CHECK((first.bytes_sent > 0) == (qdr_context_size(ctx) > 1), "%lld bytes", (long long)first.bytes_sent);
    qdr_mem_free(ctx, (void **)&data);
    qdr_grid_destroy(&grid);
}

/* All ranks make the same mistakes; nothing is queued, and everything works afterwards. */
DIST_TEST(wrong_arguments)
{
    const int p = qdr_context_size(ctx), rank = qdr_context_rank(ctx);
    int64_t counts[64];
    float *data = dist_memory(ctx, 64, QDR_F32), *all = dist_memory(ctx, 64, QDR_F32);
    for (int j = 0; j < p; j++) counts[j] = 1;
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = p, .y = 1, .z = 1, .d = 1});
    DIST_FAILS(qdr_all_gather(NULL, QDR_X, data, all, 1, NULL, QDR_F32, NULL), QDR_ERR_ARGUMENT,
               "all-gather: the grid is NULL");
    DIST_FAILS(qdr_grid_broadcast(grid, (qdr_axis)4, 0, data, 1, QDR_F32, NULL), QDR_ERR_ARGUMENT, "axis 4");
    DIST_FAILS(qdr_all_gather(grid, (qdr_axis)-1, data, all, 1, counts, QDR_F32, NULL), QDR_ERR_ARGUMENT, "axis -1");
    DIST_FAILS(qdr_all_gather(grid, QDR_X, data, all, 2, counts, QDR_F32, NULL), QDR_ERR_SHAPE, "n_elems is 2");
    DIST_FAILS(qdr_all_gather(grid, QDR_X, data, all, -1, NULL, QDR_F32, NULL), QDR_ERR_SHAPE, "-1");
    DIST_FAILS(qdr_all_gather(grid, QDR_X, data, NULL, 1, counts, QDR_F32, NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_reduce_scatter(grid, QDR_X, QDR_SUM, data, all, 3, counts, QDR_F32, NULL), QDR_ERR_SHAPE,
               "reduce-scatter: n_elems is 3");
    DIST_FAILS(qdr_reduce_scatter(grid, QDR_X, (qdr_reduce)9, data, all, 1, NULL, QDR_F32, NULL), QDR_ERR_ARGUMENT,
               "reduction 9");
    DIST_FAILS(qdr_reduce_scatter(grid, QDR_X, QDR_SUM, data, all, 1, NULL, QDR_U8, NULL), QDR_ERR_DTYPE, "u8");
    DIST_FAILS(qdr_grid_broadcast(grid, QDR_X, p, data, 1, QDR_F32, NULL), QDR_ERR_ARGUMENT, "peer");
    DIST_FAILS(qdr_grid_broadcast(grid, QDR_X, 0, data, 1, (qdr_dtype)7, NULL), QDR_ERR_DTYPE, "7");
    DIST_FAILS(qdr_all_to_all(grid, QDR_X, data, counts, all, NULL, 1, QDR_F32, NULL), QDR_ERR_ARGUMENT,
               "only send_counts");
    counts[p - 1] = -1;
    DIST_FAILS(qdr_all_to_all(grid, QDR_X, data, counts, all, counts, 0, QDR_F32, NULL), QDR_ERR_SHAPE, "-1");
    DIST_FAILS(qdr_send_recv(grid, QDR_X, p, data, 1, -1, NULL, 0, QDR_F32, NULL), QDR_ERR_ARGUMENT, "peer");
    DIST_FAILS(qdr_send_recv(grid, QDR_X, 0, NULL, 1, 0, all, 1, QDR_F32, NULL), QDR_ERR_ARGUMENT, "NULL");
    const qdr_codec int8 = {.kind = QDR_CODEC_INT8}, wrong = {.kind = QDR_CODEC_INT8, .block = 48},
                    zfp = {.kind = QDR_CODEC_ZFP, .rate = 2}, fed = {QDR_CODEC_INT8, 0, 0, QDR_CODEC_FEEDBACK};
    DIST_FAILS(qdr_all_reduce_coded(NULL, QDR_X, QDR_SUM, data, 1, QDR_F32, NULL, &int8, NULL), QDR_ERR_ARGUMENT,
               "all-reduce: the grid is NULL");
    DIST_FAILS(qdr_all_reduce_coded(grid, (qdr_axis)4, QDR_SUM, data, 1, QDR_F32, NULL, &int8, NULL), QDR_ERR_ARGUMENT,
               "axis 4");
    DIST_FAILS(qdr_all_reduce_coded(grid, QDR_X, QDR_MAX, data, 1, QDR_F32, NULL, &int8, NULL), QDR_ERR_ARGUMENT,
               "only sums are coded");
    DIST_FAILS(qdr_all_reduce_coded(grid, QDR_X, QDR_SUM, data, 1, QDR_F32, NULL, NULL, NULL), QDR_ERR_ARGUMENT,
               "all-reduce: the codec is NULL");
    DIST_FAILS(qdr_all_reduce_coded(grid, QDR_X, QDR_SUM, data, 1, QDR_F32, NULL, &wrong, NULL), QDR_ERR_ARGUMENT,
               "blocks of 48");
    if (p > 1) {
        DIST_FAILS(qdr_all_reduce_coded(grid, QDR_X, QDR_SUM, data, 1, QDR_F32, NULL, &zfp, NULL), QDR_ERR_ARGUMENT,
                   "zfp with 2 bits");
        DIST_FAILS(qdr_all_reduce_coded(grid, QDR_X, QDR_SUM, data, 1, QDR_F32, NULL, &fed, NULL), QDR_ERR_ARGUMENT,
                   "its memory is NULL");
        DIST_FAILS(qdr_all_reduce_coded(grid, QDR_X, QDR_SUM, data, 1, QDR_F32, NULL, &int8, all), QDR_ERR_ARGUMENT,
                   "feedback for a codec without it");
    }
    DIST_OK(qdr_context_status(ctx));
    data[0] = (float)rank;
    DIST_OK(qdr_all_gather(grid, QDR_X, data, all, 1, NULL, QDR_F32, NULL));
    dist_synchronize(ctx);
    for (int j = 0; j < p; j++) DIST_CHECK(all[j] == (float)j, "after the mistakes: %g", all[j]);
    DIST_OK(qdr_barrier(ctx));
    qdr_mem_free(ctx, (void **)&data);
    qdr_mem_free(ctx, (void **)&all);
    qdr_grid_destroy(&grid);
}

/* ---- calls that do not fit each other; after each the contexts are done for ---- */

enum { N_DIFFERENT = 5 };

/* The last member's call is another one than the others'. */
static qdr_status call_differently(qdr_grid *grid, int which, int is_last, float *a, float *b)
{
    static int64_t counts[2][3] = {{1, 2, 0}, {1, 2, 1}};
    const int64_t *mine = counts[is_last];
    const int rank = qdr_grid_coordinate(grid, QDR_Y);
    switch (which) {
    case 0: return qdr_all_gather(grid, QDR_Y, a, b, 1 + is_last, NULL, QDR_F32, NULL);
    case 1: return qdr_reduce_scatter(grid, QDR_Y, QDR_SUM, a, b, mine[rank], mine, QDR_F32, NULL);
    case 2: return qdr_grid_broadcast(grid, QDR_Y, is_last, a, 4, QDR_F32, NULL);
    case 3: return qdr_all_to_all(grid, QDR_Y, a, NULL, b, NULL, 1 + is_last, QDR_F32, NULL);
    default: return qdr_send_recv(grid, QDR_Y, (rank + 1) % 3, a, 2 + is_last, (rank + 2) % 3, b, 2, QDR_F32, NULL);
    }
}

static int differ(qdr_local_world *world, int rank, void *user)
{
    const int which = *(const int *)user;
    qdr_context *ctx = NULL;
    DIST_OK(qdr_context_create_local(world, rank, NULL, &ctx));
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = 1, .y = 3, .z = 1, .d = 1});
    void *a = dist_memory(ctx, 16, QDR_F32), *b = dist_memory(ctx, 16, QDR_F32);
    DIST_OK(call_differently(grid, which, rank == 2, a, b));
    const qdr_status status = qdr_stream_synchronize(qdr_context_stream(ctx));
    DIST_CHECK(status == QDR_ERR_ARGUMENT || status == QDR_ERR_SHAPE || status == QDR_ERR_PEER, "call %d: %s", which,
               qdr_status_name(status));
    DIST_CHECK(qdr_context_status(ctx) == status, "call %d: the context does not keep it", which);
    DIST_CHECK(qdr_all_reduce(grid, QDR_Y, QDR_SUM, a, 1, QDR_F32, NULL) == status, "call %d: later", which);
    qdr_mem_free(ctx, &a);
    qdr_mem_free(ctx, &b);
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    return status != QDR_ERR_PEER; /* someone must know more than that another failed */
}

/* NCCL compares no calls (coll.h): on GPUs the host does. */
static int calls_that_differ(void)
{
    setenv("QDR_CUDA_COMM", "local", 1);
    for (int which = 0; which < N_DIFFERENT; which++) {
        int knows = 0;
        DIST_OK(qdr_local_run(3, differ, &which, &knows));
        DIST_CHECK(knows, "call %d", which);
    }
    puts("ok calls that differ");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "differ") == 0) return calls_that_differ();
    return dist_main(argc, argv, NULL);
}
