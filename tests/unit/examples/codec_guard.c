/* SPDX-License-Identifier: Apache-2.0 */
/* When the guard of --codec-guard gives codecs up: fed with losses that are exact in binary, so that no verdict hangs
 * on a rounding. */
#include "../../../examples/common/codec_guard.h"

#include <math.h>

#include "qdr_test.h"

enum { N = 300, WIDTH = CODEC_GUARD_STEPS };

/* The first step at which it gives up; -1: it never does. */
static int64_t gives_up_at(codec_guard guard, const double losses[N], char why[CODEC_GUARD_BYTES])
{
    for (int64_t step = 0; step < N; step++)
        if (codec_guard_gives_up(&guard, losses, step, why)) return step;
    return -1;
}

/* `low` before step `at`, `high` from there on. */
static void jump(double losses[N], int64_t at, double low, double high)
{
    for (int64_t i = 0; i < N; i++) losses[i] = i < at ? low : high;
}

/* After k of 50 losses that are 1 higher the mean is k/50 higher: above 0.5 from the 26th on. */
TEST(test_jump)
{
    double losses[N];
    char why[CODEC_GUARD_BYTES];
    for (int64_t at = WIDTH; at < N - WIDTH; at += 37) {
        jump(losses, at, 2, 3);
        assert_int_equal(gives_up_at((codec_guard){.most = 0.5}, losses, why), at + 25);
        assert_string_equal(why, "the mean loss of 50 steps is 2.5200, more than 0.5 above the least, 2.0000");
        assert_int_equal(gives_up_at((codec_guard){.most = 1}, losses, why), -1);
    }
}

/* The least is that of any 50 steps, not of the first ones, and one loss alone moves the mean by a fiftieth. */
TEST(test_least)
{
    double losses[N];
    char why[CODEC_GUARD_BYTES];
    jump(losses, 120, 4, 2);
    for (int64_t i = 200; i < N; i++) losses[i] = 3;
    assert_int_equal(gives_up_at((codec_guard){.most = 0.5}, losses, why), 225);
    jump(losses, 0, 2, 2);
    losses[100] = 2 + 64;
    assert_int_equal(gives_up_at((codec_guard){.most = 1.25}, losses, why), 100);
    assert_int_equal(gives_up_at((codec_guard){.most = 1.5}, losses, why), -1);
}

/* A falling loss, however far it falls; one that rises before there are 50; and one that rises before the codecs have
 * been there for 50 steps. */
TEST(test_patience)
{
    double losses[N];
    char why[CODEC_GUARD_BYTES];
    jump(losses, 60, 9, 1);
    assert_int_equal(gives_up_at((codec_guard){.most = 0.125}, losses, why), -1);
    jump(losses, 10, 1, 9);
    assert_int_equal(gives_up_at((codec_guard){.most = 0.125}, losses, why), WIDTH);
    jump(losses, 70, 1, 2);
    assert_int_equal(gives_up_at((codec_guard){.most = 0.5, .after = 100}, losses, why), 100 + WIDTH);
    for (int64_t i = 100; i < N; i++) losses[i] = 1;
    assert_int_equal(gives_up_at((codec_guard){.most = 0.5, .after = 100}, losses, why), -1);
}

TEST(test_not_finite)
{
    static const double wild[] = {NAN, INFINITY, -INFINITY};
    double losses[N];
    char why[CODEC_GUARD_BYTES];
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        jump(losses, N, 2, 2);
        losses[3] = wild[i];
        assert_int_equal(gives_up_at((codec_guard){.most = 100}, losses, why), 3);
        assert_string_equal(why, "the loss is not a finite number");
        assert_int_equal(gives_up_at((codec_guard){0}, losses, why), -1);
    }
}
