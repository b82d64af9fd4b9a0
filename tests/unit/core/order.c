/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of axes: each letter once; strides are the rank distance of one step along an axis. */
#include "core/order.h"
#include "grid/shape.h"
#include "qdr_test.h"

TEST(each_letter_once)
{
    static const char *const good[] = {"xyzd", "dzyx", "ydxz"}, *const bad[] = {"",     "xyz",   "xyzz", "xyzdx",
                                                                                "XYZD", "xyz d", "wxyz"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(qdri_is_order(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(qdri_is_order(bad[i]));
    for (int axis = 0; axis < QDR_N_AXES; axis++) assert_int_equal(qdri_axis_of(QDRI_USUAL_ORDER[axis]), axis);
}

/* Against the ranks of a grid, in all 24 orders. */
TEST(strides_are_steps)
{
    int n_orders = 0;
    for (int code = 0; code < 256; code++) {
        qdri_grid_shape shape = {.sizes = {2, 3, 5, 7}};
        for (int i = 0; i < 4; i++) shape.order[i] = QDRI_USUAL_ORDER[code >> 2 * i & 3];
        if (!qdri_is_order(shape.order)) continue;
        int strides[QDR_N_AXES];
        qdri_order_strides(shape.sizes, shape.order, strides);
        for (int axis = 0; axis < QDR_N_AXES; axis++) {
            int at[QDR_N_AXES] = {0};
            at[axis] = 1;
            assert_int_equal(strides[axis], qdri_shape_rank(&shape, at));
        }
        n_orders++;
    }
    assert_int_equal(n_orders, 24);
}
