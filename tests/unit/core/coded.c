/* SPDX-License-Identifier: Apache-2.0 */
/* Coded collectives as numbers: groups, what is coded, and what it sends. */
#include "core/coded.h"

#include "qdr_test.h"

TEST(groups)
{
    static const struct {
        int nodes[6], size, rank;
        qdri_coded_group wanted;
    } cases[] = {
        {{0}, 1, 0, {1, 1, 0, 0, 1}},
        {{4, 4, 4}, 3, 2, {3, 1, 2, 0, 1}}, /* one node */
        {{0, 1, 2}, 3, 1, {3, 1, 1, 0, 0}}, /* one member on each */
        {{0, 0, 2, 2, 7, 7}, 6, 3, {3, 2, 1, 1, 0}},
        {{0, 0, 0, 9, 9, 9}, 6, 5, {2, 3, 1, 2, 0}},
        {{0, 0, 1}, 3, 2, {3, 1, 2, 0, 0}}, /* unequal */
        {{0, 1, 0, 1}, 4, 3, {4, 1, 3, 0, 0}}, /* not node by node */
        {{0, 0, 1, 1, 0, 0}, 6, 4, {6, 1, 4, 0, 0}}, /* a node twice */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const qdri_coded_group found = qdri_coded_group_of(cases[i].nodes, cases[i].size, cases[i].rank);
        assert_int_equal(found.n_nodes, cases[i].wanted.n_nodes);
        assert_int_equal(found.per_node, cases[i].wanted.per_node);
        assert_int_equal(found.node, cases[i].wanted.node);
        assert_int_equal(found.index, cases[i].wanted.index);
        assert_int_equal(found.is_one_node, cases[i].wanted.is_one_node);
    }
}

/* Groups of a grid, beside those of the numbers of their members' nodes. */
TEST(places)
{
    uint64_t seed = test_seed();
    for (int round = 0; round < 300; round++) {
        qdri_position at = {.size = {1, 1, 1, 1}};
        int stride[QDR_N_AXES], order[QDR_N_AXES] = {0, 1, 2, 3}, n = 1;
        for (int i = 3; i > 0; i--) {
            const int j = (int)test_between(&seed, 0, i), axis = order[i];
            order[i] = order[j];
            order[j] = axis;
        }
        for (int axis = 0; axis < QDR_N_AXES; axis++) {
            at.size[axis] = (int)test_between(&seed, 1, 6);
            at.coordinate[axis] = (int)test_between(&seed, 0, at.size[axis] - 1);
        }
        for (int i = 0; i < QDR_N_AXES; i++) {
            stride[order[i]] = n;
            n *= at.size[order[i]];
        }
        const int per_node = (int)test_between(&seed, 1, 9);
        qdri_coding coding = {.codecs = {.size = 0}};
        qdri_coding_place(&at, stride, per_node, &coding);
        for (int channel = 0; channel < (int)QDR_CHANNEL_D_NEAR; channel++) {
            const int axis = (int)qdr_channel_axis((qdr_channel)channel);
            int nodes[6], rank = 0;
            for (int a = 0; a < QDR_N_AXES; a++) rank += a == axis ? 0 : at.coordinate[a] * stride[a];
            for (int j = 0; j < at.size[axis]; j++) nodes[j] = (rank + j * stride[axis]) / per_node;
            const qdri_coded_group want = qdri_coded_group_of(nodes, at.size[axis], at.coordinate[axis]);
            const qdri_coded_group *got = &coding.groups[channel];
            assert_int_equal(got->n_nodes, want.n_nodes);
            assert_int_equal(got->per_node, want.per_node);
            assert_int_equal(got->node, want.node);
            assert_int_equal(got->index, want.index);
            if (at.size[axis] > 1) assert_int_equal(got->is_one_node, want.is_one_node);
        }
    }
}

TEST(what_is_coded)
{
    qdri_coding coding = {.codecs = {QDR_INIT(qdr_codecs)}};
    const qdr_codec *gradients = &coding.codecs.of[QDR_D][QDR_TRAFFIC_GRADIENT];
#define FOUND(dtype, total) qdri_coding_find(&coding, QDR_CHANNEL_D_REDUCE, QDR_TRAFFIC_GRADIENT, dtype, total)
    CHECK_OK(qdr_codecs_parse("none,d.gradient=int16", &coding.codecs));
    assert_null(FOUND(QDR_F32, 1 << 20)); /* a group that is not known has one member */
    assert_false(qdri_coding_has(&coding, QDR_CHANNEL_D_REDUCE));
    coding.groups[QDR_CHANNEL_D_REDUCE] = (qdri_coded_group){.n_nodes = 4, .per_node = 2};
    assert_true(qdri_coding_has(&coding, QDR_CHANNEL_D_REDUCE));
    assert_ptr_equal(FOUND(QDR_F32, 1 << 20), gradients);
    assert_null(FOUND(QDR_BF16, 1 << 20)); /* would not be shorter */
    assert_null(FOUND(QDR_F64, 1 << 20));
    assert_null(qdri_coding_find(&coding, QDR_CHANNEL_D_REDUCE, QDR_TRAFFIC_WEIGHT, QDR_F32, 1 << 20)); /* raw */
    assert_ptr_equal(FOUND(QDR_F32, 32768), gradients); /* parts of 16 KiB */
    assert_null(FOUND(QDR_F32, 32767));
    coding.codecs.least_bytes = 4;
    assert_ptr_equal(FOUND(QDR_F32, 8), gradients);
    assert_null(FOUND(QDR_F32, 7));
    coding.groups[QDR_CHANNEL_D_REDUCE].is_one_node = 1;
    assert_null(FOUND(QDR_F32, 1 << 20));
    assert_false(qdri_coding_has(&coding, QDR_CHANNEL_D_REDUCE));
    coding.codecs.inside = 1;
    assert_ptr_equal(FOUND(QDR_F32, 1 << 20), gradients);
    assert_false(qdri_coding_has(&coding, QDR_CHANNEL_Z_REDUCE));
}

TEST(bytes)
{
    const qdr_codec int8 = {.kind = QDR_CODEC_INT8}, int4 = {.kind = QDR_CODEC_INT4, .block = 32},
                    bf16 = {.kind = QDR_CODEC_BF16};
    assert_int_equal(qdri_coded_bytes(&int8, QDR_F32, 0, 0), 0);
    assert_int_equal(qdri_coded_bytes(&int8, QDR_F32, 1, 0), 16);
    assert_int_equal(qdri_coded_bytes(&int8, QDR_F32, 129, 0), 144); /* 2 scales, 129 codes */
    assert_int_equal(qdri_coded_bytes(&int8, QDR_F32, 1000, 10), 1408); /* 100 rows of a scale and 10 codes */
    assert_int_equal(qdri_coded_bytes(&int8, QDR_F32, 1001, 10), 1408); /* and 5 */
    assert_int_equal(qdri_coded_bytes(&int4, QDR_BF16, 33, 0), 32); /* 2 scales, 17 bytes */
    assert_int_equal(qdri_coded_bytes(&bf16, QDR_F32, 9, 3), 32);
    /* 3 nodes of 2: 6000 elements in slices of 3000 and parts of 1000, int8/128: 1000 codes, 8 scales */
    const qdri_coded_group group = {3, 2, 1, 1, 0}, two = {2, 1, 0, 0, 0};
    const qdri_coded_coll sum = {&int8, QDR_ALL_REDUCE, QDR_F32, 6000, 1, 0};
    const qdri_coded_coll scatter = {&int8, QDR_REDUCE_SCATTER, QDR_F32, 6000, 1, 0};
    const qdri_coded_coll gather = {&int8, QDR_ALL_GATHER, QDR_F32, 6000, 1, 0};
    assert_int_equal(qdri_coded_sent(&group, &sum), 2 * 3000 * 4 + 2 * 2 * 1040);
    assert_int_equal(qdri_coded_sent(&group, &scatter), 3000 * 4 + 2 * 1040);
    assert_int_equal(qdri_coded_sent(&group, &gather), 3000 * 4 + 2 * 1040);
    assert_int_equal(qdri_coded_sent(&two, &sum), 6000 + 4 * 47 + 4); /* everything, once */
    /* Of an odd number each of two members scatters the other's half, and gathers its own: all of it together. */
    const qdri_coded_coll odd = {&int8, QDR_ALL_REDUCE, QDR_F32, 6001, 1, 0};
    for (int member = 0; member < 6; member++) {
        const qdri_coded_group one = {3, 2, member / 2, member % 2, 0};
        assert_int_equal(qdri_coded_sent(&one, &odd), 6001 * 4 + 2 * 2 * 1040);
    }
}

/* Just below and above one chunk: 16 MiB of f32. */
TEST(launches)
{
    enum { CHUNK = 4 << 20 };
    const qdr_codec int8 = {.kind = QDR_CODEC_INT8}, lossless = {.kind = QDR_CODEC_LOSSLESS};
    static const struct launch_case {
        qdr_coll_kind kind;
        int n_parts;
        int64_t total, launches;
    } cases[] = {
        {QDR_ALL_GATHER, 2, 8, 3},          {QDR_ALL_GATHER, 2, CHUNK, 3},      {QDR_ALL_GATHER, 2, CHUNK + 2, 6},
        {QDR_ALL_GATHER, 8, CHUNK + 8, 6},  {QDR_REDUCE_SCATTER, 2, CHUNK, 3},  {QDR_REDUCE_SCATTER, 8, CHUNK + 8, 6},
        {QDR_ALL_REDUCE, 2, CHUNK, 3},      {QDR_ALL_REDUCE, 2, CHUNK + 1, 6},  {QDR_ALL_REDUCE, 8, CHUNK, 5},
        {QDR_ALL_REDUCE, 8, CHUNK + 8, 10}, {QDR_ALL_REDUCE, 8, 3 * CHUNK, 15}, {QDR_ALL_REDUCE, 16, 2 * CHUNK, 5},
        {QDR_REDUCE_SCATTER, 34, 34, 4},    {QDR_ALL_GATHER, 33, 33, 4},        {QDR_ALL_REDUCE, 34, 34, 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct launch_case *c = &cases[i];
        const qdri_coded_coll coll = {&int8, c->kind, QDR_F32, c->total, 1, 0};
        const int64_t found = qdri_coded_launches(&coll, c->n_parts, QDRI_CODED_GPU_CHUNK_BYTES);
        if (found != c->launches) fail_msg("case %zu: %lld launches", i, (long long)found);
    }
    const qdri_coded_coll rows = {&int8, QDR_ALL_REDUCE, QDR_F32, 48 * 10, 1, 10};
    const qdri_coded_coll half = {&int8, QDR_ALL_GATHER, QDR_BF16, CHUNK, 1, 0};
    const qdri_coded_coll longer = {&lossless, QDR_ALL_GATHER, QDR_F32, CHUNK, 1, 0};
    assert_int_equal(qdri_coded_chunk_elems(&rows, 3, 1), 160); /* whole rows, at least 16 */
    assert_int_equal(qdri_coded_chunk_elems(&half, 4, 1 << 20), 1 << 17);
    assert_int_equal(qdri_coded_chunk_elems(&longer, 4, 1 << 20), 1 << 18);
}
