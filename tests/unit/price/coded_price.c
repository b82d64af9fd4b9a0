/* SPDX-License-Identifier: Apache-2.0 */
/* The price of coded collectives, by hand from docs/model.md, on nodes of four ranks with round numbers: 100 GB/s and
 * 1 us a step inside a node, an adapter of 10 GB/s for each rank and 10 us a step between nodes, 5 us to start; int8 is
 * encoded at 20 and decoded at 10 GB/s. */
#include "price/price.h"

#include <math.h>

#include "core/order.h"
#include "qdr_test.h"

#define MIB (1024.0 * 1024)
#define USEC 1e-6
static const double inside_rate = 100e9, adapter_rate = 10e9, encode_rate = 20e9, decode_rate = 10e9;
/* 128 bytes and a scale of 4 for 128 elements. */
static const double int8_of_f32 = 132 / 512.0;

static qdr_machine machine_of(void)
{
    qdr_machine machine = {
        QDR_INIT(qdr_machine),
        .name = "round numbers",
        .ranks_per_node = 4,
        .memory_bytes = 64e9,
        .memory_bytes_per_sec = 1000e9,
        .memory_efficiency = 0.5,
        .n_links = 2,
        .links = {{.n_ranks = 4, .rank_bytes_per_sec = inside_rate, .step_secs = USEC},
                  {.n_adapters = 4, .adapter_bytes_per_sec = adapter_rate, .step_secs = 10 * USEC}},
        .collectives = {.start_secs = 5 * USEC, .n_protocols = 1, .protocols = {{.step_factor = 1, .rate_factor = 1}}}};
    machine.codecs.encode_bytes_per_sec[QDR_CODEC_INT8] = encode_rate;
    machine.codecs.decode_bytes_per_sec[QDR_CODEC_INT8] = decode_rate;
    return machine;
}

/* A sum, gather or scatter of `bytes` of f32 over d, whose g · members ranks are 4 / members apart: `members` of them
 * on each of g nodes. */
typedef struct coded_case {
    qdr_coll_kind coll;
    int g, members;
    double bytes;
    const char *codec;
} coded_case;

static qdri_task_price price_with(const qdr_machine *machine, const coded_case *c, qdr_dtype dtype, int64_t row_elems)
{
    qdr_plan plan = {QDR_INIT(qdr_plan), .x = 4 / c->members, .y = 1, .z = 1, .d = c->g * c->members};
    static qdri_pricing pricing;
    const int64_t n_elems = (int64_t)(c->bytes / (double)qdr_dtype_bytes(dtype));
    qdri_task task = {.kind = QDRI_TASK_COLLECTIVE,
                      .stream = QDRI_STREAM_OF_CHANNEL(QDR_CHANNEL_D_REDUCE),
                      .coll = c->coll,
                      .channel = QDR_CHANNEL_D_REDUCE,
                      .dtype = dtype,
                      .row_elems = row_elems,
                      .count = c->coll == QDR_ALL_REDUCE ? n_elems : n_elems / plan.d};
    CHECK_OK(qdr_codecs_parse(c->codec, &plan.codecs));
    CHECK_OK(qdr_codec_parse(c->codec, &task.codec));
    memcpy(plan.order, "xyzd", 4);
    qdri_pricing_place(machine, &plan, &pricing);
    return qdri_task_price_of(&pricing, &task);
}

static qdri_task_price price_of(const coded_case *c)
{
    const qdr_machine machine = machine_of();
    return price_with(&machine, c, QDR_F32, 0);
}

static void assert_near(const char *what, int i, double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-9 * fabs(wanted))) fail_msg("case %d: %s is %.12g, not %.12g", i, what, got, wanted);
}

/* Of the bytes between the counterparts: what each sends, encodes and decodes, and the share of a chunk (a MiB, of
 * more than eight counterparts g/8 MiB). Stages: those inside the nodes. */
typedef struct by_hand {
    double sent, encoded, decoded, chunk;
    int n_steps, n_stages;
} by_hand;

static const struct {
    coded_case what;
    by_hand hand;
} int8_cases[] = {
    /* Two: both encode everything once; each decodes its own half, and both halves of the sum. */
    {{QDR_ALL_REDUCE, 2, 1, 64 * MIB, "int8"}, {2 / 2.0, 1, 2, 1 / 64.0, 2, 0}},
    {{QDR_ALL_REDUCE, 4, 1, 64 * MIB, "int8"}, {2 * 3 / 4.0, 1, 2 * 3 / 4.0, 1 / 64.0, 6, 0}},
    {{QDR_ALL_REDUCE, 16, 1, 64 * MIB, "int8"}, {2 * 15 / 16.0, 1, 2 * 15 / 16.0, 2 / 64.0, 30, 0}},
    {{QDR_ALL_GATHER, 2, 1, 64 * MIB, "int8"}, {1 / 2.0, 1 / 2.0, 1, 1 / 64.0, 1, 0}},
    {{QDR_ALL_GATHER, 16, 1, 64 * MIB, "int8"}, {15 / 16.0, 1 / 16.0, 1, 2 / 64.0, 15, 0}},
    {{QDR_REDUCE_SCATTER, 2, 1, 64 * MIB, "int8"}, {1 / 2.0, 1 / 2.0, 1 / 2.0, 1 / 64.0, 1, 0}},
    {{QDR_REDUCE_SCATTER, 16, 1, 64 * MIB, "int8"}, {15 / 16.0, 15 / 16.0, 15 / 16.0, 2 / 64.0, 15, 0}},
    /* Less than a chunk: one after the other. */
    {{QDR_ALL_REDUCE, 4, 1, MIB / 2, "int8"}, {2 * 3 / 4.0, 1, 2 * 3 / 4.0, 1, 6, 0}},
    {{QDR_ALL_REDUCE, 16, 1, 3 * MIB / 2, "int8"}, {2 * 15 / 16.0, 1, 2 * 15 / 16.0, 1, 30, 0}},
    /* Members of a node: each has a slice. A sum passes inside twice; gathers and scatters pass once for each node. */
    {{QDR_ALL_REDUCE, 2, 2, 64 * MIB, "int8"}, {2 / 2.0, 1, 2, 1 / 32.0, 2, 2}},
    {{QDR_ALL_REDUCE, 4, 4, 64 * MIB, "int8"}, {2 * 3 / 4.0, 1, 2 * 3 / 4.0, 1 / 16.0, 6, 2}},
    {{QDR_ALL_REDUCE, 16, 2, 64 * MIB, "int8"}, {2 * 15 / 16.0, 1, 2 * 15 / 16.0, 2 / 32.0, 30, 2}},
    {{QDR_ALL_GATHER, 4, 2, 64 * MIB, "int8"}, {3 / 4.0, 1 / 4.0, 1, 1 / 32.0, 3, 4}},
    {{QDR_REDUCE_SCATTER, 4, 4, 64 * MIB, "int8"}, {3 / 4.0, 3 / 4.0, 3 / 4.0, 1 / 16.0, 3, 4}},
    {{QDR_REDUCE_SCATTER, 2, 2, 64 * MIB, "int8"}, {1 / 2.0, 1 / 2.0, 1 / 2.0, 1 / 32.0, 1, 2}},
};
enum { N_INT8_CASES = sizeof int8_cases / sizeof *int8_cases };

/* All stages together: their starts and steps, and the bytes that pass. */
static double inside_secs(const coded_case *c, int n_stages)
{
    const double passes = c->coll == QDR_ALL_REDUCE ? 2 : 1, m = c->members;
    return n_stages * (5 * USEC + (m - 1) * USEC) + passes * (m - 1) / m * c->bytes / inside_rate;
}

/* Of a sum among more than two: to encode, send, add and encode, send, decode. */
static int launches_of_chunk(const coded_case *c) { return c->coll == QDR_ALL_REDUCE && c->g > 2 ? 5 : 3; }

TEST(int8_by_hand)
{
    for (int i = 0; i < N_INT8_CASES; i++) {
        const coded_case *c = &int8_cases[i].what;
        const by_hand *hand = &int8_cases[i].hand;
        const double slice = c->bytes / c->members;
        const double sending = hand->sent * slice * int8_of_f32 / adapter_rate;
        const double coding = hand->encoded * slice / encode_rate + hand->decoded * slice / decode_rate;
        const double latency = 5 * USEC + hand->n_steps * 10 * USEC + hand->chunk * fmin(sending, coding) +
                               inside_secs(c, hand->n_stages);
        const qdri_task_price price = price_of(c);
        assert_near("codec", i, price.codec_secs, coding);
        assert_near("latency", i, price.price.latency_secs, latency);
        assert_near("work", i, price.price.work_secs, fmax(sending, coding));
        assert_near("all", i, price.secs, latency + fmax(sending, coding));
        assert_near("sent", i, price.bytes_sent, hand->sent * slice * int8_of_f32);
        assert_near("plain", i, price.bytes_plain, hand->sent * slice);
        assert_near("use of the adapters", i, price.price.use[1], fmin(1, sending / coding));
        assert_near("launches", i, price.n_kernels, launches_of_chunk(c) / hand->chunk + hand->n_stages);
    }
}

/* ---- codecs ---- */

static const coded_case sum_of_four = {QDR_ALL_REDUCE, 4, 1, 64 * MIB, "int8"};

/* Encoding is slower by the factors of feedback and rotation, decoding by that of rotation alone. */
TEST(flags_by_hand)
{
    static const struct {
        const char *codec;
        double rotated, feedback; /* the machine's */
        double encode, decode; /* factors of the rates */
    } cases[] = {
        {"int8+feedback", 0, 0.25, 0.25, 1},    {"int8+feedback", 0, 0, 0.6, 1},
        {"int8+hadamard", 0.5, 0.25, 0.5, 0.5}, {"int8+hadamard", 0, 0, 0.6, 0.6},
        {"int8+stochastic", 0.5, 0.5, 1, 1},    {"int8+hadamard+feedback", 0.5, 0.8, 0.4, 0.5},
    };
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        coded_case c = sum_of_four;
        qdr_machine machine = machine_of();
        machine.codecs.rotated_factor = cases[i].rotated;
        machine.codecs.feedback_factor = cases[i].feedback;
        c.codec = cases[i].codec;
        assert_near(c.codec, i, price_with(&machine, &c, QDR_F32, 0).codec_secs,
                    c.bytes / (cases[i].encode * encode_rate) + 1.5 * c.bytes / (cases[i].decode * decode_rate));
    }
}

/* A codec without a rate reads and writes at 500 GB/s: to encode, elements and message; to decode, elements twice. */
TEST(codecs_without_rates)
{
    const double wire = 64 * MIB / 2;
    coded_case c = sum_of_four;
    c.codec = "bf16";
    assert_near("bf16", 0, price_of(&c).codec_secs, (64 * MIB + wire) / 500e9 + 1.5 * (2 * 64 * MIB + wire) / 500e9);
}

/* Messages: of rows, the last block of each is shorter; of lossless, what Gaussian elements give, 4 MiB at a time. */
TEST(messages_by_hand)
{
    static const struct {
        const char *codec;
        qdr_dtype dtype;
        int64_t row_elems;
        double ratio, chunk;
    } cases[] = {
        {"int8", QDR_F32, 160, (160 + 2 * 4) / 640.0, 1 / 64.0},
        {"int8/32", QDR_BF16, 0, 36 / 64.0, 1 / 64.0},
        {"int4", QDR_F32, 0, 68 / 512.0, 1 / 64.0},
        {"int16", QDR_F32, 0, 260 / 512.0, 1 / 64.0},
        {"bf16", QDR_F32, 0, 0.5, 1 / 64.0},
        {"lossless", QDR_F32, 0, 1 / 1.14, 4 / 64.0},
        {"lossless", QDR_BF16, 0, 1 / 1.32, 4 / 64.0},
    };
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        coded_case c = sum_of_four;
        qdr_machine machine = machine_of();
        for (int k = 0; k < QDR_MAX_CODECS; k++) {
            machine.codecs.encode_bytes_per_sec[k] = encode_rate;
            machine.codecs.decode_bytes_per_sec[k] = decode_rate;
        }
        c.codec = cases[i].codec;
        const qdri_task_price price = price_with(&machine, &c, cases[i].dtype, cases[i].row_elems);
        const double sent = 1.5 * c.bytes * cases[i].ratio,
                     coding = c.bytes / encode_rate + 1.5 * c.bytes / decode_rate;
        assert_near("sent", i, price.bytes_sent, sent);
        assert_near("plain", i, price.bytes_plain, 1.5 * c.bytes);
        assert_near("latency", i, price.price.latency_secs,
                    65 * USEC + cases[i].chunk * fmin(sent / adapter_rate, coding));
    }
}

/* ---- beside products ---- */

/* While sending takes 10 ms and coding w · 10 ms: products are 1 + share · min(1, w) times as long; codecs, which then
 * work at 1 / (1 + share) of their rate, are longer than the wire by what it does not hide. */
TEST(codecs_slow_products)
{
    static const struct {
        double share, works, processor, own;
    } cases[] = {{1, 0.25, 0.25, 0}, {1, 0.75, 0.75, 0.5}, {0.5, 0.8, 0.4, 0.2}, {0, 0.75, 0, 0}, {1, 4, 1, 1}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const double sending = 1.5 * 64 * MIB * int8_of_f32 / adapter_rate;
        qdr_machine machine = machine_of();
        /* Encoding half of that time, and decoding the other. */
        machine.codecs.encode_bytes_per_sec[QDR_CODEC_INT8] = 64 * MIB / (cases[i].works * sending / 2);
        machine.codecs.decode_bytes_per_sec[QDR_CODEC_INT8] = 1.5 * 64 * MIB / (cases[i].works * sending / 2);
        machine.codecs.processor_share = cases[i].share;
        const qdri_task_price price = price_with(&machine, &sum_of_four, QDR_F32, 0);
        if (fabs(price.price.processor_slowdown - cases[i].processor) > 1e-9 ||
            fabs(price.price.own_slowdown - cases[i].own) > 1e-9)
            fail_msg("case %d: products %g, codecs %g", i, price.price.processor_slowdown, price.price.own_slowdown);
        assert_near("rate of the flow", i, price.price.flow_bytes_per_sec, adapter_rate / fmax(1, cases[i].works));
        assert_near("work", i, price.price.work_secs, sending * fmax(1, cases[i].works));
    }
}

/* ---- levels ---- */

/* d = 8 on four nodes of two, cut into near = 2 and far = 2: far joins two nodes, copies two pairs of nodes, both with
 * one member of a node, so they are sums of two. */
TEST(levels_by_hand)
{
    static const qdr_channel channels[] = {QDR_CHANNEL_D_FAR, QDR_CHANNEL_D_COPIES};
    const qdr_machine machine = machine_of();
    const double bytes = 64 * MIB, sending = bytes * int8_of_f32 / adapter_rate,
                 coding = bytes / encode_rate + 2 * bytes / decode_rate;
    qdr_plan plan = {QDR_INIT(qdr_plan), .x = 2, .y = 1, .z = 1, .d = 8, .gradient_parts = 2, .optimizer_parts = 4};
    static qdri_pricing pricing;
    CHECK_OK(qdr_codecs_parse("int8", &plan.codecs));
    memcpy(plan.order, "xyzd", 4);
    qdri_pricing_place(&machine, &plan, &pricing);
    for (int i = 0; i < 2; i++) {
        qdri_task task = {.kind = QDRI_TASK_COLLECTIVE,
                          .stream = QDRI_STREAM_OF_CHANNEL(channels[i]),
                          .coll = QDR_ALL_REDUCE,
                          .channel = channels[i],
                          .dtype = QDR_F32,
                          .count = (int64_t)bytes / 4};
        CHECK_OK(qdr_codec_parse("int8", &task.codec));
        const qdri_task_price price = qdri_task_price_of(&pricing, &task);
        assert_near("latency", i, price.price.latency_secs, 25 * USEC + sending / 64);
        assert_near("codec", i, price.codec_secs, coding);
    }
    /* On two nodes of four, far joins two members of each, two apart; the counterpart of a slice is four apart. */
    plan.x = 1;
    plan.optimizer_parts = 8;
    qdri_pricing_place(&machine, &plan, &pricing);
    qdri_task task = {.kind = QDRI_TASK_COLLECTIVE,
                      .stream = QDRI_STREAM_OF_CHANNEL(QDR_CHANNEL_D_FAR),
                      .coll = QDR_ALL_REDUCE,
                      .channel = QDR_CHANNEL_D_FAR,
                      .dtype = QDR_F32,
                      .count = (int64_t)bytes / 4};
    const coded_case inside = {QDR_ALL_REDUCE, 2, 2, bytes, "int8"};
    CHECK_OK(qdr_codec_parse("int8", &task.codec));
    const qdri_task_price price = qdri_task_price_of(&pricing, &task);
    assert_near("latency of far", 2, price.price.latency_secs, 25 * USEC + sending / 64 + inside_secs(&inside, 2));
    assert_near("codec of far", 2, price.codec_secs, coding / 2);
}

/* x = 2 and d = 4 on nodes of four ranks: members of d are on one node, or two on each of two nodes, or, on nodes
 * of two, each on its own. */
TEST(nodes_follow_the_order)
{
    static const struct {
        const char *order;
        int ranks_per_node, n_nodes, per_node, is_one_node;
    } cases[] = {
        {"dxyz", 4, 4, 1, 1}, {"xdyz", 4, 2, 2, 0}, {"", 4, 2, 2, 0}, {"xyzd", 2, 4, 1, 0}, {"dxyz", 2, 2, 2, 0}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        qdr_plan plan = {QDR_INIT(qdr_plan), .x = 2, .y = 1, .z = 1, .d = 4};
        CHECK_OK(qdr_codecs_parse("int8", &plan.codecs));
        snprintf(plan.order, sizeof plan.order, "%s", cases[i].order);
        const qdri_coding coding = qdri_plan_coding(&plan, cases[i].ranks_per_node);
        const qdri_coded_group *group = &coding.groups[QDR_CHANNEL_D_REDUCE];
        if (group->n_nodes != cases[i].n_nodes || group->per_node != cases[i].per_node ||
            group->is_one_node != cases[i].is_one_node)
            fail_msg("case %d: %d nodes of %d, %d", i, group->n_nodes, group->per_node, group->is_one_node);
    }
}

/* Pairs in nodes of four: the two members of a node, two apart, are in different pairs, which one adapter each
 * joins at 50 GB/s and 3 us; their counterparts are on two nodes. */
TEST(members_in_different_pairs)
{
    const coded_case c = {QDR_ALL_REDUCE, 2, 2, 64 * MIB, "int8"};
    qdr_machine machine = machine_of();
    machine.n_links = 3;
    machine.links[2] = machine.links[1];
    machine.links[1] = (qdr_machine_link){
        .n_ranks = 4, .n_adapters = 2, .adapter_bytes_per_sec = 50e9, .step_secs = 3 * USEC};
    machine.links[0].n_ranks = 2;
    const double slice = 32 * MIB, sending = slice * int8_of_f32 / adapter_rate,
                 coding = slice / encode_rate + 2 * slice / decode_rate;
    const double inside = 2 * (5 + 3) * USEC + 64 * MIB / 50e9;
    assert_near("latency", 0, price_with(&machine, &c, QDR_F32, 0).price.latency_secs,
                (5 + 20) * USEC + sending / 32 + inside);
    assert_near("codec", 0, price_with(&machine, &c, QDR_F32, 0).codec_secs, coding);
}

/* Of the shorter of sending and coding, a chunk is not hidden: 1 MiB, or 16 MiB if a GPU's host enqueues it; whatever
 * the host takes: its time for three launches of each chunk. */
TEST(chunks)
{
    const coded_case c = {QDR_ALL_REDUCE, 2, 1, 64 * MIB, "int8"};
    const double sending = 64 * MIB * int8_of_f32 / adapter_rate;
    qdr_machine machine = machine_of();
    for (int is_gpu = 0; is_gpu < 2; is_gpu++)
        for (int host = 0; host < 2; host++) {
            machine.is_gpu = is_gpu;
            machine.software.host_secs = host * 8 * USEC;
            const qdri_task_price price = price_with(&machine, &c, QDR_F32, 0);
            const int n_chunks = is_gpu ? 4 : 64;
            assert_near("latency", 2 * is_gpu + host, price.price.latency_secs, 25 * USEC + sending / n_chunks);
            assert_near("host", 2 * is_gpu + host, price.host_secs, 3 * n_chunks * host * 8 * USEC);
        }
}
