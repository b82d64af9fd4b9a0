/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/rows.h"

#include <string.h>

#include "checkpoint/crc.h"
#include "core/block.h"
#include "core/size.h"
#include "quadrille/coll.h"

enum {
    MOST_BAND_ROWS = 16, /* a cache line of F32: each is read once */
    SHORT_BYTES = 16 << 10, /* pieces of rows that are exchanged: longer ones take hardly longer than plain reading */
    EXCHANGED_BYTES = 512 << 10, /* of a rank at once, which its cache has until they are exchanged */
    MOST_MEMBERS = EXCHANGED_BYTES / SHORT_BYTES
};

/* Transposes between rows and lines of the storage, with a number of bytes that is known at compile time. */
static inline void turn_elems(char *rows, char *lines, int64_t n_rows, int64_t n_cols, int64_t line, int to_lines,
                              size_t each)
{
    for (int64_t j = 0; j < n_cols; j++)
        for (int64_t i = 0; i < n_rows; i++) {
            char *in_row = rows + (size_t)(i * n_cols + j) * each, *in_line = lines + (size_t)(j * line + i) * each;
            memcpy(to_lines ? in_line : in_row, to_lines ? in_row : in_line, each);
        }
}

static void turn(const qdri_rows *rows, char *lines, int64_t n_rows, int64_t n_cols, int64_t line)
{
    const int to_lines = rows->is_reading;
    if (rows->elem_bytes == 2) turn_elems(rows->band, lines, n_rows, n_cols, line, to_lines, 2);
    if (rows->elem_bytes == 4) turn_elems(rows->band, lines, n_rows, n_cols, line, to_lines, 4);
    if (rows->elem_bytes == 8) turn_elems(rows->band, lines, n_rows, n_cols, line, to_lines, 8);
}

/* Where a run is in the file: stretches of consecutive bytes at equal distances. */
typedef struct stretches {
    int64_t first, n, n_bytes, distance; /* bytes */
} stretches;

static stretches find_stretches(const qdri_rows *rows, const qdr_parameter_run *run)
{
    const int64_t width = qdri_blocks_width(rows->parameter->cols), each = (int64_t)rows->elem_bytes;
    const int is_whole = run->n_cols == width; /* then rows follow each other */
    return (stretches){.first = (run->row * width + run->col) * each,
                       .n = is_whole ? 1 : run->n_rows,
                       .n_bytes = (is_whole ? run->n_rows : 1) * run->n_cols * each,
                       .distance = width * each};
}

static qdr_status move_plain(const qdri_rows *rows, const qdr_parameter_run *run, const stretches *s, char *values,
                             qdri_crc_runs *crcs)
{
    for (int64_t i = 0; i < s->n; i++) {
        uint32_t crc = 0;
        char *from = values + (size_t)(run->offset + i * run->row_step) * rows->elem_bytes;
        QDR_TRY(rows->move(rows->user, s->first + i * s->distance, from, (size_t)s->n_bytes, &crc));
        qdri_crc_runs_add(crcs, crc);
    }
    return QDR_OK;
}

/* The rows of a band, which are one stretch, or a stretch each. */
static qdr_status move_band(const qdri_rows *rows, int64_t first_row, int64_t n_rows, size_t row_bytes,
                            const stretches *s, uint32_t *crc, qdri_crc_runs *crcs)
{
    if (s->n == 1)
        return rows->move(rows->user, s->first + first_row * (int64_t)row_bytes, rows->band, (size_t)n_rows * row_bytes,
                          crc);
    for (int64_t i = 0; i < n_rows; i++) {
        *crc = 0;
        QDR_TRY(rows->move(rows->user, s->first + (first_row + i) * s->distance,
                           (char *)rows->band + (size_t)i * row_bytes, row_bytes, crc));
        qdri_crc_runs_add(crcs, *crc);
    }
    return QDR_OK;
}

static qdr_status move_turned(const qdri_rows *rows, const qdr_parameter_run *run, const stretches *s, char *values,
                              qdri_crc_runs *crcs)
{
    const size_t row_bytes = (size_t)run->n_cols * rows->elem_bytes;
    const int64_t fit = (int64_t)(QDRI_BAND_BYTES / row_bytes), most = qdri_least(fit, MOST_BAND_ROWS);
    uint32_t crc = 0;
    for (int64_t row = 0; row < run->n_rows; row += most) {
        const int64_t n = qdri_least(run->n_rows - row, most);
        char *lines = values + (size_t)(run->offset + row) * rows->elem_bytes;
        if (!rows->is_reading) turn(rows, lines, n, run->n_cols, run->col_step);
        QDR_TRY(move_band(rows, row, n, row_bytes, s, &crc, crcs));
        if (rows->is_reading) turn(rows, lines, n, run->n_cols, run->col_step);
    }
    if (s->n == 1) qdri_crc_runs_add(crcs, crc);
    return QDR_OK;
}

static qdr_status move_run(qdri_rows *rows, const qdr_parameter_run *run, char *values)
{
    const stretches s = find_stretches(rows, run);
    const int64_t tensor_bytes = rows->parameter->n_global * (int64_t)rows->elem_bytes;
    qdri_crc_runs crcs = qdri_crc_runs_begin(s.n_bytes, s.distance);
    QDR_TRY((run->col_step == 1 ? move_plain : move_turned)(rows, run, &s, values, &crcs));
    rows->share ^= qdri_crc_runs_share(&crcs, tensor_bytes - s.first - (s.n - 1) * s.distance - s.n_bytes);
    return QDR_OK;
}

/* A run with rows that are longer than a band is moved in parts of its columns. */
static qdr_status move_parts(qdri_rows *rows, qdr_parameter_run run, char *values)
{
    const int64_t most = QDRI_BAND_BYTES / (int64_t)rows->elem_bytes;
    while (run.col_step > 1 && run.n_cols > most) {
        qdr_parameter_run part = run;
        part.n_cols = most;
        QDR_TRY(move_run(rows, &part, values));
        run.offset += most * run.col_step;
        run.col += most;
        run.n_cols -= most;
    }
    return move_run(rows, &run, values);
}

/* ---- rows that are exchanged ---- */

int qdri_rows_exchange(const qdr_stack *stack, const qdri_parameter *parameter, qdr_axis *axis)
{
    const qdri_node *node = &stack->net.nodes[parameter->node];
    const int n_parts = parameter->col_parts;
    if (!parameter->flat_over_z || parameter->storage == QDR_IN_OUT || n_parts == 1 || n_parts > MOST_MEMBERS) return 0;
    if (qdri_blocks_part(parameter->cols, n_parts, 0) != qdri_blocks_part(parameter->cols, n_parts, n_parts - 1))
        return 0;
    *axis = node->kind == QDRI_NODE_EMBEDDING ? node->layer.shape.out_axis : node->layer.shape.in_axis;
    return qdri_dev_runs_work(qdri_context_dev(qdr_grid_context(stack->grid)));
}

/* A run whose rows are whole in the shard, of which the members have equal pieces side by side. */
static int exchanges(const qdri_rows *rows, const qdr_parameter_run *run)
{
    return rows->grid && run->n_cols == rows->parameter->n_cols && run->row_step == run->n_cols &&
           run->n_cols * (int64_t)rows->elem_bytes < SHORT_BYTES;
}

/* Between whole rows and the pieces of them that belong to each member. */
static void interleave(int n_members, int64_t n_rows, size_t piece_bytes, char *whole, char *pieces, int to_pieces)
{
    for (int j = 0; j < n_members; j++)
        for (int64_t i = 0; i < n_rows; i++, pieces += piece_bytes) {
            char *in_whole = whole + ((size_t)i * (size_t)n_members + (size_t)j) * piece_bytes;
            memcpy(to_pieces ? pieces : in_whole, to_pieces ? in_whole : pieces, piece_bytes);
        }
}

/* Sends counts[j] bytes to each member, and receives as many as recv_counts says. */
static qdr_status swap(const qdri_rows *rows, const void *send, const int64_t *counts, void *recv,
                       const int64_t *recv_counts)
{
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(rows->grid));
    QDR_TRY(qdr_all_to_all(rows->grid, rows->axis, send, counts, recv, recv_counts, 0, QDR_U8, stream));
    return qdri_stream_synchronize(stream);
}

/* Some rows of a run, which are at `at`: each member moves an equal share of them as a whole. */
static qdr_status move_exchanged(qdri_rows *rows, const qdr_parameter_run *run, int64_t row, int64_t n, char *at)
{
    const int n_members = qdr_grid_size(rows->grid, rows->axis), self = qdr_grid_coordinate(rows->grid, rows->axis);
    const int64_t piece_bytes = run->n_cols * (int64_t)rows->elem_bytes;
    int64_t all[MOST_MEMBERS], own[MOST_MEMBERS], begin, end;
    char *whole = rows->band, *pieces = whole + QDRI_BAND_BYTES / 2;
    for (int j = 0; j < n_members; j++) {
        qdri_split(n, 1, n_members, j, &begin, &end);
        all[j] = (end - begin) * piece_bytes;
    }
    qdri_split(n, 1, n_members, self, &begin, &end);
    for (int j = 0; j < n_members; j++) own[j] = all[self];
    const qdr_parameter_run share = {.row = run->row + row + begin,
                                     .n_rows = end - begin,
                                     .n_cols = n_members * run->n_cols,
                                     .row_step = n_members * run->n_cols,
                                     .col_step = 1};
    if (!rows->is_reading) {
        QDR_TRY(swap(rows, at, all, pieces, own));
        interleave(n_members, share.n_rows, (size_t)piece_bytes, whole, pieces, 0);
    }
    if (share.n_rows && rows->status == QDR_OK) rows->status = move_run(rows, &share, whole);
    if (!rows->is_reading) return QDR_OK;
    interleave(n_members, share.n_rows, (size_t)piece_bytes, whole, pieces, 1);
    return swap(rows, pieces, own, at, all);
}

static qdr_status exchange_run(qdri_rows *rows, const qdr_parameter_run *run, char *values)
{
    const int64_t piece_bytes = run->n_cols * (int64_t)rows->elem_bytes, most = EXCHANGED_BYTES / piece_bytes;
    for (int64_t row = 0; row < run->n_rows; row += most) {
        const int64_t n = qdri_least(run->n_rows - row, most);
        char *at = values + (size_t)(run->offset + row * run->row_step) * rows->elem_bytes;
        QDR_TRY(move_exchanged(rows, run, row, n, at));
    }
    return QDR_OK;
}

qdr_status qdri_rows_move(qdri_rows *rows, int64_t begin, int64_t n, void *values)
{
    qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS];
    qdri_parameter part = *rows->parameter;
    part.shard_begin += begin;
    part.n_elems = n;
    const int n_runs = qdri_parameter_runs(&part, runs);
    for (int i = 0; i < n_runs; i++) {
        if (exchanges(rows, &runs[i]))
            QDR_TRY(exchange_run(rows, &runs[i], values));
        else if (rows->status == QDR_OK)
            rows->status = move_parts(rows, runs[i], values);
    }
    return QDR_OK;
}
