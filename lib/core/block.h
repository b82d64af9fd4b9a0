/* SPDX-License-Identifier: Apache-2.0 */
/* Block arithmetic: how widths are divided into parts of whole units. Pure functions. */
#ifndef QDRI_CORE_BLOCK_H
#define QDRI_CORE_BLOCK_H

#include "core/status.h"

/* Part `index` of `n_parts` of [0, width), in whole units: parts differ by at most one unit, and larger parts come
 * first. width is a multiple of unit (≥ 1); a part may be empty. */
void qdri_split(int64_t width, int64_t unit, int n_parts, int index, int64_t *begin, int64_t *end);
/* Number of blocks in a list that ends with width 0; 0 … QDR_MAX_BLOCKS. */
int qdri_blocks_count(const qdr_block blocks[QDR_MAX_BLOCKS]);
/* Sum of the widths. */
int64_t qdri_blocks_width(const qdr_block blocks[QDR_MAX_BLOCKS]);
/* Columns that part `index` of `n_parts` owns, over all blocks. */
int64_t qdri_blocks_part(const qdr_block blocks[QDR_MAX_BLOCKS], int n_parts, int index);
/* Whether two lists are equal (unit 0 equals 1). */
int qdri_blocks_equal(const qdr_block a[QDR_MAX_BLOCKS], const qdr_block b[QDR_MAX_BLOCKS]);
/* @retval QDR_ERR_SHAPE  a width < 0, a unit that is < 0 or does not divide its width, a sum that overflows, no block;
 *                        the sentence begins with `who` and proposes units and paddings */
QDR_NODISCARD qdr_status qdri_blocks_check(const qdr_block blocks[QDR_MAX_BLOCKS], const char *who);
/* Global column of local column `local` of part `index`; local in [0, qdri_blocks_part()). *run is the number of
 * columns from there on that are also consecutive globally. */
int64_t qdri_blocks_global(const qdr_block blocks[QDR_MAX_BLOCKS], int n_parts, int index, int64_t local, int64_t *run);

#endif
