/* SPDX-License-Identifier: Apache-2.0 */
/* Levels in words: all ranks get the same numbers, or the same sentence. */

#include "core/group.h"
#include "dist.h"

static qdr_grid_opts all_along_d(const qdr_context *ctx)
{
    return (qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 1, .d = qdr_context_size(ctx)};
}

static void check_parts(qdr_context *ctx, const char *words, qdr_grid_opts opts, int gradients, int state)
{
    qdr_grid *grid;
    DIST_OK(qdr_levels_read(ctx, words, &opts));
    DIST_CHECK(opts.gradient_parts == gradients && opts.optimizer_parts == state, "'%s' is %d,%d instead of %d,%d",
               words, opts.gradient_parts, opts.optimizer_parts, gradients, state);
    DIST_OK(qdr_grid_create(ctx, &opts, &grid));
    DIST_CHECK(qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER) == state, "%d parts in the grid",
               qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER));
    qdr_grid_destroy(&grid);
}

/* The ranks of a node if all nodes have as many consecutive ones; else all. */
static int ranks_of_node(const qdr_context *ctx)
{
    const int p = qdr_context_size(ctx);
    int n = 1;
    while (n < p && qdr_context_node(ctx, n) == 0) n++;
    for (int rank = 0; rank < p; rank++)
        if (p % n || qdr_context_node(ctx, rank) != rank / n * n) return p;
    return n;
}

DIST_TEST(test_words)
{
    const int p = qdr_context_size(ctx), node = ranks_of_node(ctx);
    check_parts(ctx, "none", all_along_d(ctx), 1, 1);
    check_parts(ctx, "zero1", all_along_d(ctx), 1, p);
    check_parts(ctx, "zero2", all_along_d(ctx), p, p);
    check_parts(ctx, "1,all", all_along_d(ctx), 1, p);
    check_parts(ctx, "node,all", all_along_d(ctx), node, p);
    check_parts(ctx, "node,node", all_along_d(ctx), node, node);
    if (p % 2) return;
    qdr_grid_opts half = all_along_d(ctx);
    half.z = 2;
    half.d = p / 2;
    check_parts(ctx, "zero1", half, 2, p);
    check_parts(ctx, "node,all", half, node % 2 ? p : node, p);
}

/* Whatever this machine and the binding of the ranks are: the parts nest, and are the same on all ranks. */
DIST_TEST(test_machine)
{
    static const char *const words[] = {"module,module",   "cache,cache", "numa,numa",
                                        "package,package", "node,node",   "all,all"};
    for (int i = 0; i < 6; i++) {
        qdr_grid_opts opts = all_along_d(ctx), first;
        DIST_OK(qdr_levels_read(ctx, words[i], &opts));
        DIST_CHECK(opts.gradient_parts >= 1 && qdri_levels_nest(1, opts.d, opts.gradient_parts, opts.optimizer_parts),
                   "'%s' is %d,%d", words[i], opts.gradient_parts, opts.optimizer_parts);
        first = opts;
        DIST_OK(qdr_broadcast(ctx, 0, &first, sizeof first));
        DIST_CHECK(first.gradient_parts == opts.gradient_parts && first.optimizer_parts == opts.optimizer_parts,
                   "'%s' is %d on rank 0 and %d here", words[i], first.gradient_parts, opts.gradient_parts);
    }
}

DIST_TEST(test_refusals)
{
    const int p = qdr_context_size(ctx), last = qdr_context_rank(ctx) == p - 1;
    qdr_grid_opts opts = all_along_d(ctx);
    DIST_FAILS(qdr_levels_read(NULL, "node,all", &opts), QDR_ERR_ARGUMENT, "context");
    DIST_FAILS(qdr_levels_read(ctx, NULL, &opts), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_levels_read(ctx, "node,all", NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_levels_read(ctx, "rack,all", &opts), QDR_ERR_ARGUMENT, "'rack,all' is not known");
    opts.gradient_parts = 7; /* what was there is neither used nor changed by an error */
    DIST_FAILS(qdr_levels_read(ctx, "1,1000000", &opts), QDR_ERR_ARGUMENT, "optimizer state in 1000000 parts");
    DIST_FAILS(qdr_levels_read(ctx, "1,99999999999", &opts), QDR_ERR_ARGUMENT, "'1,99999999999' are more parts");
    DIST_FAILS(qdr_levels_read(ctx, "4294967297,all", &opts), QDR_ERR_ARGUMENT, "are more parts than z*d =");
    DIST_CHECK(opts.gradient_parts == 7 && opts.optimizer_parts == 0, "changed to %d,%d", opts.gradient_parts,
               opts.optimizer_parts);
    DIST_OK(qdr_levels_read(ctx, "none", &opts));
    opts.d = p + 1;
    DIST_FAILS(qdr_levels_read(ctx, "none", &opts), QDR_ERR_ARGUMENT, "the context has");
    opts = all_along_d(ctx);
    opts.order = "xyz";
    DIST_FAILS(qdr_levels_read(ctx, "none", &opts), QDR_ERR_ARGUMENT, "permutation");
    if (p == 1) return;
    opts = all_along_d(ctx);
    DIST_FAILS(qdr_levels_read(ctx, "all,1", &opts), QDR_ERR_ARGUMENT, "optimizer state in 1 parts");
    DIST_FAILS(qdr_levels_read(ctx, last ? "rack,all" : "node,all", &opts), QDR_ERR_ARGUMENT,
               "the call has words node,");
    DIST_FAILS(qdr_levels_read(ctx, last ? NULL : "node,all", &opts), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_levels_read(ctx, last ? "zero2" : "zero1", &opts), QDR_ERR_ARGUMENT, "the same");
    if (last) opts.order = "dzyx";
    DIST_FAILS(qdr_levels_read(ctx, "zero1", &opts), QDR_ERR_ARGUMENT, "order dzyx");
}
