/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever of a network is made again in its backward, losses, gradients and parameters are those of a stack that keeps
 * everything, bit for bit, step after step: the networks of tests/reference/networks, on random grids.
 *
 *   test_repeated --local P [--seed N]  each network once, a few steps
 *   test_repeated all --local P         in each type and layout, 20 steps */
#include <dirent.h>

#include "dist.h"

enum { MOST_NETWORKS = 64, MOST_PARAMETERS = 128, MOST_STEPS = 20, MOST_PASSES = 2, MOST_CONTEXT = 13 };

/* One stack with several ways to repeat. */
typedef struct variant {
    const char *name;
    qdr_network network;
    qdr_network_desc desc;
    qdr_stack_opts opts;
    int n_steps, n_passes;
    uint64_t grid_seed, data_seed;
} variant;

typedef struct results {
    double losses[MOST_STEPS][MOST_PASSES];
    double gradients[MOST_STEPS][MOST_PARAMETERS], values[MOST_STEPS][MOST_PARAMETERS]; /* digests of what is here */
    size_t activations;
} results;

static void choose(uint64_t *seed, int n_ranks, variant *v)
{
    const int64_t context = 1 + dist_below(seed, MOST_CONTEXT);
    v->desc = (qdr_network_desc){QDR_INIT(qdr_network_desc), .context = context, .layout = v->desc.layout};
    v->opts.n_rows = context * dist_below(seed, 2 * n_ranks + 2);
    v->opts.row_unit = context;
    v->opts.panels = (int)dist_below(seed, 4);
    v->opts.batch_parts = (int)dist_below(seed, 4);
    v->opts.prefetch = (int)dist_below(seed, 4);
    v->opts.overlap = (int)dist_below(seed, QDR_OVERLAP_NONE + 1);
    v->n_passes = 1 + (int)dist_below(seed, MOST_PASSES);
    v->grid_seed = dist_random(seed);
    v->data_seed = dist_random(seed);
}

static void fill(const qdr_stack *stack, qdr_edge edge, int64_t vocab, uint64_t seed)
{
    const qdr_owned owned = dist_edge_owned(stack, edge);
    int32_t *values = dist_edge_value(stack, edge);
    for (int64_t i = 0; i < owned.n_rows; i++)
        values[i] = (int32_t)((dist_value(seed, owned.rows.begin + i, 0) + 1) / 2 * (double)vocab);
}

/* Forward and backward of a step. Both losses and gradients of F16 need a scale that is not too small. */
static void run_passes(qdr_stack *stack, const variant *v, int step, qdr_edge tokens, qdr_edge targets, results *of)
{
    for (int pass = 0; pass < v->n_passes; pass++) {
        const uint64_t seed = v->data_seed + (uint64_t)(step * MOST_PASSES + pass);
        const int flags = (pass ? QDR_ACCUMULATE : 0) | (pass + 1 < v->n_passes ? QDR_DEFER_SYNC : 0);
        int64_t n_valid;
        fill(stack, tokens, v->network.vocab, 2 * seed);
        fill(stack, targets, v->network.vocab, 2 * seed + 1);
        DIST_OK(qdr_stack_forward(stack));
        DIST_OK(qdr_stack_backward(stack, flags, 0.25));
        DIST_OK(qdr_stack_loss(stack, &of->losses[step][pass], &n_valid));
    }
    dist_synchronize(qdr_grid_context(qdr_stack_grid(stack)));
}

static void digest(const qdr_stack *stack, qdr_parameter_data which, double digests[MOST_PARAMETERS])
{
    const size_t each = qdr_dtype_bytes(qdr_stack_dtype(stack)),
                 each_gradient = qdr_dtype_bytes(dist_sum_type(qdr_stack_dtype(stack)));
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        const char *sum = (const char *)p.gradient + (size_t)(p.state_begin - p.gradient_begin) * each_gradient;
        digests[i] = which == QDR_PARAMETER_GRADIENT ? dist_digest(sum, (size_t)p.n_state * each_gradient)
                                                     : dist_digest(p.data, (size_t)p.n_elems * each);
    }
}

static void run(qdr_context *ctx, const variant *v, results *of)
{
    uint64_t grid_seed = v->grid_seed;
    qdr_grid *grid = dist_random_grid(ctx, &grid_seed);
    qdr_stack *stack = dist_stack(grid, v->opts);
    const qdr_adamw_opts adamw = {QDR_INIT(qdr_adamw_opts), .weight_decay = 0.1, .clip_norm = 1};
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    qdr_adamw *optimizer;
    qdr_edge tokens, targets;
    DIST_OK(qdr_stack_add_tokens(stack, "tokens", &tokens));
    DIST_OK(qdr_stack_add_network(stack, &v->network, &v->desc, tokens, &targets));
    void *memory = dist_build_in_nan(stack);
    DIST_CHECK(qdr_stack_n_parameters(stack) <= MOST_PARAMETERS, "%d parameters", qdr_stack_n_parameters(stack));
    DIST_OK(qdr_stack_init(stack, v->data_seed, 0.2));
    DIST_OK(qdr_adamw_create(stack, &adamw, &optimizer));
    for (int step = 0; step < v->n_steps; step++) {
        run_passes(stack, v, step, tokens, targets, of);
        digest(stack, QDR_PARAMETER_GRADIENT, of->gradients[step]);
        DIST_OK(qdr_adamw_step(optimizer, 1e-2));
        dist_synchronize(ctx);
        digest(stack, QDR_PARAMETER_VALUE, of->values[step]);
    }
    DIST_OK(qdr_stack_get_sizes(stack, &sizes));
    of->activations = sizes.activations;
    qdr_adamw_destroy(&optimizer);
    qdr_stack_destroy(&stack);
    qdr_mem_free(ctx, &memory);
    qdr_grid_destroy(&grid);
}

static void check_same(const variant *v, const results *kept, const results *again)
{
    char which[160];
    snprintf(which, sizeof which, "%s, %s %s, %d rows of context %d, recompute %d, every %d", v->name,
             qdr_dtype_name(v->opts.dtype), v->desc.layout ? "scattered" : "replicated", (int)v->opts.n_rows,
             (int)v->desc.context, (int)v->opts.recompute, v->opts.recompute_every);
    for (int step = 0; step < v->n_steps; step++) {
        DIST_CHECK(memcmp(kept->losses[step], again->losses[step], sizeof kept->losses[step]) == 0,
                   "%s: the loss of step %d is %.17g, not %.17g", which, step, again->losses[step][0],
                   kept->losses[step][0]);
        for (int i = 0; i < MOST_PARAMETERS; i++) {
            DIST_CHECK(kept->gradients[step][i] == again->gradients[step][i],
                       "%s: the gradient of parameter %d differs in step %d", which, i, step);
            DIST_CHECK(kept->values[step][i] == again->values[step][i], "%s: parameter %d differs after step %d", which,
                       i, step);
        }
    }
    DIST_CHECK(again->activations <= kept->activations, "%s: %zu bytes of activations, more than %zu", which,
               again->activations, kept->activations);
}

static void compare(qdr_context *ctx, variant v)
{
    static const qdr_stack_opts ways[] = {{.recompute = QDR_RECOMPUTE_OPERATIONS},
                                          {.recompute = QDR_RECOMPUTE_FULL},
                                          {.recompute = QDR_RECOMPUTE_FULL, .recompute_every = 2}};
    results kept = {.activations = 0};
    v.opts.caller_memory = 1;
    run(ctx, &v, &kept);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        results again = {.activations = 0};
        v.opts.recompute = ways[i].recompute;
        v.opts.recompute_every = ways[i].recompute_every;
        run(ctx, &v, &again);
        check_same(&v, &kept, &again);
    }
}

static int is_case(const struct dirent *entry) { return entry->d_name[0] != '.' && !strchr(entry->d_name, '.'); }

/* Calls `each` with every network, in the order of their names. */
static void every_network(qdr_context *ctx, uint64_t seed, void (*each)(qdr_context *ctx, uint64_t *seed, variant *v))
{
    const char *folder = getenv("QDR_TEST_NETWORKS");
    struct dirent **entries;
    const int n = scandir(folder, &entries, is_case, alphasort);
    DIST_CHECK(n == 26, "%d networks in %s", n, folder);
    for (int i = 0; i < n; i++) {
        char path[600];
        variant v = {.name = entries[i]->d_name, .network = {QDR_INIT(qdr_network)}};
        snprintf(path, sizeof path, "%s/%s/config.json", folder, v.name);
        DIST_OK(qdr_network_load(path, &v.network));
        if (v.network.positions) v.network.positions = MOST_CONTEXT;
        each(ctx, &seed, &v);
        free(entries[i]);
    }
    free(entries);
}

static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};

static void once(qdr_context *ctx, uint64_t *seed, variant *v)
{
    v->desc.layout = dist_below(seed, 2) ? QDR_SCATTERED : QDR_REPLICATED;
    v->opts.dtype = types[dist_below(seed, 4)];
    v->n_steps = 2;
    choose(seed, qdr_context_size(ctx), v);
    compare(ctx, *v);
}

DIST_TEST(networks) { every_network(ctx, seed, once); }

static void in_each_way(qdr_context *ctx, uint64_t *seed, variant *v)
{
    for (int i = 0; i < 8; i++) {
        v->desc.layout = i & 1 ? QDR_SCATTERED : QDR_REPLICATED;
        v->opts.dtype = types[i / 2];
        v->n_steps = MOST_STEPS;
        choose(seed, qdr_context_size(ctx), v);
        compare(ctx, *v);
    }
}

DIST_TEST_APART(all_ways) { every_network(ctx, seed, in_each_way); }

int main(int argc, char **argv)
{
    const int all = argc > 1 && strcmp(argv[1], "all") == 0;
    return dist_main(argc - all, argv + all, all ? "all_ways" : NULL);
}
