/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: parts cover everything exactly once, in order, and differ by at most one unit; errors propose remedies. */
#include "core/block.h"

#include "qdr_test.h"

enum { N_DRAWS = 2000 };

static void check_split(int64_t n_units, int64_t unit, int n_parts)
{
    int64_t expected = 0, smallest = INT64_MAX, last = INT64_MAX;
    for (int i = 0; i < n_parts; i++) {
        int64_t begin, end;
        qdri_split(n_units * unit, unit, n_parts, i, &begin, &end);
        assert_int_equal(begin, expected);
        assert_true(end >= begin);
        assert_int_equal((end - begin) % unit, 0);
        assert_true(end - begin <= last); /* the first parts are the larger */
        last = end - begin;
        if (last < smallest) smallest = last;
        expected = end;
    }
    assert_int_equal(expected, n_units * unit);
    int64_t begin, end;
    qdri_split(n_units * unit, unit, n_parts, 0, &begin, &end);
    assert_true(end - smallest <= unit);
}

TEST(parts_cover_the_width_once)
{
    uint64_t seed = test_seed();
    for (int draw = 0; draw < N_DRAWS; draw++)
        check_split(test_between(&seed, 0, 40), test_between(&seed, 1, 9), (int)test_between(&seed, 1, 20));
    check_split(INT64_MAX, 1, 7);
    check_split(INT64_MAX / 128, 128, 1000);
}

/* 1 to 4 random blocks. */
static void draw_blocks(uint64_t *seed, qdr_block blocks[QDR_MAX_BLOCKS])
{
    memset(blocks, 0, QDR_MAX_BLOCKS * sizeof *blocks);
    const int n = (int)test_between(seed, 1, QDR_MAX_BLOCKS);
    for (int i = 0; i < n; i++) {
        blocks[i].unit = test_between(seed, 0, 5);
        blocks[i].width = test_between(seed, 1, 12) * (blocks[i].unit ? blocks[i].unit : 1);
    }
}

static void check_columns(const qdr_block *blocks, int n_parts, uint8_t *seen)
{
    const int64_t width = qdri_blocks_width(blocks);
    memset(seen, 0, (size_t)width);
    for (int part = 0; part < n_parts; part++) {
        const int64_t n_cols = qdri_blocks_part(blocks, n_parts, part);
        for (int64_t local = 0; local < n_cols;) {
            int64_t run = 0;
            const int64_t global = qdri_blocks_global(blocks, n_parts, part, local, &run);
            assert_in_range(run, 1, n_cols - local);
            assert_in_range(global, 0, width - run);
            for (int64_t i = 0; i < run; i++) {
                int64_t rest = 0;
                assert_int_equal(seen[global + i]++, 0);
                assert_int_equal(qdri_blocks_global(blocks, n_parts, part, local + i, &rest), global + i);
                assert_int_equal(rest, run - i);
            }
            local += run;
        }
    }
    for (int64_t i = 0; i < width; i++) assert_int_equal(seen[i], 1);
}

TEST(every_column_has_one_owner)
{
    uint8_t seen[QDR_MAX_BLOCKS * 12 * 5];
    uint64_t seed = test_seed();
    for (int draw = 0; draw < N_DRAWS; draw++) {
        qdr_block blocks[QDR_MAX_BLOCKS];
        draw_blocks(&seed, blocks);
        CHECK_OK(qdri_blocks_check(blocks, "test"));
        check_columns(blocks, (int)test_between(&seed, 1, 15), seen);
    }
}

TEST(lists_count_and_compare)
{
    const qdr_block none[QDR_MAX_BLOCKS] = {{0, 0}}, full[QDR_MAX_BLOCKS] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}};
    const qdr_block a[QDR_MAX_BLOCKS] = {{8, 0}, {4, 2}}, b[QDR_MAX_BLOCKS] = {{8, 1}, {4, 2}};
    const qdr_block c[QDR_MAX_BLOCKS] = {{8, 1}, {4, 4}}, d[QDR_MAX_BLOCKS] = {{8, 1}};
    assert_int_equal(qdri_blocks_count(none), 0);
    assert_int_equal(qdri_blocks_count(full), 4);
    assert_int_equal(qdri_blocks_width(full), 10);
    assert_true(qdri_blocks_equal(a, b));
    assert_false(qdri_blocks_equal(a, c));
    assert_false(qdri_blocks_equal(a, d));
}

static qdr_status check_one(int64_t width, int64_t unit)
{
    const qdr_block blocks[QDR_MAX_BLOCKS] = {{width, unit}};
    return qdri_blocks_check(blocks, "linear");
}

TEST(errors_propose_remedies)
{
    CHECK_OK(check_one(5140, 20));
    CHECK_FAILS(check_one(5140, 128), QDR_ERR_SHAPE, "");
    assert_string_equal(qdr_last_error(), "linear: unit 128 does not divide width 5140; use a unit of 20 or "
                                          "257, or pad to 5248");
    CHECK_FAILS(check_one(7, 3), QDR_ERR_SHAPE, "use a unit of 1 or 7, or pad to 9");
    CHECK_FAILS(check_one(6, 8), QDR_ERR_SHAPE, "use a unit that divides 6, or pad to 8");
    CHECK_FAILS(check_one(-4, 1), QDR_ERR_SHAPE, "width -4 is negative");
    CHECK_FAILS(check_one(4, -1), QDR_ERR_SHAPE, "unit -1 of width 4 is negative");
    CHECK_FAILS(check_one(0, 0), QDR_ERR_SHAPE, "width 0");
    CHECK_FAILS(check_one(INT64_MAX, 2), QDR_ERR_SHAPE, "use a unit of 1 or 7");
    const qdr_block huge[QDR_MAX_BLOCKS] = {{INT64_MAX, 0}, {1, 0}};
    CHECK_FAILS(qdri_blocks_check(huge, "linear"), QDR_ERR_SHAPE, "block 1 of width 1");
}

/* What a sentence proposes must be right: units that divide, next to the one asked for, and a padding that works. */
TEST(remedies_are_right)
{
    uint64_t seed = test_seed();
    for (int draw = 0; draw < N_DRAWS; draw++) {
        const int64_t width = test_between(&seed, 2, 5000), unit = test_between(&seed, 2, width);
        if (width % unit == 0) continue;
        long long below = 0, above = 0, padded = 0;
        CHECK_FAILS(check_one(width, unit), QDR_ERR_SHAPE, "does not divide");
        const char *remedy = strstr(qdr_last_error(), "use a unit of ");
        assert_non_null(remedy);
        assert_int_equal(sscanf(remedy, "use a unit of %lld or %lld, or pad to %lld", &below, &above, &padded), 3);
        for (int64_t u = below + 1; u < above; u++) assert_int_not_equal(width % u, 0);
        assert_true(below < unit && unit < above);
        assert_int_equal(width % below, 0);
        assert_int_equal(width % above, 0);
        assert_int_equal(padded % unit, 0);
        assert_true(padded > width && padded - width < unit);
    }
}
