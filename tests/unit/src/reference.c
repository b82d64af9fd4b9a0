/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the reference itself: rounding, bounds and error fractions of the serial reference, and the list of
 * grids. */
#include "common/reference.h"

#include <math.h>

#include "common/coded.h"
#include "common/layer_case.h"
#include "qdr_test.h"

static double through(qdr_dtype dtype, double value)
{
    union {
        double f64;
        float f32;
        uint16_t narrow;
    } memory = {0};
    element_write(dtype, &memory, 0, value);
    return element_read(dtype, &memory, 0);
}

TEST(elements_round_to_nearest_even)
{
    const double v = 0x1p-8, u = 0x1p-24;
    assert_true(through(QDR_F64, 1 + u) == 1 + u);
    assert_true(through(QDR_F32, 1 + u) == 1); /* a tie, to even */
    assert_true(through(QDR_F32, 1 + 3 * u) == 1 + 4 * u);
    assert_true(through(QDR_BF16, 1 + v) == 1);
    assert_true(through(QDR_BF16, 1 + 3 * v) == 1 + 4 * v);
    assert_true(through(QDR_BF16, 1 + v + 4 * u) == 1 + 2 * v);
    assert_true(through(QDR_BF16, -1 - v - 4 * u) == -1 - 2 * v);
    const double t = 0x1p-11;
    assert_true(through(QDR_F16, 1 + t) == 1);
    assert_true(through(QDR_F16, 1 + 3 * t) == 1 + 4 * t);
    assert_true(through(QDR_F16, -1 - t - u) == -1 - 2 * t);
    assert_true(through(QDR_F16, 65519) == 65504 && isinf(through(QDR_F16, 65520)));
    assert_true(through(QDR_F16, 0x1p-25) == 0 && through(QDR_F16, 0x3p-25) == 0x1p-23);
    assert_true(isnan(through(QDR_BF16, NAN)) && isnan(through(QDR_F16, NAN)) && isnan(through(QDR_F32, NAN)));
}

TEST(draws_stay_in_range)
{
    int seen[3] = {0}, below[7] = {0}, n_negative = 0;
    for (int64_t i = 0; i < 1000; i++) {
        const double value = draw_value(5, 1, i, 0, QDR_BF16), whole = draw_value(5, 1, i, 1, QDR_F32);
        assert_true(value >= -1 && value <= 1 && through(QDR_BF16, value) == value);
        assert_true(whole == -1 || whole == 0 || whole == 1);
        seen[(int)whole + 1]++;
        n_negative += value < 0;
        assert_in_range(draw_below(5, (int)i, 7), 0, 6);
        below[draw_below(5, (int)i, 7)]++;
    }
    assert_in_range(n_negative, 400, 600);
    for (int i = 0; i < 7; i++) assert_true(below[i] > 80);
    assert_true(seen[0] > 200 && seen[1] > 200 && seen[2] > 200);
    assert_true(draw_value(5, 1, 0, 0, QDR_F64) != draw_value(6, 1, 0, 0, QDR_F64));
    assert_true(draw_value(5, 1, 0, 0, QDR_F64) != draw_value(5, 2, 0, 0, QDR_F64));
}

/* X = [1 2; 3 4; 5 6], W = [1 -1], b = [10], dY = [1; -2; 3]. */
TEST(reference_is_right_by_hand)
{
    reference problem;
    assert_int_equal(reference_create(3, 2, 1, &problem), 0);
    for (int i = 0; i < 6; i++) problem.x[i] = i + 1;
    problem.w[0] = 1, problem.w[1] = -1, problem.b[0] = 10;
    problem.dy[0] = 1, problem.dy[1] = -2, problem.dy[2] = 3;
    reference_run(&problem);
    assert_true(problem.y.value[0] == 9 && problem.y.value[2] == 9);
    assert_true(problem.y.magnitude[0] == 13 && problem.y.magnitude[2] == 21);
    assert_true(problem.dx.value[2] == -2 && problem.dx.value[3] == 2);
    assert_true(problem.dw.value[0] == 10 && problem.dw.value[1] == 12);
    assert_true(problem.dw.magnitude[0] == 22 && problem.dw.magnitude[1] == 28);
    assert_true(problem.db.value[0] == 2 && problem.db.magnitude[0] == 6);
    assert_true(problem.y.change[0] == 0 && problem.dw.change[0] == 0);
    problem.x_change = 0.5, problem.w_change = 0.25, problem.dy_change = 2;
    reference_run(&problem); /* adds */
    assert_true(problem.y.value[0] == 18 && problem.dw.magnitude[1] == 56);
    assert_true(problem.y.change[0] == 2 * 0.5 + 3 * 0.25 + 2 * 0.125);
    assert_true(problem.dx.change[2] == 2 + 2 * 0.25 + 0.5);
    assert_true(problem.dw.change[0] == 6 * 0.5 + 9 * 2 + 3 && problem.db.change[0] == 6);
    reference_destroy(&problem);
    reference_destroy(&problem);
}

TEST(bounds_follow_the_formula)
{
    const double u64 = 0x1p-53, u32 = 0x1p-24, v = 0x1p-8;
    const double f64 = error_bound_of((error_shape){QDR_F64, 10, 2, 1}).factor;
    assert_true(f64 > 24.99 * u64 && f64 < 25.01 * u64); /* 10 + 2 + 2, and 11 of the reference */
    const double f32 = error_bound_of((error_shape){QDR_F32, 10, 2, 1}).factor;
    assert_true(f32 > 13.99 * u32 && f32 < 14.01 * u32);
    const double bf16 = error_bound_of((error_shape){QDR_BF16, 10, 2, 3}).factor;
    assert_true(bf16 > 3 * v && bf16 < 3.02 * v);
    const double gradient = error_bound_of((error_shape){QDR_BF16, 10, 2, 0}).factor;
    assert_true(gradient == f32);
    const error_bound f16 = error_bound_of((error_shape){QDR_F16, 10, 2, 3});
    assert_true(f16.factor > 3 * 0x1p-11 && f16.factor < 3.02 * 0x1p-11);
    assert_true(f16.least == 5 * 0x1p-25);
    assert_true(error_bound_of((error_shape){QDR_F16, 10, 2, 0}).least == 0);
}

TEST(messages_change_what_their_bounds_allow)
{
    const qdr_codec int8 = {.kind = QDR_CODEC_INT8}, int16 = {.kind = QDR_CODEC_INT16},
                    exact = {.kind = QDR_CODEC_LOSSLESS};
    const qdr_codec kept = {.kind = QDR_CODEC_INT8, .flags = QDR_CODEC_FEEDBACK};
    const qdr_codec turned = {.kind = QDR_CODEC_INT8, .block = 64, .flags = QDR_CODEC_HADAMARD};
    const double c = qdr_codec_bound(&int8, 1);
    assert_true(gather_change(NULL, QDR_F32, 2) == 0 && gather_change(&exact, QDR_F32, 2) == 0);
    assert_true(gather_change(&int16, QDR_BF16, 2) == 0 && gather_change(&int16, QDR_F32, 2) > 0);
    assert_true(gather_change(&int8, QDR_F32, 2) == 2 * c);
    assert_true(gather_change(&int8, QDR_BF16, 2) == 2 * c + 0x1p-8 * (2 + 2 * c));
    coded_sum sum = {.codec = &int8, .dtype = QDR_F32, .n_members = 2, .is_all = 1, .n_elems = 64};
    assert_true(sum_change(&sum, 4, 3) == 4 * c); /* two members send each other everything */
    sum.n_members = 3;
    assert_true(sum_change(&sum, 4, 3) == 4 * c + (3 + 4 * c) * c);
    sum.is_all = 0;
    assert_true(sum_change(&sum, 4, 3) == 4 * c);
    sum.codec = &turned; /* √64 for the largest element of a rotated block, and once more for its length */
    assert_true(sum_change(&sum, 4, 3) == qdr_codec_bound(&turned, 32) && sum_change(&sum, 4, 3) > 63 * 4 * c);
    sum.n_elems = 63;
    assert_true(sum_change(&sum, 4, 3) == 4 * c);
    sum.codec = &kept; /* what has been lost is in the next message: c·4, then c·(4 + c·4) in all */
    const double first = sum_change(&sum, 4, 3), second = sum_change(&sum, 4, 3);
    assert_true(first == 4 * c && second > 3.99 * c * c && second < 4.01 * c * c);
    sum.n_members = 1;
    assert_true(sum_change(&sum, 4, 3) == 0);
}

TEST(shares_forgive_nothing_wrong)
{
    const error_bound half = {0.5, 0}, none = {0, 0}, least = {0, 0.25};
    assert_true(error_share(1, 1, 0, none) == 0);
    assert_true(error_share(1.5, 1, 2, half) == 0.5);
    assert_true(error_share(3, 1, 2, half) == 2);
    assert_true(error_share(1.5, 1, 2, least) == 2);
    assert_true(isinf(error_share(NAN, 1, 2, half)));
    assert_true(isinf(error_share(INFINITY, 1, 2, half)));
    assert_true(isinf(error_share(1 + 0x1p-52, 1, 2, none)));
    assert_true(isinf(error_share(0x1p-1000, 0, 0, half)));
    const layer_errors errors = {.share = {0.1, 0.2, INFINITY, 0.3}};
    assert_true(isinf(layer_errors_worst(&errors)));
}

TEST(all_grids_are_listed_once)
{
    const struct {
        int n_ranks, n_grids;
    } known[] = {{1, 1}, {2, 4}, {3, 4}, {4, 10}, {6, 16}, {8, 20}, {12, 40}, {16, 35}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        grid_size sizes[64];
        assert_int_equal(list_grids(known[i].n_ranks, sizes, 64), known[i].n_grids);
        for (int j = 0; j < known[i].n_grids; j++) {
            assert_int_equal(sizes[j].x * sizes[j].y * sizes[j].z * sizes[j].d, known[i].n_ranks);
            for (int k = 0; k < j; k++) assert_true(memcmp(&sizes[j], &sizes[k], sizeof *sizes) != 0);
        }
    }
}
