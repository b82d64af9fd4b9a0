/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership and overlap: every element is owned by the right number of ranks, and reaches every owner exactly once.
 * Random layouts; QDR_TEST_SEED repeats a run. */
#include "qdr_test.h"

#include "core/block.h"
#include "core/layout.h"
#include "random_layout.h"

static qdri_rank_position position_at(const int sizes[QDR_N_AXES], int rank)
{
    qdri_rank_position position = {.rank = rank, .n_ranks = 1};
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        position.at.size[axis] = sizes[axis];
        position.n_ranks *= sizes[axis];
        position.at.coordinate[axis] = rank % sizes[axis];
        rank /= sizes[axis];
    }
    return position;
}

/* Counts each element of a part once. */
static void count_part(const qdr_owned *owned, int64_t n_cols, int *counts)
{
    for (int64_t row = owned->rows.begin; row < owned->rows.end; row++)
        for (int i = 0; i < owned->n_ranges; i++)
            for (int64_t col = owned->cols[i].begin; col < owned->cols[i].end; col++) counts[row * n_cols + col]++;
}

/* Ranks that hold a copy of the same part. */
static int copies(const qdr_matrix *matrix, const int sizes[QDR_N_AXES])
{
    int n = 1;
    if (matrix->spread != QDR_SPREAD_GRID) return 1;
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const int splits = (matrix->split_cells && axis >= QDR_Z) ||
                           (matrix->split_cols && axis == (int)matrix->col_axis) ||
                           (matrix->scatter_rows && axis == (int)matrix->scatter_axis);
        if (!splits) n *= sizes[axis];
    }
    return n;
}

TEST(every_element_is_owned)
{
    uint64_t seed = test_seed();
    for (int round = 0; round < 300; round++) {
        int sizes[QDR_N_AXES];
        qdr_matrix matrix = {QDR_INIT(qdr_matrix)}, other = {QDR_INIT(qdr_matrix)};
        random_sizes(&seed, 12, sizes);
        random_matrices(&seed, &matrix, &other);
        assert_int_equal(qdri_matrix_check(&matrix), QDR_OK);
        const int64_t n_cols = qdri_blocks_width(matrix.cols), n_elems = matrix.n_rows * n_cols;
        int *counts = calloc((size_t)n_elems + 1, sizeof *counts);
        const int n_ranks = sizes[0] * sizes[1] * sizes[2] * sizes[3];
        for (int rank = 0; rank < n_ranks; rank++) {
            const qdri_rank_position position = position_at(sizes, rank);
            qdr_owned owned = {QDR_INIT(qdr_owned)};
            qdri_matrix_part(&matrix, &position, &owned);
            count_part(&owned, n_cols, counts);
        }
        for (int64_t i = 0; i < n_elems; i++) assert_int_equal(counts[i], copies(&matrix, sizes));
        free(counts);
    }
}

/* Global column of a local one. */
static int64_t global_column(const qdr_owned *owned, int64_t local)
{
    int i = 0;
    for (; local >= owned->cols[i].end - owned->cols[i].begin; i++) local -= owned->cols[i].end - owned->cols[i].begin;
    return owned->cols[i].begin + local;
}

/* The elements of one message land where they belong. */
static void check_message(const qdr_owned *a, const qdr_owned *b, int *counts)
{
    qdri_overlap overlap;
    int64_t n_elems = 0;
    qdri_owned_overlap(a, b, &overlap);
    assert_in_range(overlap.n_runs, 0, QDRI_MAX_RUNS);
    for (int i = 0; i < overlap.n_runs; i++)
        for (int64_t row = 0; row < overlap.n_rows; row++)
            for (int64_t col = 0; col < overlap.runs[i].n_cols; col++) {
                const int64_t a_col = overlap.runs[i].a_col + col;
                const int64_t b_col = overlap.runs[i].b_col + col;
                assert_true(a_col < a->n_cols && b_col < b->n_cols);
                assert_int_equal(global_column(a, a_col), global_column(b, b_col));
                assert_int_equal(a->rows.begin + overlap.a_row + row, b->rows.begin + overlap.b_row + row);
                counts[(overlap.b_row + row) * b->n_cols + b_col]++;
                n_elems++;
            }
    assert_int_equal(n_elems, overlap.n_elems);
}

TEST(every_owner_is_served_once)
{
    uint64_t seed = test_seed();
    for (int round = 0; round < 200; round++) {
        int sizes[QDR_N_AXES];
        qdr_matrix from = {QDR_INIT(qdr_matrix)}, to = {QDR_INIT(qdr_matrix)};
        random_sizes(&seed, 8, sizes);
        random_matrices(&seed, &from, &to);
        const int n_ranks = sizes[0] * sizes[1] * sizes[2] * sizes[3];
        for (int t = 0; t < n_ranks; t++) {
            const qdri_rank_position there = position_at(sizes, t);
            qdr_owned wanted = {QDR_INIT(qdr_owned)}, held = {QDR_INIT(qdr_owned)};
            qdri_matrix_part(&to, &there, &wanted);
            int *counts = calloc((size_t)(wanted.n_rows * wanted.n_cols) + 1, sizeof *counts);
            for (int s = 0; s < n_ranks; s++) {
                const qdri_rank_position here = position_at(sizes, s);
                qdri_matrix_part(&from, &here, &held);
                if (qdri_matrix_serves(&from, &here, &there)) check_message(&held, &wanted, counts);
            }
            for (int64_t i = 0; i < wanted.n_rows * wanted.n_cols; i++) assert_int_equal(counts[i], 1);
            free(counts);
        }
    }
}

/* 10 rows in units of 2 over d = 2 and z = 2, then over y: 6+4 rows, then 4+2 and 2+2, then halves. Columns {6 in 2},
 * {5} over x = 2: 4+2 and 3+2. */
TEST(by_hand)
{
    const qdr_matrix matrix = {QDR_INIT(qdr_matrix),     .n_rows = 10,      .row_unit = 2,
                               .cols = {{6, 2}, {5, 0}}, .split_cols = 1,   .col_axis = QDR_X,
                               .split_cells = 1,         .scatter_rows = 1, .scatter_axis = QDR_Y};
    const qdri_rank_position position = {.at = {.size = {2, 2, 2, 2}, .coordinate = {1, 1, 0, 1}}, .n_ranks = 16};
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    assert_int_equal(qdri_matrix_check(&matrix), QDR_OK);
    qdri_matrix_part(&matrix, &position, &owned);
    assert_int_equal(owned.rows.begin, 7);
    assert_int_equal(owned.rows.end, 8);
    assert_int_equal(owned.n_ranges, 2);
    assert_int_equal(owned.cols[0].begin, 4);
    assert_int_equal(owned.cols[0].end, 6);
    assert_int_equal(owned.cols[1].begin, 9);
    assert_int_equal(owned.cols[1].end, 11);
    assert_int_equal(owned.n_cols, 4);
}

/* What rank `index` of n_parts owns when the rows are split one way; all other axes have one rank. */
static qdr_range rows_of(const qdr_matrix *matrix, int axis, int n_parts, int index)
{
    qdri_rank_position position = {.at = {.size = {1, 1, 1, 1}}, .rank = index, .n_ranks = n_parts};
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    position.at.size[axis] = n_parts;
    position.at.coordinate[axis] = index;
    qdri_matrix_part(matrix, &position, &owned);
    return owned.rows;
}

/* As callers may count on, who divide the rows of their own files: parts differ by one unit at most, larger ones come
 * first. */
TEST(larger_parts_come_first)
{
    enum { UNIT = 2 };
    const qdr_matrix splits[] = {{.spread = QDR_SPREAD_RANKS, .row_unit = UNIT},
                                 {.scatter_rows = 1, .scatter_axis = QDR_X, .scatter_unit = UNIT},
                                 {.scatter_rows = 1, .scatter_axis = QDR_Y, .scatter_unit = UNIT},
                                 {.split_cells = 1, .row_unit = UNIT},
                                 {.split_cells = 1, .row_unit = UNIT}};
    static const int axes[] = {QDR_X, QDR_X, QDR_Y, QDR_Z, QDR_D};
    for (int i = 0; i < 5; i++)
        for (int n_parts = 1; n_parts <= 7; n_parts++)
            for (int64_t n_units = 0; n_units <= 20; n_units++) {
                qdr_matrix matrix = splits[i];
                matrix.n_rows = UNIT * n_units;
                matrix.cols[0] = (qdr_block){1, 1};
                for (int64_t index = 0, at = 0; index < n_parts; index++) {
                    const qdr_range rows = rows_of(&matrix, axes[i], n_parts, (int)index);
                    assert_int_equal(rows.begin, at);
                    at += UNIT * (n_units / n_parts + (index < n_units % n_parts));
                    assert_int_equal(rows.end, at);
                }
            }
}

TEST(refusals)
{
    const qdr_matrix good = {QDR_INIT(qdr_matrix),  .n_rows = 12,      .row_unit = 4,    .cols = {{6, 2}},
                             .split_cols = 1,       .col_axis = QDR_X, .split_cells = 1, .scatter_rows = 1,
                             .scatter_axis = QDR_Y, .scatter_unit = 2};
    qdr_matrix bad = good;
    assert_int_equal(qdri_matrix_check(&good), QDR_OK);
    CHECK_FAILS(qdri_matrix_check(NULL), QDR_ERR_ARGUMENT, "NULL");
    bad.n_rows = -3;
    CHECK_FAILS(qdri_matrix_check(&bad), QDR_ERR_SHAPE, "-3");
    bad = good, bad.row_unit = 5;
    CHECK_FAILS(qdri_matrix_check(&bad), QDR_ERR_SHAPE, "5");
    bad = good, bad.scatter_unit = 3;
    CHECK_FAILS(qdri_matrix_check(&bad), QDR_ERR_SHAPE, "scatter_unit 3");
    bad = good, bad.cols[0].unit = 4;
    CHECK_FAILS(qdri_matrix_check(&bad), QDR_ERR_SHAPE, "4");
    bad = good, bad.col_axis = QDR_Z;
    CHECK_FAILS(qdri_matrix_check(&bad), QDR_ERR_ARGUMENT, "col_axis");
    bad = good, bad.scatter_axis = QDR_X;
    CHECK_FAILS(qdri_matrix_check(&bad), QDR_ERR_ARGUMENT, "axis x");
    bad = good, bad.scatter_axis = QDR_D;
    CHECK_FAILS(qdri_matrix_check(&bad), QDR_ERR_ARGUMENT, "axis d");
    bad = good, bad.scatter_axis = (qdr_axis)9;
    CHECK_FAILS(qdri_matrix_check(&bad), QDR_ERR_ARGUMENT, "9");
    bad = good, bad.spread = (qdr_spread)3;
    CHECK_FAILS(qdri_matrix_check(&bad), QDR_ERR_ARGUMENT, "3");
}
