/* SPDX-License-Identifier: Apache-2.0 */
/* Draws random linear layers, describes them as text, lists grids. */
#include "common/layer_case.h"

#include <stdio.h>
#include <string.h>

#include "common/reference.h"

/* One to three blocks in units of 1 to 4; small enough that some are smaller than their axis. */
static void draw_blocks(uint64_t seed, int stream, qdr_block blocks[QDR_MAX_BLOCKS])
{
    const int64_t n_blocks = 1 + draw_below(seed, stream, 3);
    const int64_t most_units = 1 + draw_below(seed, stream + 1, 9);
    for (int i = 0; i < n_blocks; i++) {
        const int64_t unit = 1 + draw_below(seed, stream + 2 + i, 4);
        const int64_t n_units = 1 + draw_below(seed, stream + 6 + i, most_units);
        blocks[i] = (qdr_block){.width = unit * n_units, .unit = unit};
    }
}

void layer_case_draw(uint64_t seed, layer_case *drawn)
{
    static const int64_t row_units[] = {1, 1, 1, 2, 3, 4, 6};
    *drawn = (layer_case){.seed = seed, .n_calls = 1, .overlap = QDR_OVERLAP_ALL};
    draw_blocks(seed, 100, drawn->in);
    draw_blocks(seed, 200, drawn->out);
    drawn->row_unit = row_units[draw_below(seed, 1, 7)];
    drawn->m = drawn->row_unit * draw_below(seed, 2, draw_below(seed, 3, 3) ? 40 / drawn->row_unit : 4);
    drawn->in_unit = drawn->row_unit % 2 == 0 && draw_below(seed, 4, 2) ? 2 : 1;
    drawn->out_unit = drawn->row_unit > 1 && draw_below(seed, 5, 2) ? drawn->row_unit : 1;
    drawn->transposed = (int)draw_below(seed, 6, 2);
    drawn->bias = (int)draw_below(seed, 7, 2);
    drawn->drop_gathered = (int)draw_below(seed, 8, 2);
    drawn->is_exact = (int)draw_below(seed, 9, 2);
    drawn->n_calls = 1 + (int)draw_below(seed, 10, 3) / 2 * 2;
    drawn->defer = (int)draw_below(seed, 12, 2);
    drawn->accumulate = (int)draw_below(seed, 11, 2);
    drawn->storage = draw_below(seed, 15, 2) ? QDR_IN_OUT : QDR_OUT_IN;
    drawn->panels = draw_below(seed, 13, 2) ? 2 + (int)draw_below(seed, 14, 5) : 1;
}

/* Makes a single block with fewer features than ranks: 1 to n_ranks - 1. */
static void shrink_blocks(uint64_t seed, int stream, int n_ranks, qdr_block blocks[QDR_MAX_BLOCKS])
{
    memset(blocks, 0, QDR_MAX_BLOCKS * sizeof *blocks);
    blocks[0] = (qdr_block){.width = 1 + draw_below(seed, stream, n_ranks - 1), .unit = 1};
}

/* Makes the rows fewer than the ranks. Rows are split over d and z, then over the axis on which an edge is
 * scattered. */
static int shrink_rows(layer_case *drawn, int g_in, int g_out, grid_size size)
{
    int n_parts = size.z * size.d, g_scatter = 1;
    if (drawn->in_layout == QDR_SCATTERED) g_scatter = g_out;
    if (drawn->out_layout == QDR_SCATTERED && g_in > g_scatter) g_scatter = g_in;
    n_parts *= g_scatter;
    if (n_parts == 1) return 0;
    drawn->m = 1 + draw_below(drawn->seed, 302, n_parts - 1);
    drawn->row_unit = drawn->in_unit = drawn->out_unit = 1;
    return 1;
}

int layer_case_shrink(layer_case *drawn, layer_small what, grid_size size)
{
    const int g_in = drawn->transposed ? size.y : size.x;
    const int g_out = drawn->transposed ? size.x : size.y;
    if (what == SMALL_M) return shrink_rows(drawn, g_in, g_out, size);
    if (what == SMALL_K && g_in > 1) shrink_blocks(drawn->seed, 300, g_in, drawn->in);
    if (what == SMALL_N && g_out > 1) shrink_blocks(drawn->seed, 301, g_out, drawn->out);
    if (what == SMALL_K) return g_in > 1;
    if (what == SMALL_N) return g_out > 1;
    shrink_blocks(drawn->seed, 300, 2, drawn->in); /* a single number, stored flat over z */
    shrink_blocks(drawn->seed, 301, 2, drawn->out);
    return size.x * size.y * size.z > 1;
}

static int64_t total_width(const qdr_block blocks[QDR_MAX_BLOCKS])
{
    int64_t width = 0;
    for (int i = 0; i < QDR_MAX_BLOCKS && blocks[i].width; i++) width += blocks[i].width;
    return width;
}

int64_t layer_case_k(const layer_case *the_case) { return total_width(the_case->in); }

int64_t layer_case_n(const layer_case *the_case) { return total_width(the_case->out); }

/* "6/2+9/3" */
static void blocks_text(const qdr_block blocks[QDR_MAX_BLOCKS], char *text, size_t capacity)
{
    size_t n_chars = 0;
    for (int i = 0; i < QDR_MAX_BLOCKS && blocks[i].width && n_chars < capacity; i++)
        n_chars += (size_t)snprintf(text + n_chars, capacity - n_chars, "%s%lld/%lld", i ? "+" : "",
                                    (long long)blocks[i].width, (long long)blocks[i].unit);
}

void layer_case_text(const layer_case *the_case, char *text, size_t capacity)
{
    char in[96], out[96];
    blocks_text(the_case->in, in, sizeof in);
    blocks_text(the_case->out, out, sizeof out);
    snprintf(text, capacity,
             "%s %s>%s %s M=%lld/%lld in=%s out=%s units %lld,%lld%s%s%s%s%s%s calls=%d overlap=%d "
             "panels=%d seed=%llu",
             qdr_dtype_name(the_case->dtype), the_case->in_layout ? "S" : "R", the_case->out_layout ? "S" : "R",
             the_case->transposed ? "transposed" : "normal", (long long)the_case->m, (long long)the_case->row_unit, in,
             out, (long long)the_case->in_unit, (long long)the_case->out_unit,
             the_case->storage == QDR_IN_OUT ? " in-out" : "", the_case->bias ? " bias" : "",
             the_case->drop_gathered ? " drop" : "", the_case->is_exact ? " exact" : "",
             the_case->accumulate ? " accumulate" : "", the_case->defer ? " defer" : "", the_case->n_calls,
             the_case->overlap, the_case->panels, (unsigned long long)the_case->seed);
}

double layer_errors_worst(const layer_errors *errors)
{
    double worst = 0;
    for (int i = 0; i < N_RESULTS; i++)
        if (errors->share[i] > worst) worst = errors->share[i];
    return worst;
}

int list_grids(int n_ranks, grid_size *sizes, int capacity)
{
    int n_sizes = 0;
    for (int x = 1; x <= n_ranks; x++)
        for (int y = 1; n_ranks % x == 0 && y <= n_ranks / x; y++)
            for (int z = 1; n_ranks / x % y == 0 && z <= n_ranks / x / y; z++) {
                if (n_ranks / x / y % z) continue;
                if (n_sizes < capacity) sizes[n_sizes] = (grid_size){x, y, z, n_ranks / x / y / z};
                n_sizes++;
            }
    return n_sizes;
}
