/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank owns of a matrix. Moving a matrix between two layouts: every rank packs the parts that the other ranks
 * need, one all-to-all over the world exchanges them, and every rank unpacks. The part that stays on its rank is copied
 * directly. */
#include "core/block.h"
#include "core/layout.h"
#include "core/ranges.h"
#include "core/size.h"
#include "core/sized.h"
#include "grid/internal.h"

/* The position of a rank, which must exist. */
static void position_of(const qdr_grid *grid, int rank, qdri_rank_position *position)
{
    for (int axis = 0; axis < QDR_N_AXES; axis++) position->at.size[axis] = qdr_grid_size(grid, (qdr_axis)axis);
    qdri_grid_locate(grid, rank, position->at.coordinate);
    position->rank = rank;
    position->n_ranks = qdr_context_size(qdr_grid_context(grid));
}

qdr_status qdr_matrix_owned(const qdr_grid *grid, const qdr_matrix *matrix, int rank, qdr_owned *owned)
{
    qdri_rank_position position;
    qdr_matrix layout;
    qdr_owned part;
    QDR_TRY(QDRI_CLEAR(qdr_owned, owned));
    if (!grid) return QDR_FAIL(QDR_ERR_ARGUMENT, "matrix: the grid is NULL");
    const int n_ranks = qdr_context_size(qdr_grid_context(grid));
    if (rank < 0 || rank >= n_ranks)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "matrix: there is no rank %d; the grid has ranks 0 to %d", rank, n_ranks - 1);
    QDR_TRY(QDRI_TAKE(qdr_matrix, matrix, &layout));
    QDR_TRY(qdri_matrix_check(&layout));
    position_of(grid, rank, &position);
    qdri_matrix_part(&layout, &position, &part);
    QDRI_GIVE(qdr_owned, owned, &part);
    return QDR_OK;
}

/* ---- moving ---- */

/* One call. Counts are in elements, one entry per rank. */
typedef struct move {
    qdr_grid *grid;
    qdr_matrix from, to;
    qdri_rank_position here;
    qdr_owned owned_from, owned_to;
    size_t elem_bytes;
    int64_t *send_counts, *recv_counts;
    int64_t n_send, n_recv;
    qdr_stream *stream;
} move;

static qdr_status take_layouts(const qdr_matrix *src, const qdr_matrix *dst, qdr_dtype dtype, move *m)
{
    const qdr_matrix *from = &m->from, *to = &m->to;
    QDR_TRY(QDRI_TAKE(qdr_matrix, src, &m->from));
    QDR_TRY(QDRI_TAKE(qdr_matrix, dst, &m->to));
    QDR_TRY(qdri_matrix_check(from));
    QDR_TRY(qdri_matrix_check(to));
    const int64_t from_width = qdri_blocks_width(from->cols);
    const int64_t to_width = qdri_blocks_width(to->cols);
    if (from->n_rows != to->n_rows || from_width != to_width)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "redistribute: the source is %" PRId64 " × %" PRId64 " and the target %" PRId64 " × %" PRId64
                        "; they must be equal",
                        from->n_rows, from_width, to->n_rows, to_width);
    if (qdr_dtype_bytes(dtype) == 0)
        return QDR_FAIL(QDR_ERR_DTYPE, "redistribute: %d is not an element type", (int)dtype);
    return QDR_OK;
}

static qdr_status part_check(const move *m, const qdr_owned *owned, const void *data, const char *which)
{
    int64_t n_elems = 0;
    QDR_TRY(qdri_mul_elems(owned->n_rows, owned->n_cols, &n_elems));
    if (n_elems && !data)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "redistribute: %s is NULL, but this rank owns %" PRId64 " × %" PRId64 " elements of it", which,
                        owned->n_rows, owned->n_cols);
    if (!n_elems) return QDR_OK;
    return qdri_dev_check_argument(qdri_context_dev(qdr_grid_context(m->grid)), data, m->elem_bytes, "redistribute",
                                   which);
}

/* The overlap of the old part of rank `from` and the new part of rank `to`, if the one is to send it to the other. */
static qdri_overlap message(const move *m, int from, int to)
{
    qdri_rank_position source, target;
    qdr_owned held, wanted;
    qdri_overlap overlap = {.n_runs = 0};
    position_of(m->grid, from, &source);
    position_of(m->grid, to, &target);
    if (!qdri_matrix_serves(&m->from, &source, &target)) return overlap;
    qdri_matrix_part(&m->from, &source, &held);
    qdri_matrix_part(&m->to, &target, &wanted);
    qdri_owned_overlap(&held, &wanted, &overlap);
    return overlap;
}

/* Copies the runs of a message. x_cols, y_cols: the columns of the matrix at x, at y; 0: there is the message itself,
 * which contains its runs one after the other, each rows × columns. */
static qdr_status copy_runs(const move *m, const qdri_overlap *overlap, const void *x, int64_t x_cols, void *y,
                            int64_t y_cols)
{
    const size_t elem_bytes = m->elem_bytes;
    int64_t position = 0;
    for (int i = 0; overlap->n_rows && i < overlap->n_runs; i++) {
        const qdri_common_columns *run = &overlap->runs[i];
        const int64_t from = x_cols ? overlap->a_row * x_cols + run->a_col : position;
        const int64_t to = y_cols ? overlap->b_row * y_cols + run->b_col : position;
        qdri_kernel kernel = {.kind = QDRI_K_COPY_BLOCK, .dtype = QDR_U8};
        kernel.u.block.n_rows = overlap->n_rows;
        kernel.u.block.row_bytes = (size_t)run->n_cols * elem_bytes;
        kernel.u.block.x_stride = (size_t)(x_cols ? x_cols : run->n_cols) * elem_bytes;
        kernel.u.block.y_stride = (size_t)(y_cols ? y_cols : run->n_cols) * elem_bytes;
        kernel.u.block.x = (const char *)x + (size_t)from * elem_bytes;
        kernel.u.block.y = (char *)y + (size_t)to * elem_bytes;
        QDR_TRY(qdri_kernel_run(m->stream, &kernel));
        position += overlap->n_rows * run->n_cols;
    }
    return QDR_OK;
}

static size_t send_bytes(const move *m) { return qdri_align_bytes((size_t)m->n_send * m->elem_bytes, 64); }

static size_t owned_bytes(const move *m, const qdr_owned *owned)
{
    return (size_t)(owned->n_rows * owned->n_cols) * m->elem_bytes;
}

static qdr_status move_prepare(move *m, const void *src, const void *dst, qdri_retained **retained)
{
    const size_t n_ranks = (size_t)m->here.n_ranks;
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(m->grid));
    qdri_matrix_part(&m->from, &m->here, &m->owned_from);
    qdri_matrix_part(&m->to, &m->here, &m->owned_to);
    QDR_TRY(part_check(m, &m->owned_from, src, "src"));
    QDR_TRY(part_check(m, &m->owned_to, dst, "dst"));
    QDR_TRY(QDRI_RANGES_CHECK("redistribute", {.what = "src", .begin = src, .bytes = owned_bytes(m, &m->owned_from)},
                              {.what = "dst", .begin = dst, .bytes = owned_bytes(m, &m->owned_to), .writes = 1}));
    QDR_TRY(qdri_retained_create(m->grid, 2 * n_ranks * sizeof(int64_t), retained));
    m->send_counts = (int64_t *)(*retained)->host;
    m->recv_counts = m->send_counts + n_ranks;
    /* Elements exchanged between this rank and all others; what a rank keeps is not sent. */
    for (int rank = 0; rank < m->here.n_ranks; rank++) {
        if (rank == m->here.rank) continue;
        m->send_counts[rank] = message(m, m->here.rank, rank).n_elems;
        m->n_send += m->send_counts[rank];
        m->recv_counts[rank] = message(m, rank, m->here.rank).n_elems;
        m->n_recv += m->recv_counts[rank];
    }
    return qdri_mem_alloc_for(dev, "a redistribution", send_bytes(m) + (size_t)m->n_recv * m->elem_bytes,
                              &(*retained)->device);
}

static qdr_status move_run(const move *m, const void *src, void *dst, qdr_dtype dtype, void *staging)
{
    void *received = (char *)staging + send_bytes(m);
    const qdri_coll coll = {.kind = QDR_ALL_TO_ALL,
                            .dtype = dtype,
                            .send = staging,
                            .recv = received,
                            .counts = m->send_counts,
                            .recv_counts = m->recv_counts,
                            .label = "redistribute"};
    const int64_t src_cols = m->owned_from.n_cols, dst_cols = m->owned_to.n_cols;
    const int here = m->here.rank;
    qdri_overlap part = message(m, here, here);
    QDR_TRY(copy_runs(m, &part, src, src_cols, dst, dst_cols));
    if (m->here.n_ranks == 1) return QDR_OK;
    char *out = staging, *in = received;
    for (int rank = 0; rank < m->here.n_ranks; rank++) {
        if (m->send_counts[rank] == 0) continue;
        part = message(m, here, rank);
        QDR_TRY(copy_runs(m, &part, src, src_cols, out, 0));
        out += (size_t)m->send_counts[rank] * m->elem_bytes;
    }
    QDR_TRY(qdri_comm_launch(qdri_context_world(qdr_grid_context(m->grid)), &coll, m->stream));
    for (int rank = 0; rank < m->here.n_ranks; rank++) {
        if (m->recv_counts[rank] == 0) continue;
        part = message(m, rank, here);
        QDR_TRY(copy_runs(m, &part, in, 0, dst, dst_cols));
        in += (size_t)m->recv_counts[rank] * m->elem_bytes;
    }
    return QDR_OK;
}

static void describe(qdri_facts *facts, const char *who, const qdr_matrix *matrix)
{
    qdri_facts_add_int(facts, who, "n_rows", matrix->n_rows);
    qdri_facts_add_int(facts, who, "row_unit", matrix->row_unit ? matrix->row_unit : 1);
    qdri_facts_add_blocks(facts, who, "cols", matrix->cols, QDR_MAX_BLOCKS);
    qdri_facts_add_int(facts, who, "spread", (int)matrix->spread);
    qdri_facts_add_int(facts, who, "split_cols", matrix->split_cols != 0);
    qdri_facts_add_int(facts, who, "col_axis", (int)matrix->col_axis);
    qdri_facts_add_int(facts, who, "split_cells", matrix->split_cells != 0);
    qdri_facts_add_int(facts, who, "scatter_rows", matrix->scatter_rows != 0);
    qdri_facts_add_int(facts, who, "scatter_axis", (int)matrix->scatter_axis);
    qdri_facts_add_int(facts, who, "scatter_unit", matrix->scatter_unit ? matrix->scatter_unit : 1);
}

qdr_status qdr_redistribute(qdr_grid *grid, const qdr_matrix *src_layout, const void *src, const qdr_matrix *dst_layout,
                            void *dst, qdr_dtype dtype, qdr_stream *stream)
{
    qdri_retained *retained = NULL;
    qdri_facts facts = {0};
    move m = {.grid = grid};
    if (!grid) return QDR_FAIL(QDR_ERR_ARGUMENT, "redistribute: the grid is NULL");
    qdr_context *ctx = qdr_grid_context(grid);
    qdr_status status = take_layouts(src_layout, dst_layout, dtype, &m);
    if (status == QDR_OK) {
        m.elem_bytes = qdr_dtype_bytes(dtype);
        m.stream = qdri_stream_or_default(grid, stream);
        position_of(grid, qdr_context_rank(ctx), &m.here);
        status = move_prepare(&m, src, dst, &retained);
    }
    if (status == QDR_OK) { /* both layouts together determine who sends what to whom */
        describe(&facts, "the source", &m.from);
        describe(&facts, "the target", &m.to);
        qdri_facts_add(&facts, "the call", "dtype", qdr_dtype_name(dtype));
    }
    /* A rank that cannot take part must not leave the others waiting for its messages. */
    status = qdri_context_agree_same(ctx, status, &facts, "redistribute",
                                     "pass the same layouts and type on every rank");
    qdri_facts_free(&facts);
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): agreed, so it was created */
    if (status == QDR_OK) status = move_run(&m, src, dst, dtype, retained->device);
    if (retained) qdri_retained_release(grid, retained, m.stream);
    return status;
}
