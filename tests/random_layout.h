/* SPDX-License-Identifier: Apache-2.0 */
/* Random grids and layouts for tests of ownership and redistribution. */
#ifndef TEST_RANDOM_LAYOUT_H
#define TEST_RANDOM_LAYOUT_H

#include "quadrille/matrix.h"

/* A random number of [0, n): splitmix64. */
static inline int64_t random_below(uint64_t *seed, int64_t n)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int64_t)((z ^ (z >> 31)) % (uint64_t)n);
}

/* A grid of at most `most` ranks. */
static inline void random_sizes(uint64_t *seed, int most, int sizes[QDR_N_AXES])
{
    int left = most;
    for (int i = 0, first = (int)random_below(seed, QDR_N_AXES); i < QDR_N_AXES; i++) {
        int *size = &sizes[(first + i) % QDR_N_AXES];
        *size = 1 + (int)random_below(seed, left < 4 ? left : 4);
        left /= *size;
    }
}

/* How rows and columns are split, at random; the extents are set. */
static inline void random_split(uint64_t *seed, qdr_matrix *matrix)
{
    const int64_t kind = random_below(seed, 8);
    matrix->spread = kind == 0 ? QDR_SPREAD_RANKS : kind == 1 ? QDR_SPREAD_ROOT : QDR_SPREAD_GRID;
    matrix->split_cols = (int)random_below(seed, 2);
    matrix->split_cells = (int)random_below(seed, 2);
    matrix->scatter_rows = (int)random_below(seed, 2);
    matrix->col_axis = random_below(seed, 2) ? QDR_X : QDR_Y;
    matrix->scatter_axis = matrix->col_axis == QDR_X ? QDR_Y : QDR_X;
    matrix->scatter_unit = random_below(seed, 2) ? matrix->row_unit : 0;
}

/* Two layouts of one global matrix. The second may describe the columns as one block. */
static inline void random_matrices(uint64_t *seed, qdr_matrix *a, qdr_matrix *b)
{
    const int n_blocks = 1 + (int)random_below(seed, QDR_MAX_BLOCKS);
    int64_t width = 0;
    *a = (qdr_matrix){QDR_INIT(qdr_matrix), .row_unit = 1 + random_below(seed, 3)};
    a->n_rows = a->row_unit * random_below(seed, 9);
    for (int i = 0; i < n_blocks; i++) {
        const int64_t unit = 1 + random_below(seed, 3);
        a->cols[i] = (qdr_block){unit * (1 + random_below(seed, 6)), unit};
        width += a->cols[i].width;
    }
    *b = *a;
    if (random_below(seed, 3) == 0) {
        for (int i = 0; i < QDR_MAX_BLOCKS; i++) b->cols[i] = (qdr_block){0, 0};
        b->cols[0] = (qdr_block){width, 0};
        b->row_unit = 1;
    }
    random_split(seed, a);
    random_split(seed, b);
}

#endif
