/* SPDX-License-Identifier: Apache-2.0 */
/* Whether strided accesses overlap. */
#include "internal.h"

static intptr_t first_byte(const fake_access *a) { return (intptr_t)a->begin; }

static intptr_t end_byte(const fake_access *a)
{
    return first_byte(a) + (intptr_t)((size_t)(a->n_rows - 1) * a->stride_bytes + a->row_bytes);
}

static int is_empty(const fake_access *a) { return a->n_rows <= 0 || a->row_bytes == 0; }

static intptr_t floor_div(intptr_t a, intptr_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

/* Whether some k of [low, high] has begin < k·stride < end. */
static int multiple_between(intptr_t begin, intptr_t end, intptr_t stride, intptr_t low, intptr_t high)
{
    intptr_t k = floor_div(begin, stride) + 1;
    if (k < low) k = low;
    return k <= high && k * stride < end;
}

/* Row i of a and row j of b overlap if b begins less than b's length before and less than a's length after a's begin;
 * only j - i matters. */
static int overlap_equal_strides(const fake_access *a, const fake_access *b)
{
    const intptr_t apart = first_byte(b) - first_byte(a);
    return multiple_between(-(intptr_t)b->row_bytes - apart, (intptr_t)a->row_bytes - apart, (intptr_t)a->stride_bytes,
                            1 - (intptr_t)a->n_rows, (intptr_t)b->n_rows - 1);
}

/* One row against all rows of the other. */
static int row_overlaps(intptr_t begin, intptr_t end, const fake_access *b)
{
    if (b->n_rows == 1) return begin < end_byte(b) && first_byte(b) < end;
    return multiple_between(begin - first_byte(b) - (intptr_t)b->row_bytes, end - first_byte(b),
                            (intptr_t)b->stride_bytes, 0, (intptr_t)b->n_rows - 1);
}

int fake_overlap(const fake_access *a, const fake_access *b)
{
    if (is_empty(a) || is_empty(b)) return 0;
    if (first_byte(a) >= end_byte(b) || first_byte(b) >= end_byte(a)) return 0;
    if (a->n_rows > b->n_rows) return fake_overlap(b, a);
    if (a->n_rows > 1 && a->stride_bytes == b->stride_bytes) return overlap_equal_strides(a, b);
    for (int64_t r = 0; r < a->n_rows; r++) {
        const intptr_t begin = first_byte(a) + (intptr_t)((size_t)r * a->stride_bytes);
        if (row_overlaps(begin, begin + (intptr_t)a->row_bytes, b)) return 1;
    }
    return 0;
}

static int is_same(const fake_access *a, const fake_access *b)
{
    return a->begin == b->begin && a->row_bytes == b->row_bytes && a->n_rows == b->n_rows &&
           (a->n_rows == 1 || a->stride_bytes == b->stride_bytes);
}

int fake_covers(const fake_access *a, const fake_access *b)
{
    if (is_empty(b) || is_same(a, b)) return 1;
    const int is_solid = a->n_rows == 1 || a->stride_bytes <= a->row_bytes;
    return is_solid && first_byte(a) <= first_byte(b) && end_byte(b) <= end_byte(a);
}
