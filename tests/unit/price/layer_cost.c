/* SPDX-License-Identifier: Apache-2.0 */
/* The closed forms of traffic and flops, compared with tables made by hand. */
#include "reference/layer_cost.h"

#include <math.h>

#include "qdr_test.h"

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
        assert_true(reference_coll_elems(table[i].kind, table[i].n_ranks, table[i].n_elems) == table[i].sent);
    assert_true(isnan(reference_coll_elems(QDR_ALL_GATHER, 0, 1)));
    assert_true(isnan(reference_coll_elems(QDR_N_COLL_KINDS, 2, 1)));
}

/* M = 960, K = 64, N = 96 on 2x4x3x5: m = 64 rows a cell; a normal layer has k = 32, n = 24, W block 768 elements, 256
 * a shard. By hand, in elements: W over z 2/3·768 = 512; X over y 3/4·64·32 = 1536; Y over x 1/2·64·24 = 768 scattered,
 * 1536 summed; dX over y 3/4·64·32 = 1536 scattered, 3072 summed; dW over d 2·4/5·256 = 409.6; b over z 2·2/3·24 = 32,
 * over d 2·4/5·24 = 38.4. */
static reference_layer layer_by_hand(void)
{
    return (reference_layer){.m = 960, .k = 64, .n = 96, .x = 2, .y = 4, .z = 3, .d = 5, .bias = 1, .dtype = QDR_BF16};
}

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-9 * fabs(b))

static double all_bytes(const reference_cost *cost)
{
    double bytes = 0;
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        bytes += reference_channel_bytes(cost, (qdr_channel)channel);
    return bytes;
}

TEST(normal_replicated)
{
    const reference_layer layer = layer_by_hand();
    const reference_cost forward = reference_forward_cost(&layer), backward = reference_backward_cost(&layer);
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
    reference_layer layer = layer_by_hand();
    layer.in_layout = layer.out_layout = QDR_SCATTERED;
    const reference_cost forward = reference_forward_cost(&layer), backward = reference_backward_cost(&layer);
    NEAR(forward.bytes[QDR_CHANNEL_Y_GATHER][QDR_ALL_GATHER], 2 * 1536.0);
    NEAR(forward.bytes[QDR_CHANNEL_X_REDUCE][QDR_REDUCE_SCATTER], 2 * 768.0);
    NEAR(all_bytes(&forward), 2 * (512.0 + 1536 + 768));
    NEAR(backward.bytes[QDR_CHANNEL_X_GATHER][QDR_ALL_GATHER], 2 * 768.0);
    NEAR(backward.bytes[QDR_CHANNEL_Y_REDUCE][QDR_REDUCE_SCATTER], 2 * 1536.0);
    NEAR(all_bytes(&backward), 2 * (512.0 + 768 + 1536) + 4 * (512 + 409.6 + 38.4 + 32));
    layer.drop_gathered = 1;
    const reference_cost again = reference_backward_cost(&layer);
    NEAR(again.bytes[QDR_CHANNEL_Y_GATHER][QDR_ALL_GATHER], 2 * 1536.0);
    NEAR(all_bytes(&again), all_bytes(&backward) + 2 * 1536);
}

/* Keeping the gathered X, scattered edges cost what replicated ones do. */
TEST(layouts_cost_the_same)
{
    reference_cost r[2] = {{.flops = 0}}, s[2] = {{.flops = 0}};
    for (int transposed = 0; transposed < 2; transposed++) {
        reference_layer layer = layer_by_hand();
        layer.transposed = transposed;
        r[0] = reference_forward_cost(&layer);
        r[1] = reference_backward_cost(&layer);
        layer.in_layout = layer.out_layout = QDR_SCATTERED;
        s[0] = reference_forward_cost(&layer);
        s[1] = reference_backward_cost(&layer);
        NEAR(all_bytes(&r[0]) + all_bytes(&r[1]), all_bytes(&s[0]) + all_bytes(&s[1]));
    }
}

/* A transposed layer is a normal one on the grid with x and y exchanged, its channels exchanged. */
TEST(transposed)
{
    reference_layer layer = layer_by_hand(), mirror = layer_by_hand();
    reference_cost a[2] = {{.flops = 0}}, b[2] = {{.flops = 0}};
    layer.in_layout = mirror.in_layout = QDR_SCATTERED;
    layer.transposed = 1;
    mirror.x = layer.y;
    mirror.y = layer.x;
    a[0] = reference_forward_cost(&layer);
    a[1] = reference_backward_cost(&layer);
    b[0] = reference_forward_cost(&mirror);
    b[1] = reference_backward_cost(&mirror);
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
    reference_layer layer = layer_by_hand();
    reference_cost cost[2] = {{.flops = 0}};
    const double n_weights = 64 * 96, n_bias = 96;
    layer.dtype = QDR_F32;
    layer.x = layer.y = layer.z = layer.d = 1;
    cost[0] = reference_forward_cost(&layer);
    cost[1] = reference_backward_cost(&layer);
    assert_true(all_bytes(&cost[0]) + all_bytes(&cost[1]) == 0);
    layer.d = 8;
    cost[0] = reference_forward_cost(&layer);
    cost[1] = reference_backward_cost(&layer);
    NEAR(all_bytes(&cost[0]) + all_bytes(&cost[1]), 4 * 2 * 7.0 / 8 * (n_weights + n_bias));
    layer.d = 1;
    layer.z = 8;
    cost[0] = reference_forward_cost(&layer);
    cost[1] = reference_backward_cost(&layer);
    NEAR(all_bytes(&cost[0]) + all_bytes(&cost[1]), 4 * 7.0 / 8 * (3 * n_weights + 2 * n_bias));
}

TEST(choices)
{
    reference_layer layer = layer_by_hand();
    reference_cost cost = {.flops = 0}, sum = {.flops = 0};
    layer.no_dx = 1;
    layer.defer_sync = 1;
    cost = reference_backward_cost(&layer);
    NEAR(all_bytes(&cost), 4 * 512.0);
    NEAR(cost.flops, 2.0 * 64 * 32 * 24);
    reference_add_cost(&sum, &cost);
    reference_add_cost(&sum, &cost);
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
        reference_layer layer = layer_by_hand();
        reference_cost cost = {.flops = 0};
        layer.m = 64 * 36;
        layer.d = 12;
        layer.dtype = types[i % 3];
        layer.gradient_parts = cases[at].gradient_parts;
        layer.optimizer_parts = cases[at].optimizer_parts;
        const double each = (double)qdr_dtype_bytes(layer.dtype), sum_bytes = layer.dtype == QDR_F64 ? 8 : 4;
        cost = reference_backward_cost(&layer);
        NEAR(cost.bytes[QDR_CHANNEL_D_NEAR][QDR_REDUCE_SCATTER], sum_bytes * cases[at].near);
        NEAR(cost.bytes[QDR_CHANNEL_D_FAR][QDR_REDUCE_SCATTER], sum_bytes * cases[at].far);
        NEAR(cost.bytes[QDR_CHANNEL_D_COPIES][QDR_ALL_REDUCE], sum_bytes * cases[at].copies);
        NEAR(reference_channel_bytes(&cost, QDR_CHANNEL_D_REDUCE), sum_bytes * 44);
        NEAR(reference_channel_bytes(&cost, QDR_CHANNEL_Z_REDUCE), sum_bytes * (512 + 32));
        layer.defer_sync = 1; /* what near scatters of each micro-batch */
        cost = reference_backward_cost(&layer);
        NEAR(cost.bytes[QDR_CHANNEL_D_NEAR][QDR_REDUCE_SCATTER], sum_bytes * cases[at].near);
        NEAR(all_bytes(&cost), each * (512 + 3072) + sum_bytes * (512 + cases[at].near));
        cost = reference_return_cost(&layer);
        NEAR(cost.bytes[QDR_CHANNEL_D_NEAR][QDR_ALL_GATHER], each * cases[at].near);
        NEAR(cost.bytes[QDR_CHANNEL_D_FAR][QDR_ALL_GATHER], each * cases[at].far);
        NEAR(all_bytes(&cost), each * (cases[at].near + cases[at].far));
    }
}
