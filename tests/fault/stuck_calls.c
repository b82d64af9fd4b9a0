/* SPDX-License-Identifier: Apache-2.0 */
/* One rank makes a different call (QDR_CHECK; broadcasts, and coded calls on one node, also without). */
#include "fault/stuck.h"

#include <stdio.h>
#include <string.h>

#include "grid/internal.h"

const qdri_coll stuck_usual = {.kind = QDR_ALL_REDUCE, .dtype = QDR_F32, .op = QDR_SUM, .count = N, .label = "fc1"};

qdr_status stuck_call(const stuck *s, qdri_coll coll)
{
    static _Thread_local float from[N * MOST_RANKS], to[N * MOST_RANKS];
    qdr_stream *stream = qdr_context_stream(s->ctx);
    coll.send = coll.kind == QDR_BROADCAST ? NULL : from;
    coll.recv = to;
    const qdr_status status = qdri_comm_launch(qdri_grid_comm(s->grid, QDR_CHANNEL_Z_GATHER), &coll, stream);
    return status != QDR_OK ? status : qdr_stream_synchronize(stream);
}

int stuck_expect(qdr_status got, qdr_status wanted, const char *const words[], int n_words)
{
    const char *at = qdr_last_error();
    int right = got == wanted || got == QDR_ERR_PEER;
    for (int i = 0; i < n_words && right; i++) {
        at = strstr(at, words[i]);
        right = at != NULL;
    }
    if (right) return AS_EXPECTED;
    fprintf(stderr, "got %s, not %s: \"%s\"\n", qdr_status_name(got), qdr_status_name(wanted), qdr_last_error());
    return WRONG;
}

/* All call the same twice, then rank 1 calls `other`, where the rest call `first`. */
static int differ(const stuck *s, qdri_coll first, qdri_coll other, const char *first_words, const char *other_words)
{
    for (int i = 0; i < 2; i++) {
        if (stuck_call(s, stuck_usual) != QDR_OK) return WRONG;
    }
    return EXPECT(stuck_call(s, s->rank == 1 ? other : first), QDR_ERR_ARGUMENT, "z gather",
                  "rank 0 at x=0 y=0 z=0 d=0 calls", first_words, "rank 1 at x=0 y=0 z=1 d=0 calls", other_words);
}

static int case_kind(const stuck *s)
{
    qdri_coll other = stuck_usual;
    other.kind = QDR_ALL_GATHER;
    other.count = N / s->size;
    return differ(s, stuck_usual, other, "all-reduce of 12 f32 for fc1", "all-gather of 12 f32 for fc1");
}

static int case_count(const stuck *s)
{
    qdri_coll other = stuck_usual;
    other.count = N - 1;
    return differ(s, stuck_usual, other, "all-reduce of 12 f32", "all-reduce of 11 f32");
}

static int case_dtype(const stuck *s)
{
    qdri_coll other = stuck_usual;
    other.dtype = QDR_BF16;
    return differ(s, stuck_usual, other, "all-reduce of 12 f32", "all-reduce of 12 bf16");
}

static int case_reduction(const stuck *s)
{
    qdri_coll other = stuck_usual;
    other.op = QDR_MAX;
    return differ(s, stuck_usual, other, "all-reduce of 12 f32", "all-reduce (max) of 12 f32");
}

static int case_layer(const stuck *s)
{
    qdri_coll other = stuck_usual;
    other.label = "fc2";
    return differ(s, stuck_usual, other, "12 f32 for fc1", "12 f32 for fc2");
}

static int case_root(const stuck *s)
{
    qdri_coll first = stuck_usual, other;
    first.kind = QDR_BROADCAST;
    first.peer = 0;
    other = first;
    other.peer = 1;
    return differ(s, first, other, "from member 0", "from member 1");
}

static int case_parts(const stuck *s)
{
    int64_t counts[MOST_RANKS] = {0};
    qdri_coll first = stuck_usual, other;
    first.kind = QDR_ALL_GATHER;
    first.split_unit = 1;
    other = first;
    other.counts = counts;
    counts[0] = N;
    return differ(s, first, other, "all-gather of 12", "in other parts");
}

/* Rank 1 is compared with rank 0, or first with the rank of its place on another node. */
static int expect_coded(qdr_status status, const char *first_words, const char *other_words)
{
    const qdr_status wanted = status == QDR_ERR_PEER ? QDR_ERR_PEER : QDR_ERR_ARGUMENT;
    const char *first = strstr(qdr_last_error(), first_words), *other = strstr(qdr_last_error(), other_words);
    if (first && other && other < first) return EXPECT(status, wanted, "rank 1", other_words, "rank 3", first_words);
    return EXPECT(status, wanted, "rank 0", first_words, "rank 1", other_words);
}

/* Of 256 and of 257 elements, whose messages are equally long. Stages of levels of a node compare them, each among its
 * own members: the others hear of the one that found it first. */
static int differ_coded(const stuck *s, const char *name, qdr_coll_kind kind, const char *first_words,
                        const char *other_words)
{
    enum { MOST = 257 };
    static _Thread_local float from[MOST], to[MOST];
    qdr_codec codec;
    qdr_stream *stream = qdr_context_stream(s->ctx);
    if (qdr_codec_parse(name, &codec) != QDR_OK || qdri_grid_compress(s->grid, QDR_CHANNEL_Z_GATHER) != QDR_OK)
        return WRONG;
    qdri_comm *comm = qdri_grid_comm(s->grid, QDR_CHANNEL_Z_GATHER);
    qdri_coll coll = {.kind = kind, .send = from, .recv = to, .count = MOST - 1, .codec = &codec, .label = "fc1"};
    if (kind != QDR_ALL_REDUCE) coll.split_unit = 1;
    for (int i = 0; i < 3; i++) {
        coll.count += i == 2 && s->rank == 1;
        qdr_status status = qdri_comm_launch(comm, &coll, stream);
        if (status == QDR_OK) status = qdr_stream_synchronize(stream);
        if (i == 2) return expect_coded(status, first_words, other_words);
        if (status != QDR_OK) return WRONG;
    }
    return WRONG;
}

static int case_coded(const stuck *s)
{
    return differ_coded(s, "int8", QDR_ALL_REDUCE, "calls all-reduce of 256 f32 as int8/128",
                        "calls all-reduce of 257 f32 as int8/128");
}

static int case_coded_gather(const stuck *s)
{
    return differ_coded(s, "lossless", QDR_ALL_GATHER, "calls all-gather of 256 f32 as lossless",
                        "calls all-gather of 257 f32 as lossless");
}

/* Rank 1 sends to the wrong side. */
/* As many elements, and as many on the last rank. */
static int case_parts_inside(const stuck *s)
{
    int64_t counts[MOST_RANKS];
    qdri_coll first = stuck_usual, other;
    first.kind = QDR_ALL_GATHER;
    first.split_unit = 1;
    other = first;
    other.counts = counts;
    for (int j = 0; j < s->size; j++) counts[j] = N / s->size * (j == 0 ? 2 : j > 1);
    return differ(s, first, other, "all-gather of 12", "in other parts");
}

static int case_peers(const stuck *s)
{
    const int next = (s->rank + 1) % s->size, before = (s->rank + s->size - 1) % s->size;
    qdri_coll ring = stuck_usual;
    ring.kind = QDR_SEND_RECV;
    ring.recv_count = N;
    ring.peer = next;
    ring.peer2 = before;
    if (stuck_call(s, ring) != QDR_OK) return WRONG;
    if (s->rank == 1) ring.peer = before;
    return EXPECT(stuck_call(s, ring), QDR_ERR_ARGUMENT, "z gather", "send-recv of 12 f32 to member",
                  "send-recv of 12 f32 to member", "the other must expect");
}

/* Rank 1 sends nothing to the one that expects something of it. */
static int case_peers_none(const stuck *s)
{
    qdri_coll ring = stuck_usual;
    ring.kind = QDR_SEND_RECV;
    ring.recv_count = N;
    ring.peer = s->rank == 1 ? -1 : (s->rank + 1) % s->size;
    ring.peer2 = (s->rank + s->size - 1) % s->size;
    return EXPECT(stuck_call(s, ring), QDR_ERR_ARGUMENT, "z gather", "rank 2 at", "12 from 1",
                  "rank 1 at x=0 y=0 z=1 d=0 calls send-recv of 0 f32", "the other must expect");
}

static int case_peers_count(const stuck *s)
{
    qdri_coll ring = stuck_usual;
    ring.kind = QDR_SEND_RECV;
    ring.recv_count = s->rank == 1 ? N - 1 : N;
    ring.peer = (s->rank + 1) % s->size;
    ring.peer2 = (s->rank + s->size - 1) % s->size;
    return EXPECT(stuck_call(s, ring), QDR_ERR_ARGUMENT, "z gather", "rank 0 at", "12 f32 to member 1",
                  "rank 1 at x=0 y=0 z=1 d=0 calls", "11 from 0", "the other must expect");
}

static int case_counts(const stuck *s)
{
    int64_t counts[MOST_RANKS];
    qdri_coll exchange = stuck_usual;
    exchange.kind = QDR_ALL_TO_ALL;
    exchange.count = 2;
    if (stuck_call(s, exchange) != QDR_OK) return WRONG;
    for (int j = 0; j < MOST_RANKS; j++) counts[j] = j == 0 ? 3 : 2;
    if (s->rank == 1) exchange.counts = counts;
    return EXPECT(stuck_call(s, exchange), QDR_ERR_SHAPE, "z gather", "rank 1 at x=0 y=0 z=1 d=0 sends 3",
                  "rank 0 at x=0 y=0 z=0 d=0", "expects 2");
}

static qdr_status stack_run(const stuck *s, const char *name)
{
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = N};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{N, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = name, .in = {{N, 1}}, .out = {{N, 1}}};
    qdr_stack *stack = NULL;
    qdr_edge edge = 0;
    qdr_linear *layer = NULL;
    qdr_status status = qdr_stack_create(s->grid, &opts, &stack);
    if (status == QDR_OK) status = qdr_stack_add_input(stack, "x", &input, 0, &edge);
    if (status == QDR_OK) status = qdr_stack_add_linear(stack, &desc, edge, &edge, &layer);
    if (status == QDR_OK) status = qdr_stack_build(stack);
    if (status == QDR_OK) status = qdr_stack_init(stack, 1, 0.1);
    if (status == QDR_OK) status = qdr_stack_forward(stack);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(s->ctx));
    qdr_stack_destroy(&stack);
    return status;
}

/* Layers say who they are: rank 1 describes another one. */
static int case_stack(const stuck *s)
{
    if (stack_run(s, "fc1") != QDR_OK) return WRONG;
    return EXPECT(stack_run(s, s->rank == 1 ? "fc2" : "fc1"), QDR_ERR_ARGUMENT, "layer 'fc1' on rank 0",
                  "layer 'fc2' on rank 1", "describe the same stack on every rank");
}

/* ---- broadcasts of the context ---- */

/* All ranks fail, and go on. */
static int fails_together(const stuck *s, qdr_status got, const char *words, const char *other_words)
{
    int value = s->rank;
    const int last = s->size - 1, result = EXPECT(got, QDR_ERR_ARGUMENT, words, other_words);
    if (result != AS_EXPECTED || got != QDR_ERR_ARGUMENT) return WRONG;
    if (qdr_broadcast(s->ctx, last, &value, sizeof value) != QDR_OK || value != last) return WRONG;
    return qdr_barrier(s->ctx) == QDR_OK ? AS_EXPECTED : WRONG;
}

static int case_broadcast_root(const stuck *s)
{
    int values[4] = {0};
    return fails_together(s, qdr_broadcast(s->ctx, s->rank == 1, values, sizeof values),
                          "broadcast: ", "root 0 on rank 0 and 1 on rank 1");
}

static int case_broadcast_bytes(const stuck *s)
{
    int values[4] = {0};
    return fails_together(s, qdr_broadcast(s->ctx, 0, values, s->rank == 1 ? 4 : 16),
                          "broadcast: ", "bytes 16 on rank 0 and 4 on rank 1");
}

static int case_broadcast_invalid(const stuck *s)
{
    int values[4] = {0};
    if (fails_together(s, qdr_broadcast(s->ctx, s->rank == 1 ? s->size : 0, values, sizeof values), "broadcast: root",
                       "is not in 0") == WRONG)
        return WRONG;
    return fails_together(s, qdr_broadcast(s->ctx, 0, s->rank == 1 ? NULL : values, sizeof values), "data is NULL",
                          "16 bytes");
}

static int case_broadcast_barrier(const stuck *s)
{
    int values[4] = {0};
    return fails_together(s, s->rank == 1 ? qdr_barrier(s->ctx) : qdr_broadcast(s->ctx, 0, values, sizeof values),
                          "rank 0 and rank 1 are in different calls", "the same order");
}

/* The last one is named, too. */
static int case_barrier_last(const stuck *s)
{
    int values[4] = {0};
    char words[64];
    snprintf(words, sizeof words, "rank 0 and rank %d are in different calls", s->size - 1);
    const qdr_status status = s->rank == s->size - 1 ? qdr_barrier(s->ctx)
                                                     : qdr_broadcast(s->ctx, 0, values, sizeof values);
    return fails_together(s, status, words, "the same order");
}

const stuck_case stuck_calls[] = {
    {"kind", case_kind, "1", NULL},
    {"count", case_count, "1", NULL},
    {"dtype", case_dtype, "1", NULL},
    {"reduction", case_reduction, "1", NULL},
    {"layer", case_layer, "1", NULL},
    {"root", case_root, "1", NULL},
    {"coded", case_coded, "1", NULL},
    {"coded-gather", case_coded_gather, "1", NULL},
    {"coded-unchecked", case_coded, NULL, NULL},
    {"coded-gather-unchecked", case_coded_gather, NULL, NULL},
    {"parts", case_parts, "1", NULL},
    {"parts-inside", case_parts_inside, "1", NULL},
    {"peers", case_peers, "1", NULL},
    {"peers-none", case_peers_none, "1", NULL},
    {"peers-count", case_peers_count, "1", NULL},
    {"counts", case_counts, "1", NULL},
    {"stack", case_stack, "1", NULL},
    {"broadcast-root", case_broadcast_root, NULL, "5"},
    {"broadcast-bytes", case_broadcast_bytes, NULL, "5"},
    {"broadcast-invalid", case_broadcast_invalid, NULL, "5"},
    {"broadcast-barrier", case_broadcast_barrier, NULL, "5"},
    {"barrier-last", case_barrier_last, NULL, "5"},
    {NULL, NULL, NULL, NULL},
};
