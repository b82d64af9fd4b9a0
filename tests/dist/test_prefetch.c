/* SPDX-License-Identifier: Apache-2.0 */
/* How far ahead weights are gathered: as requested, or as memory allows. */
#include "dist.h"

enum { WIDTH = 24 };

/* Forward's schedule of five layers, as text. To be freed. */
static char *schedule_with(qdr_grid *grid, int prefetch, size_t prefetch_bytes)
{
    char *text = NULL;
    size_t n_chars = 0;
    qdr_stack *stack = dist_stack(
        grid, (qdr_stack_opts){.n_rows = 12, .prefetch = prefetch, .prefetch_bytes = prefetch_bytes});
    qdr_edge edge = dist_input(stack, "x", (qdr_edge_desc){.cols = {{WIDTH, 1}}, .col_axis = QDR_X}, 0);
    for (int i = 0; i < 5; i++) {
        const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {{WIDTH, 1}},
                                      .out = {{WIDTH, 1}}, .transposed = i % 2};
        DIST_OK(qdr_stack_add_linear(stack, &desc, edge, &edge, NULL));
    }
    DIST_OK(qdr_stack_build(stack));
    FILE *file = open_memstream(&text, &n_chars);
    DIST_CHECK(file != NULL, "no memory");
    DIST_OK(qdr_stack_print(stack, QDR_LIST_FORWARD, file));
    fclose(file);
    qdr_stack_destroy(&stack);
    return text;
}

/* A budget has room for the W in use and for those ahead. */
DIST_TEST(memory_decides_how_far_ahead)
{
    /* Shards may be padded. */
    enum { LARGEST = WIDTH * WIDTH * sizeof(float), PADDED = LARGEST + 512 };
    static const struct {
        int depth;
        size_t bytes;
        int wanted;
    } cases[] = {{0, 0, 1},          {0, LARGEST, 1},         {0, 3 * LARGEST - 1, 1},
                 {0, 3 * PADDED, 2}, {0, 4 * LARGEST - 1, 2}, {0, 4 * PADDED, 3},
                 {2, 1, 2}};
    const int p = qdr_context_size(ctx);
    char *texts[4];
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = 1, .y = 1, .z = p, .d = 1});
    for (int depth = 1; depth < 4; depth++) texts[depth] = schedule_with(grid, depth, 0);
    DIST_CHECK(p == 1 || strcmp(texts[1], texts[2]) != 0, "depth is seen");
    DIST_CHECK(p == 1 || strcmp(texts[2], texts[3]) != 0, "depth is seen");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = schedule_with(grid, cases[i].depth, cases[i].bytes);
        DIST_CHECK(strcmp(text, texts[cases[i].wanted]) == 0, "%zu bytes: not %d ahead", cases[i].bytes,
                   cases[i].wanted);
        free(text);
    }
    for (int depth = 1; depth < 4; depth++) free(texts[depth]);
    qdr_grid_destroy(&grid);
}
