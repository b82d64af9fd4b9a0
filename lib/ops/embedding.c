/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding: a masked lookup in the local part of the vocabulary, summed over y. */
#include "core/block.h"
#include "core/size.h"
#include "ops/ops.h"

static const char who[] = "embedding";

static qdr_status embedding_check(const qdr_grid *grid, const qdr_embedding *embedding)
{
    int64_t n_elems = 0;
    QDR_TRY(qdri_check_object(who, grid, "the grid"));
    QDR_TRY(qdri_check_object(who, embedding, "the description"));
    QDR_TRY(qdri_check_version(who, embedding->version));
    QDR_TRY(qdri_check_dtype(who, embedding->dtype));
    QDR_TRY(qdri_check_extent(who, "n_rows", embedding->n_rows));
    QDR_TRY(qdri_check_extent(who, "n_cols", embedding->n_cols));
    QDR_TRY(qdri_check_extent(who, "vocab_begin", embedding->vocab_begin));
    QDR_TRY(qdri_mul_elems(embedding->n_rows, embedding->n_cols, &n_elems));
    if (embedding->vocab_end < embedding->vocab_begin)
        return QDR_FAIL(QDR_ERR_SHAPE, "embedding: vocab_end %" PRId64 " lies before vocab_begin %" PRId64,
                        embedding->vocab_end, embedding->vocab_begin);
    if (embedding->layout != QDR_REPLICATED && embedding->layout != QDR_SCATTERED)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "embedding: %d is not a layout; use QDR_REPLICATED or QDR_SCATTERED",
                        (int)embedding->layout);
    return qdri_mul_elems(embedding->vocab_end - embedding->vocab_begin, embedding->n_cols, &n_elems);
}

/* If rows are scattered over y, all rows of the cell pass through `work`. */
static int is_scattered(const qdr_grid *grid, const qdr_embedding *embedding)
{
    return embedding->layout == QDR_SCATTERED && qdri_axis_size(grid, QDR_Y) > 1;
}

/* Elements of y on this rank. */
static int64_t output_elems(const qdr_grid *grid, const qdr_embedding *embedding)
{
    int64_t begin = 0, end = embedding->n_rows;
    if (is_scattered(grid, embedding))
        qdri_split(embedding->n_rows, 1, qdri_axis_size(grid, QDR_Y), qdri_axis_rank(grid, QDR_Y), &begin, &end);
    return (end - begin) * embedding->n_cols;
}

qdr_status qdr_embedding_sizes(const qdr_grid *grid, const qdr_embedding *embedding, size_t *work_bytes)
{
    QDR_TRY(qdri_check_object(who, work_bytes, "work_bytes"));
    *work_bytes = 0;
    QDR_TRY(embedding_check(grid, embedding));
    if (!is_scattered(grid, embedding)) return QDR_OK;
    return qdri_block_bytes(embedding->n_rows, embedding->n_cols, embedding->dtype, work_bytes);
}

/* Converts rows of y between scattered and whole: `kind` is the all-gather or the reduce-scatter over y. */
static qdr_status rows_move(qdr_grid *grid, const qdr_embedding *embedding, qdr_coll_kind kind, const void *send,
                            void *recv, qdr_stream *stream)
{
    const int64_t n_cols = embedding->n_cols;
    const qdri_coll coll = {.kind = kind,
                            .dtype = embedding->dtype,
                            .op = QDR_SUM,
                            .send = send,
                            .recv = recv,
                            .count = embedding->n_rows * n_cols,
                            .split_unit = n_cols ? n_cols : 1};
    return qdri_axis_launch(grid, who, QDR_Y, coll, stream);
}

static qdri_kernel embed_kernel(const qdr_embedding *embedding, qdri_kernel_kind kind, const int32_t *tokens)
{
    qdri_kernel kernel = {.kind = kind, .dtype = embedding->dtype};
    kernel.u.embed.n_rows = embedding->n_rows;
    kernel.u.embed.n_cols = embedding->n_cols;
    kernel.u.embed.begin = embedding->vocab_begin;
    kernel.u.embed.end = embedding->vocab_end;
    kernel.u.embed.vocab = embedding->vocab;
    kernel.u.embed.tokens = tokens;
    return kernel;
}

static int64_t table_elems(const qdr_embedding *embedding)
{
    return (embedding->vocab_end - embedding->vocab_begin) * embedding->n_cols;
}

static int64_t work_elems(const qdr_grid *grid, const qdr_embedding *embedding)
{
    return is_scattered(grid, embedding) ? embedding->n_rows * embedding->n_cols : 0;
}

static qdr_status data_check(const qdr_grid *grid, const qdr_embedding *embedding, const int32_t *tokens,
                             const void *table, qdr_dtype table_type, const void *rows, const void *work)
{
    qdri_dev *dev = qdri_grid_dev(grid);
    QDR_TRY(qdri_check_data(dev, who, qdri_read("tokens", tokens, embedding->n_rows, QDR_I32)));
    QDR_TRY(qdri_check_data(dev, who, qdri_read("E or its gradient", table, table_elems(embedding), table_type)));
    QDR_TRY(qdri_check_data(dev, who,
                            qdri_read("y or its gradient", rows, output_elems(grid, embedding), embedding->dtype)));
    return qdri_check_data(dev, who, qdri_read("work", work, work_elems(grid, embedding), embedding->dtype));
}

qdr_status qdr_embedding_forward(qdr_grid *grid, const qdr_embedding *embedding, const int32_t *tokens, const void *e,
                                 void *y, void *work, qdr_stream *stream)
{
    QDR_TRY(embedding_check(grid, embedding));
    QDR_TRY(data_check(grid, embedding, tokens, e, embedding->dtype, y, work));
    const int scattered = is_scattered(grid, embedding);
    QDR_TRY(QDRI_RANGES_CHECK(who, qdri_read("tokens", tokens, embedding->n_rows, QDR_I32).range,
                              qdri_read("E", e, table_elems(embedding), embedding->dtype).range,
                              qdri_write("y", y, output_elems(grid, embedding), embedding->dtype).range,
                              qdri_write("work", work, work_elems(grid, embedding), embedding->dtype).range));
    stream = qdri_stream_or_default(grid, stream);
    qdri_kernel kernel = embed_kernel(embedding, QDRI_K_EMBED_FORWARD, tokens);
    kernel.u.embed.e = e;
    kernel.u.embed.y = scattered ? work : y;
    QDR_TRY(qdri_kernel_run(stream, &kernel));
    if (scattered) return rows_move(grid, embedding, QDR_REDUCE_SCATTER, work, y, stream);
    return qdri_axis_reduce(grid, who, QDR_Y, QDR_SUM, y, embedding->n_rows * embedding->n_cols, embedding->dtype,
                            stream);
}

qdr_status qdr_embedding_backward(qdr_grid *grid, const qdr_embedding *embedding, const int32_t *tokens, const void *dy,
                                  void *de, int accumulate, void *work, qdr_stream *stream)
{
    QDR_TRY(embedding_check(grid, embedding));
    QDR_TRY(qdri_check_switch(who, "accumulate", accumulate));
    QDR_TRY(data_check(grid, embedding, tokens, de, qdri_sum_type(embedding->dtype), dy, work));
    const int scattered = is_scattered(grid, embedding);
    QDR_TRY(QDRI_RANGES_CHECK(who, qdri_read("tokens", tokens, embedding->n_rows, QDR_I32).range,
                              qdri_read("dy", dy, output_elems(grid, embedding), embedding->dtype).range,
                              qdri_write("dE", de, table_elems(embedding), qdri_sum_type(embedding->dtype)).range,
                              qdri_write("work", work, work_elems(grid, embedding), embedding->dtype).range));
    stream = qdri_stream_or_default(grid, stream);
    if (scattered) QDR_TRY(rows_move(grid, embedding, QDR_ALL_GATHER, dy, work, stream));
    qdri_kernel kernel = embed_kernel(embedding, QDRI_K_EMBED_BACKWARD, tokens);
    kernel.u.embed.dy = scattered ? work : dy;
    kernel.u.embed.de = de;
    kernel.u.embed.accumulate = accumulate;
    return qdri_kernel_run(stream, &kernel);
}
