/* SPDX-License-Identifier: Apache-2.0 */
/* Redistribution between random layouts: every element arrives, a round trip is the identity, errors reach all
 * ranks. */

#include "../random_layout.h"
#include "dist.h"

static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16, QDR_I32, QDR_U8};

/* One byte of element (row, column). */
static uint8_t byte_of(int64_t row, int64_t col, size_t i)
{
    uint64_t seed = (uint64_t)row * 1000003u + (uint64_t)col * 8u + i;
    return (uint8_t)dist_random(&seed);
}

/* Calls fn for each byte of a part, with what belongs there. */
static void for_each_byte(const qdr_owned *owned, uint8_t *data, size_t elem_bytes,
                          void (*fn)(uint8_t *byte, uint8_t right))
{
    for (int64_t row = owned->rows.begin; row < owned->rows.end; row++)
        for (int r = 0; r < owned->n_ranges; r++)
            for (int64_t col = owned->cols[r].begin; col < owned->cols[r].end; col++)
                for (size_t i = 0; i < elem_bytes; i++) fn(data++, byte_of(row, col, i));
}

static void set_byte(uint8_t *byte, uint8_t right) { *byte = right; }

static void check_byte(uint8_t *byte, uint8_t right) { DIST_CHECK(*byte == right, "%d, not %d", *byte, right); }

typedef struct part {
    qdr_owned owned;
    void *data;
} part;

static part part_of(const qdr_grid *grid, const qdr_matrix *matrix, qdr_dtype dtype)
{
    qdr_context *ctx = qdr_grid_context(grid);
    part made;
    made.owned.size = sizeof made.owned;
    DIST_OK(qdr_matrix_owned(grid, matrix, qdr_context_rank(ctx), &made.owned));
    made.data = dist_memory(ctx, made.owned.n_rows * made.owned.n_cols, dtype);
    return made;
}

/* from -> to -> from, without waiting in between. */
static void there_and_back_once(qdr_context *ctx, uint64_t *seed)
{
    qdr_grid *grid = dist_random_grid(ctx, seed);
    const qdr_dtype dtype = types[dist_below(seed, 6)];
    const size_t elem_bytes = qdr_dtype_bytes(dtype);
    qdr_matrix from = {QDR_INIT(qdr_matrix)}, to = {QDR_INIT(qdr_matrix)};
    random_matrices(seed, &from, &to);
    qdr_stream *stream = NULL;
    if (dist_below(seed, 2)) DIST_OK(qdr_stream_create(ctx, &stream));
    part source = part_of(grid, &from, dtype), target = part_of(grid, &to, dtype);
    part back = part_of(grid, &from, dtype);
    for_each_byte(&source.owned, source.data, elem_bytes, set_byte);
    DIST_OK(qdr_redistribute(grid, &from, source.data, &to, target.data, dtype, stream));
    DIST_OK(qdr_redistribute(grid, &to, target.data, &from, back.data, dtype, stream));
    DIST_OK(qdr_stream_synchronize(stream ? stream : qdr_context_stream(ctx)));
    for_each_byte(&target.owned, target.data, elem_bytes, check_byte);
    for_each_byte(&back.owned, back.data, elem_bytes, check_byte);
    qdr_mem_free(ctx, &source.data);
    qdr_mem_free(ctx, &target.data);
    qdr_mem_free(ctx, &back.data);
    qdr_stream_destroy(&stream);
    qdr_grid_destroy(&grid);
}

/* What a device makes at its first kernel stays. */
static void use_device(qdr_context *ctx)
{
    const qdr_codec codec = {QDR_CODEC_INT8, 0, 0, 0};
    float *x = dist_memory(ctx, 1, QDR_F32);
    int64_t n_bytes;
    void *wire = dist_memory(ctx, 64, QDR_U8);
    DIST_OK(qdr_codec_encode(ctx, &codec, QDR_F32, x, 1, NULL, 0, wire, &n_bytes, NULL));
    dist_synchronize(ctx);
    qdr_mem_free(ctx, (void **)&x);
    qdr_mem_free(ctx, &wire);
}

DIST_TEST(there_and_back)
{
    size_t before = 0, after = 0, peak = 0;
    use_device(ctx);
    qdr_mem_usage(ctx, &before, &peak);
    for (int round = 0, n = dist_rounds(30); round < n; round++) there_and_back_once(ctx, &seed);
    qdr_mem_usage(ctx, &after, &peak);
    DIST_CHECK(before == after, "%zu bytes are left of %zu", after, before);
}

/* What stays on its rank is copied directly: it needs no staging for messages. */
DIST_TEST(what_stays_is_not_staged)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    const qdr_matrix rows = {QDR_INIT(qdr_matrix), .n_rows = 1024 * qdr_context_size(ctx), .cols = {{64, 1}},
                             .spread = QDR_SPREAD_RANKS};
    part source = part_of(grid, &rows, QDR_F32), target = part_of(grid, &rows, QDR_F32);
    const size_t bytes = (size_t)(source.owned.n_rows * source.owned.n_cols) * sizeof(float);
    size_t before = 0, now = 0, peak = 0;
    use_device(ctx);
    for_each_byte(&source.owned, source.data, 4, set_byte);
    qdr_mem_reset_peak(ctx);
    qdr_mem_usage(ctx, &before, &peak);
    DIST_OK(qdr_redistribute(grid, &rows, source.data, &rows, target.data, QDR_F32, NULL));
    dist_synchronize(ctx);
    qdr_mem_usage(ctx, &now, &peak);
    for_each_byte(&target.owned, target.data, 4, check_byte);
    DIST_CHECK(peak - before < bytes, "%zu bytes are allocated to move nothing", peak - before);
    qdr_mem_free(ctx, &source.data);
    qdr_mem_free(ctx, &target.data);
    qdr_grid_destroy(&grid);
}

/* One rank's mistake is everybody's error, and the next call works. */
DIST_TEST(errors_reach_all)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    const qdr_matrix rows = {QDR_INIT(qdr_matrix), .n_rows = 24, .cols = {{6, 1}}, .spread = QDR_SPREAD_RANKS};
    qdr_matrix root = rows, other = rows;
    root.spread = QDR_SPREAD_ROOT;
    other.n_rows = 25;
    part source = part_of(grid, &rows, QDR_F32), target = part_of(grid, &root, QDR_F32);
    const int last = qdr_context_rank(ctx) == qdr_context_size(ctx) - 1;
    for_each_byte(&source.owned, source.data, 4, set_byte);
    DIST_FAILS(qdr_redistribute(grid, &rows, source.data, &other, target.data, QDR_F32, NULL), QDR_ERR_SHAPE, "25");
    DIST_FAILS(qdr_redistribute(grid, &rows, last ? NULL : source.data, &root, target.data, QDR_F32, NULL),
               QDR_ERR_ARGUMENT, "src is NULL");
    DIST_FAILS(qdr_redistribute(grid, &rows, source.data, last ? NULL : &root, target.data, QDR_F32, NULL),
               QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_redistribute(grid, &rows, source.data, &root, target.data, (qdr_dtype)77, NULL), QDR_ERR_DTYPE,
               "77");
    DIST_FAILS(qdr_redistribute(NULL, &rows, source.data, &root, target.data, QDR_F32, NULL), QDR_ERR_ARGUMENT, "grid");
    DIST_OK(qdr_redistribute(grid, &rows, source.data, &root, target.data, QDR_F32, NULL));
    dist_synchronize(ctx);
    for_each_byte(&target.owned, target.data, 4, check_byte);
    qdr_mem_free(ctx, &source.data);
    qdr_mem_free(ctx, &target.data);
    qdr_grid_destroy(&grid);
}

DIST_TEST(owned_refusals)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    const qdr_matrix matrix = {QDR_INIT(qdr_matrix), .n_rows = 4, .cols = {{3, 1}}};
    const int n_ranks = qdr_context_size(ctx);
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    DIST_FAILS(qdr_matrix_owned(NULL, &matrix, 0, &owned), QDR_ERR_ARGUMENT, "grid");
    DIST_FAILS(qdr_matrix_owned(grid, NULL, 0, &owned), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_matrix_owned(grid, &matrix, 0, NULL), QDR_ERR_ARGUMENT, "owned");
    DIST_FAILS(qdr_matrix_owned(grid, &matrix, n_ranks, &owned), QDR_ERR_ARGUMENT, "no rank");
    DIST_FAILS(qdr_matrix_owned(grid, &matrix, -1, &owned), QDR_ERR_ARGUMENT, "-1");
    DIST_OK(qdr_matrix_owned(grid, &matrix, n_ranks - 1, &owned));
    DIST_CHECK(owned.n_rows == 4 && owned.n_cols == 3, "an unsplit matrix is whole on all ranks");
    qdr_grid_destroy(&grid);
}
