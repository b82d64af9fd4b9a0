/* SPDX-License-Identifier: Apache-2.0 */
/* The closed forms of traffic and flops, compared with tables made by hand. */
#include "quadrille/perf.h"

#include <math.h>

#include "qdr_test.h"

#define NO_COST ((qdr_perf_cost){QDR_INIT(qdr_perf_cost)})

TEST(collectives)
{
    const struct {
        qdr_coll_kind kind;
        int n_ranks;
        double n_elems, sent;
    } table[] = {
        {QDR_ALL_GATHER, 1, 100, 0},   {QDR_ALL_GATHER, 4, 100, 75},  {QDR_REDUCE_SCATTER, 5, 100, 80},
        {QDR_ALL_REDUCE, 2, 100, 100}, {QDR_ALL_REDUCE, 4, 100, 150}, {QDR_ALL_REDUCE, 1, 100, 0},
        {QDR_ALL_TO_ALL, 4, 8, 6},     {QDR_BROADCAST, 4, 8, 6},      {QDR_SEND_RECV, 2, 8, 8},
        {QDR_SEND_RECV, 1, 8, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_true(qdr_perf_coll_elems(table[i].kind, table[i].n_ranks, table[i].n_elems) == table[i].sent);
    assert_true(isnan(qdr_perf_coll_elems(QDR_ALL_GATHER, 0, 1)));
    assert_true(isnan(qdr_perf_coll_elems(QDR_N_COLL_KINDS, 2, 1)));
}

/* M = 960, K = 64, N = 96 on 2x4x3x5: m = 64 rows a cell; a normal layer has k = 32, n = 24, W block 768 elements, 256
 * a shard. By hand, in elements: W over z 2/3·768 = 512; X over y 3/4·64·32 = 1536; Y over x 1/2·64·24 = 768 scattered,
 * 1536 summed; dX over y 3/4·64·32 = 1536 scattered, 3072 summed; dW over d 2·4/5·256 = 409.6; b over z 2·2/3·24 = 32,
 * over d 2·4/5·24 = 38.4. */
static qdr_perf_linear layer_by_hand(void)
{
    return (qdr_perf_linear){
        QDR_INIT(qdr_perf_linear), .m = 960, .k = 64, .n = 96, .x = 2, .y = 4, .z = 3, .d = 5, .bias = 1,
        .dtype = QDR_BF16};
}

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-9 * fabs(b))

static double all_bytes(const qdr_perf_cost *cost)
{
    double bytes = 0;
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        bytes += qdr_perf_channel_bytes(cost, (qdr_channel)channel);
    return bytes;
}

TEST(normal_replicated)
{
    const qdr_perf_linear layer = layer_by_hand();
    qdr_perf_cost forward = {QDR_INIT(qdr_perf_cost)}, backward = {QDR_INIT(qdr_perf_cost)};
    assert_int_equal(qdr_perf_linear_cost(&layer, &forward, &backward), QDR_OK);
    NEAR(forward.bytes[QDR_CHANNEL_Z_GATHER][QDR_ALL_GATHER], 2 * 512.0);
    NEAR(forward.bytes[QDR_CHANNEL_X_REDUCE][QDR_ALL_REDUCE], 2 * 1536.0);
    NEAR(all_bytes(&forward), 2 * (512.0 + 1536));
    NEAR(backward.bytes[QDR_CHANNEL_Z_GATHER][QDR_ALL_GATHER], 2 * 512.0);
    NEAR(backward.bytes[QDR_CHANNEL_Y_REDUCE][QDR_ALL_REDUCE], 2 * 3072.0);
    NEAR(backward.bytes[QDR_CHANNEL_Z_REDUCE][QDR_REDUCE_SCATTER], 4 * 512.0);
    NEAR(backward.bytes[QDR_CHANNEL_D_REDUCE][QDR_ALL_REDUCE], 4 * (409.6 + 38.4));
    NEAR(backward.bytes[QDR_CHANNEL_Z_REDUCE][QDR_ALL_REDUCE], 4 * 32.0);
    NEAR(all_bytes(&backward), 2 * (512.0 + 3072) + 4 * (512 + 409.6 + 38.4 + 32));
    NEAR(forward.flops, 2.0 * 64 * 32 * 24);
    NEAR(backward.flops, 2 * forward.flops);
}

TEST(normal_scattered)
{
    qdr_perf_linear layer = layer_by_hand();
    qdr_perf_cost forward = {QDR_INIT(qdr_perf_cost)}, backward = {QDR_INIT(qdr_perf_cost)},
                  again = {QDR_INIT(qdr_perf_cost)};
    layer.in_layout = layer.out_layout = QDR_SCATTERED;
    assert_int_equal(qdr_perf_linear_cost(&layer, &forward, &backward), QDR_OK);
    NEAR(forward.bytes[QDR_CHANNEL_Y_GATHER][QDR_ALL_GATHER], 2 * 1536.0);
    NEAR(forward.bytes[QDR_CHANNEL_X_REDUCE][QDR_REDUCE_SCATTER], 2 * 768.0);
    NEAR(all_bytes(&forward), 2 * (512.0 + 1536 + 768));
    NEAR(backward.bytes[QDR_CHANNEL_X_GATHER][QDR_ALL_GATHER], 2 * 768.0);
    NEAR(backward.bytes[QDR_CHANNEL_Y_REDUCE][QDR_REDUCE_SCATTER], 2 * 1536.0);
    NEAR(all_bytes(&backward), 2 * (512.0 + 768 + 1536) + 4 * (512 + 409.6 + 38.4 + 32));
    layer.drop_gathered = 1;
    assert_int_equal(qdr_perf_linear_cost(&layer, NULL, &again), QDR_OK);
    NEAR(again.bytes[QDR_CHANNEL_Y_GATHER][QDR_ALL_GATHER], 2 * 1536.0);
    NEAR(all_bytes(&again), all_bytes(&backward) + 2 * 1536);
}

/* Keeping the gathered X, scattered edges cost what replicated ones do. */
TEST(layouts_cost_the_same)
{
    qdr_perf_cost r[] = {NO_COST, NO_COST}, s[] = {NO_COST, NO_COST};
    for (int transposed = 0; transposed < 2; transposed++) {
        qdr_perf_linear layer = layer_by_hand();
        layer.transposed = transposed;
        assert_int_equal(qdr_perf_linear_cost(&layer, &r[0], &r[1]), QDR_OK);
        layer.in_layout = layer.out_layout = QDR_SCATTERED;
        assert_int_equal(qdr_perf_linear_cost(&layer, &s[0], &s[1]), QDR_OK);
        NEAR(all_bytes(&r[0]) + all_bytes(&r[1]), all_bytes(&s[0]) + all_bytes(&s[1]));
    }
}

/* A transposed layer is a normal one on the grid with x and y exchanged, its channels exchanged. */
TEST(transposed)
{
    qdr_perf_linear layer = layer_by_hand(), mirror = layer_by_hand();
    qdr_perf_cost a[] = {NO_COST, NO_COST}, b[] = {NO_COST, NO_COST};
    layer.in_layout = mirror.in_layout = QDR_SCATTERED;
    layer.transposed = 1;
    mirror.x = layer.y;
    mirror.y = layer.x;
    assert_int_equal(qdr_perf_linear_cost(&layer, &a[0], &a[1]), QDR_OK);
    assert_int_equal(qdr_perf_linear_cost(&mirror, &b[0], &b[1]), QDR_OK);
    for (int i = 0; i < 2; i++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
            NEAR(a[i].bytes[QDR_CHANNEL_X_REDUCE][kind], b[i].bytes[QDR_CHANNEL_Y_REDUCE][kind]);
            NEAR(a[i].bytes[QDR_CHANNEL_Y_REDUCE][kind], b[i].bytes[QDR_CHANNEL_X_REDUCE][kind]);
            NEAR(a[i].bytes[QDR_CHANNEL_X_GATHER][kind], b[i].bytes[QDR_CHANNEL_Y_GATHER][kind]);
            NEAR(a[i].bytes[QDR_CHANNEL_Z_REDUCE][kind], b[i].bytes[QDR_CHANNEL_Z_REDUCE][kind]);
        }
}

/* The known methods: one rank sends nothing, data parallel only gradients, ZeRO-3 three times the weights. */
TEST(degenerate_grids)
{
    qdr_perf_linear layer = layer_by_hand();
    qdr_perf_cost cost[] = {NO_COST, NO_COST};
    const double n_weights = 64 * 96, n_bias = 96;
    layer.dtype = QDR_F32;
    layer.x = layer.y = layer.z = layer.d = 1;
    assert_int_equal(qdr_perf_linear_cost(&layer, &cost[0], &cost[1]), QDR_OK);
    assert_true(all_bytes(&cost[0]) + all_bytes(&cost[1]) == 0);
    layer.d = 8;
    assert_int_equal(qdr_perf_linear_cost(&layer, &cost[0], &cost[1]), QDR_OK);
    NEAR(all_bytes(&cost[0]) + all_bytes(&cost[1]), 4 * 2 * 7.0 / 8 * (n_weights + n_bias));
    layer.d = 1;
    layer.z = 8;
    assert_int_equal(qdr_perf_linear_cost(&layer, &cost[0], &cost[1]), QDR_OK);
    NEAR(all_bytes(&cost[0]) + all_bytes(&cost[1]), 4 * 7.0 / 8 * (3 * n_weights + 2 * n_bias));
}

TEST(choices)
{
    qdr_perf_linear layer = layer_by_hand();
    qdr_perf_cost cost = {QDR_INIT(qdr_perf_cost)}, sum = {QDR_INIT(qdr_perf_cost)};
    layer.no_dx = 1;
    layer.defer_sync = 1;
    assert_int_equal(qdr_perf_linear_cost(&layer, NULL, &cost), QDR_OK);
    NEAR(all_bytes(&cost), 4 * 512.0);
    NEAR(cost.flops, 2.0 * 64 * 32 * 24);
    CHECK_OK(qdr_perf_add(&sum, &cost));
    CHECK_OK(qdr_perf_add(&sum, &cost));
    NEAR(all_bytes(&sum), 2 * 4 * 512.0);
    NEAR(sum.flops, 2 * cost.flops);
}

/* The layer by hand on d = 12, its shard of 256 elements cut into near parts, these into far ones, of which copies are
 * summed: a scatter of n elements over g ranks sends (g - 1)/g of n, a sum for all twice that. Of b, over z 2·2/3·24 =
 * 32 elements, over d 2·11/12·24 = 44. */
TEST(levels)
{
    static const struct {
        int gradient_parts, optimizer_parts; /* of z = 3 or more */
        double near, far, copies; /* elements sent */
    } cases[] = {
        {6, 18, 128, 2 / 3.0 * 128, 128 / 3.0}, /* 2 near, 3 far, 2 copies */
        {0, 18, 0, 5 / 6.0 * 256, 256 / 6.0}, /* 6 far, 2 copies */
        {6, 0, 128, 0, 2 * 5 / 6.0 * 128}, /* 2 near, 6 copies */
        {9, 36, 2 / 3.0 * 256, 3 / 4.0 * 256 / 3, 0}, /* 3 near, 4 far */
        {36, 36, 11 / 12.0 * 256, 0, 0},
    };
    static const qdr_dtype types[] = {QDR_BF16, QDR_F32, QDR_F64};
    for (size_t i = 0; i < 3 * sizeof cases / sizeof *cases; i++) {
        const size_t at = i / 3;
        qdr_perf_linear layer = layer_by_hand();
        qdr_perf_cost cost = {QDR_INIT(qdr_perf_cost)};
        layer.m = 64 * 36;
        layer.d = 12;
        layer.dtype = types[i % 3];
        layer.gradient_parts = cases[at].gradient_parts;
        layer.optimizer_parts = cases[at].optimizer_parts;
        const double each = (double)qdr_dtype_bytes(layer.dtype), sum_bytes = layer.dtype == QDR_F64 ? 8 : 4;
        assert_int_equal(qdr_perf_linear_cost(&layer, NULL, &cost), QDR_OK);
        NEAR(cost.bytes[QDR_CHANNEL_D_NEAR][QDR_REDUCE_SCATTER], sum_bytes * cases[at].near);
        NEAR(cost.bytes[QDR_CHANNEL_D_FAR][QDR_REDUCE_SCATTER], sum_bytes * cases[at].far);
        NEAR(cost.bytes[QDR_CHANNEL_D_COPIES][QDR_ALL_REDUCE], sum_bytes * cases[at].copies);
        NEAR(qdr_perf_channel_bytes(&cost, QDR_CHANNEL_D_REDUCE), sum_bytes * 44);
        NEAR(qdr_perf_channel_bytes(&cost, QDR_CHANNEL_Z_REDUCE), sum_bytes * (512 + 32));
        layer.defer_sync = 1; /* what near scatters of each micro-batch */
        assert_int_equal(qdr_perf_linear_cost(&layer, NULL, &cost), QDR_OK);
        NEAR(cost.bytes[QDR_CHANNEL_D_NEAR][QDR_REDUCE_SCATTER], sum_bytes * cases[at].near);
        NEAR(all_bytes(&cost), each * (512 + 3072) + sum_bytes * (512 + cases[at].near));
        assert_int_equal(qdr_perf_linear_return(&layer, &cost), QDR_OK);
        NEAR(cost.bytes[QDR_CHANNEL_D_NEAR][QDR_ALL_GATHER], each * cases[at].near);
        NEAR(cost.bytes[QDR_CHANNEL_D_FAR][QDR_ALL_GATHER], each * cases[at].far);
        NEAR(all_bytes(&cost), each * (cases[at].near + cases[at].far));
    }
}

/* Parts are multiples of z = 3, those of the state of the gradients', and divide z·d = 36. */
TEST(levels_that_do_not_nest)
{
    static const int wrong[][2] = {{2, 0}, {4, 12}, {6, 3}, {6, 9}, {6, 15}, {0, 2}, {0, 4}, {15, 0}, {6, 30}, {72, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        qdr_perf_linear layer = layer_by_hand();
        qdr_perf_cost cost = {QDR_INIT(qdr_perf_cost), .flops = 1};
        layer.d = 12;
        layer.gradient_parts = wrong[i][0];
        layer.optimizer_parts = wrong[i][1];
        CHECK_FAILS(qdr_perf_linear_return(&layer, &cost), QDR_ERR_ARGUMENT, "divide z*d = 36");
        assert_int_equal(qdr_perf_linear_cost(&layer, &cost, NULL), QDR_ERR_ARGUMENT);
        assert_true(all_bytes(&cost) == 0 && cost.flops == 0);
    }
}

TEST(refusals)
{
    qdr_perf_cost cost = {QDR_INIT(qdr_perf_cost), .flops = 1};
    qdr_perf_linear layer = layer_by_hand();
    assert_int_equal(qdr_perf_linear_cost(NULL, &cost, NULL), QDR_ERR_ARGUMENT);
    assert_true(cost.flops == 0);
    layer.size = 0;
    assert_int_equal(qdr_perf_linear_cost(&layer, &cost, NULL), QDR_ERR_ARGUMENT);
    layer = layer_by_hand();
    layer.z = 0;
    assert_int_equal(qdr_perf_linear_cost(&layer, &cost, NULL), QDR_ERR_ARGUMENT);
    layer = layer_by_hand();
    layer.m = -1;
    assert_int_equal(qdr_perf_linear_cost(&layer, &cost, NULL), QDR_ERR_SHAPE);
    layer.m = INFINITY;
    assert_int_equal(qdr_perf_linear_cost(&layer, &cost, NULL), QDR_ERR_SHAPE);
    layer.m = NAN;
    assert_int_equal(qdr_perf_linear_cost(&layer, &cost, NULL), QDR_ERR_SHAPE);
    layer = layer_by_hand();
    layer.dtype = QDR_I32;
    assert_int_equal(qdr_perf_linear_cost(&layer, &cost, NULL), QDR_ERR_DTYPE);
    layer = layer_by_hand();
    layer.out_layout = (qdr_layout)2;
    assert_int_equal(qdr_perf_linear_cost(&layer, &cost, NULL), QDR_ERR_ARGUMENT);
}
