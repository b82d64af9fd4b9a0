/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of a conversion, in bands of bounded memory. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/convert.h"

enum {
    COPIED_BYTES = 3 << 18, /* at once; whole elements of every type, those of 4 and 6 bits, too */
    BAND_BYTES = 32 << 20, /* rows of an output that has to be transposed; as much again is read for it */
    JOINED_BYTES = 1 << 20 /* rows of one that has not */
};

/* An output on its way. Positions are those of its source, as rows and columns. */
typedef struct moving {
    const ckpt_plan *plan;
    const ckpt_source *source;
    const ckpt_output *output;
    qdr_safetensors *to;
    int index;
    qdr_dtype as; /* in which elements are read; U8: as they are */
    int64_t each; /* bytes of an element */
    int64_t width; /* elements of a row of the output */
    int is_transposed; /* the output */
    char *band, *block;
    ckpt_progress *progress;
} moving;

/* Reads n elements of an input. */
static int read_run(const moving *m, int input, int64_t first, int64_t n, void *to, failure *why)
{
    const int64_t unit = m->as == QDR_U8 ? m->each : 1;
    return fail_status(why, qdr_safetensors_read(m->plan->file, input, first * unit, n * unit, m->as, to));
}

static int write_run(const moving *m, int64_t first, int64_t n, const void *from, failure *why)
{
    const qdr_tensor *tensor = &m->output->tensor;
    ckpt_progress_add(m->progress, (int64_t)((double)n * (double)tensor->bytes / (double)tensor->n_elems));
    return fail_status(why, qdr_safetensors_write(m->to, m->index, first, n, from));
}

/* ---- rows that follow each other in one input ---- */

static int copy(const moving *m, int64_t skipped, failure *why)
{
    const int64_t n = m->output->tensor.n_elems, bits = 8 * m->output->tensor.bytes / n;
    const int64_t most = 8 * (int64_t)COPIED_BYTES / bits;
    for (int64_t done = 0; done < n; done += most) {
        const int64_t some = n - done < most ? n - done : most, from = skipped + done;
        const qdr_status status = m->as == QDR_U8
                                      ? qdr_safetensors_read(m->plan->file, m->source->pieces[0], from * bits / 8,
                                                             some * bits / 8, QDR_U8, m->band)
                                      : qdr_safetensors_read(m->plan->file, m->source->pieces[0], from, some, m->as,
                                                             m->band);
        if (fail_status(why, status) || write_run(m, done, some, m->band, why)) return why->code;
    }
    return EXIT_OK;
}

/* ---- bands ---- */

/* A rectangle of elements that a piece stores. */
typedef struct rectangle {
    int64_t row, col, n_rows, n_cols; /* as the piece stores them */
    int64_t stored_cols; /* of the whole piece */
} rectangle;

/* Reads a rectangle into rows of `stride` elements. */
static int read_rectangle(const moving *m, int input, const rectangle *r, char *to, int64_t stride, failure *why)
{
    const int64_t begin = r->row * r->stored_cols + r->col;
    if (r->n_cols == r->stored_cols && stride == r->n_cols)
        return read_run(m, input, begin, r->n_rows * r->n_cols, to, why);
    for (int64_t i = 0; i < r->n_rows; i++)
        if (read_run(m, input, begin + i * r->stored_cols, r->n_cols, to + i * stride * m->each, why)) return why->code;
    return EXIT_OK;
}

/* to[j][i] = from[i][j]; `to` has rows of `stride` elements. In tiles, so that both stay in a cache. */
static void transpose(const char *from, int64_t n_rows, int64_t n_cols, char *to, int64_t stride, int64_t each)
{
    enum { TILE = 32 };
    for (int64_t top = 0; top < n_rows; top += TILE)
        for (int64_t left = 0; left < n_cols; left += TILE)
            for (int64_t i = top; i < n_rows && i < top + TILE; i++)
                for (int64_t j = left; j < n_cols && j < left + TILE; j++) {
                    const char *element = from + (i * n_cols + j) * each;
                    char *place = to + (j * stride + i) * each;
                    if (each == 4)
                        memcpy(place, element, 4);
                    else if (each == 2)
                        memcpy(place, element, 2);
                    else
                        memcpy(place, element, (size_t)each);
                }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- rows head by head ---- */

/* The rows of a head in one block: those that follow each other in any order. */
static int64_t run_rows(const ckpt_rule *rule, int64_t rows, int64_t heads)
{
    return rule && rule->by_head ? rows / (rule->by_head * heads) : rows;
}

/* Where the row of a matrix [outer, inner, run] is in [inner, outer, run]. */
static int64_t swapped(int64_t row, int64_t outer, int64_t inner, int64_t run)
{
    return (row / run % inner * outer + row / run / inner) * run + row % run;
}

/* Reads rows [row, row_end) of the source, and of them `cols` columns, to a place in the band. */
static int read_rows(const moving *m, int64_t row, int64_t row_end, int64_t col, int64_t cols, char *to, failure *why)
{
    const ckpt_source *source = m->source;
    const int64_t n_cols = ckpt_columns_of(&source->tensor), heads = m->plan->heads;
    int64_t begin = 0; /* of the piece */
    for (int i = 0; i < source->n_pieces; i++) {
        const qdr_tensor *piece = qdr_safetensors_tensor(m->plan->file, source->pieces[i]);
        const int64_t n_rows = source->is_transposed ? piece->shape[1] : ckpt_rows(piece);
        const int64_t end = smaller(row_end, begin + n_rows), run = run_rows(source->rule, n_rows, heads);
        for (int64_t from = larger(row, begin), stop; from < end; from = stop) {
            int64_t at = from - begin;
            stop = smaller(end, from + run - at % run);
            if (run < n_rows) at = swapped(at, source->rule->by_head, heads, run);
            rectangle r = {.row = at, .col = col, .n_rows = stop - from, .n_cols = cols, .stored_cols = n_cols};
            if (source->is_transposed)
                r = (rectangle){.row = col, .col = at, .n_rows = cols, .n_cols = stop - from, .stored_cols = n_rows};
            char *place = to + (from - row) * (m->is_transposed ? 1 : m->width) * m->each;
            if (source->is_transposed == m->is_transposed) {
                if (read_rectangle(m, source->pieces[i], &r, place, m->width, why)) return why->code;
            } else {
                if (read_rectangle(m, source->pieces[i], &r, m->block, r.n_cols, why)) return why->code;
                transpose(m->block, r.n_rows, r.n_cols, place, m->width, m->each);
            }
        }
        begin += n_rows;
    }
    return EXIT_OK;
}

/* Fills a band: rows [first, first + n) of the output. */
static int read_band(const moving *m, int64_t first, int64_t n, failure *why)
{
    const ckpt_output *output = m->output;
    const int64_t heads = m->plan->heads, run = run_rows(output->rule, output->n_rows, heads);
    if (m->is_transposed)
        return read_rows(m, output->first_row, output->first_row + output->n_rows, first, n, m->band, why);
    for (int64_t at = first, stop; at < first + n; at = stop) {
        stop = smaller(first + n, at + run - at % run);
        const int64_t row = output->first_row +
                            (run < output->n_rows ? swapped(at, heads, output->rule->by_head, run) : at);
        char *to = m->band + (at - first) * m->width * m->each;
        if (read_rows(m, row, row + stop - at, 0, m->width, to, why)) return why->code;
    }
    return EXIT_OK;
}

static int move_bands(const moving *m, int64_t band_rows, failure *why)
{
    const int64_t n = m->output->tensor.n_elems / m->width;
    for (int64_t done = 0; done < n; done += band_rows) {
        const int64_t some = smaller(n - done, band_rows);
        if (read_band(m, done, some, why) || write_run(m, done * m->width, some * m->width, m->band, why))
            return why->code;
    }
    return EXIT_OK;
}

/* ---- outputs ---- */

int ckpt_move(const ckpt_plan *plan, const ckpt_output *output, qdr_safetensors *to, int index, ckpt_progress *progress,
              failure *why)
{
    const ckpt_source *source = &plan->sources[output->source];
    const qdr_tensor *tensor = &output->tensor;
    const int64_t n_cols = ckpt_columns_of(&source->tensor);
    const ckpt_rule *from = source->rule, *to_rule = output->rule;
    const int is_transposed = to_rule && to_rule->is_transposed, is_turned = source->is_transposed != is_transposed;
    const int is_by_head = (from && from->by_head) || (to_rule && to_rule->by_head);
    const int is_plain = source->n_pieces == 1 && !source->is_transposed && !is_transposed && !is_by_head;
    if (tensor->n_elems == 0) return EXIT_OK;
    moving m = {.plan = plan,
                .source = source,
                .output = output,
                .to = to,
                .index = index,
                .as = tensor->type ? QDR_U8 : (qdr_dtype)tensor->dtype,
                .each = tensor->bytes / tensor->n_elems,
                .width = is_transposed ? output->n_rows : n_cols,
                .is_transposed = is_transposed,
                .progress = progress};
    const int64_t most = is_turned ? BAND_BYTES : JOINED_BYTES;
    const int64_t band_rows = is_plain ? 1 : larger(1, most / (m.width * m.each));
    const size_t bytes = is_plain ? COPIED_BYTES
                                  : (size_t)(smaller(band_rows, tensor->n_elems / m.width) * m.width * m.each);
    m.band = malloc(bytes);
    m.block = malloc(is_turned ? bytes : 1);
    if (!m.band || !m.block)
        fail_memory(why, "ckpt convert: out of memory for %zu bytes of %s", bytes, ckpt_show(tensor->name).text);
    else if (is_plain)
        copy(&m, output->first_row * n_cols, why);
    else
        move_bands(&m, band_rows, why);
    free(m.band);
    free(m.block);
    return why->code;
}

int ckpt_compare(const qdr_safetensors *file, int a, int b, int *are_same, failure *why)
{
    static char chunk[2][CKPT_CHUNK];
    const qdr_tensor *first = qdr_safetensors_tensor(file, a), *second = qdr_safetensors_tensor(file, b);
    *are_same = ckpt_same_shape(first, second) && strcmp(first->type, second->type) == 0;
    for (int64_t done = 0; done < first->bytes && *are_same; done += CKPT_CHUNK) {
        const int64_t n = smaller(first->bytes - done, CKPT_CHUNK);
        if (fail_status(why, qdr_safetensors_read(file, a, done, n, QDR_U8, chunk[0])) ||
            fail_status(why, qdr_safetensors_read(file, b, done, n, QDR_U8, chunk[1])))
            return why->code;
        *are_same = memcmp(chunk[0], chunk[1], (size_t)n) == 0;
    }
    return EXIT_OK;
}
