/* SPDX-License-Identifier: Apache-2.0 */
/* Divides widths into parts of whole units. */
#include "core/block.h"

#include <stdio.h>

static int64_t unit_of(const qdr_block *block) { return block->unit ? block->unit : 1; }

void qdri_split(int64_t width, int64_t unit, int n_parts, int index, int64_t *begin, int64_t *end)
{
    const int64_t n_units = width / unit;
    const int64_t each = n_units / n_parts, larger = n_units % n_parts;
    const int64_t first = each * index + (index < larger ? index : larger);
    *begin = first * unit;
    *end = (first + each + (index < larger)) * unit;
}

int qdri_blocks_count(const qdr_block blocks[QDR_MAX_BLOCKS])
{
    int n = 0;
    while (n < QDR_MAX_BLOCKS && blocks[n].width != 0) n++;
    return n;
}

int64_t qdri_blocks_width(const qdr_block blocks[QDR_MAX_BLOCKS])
{
    int64_t width = 0;
    for (int i = 0; i < qdri_blocks_count(blocks); i++) width += blocks[i].width;
    return width;
}

int64_t qdri_blocks_part(const qdr_block blocks[QDR_MAX_BLOCKS], int n_parts, int index)
{
    int64_t n_cols = 0;
    for (int i = 0; i < qdri_blocks_count(blocks); i++) {
        int64_t begin, end;
        qdri_split(blocks[i].width, unit_of(&blocks[i]), n_parts, index, &begin, &end);
        n_cols += end - begin;
    }
    return n_cols;
}

int qdri_blocks_equal(const qdr_block a[QDR_MAX_BLOCKS], const qdr_block b[QDR_MAX_BLOCKS])
{
    const int n = qdri_blocks_count(a);
    if (n != qdri_blocks_count(b)) return 0;
    for (int i = 0; i < n; i++)
        if (a[i].width != b[i].width || unit_of(&a[i]) != unit_of(&b[i])) return 0;
    return 1;
}

/* The divisors of width closest to unit: *below <= unit < *above. Trial division up to 2^16 finds all divisors of any
 * width below 2^32, and stays fast for larger widths, where it may miss some. */
static void nearest_divisors(int64_t width, int64_t unit, int64_t *below, int64_t *above)
{
    *below = 1;
    *above = width;
    for (int64_t i = 1; i <= width / i && i < (1 << 16); i++) {
        if (width % i) continue;
        const int64_t pair[2] = {i, width / i};
        for (int k = 0; k < 2; k++) {
            if (pair[k] <= unit && pair[k] > *below) *below = pair[k];
            if (pair[k] > unit && pair[k] < *above) *above = pair[k];
        }
    }
}

static qdr_status fail_unit(const qdr_block *block, const char *who)
{
    const int64_t width = block->width, unit = block->unit;
    if (unit > width)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "%s: unit %" PRId64 " is larger than width %" PRId64 "; use a unit that divides %" PRId64
                        ", or pad to %" PRId64,
                        who, unit, width, width, unit);
    int64_t below, above;
    nearest_divisors(width, unit, &below, &above);
    const int64_t missing = unit - width % unit;
    char padded[40] = "";
    if (width <= INT64_MAX - missing) snprintf(padded, sizeof padded, ", or pad to %" PRId64, width + missing);
    return QDR_FAIL(QDR_ERR_SHAPE,
                    "%s: unit %" PRId64 " does not divide width %" PRId64 "; use a unit of %" PRId64 " or %" PRId64
                    "%s",
                    who, unit, width, below, above, padded);
}

qdr_status qdri_blocks_check(const qdr_block blocks[QDR_MAX_BLOCKS], const char *who)
{
    const int n = qdri_blocks_count(blocks);
    int64_t width = 0;
    if (n == 0) return QDR_FAIL(QDR_ERR_SHAPE, "%s: width 0; give at least one block of width 1 or more", who);
    for (int i = 0; i < n; i++) {
        const qdr_block *block = &blocks[i];
        if (block->width < 0)
            return QDR_FAIL(QDR_ERR_SHAPE, "%s: width %" PRId64 " is negative; use 1 or more", who, block->width);
        if (block->unit < 0)
            return QDR_FAIL(QDR_ERR_SHAPE,
                            "%s: unit %" PRId64 " of width %" PRId64
                            " is negative; use 0 (any split) or a divisor of the width",
                            who, block->unit, block->width);
        if (block->width % unit_of(block)) return fail_unit(block, who);
        if (block->width > INT64_MAX - width)
            return QDR_FAIL(QDR_ERR_SHAPE,
                            "%s: block %d of width %" PRId64 " makes the sum exceed 2^63 - 1; check the widths", who, i,
                            block->width);
        width += block->width;
    }
    return QDR_OK;
}

int64_t qdri_blocks_global(const qdr_block blocks[QDR_MAX_BLOCKS], int n_parts, int index, int64_t local, int64_t *run)
{
    int64_t block_begin = 0;
    *run = 0;
    for (int i = 0; i < qdri_blocks_count(blocks); i++) {
        int64_t begin, end;
        qdri_split(blocks[i].width, unit_of(&blocks[i]), n_parts, index, &begin, &end);
        if (local < end - begin) {
            *run = end - begin - local;
            return block_begin + begin + local;
        }
        local -= end - begin;
        block_begin += blocks[i].width;
    }
    return -1;
}
