/* SPDX-License-Identifier: Apache-2.0 */
/* The location of shards: the runs of a parameter together contain exactly this rank's elements, those of all ranks
 * contain the whole parameter, each element once; and values written and read by runs agree with loading and
 * gathering. */
#include "dist.h"

enum { MOST_LAYERS = 3 };

/* A chain of layers, every other one transposed, with blocks and units at random. */
typedef struct chain {
    qdr_block sides[MOST_LAYERS + 1][QDR_MAX_BLOCKS];
    qdr_storage storage[MOST_LAYERS];
    int bias[MOST_LAYERS];
    int n_layers, n_tokens; /* n_tokens: an embedding comes first, with that vocabulary */
    qdr_dtype dtype;
} chain;

static chain random_chain(uint64_t *seed)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    chain c = {.n_layers = 1 + (int)dist_below(seed, MOST_LAYERS), .dtype = dtypes[dist_below(seed, 4)]};
    for (int i = 0; i <= c.n_layers; i++)
        for (int j = 0, n = 1 + (int)dist_below(seed, QDR_MAX_BLOCKS); j < n; j++) {
            const int64_t unit = 1 + dist_below(seed, 4);
            c.sides[i][j] = (qdr_block){unit * (1 + dist_below(seed, 9)), unit};
        }
    for (int i = 0; i < c.n_layers; i++) {
        c.storage[i] = (qdr_storage)dist_below(seed, 3);
        c.bias[i] = (int)dist_below(seed, 2);
    }
    if (dist_below(seed, 3) == 0) c.n_tokens = 1 + (int)dist_below(seed, 30);
    return c;
}

static qdr_stack *make_stack(qdr_grid *grid, const chain *c)
{
    enum { CONTEXT = 3 };
    qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .col_axis = QDR_X};
    qdr_embedding_desc table = {QDR_INIT(qdr_embedding_desc), .name = "table", .vocab = {c->n_tokens, 1},
                                .context = CONTEXT};
    qdr_edge edge;
    qdr_linear *layer;
    qdr_stack *stack = dist_stack(grid,
                                  (qdr_stack_opts){.n_rows = 2 * CONTEXT, .row_unit = CONTEXT, .dtype = c->dtype});
    if (c->n_tokens) { /* of the first block alone: the layers then begin with the second side */
        table.features = c->sides[0][0];
        DIST_OK(qdr_stack_add_tokens(stack, "tokens", &edge));
        DIST_OK(qdr_stack_add_embedding(stack, &table, edge, &edge, &layer));
    } else {
        memcpy(input.cols, c->sides[0], sizeof input.cols);
        DIST_OK(qdr_stack_add_input(stack, "x", &input, 0, &edge));
    }
    for (int i = 0; i < c->n_layers; i++) {
        qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "layer", .bias = c->bias[i], .transposed = i % 2,
                                .storage = c->storage[i]};
        memcpy(desc.in, c->sides[i], sizeof desc.in);
        memcpy(desc.out, c->sides[i + 1], sizeof desc.out);
        if (c->n_tokens && i == 0) memset(desc.in + 1, 0, sizeof desc.in - sizeof *desc.in);
        DIST_OK(qdr_stack_add_linear(stack, &desc, edge, &edge, &layer));
    }
    DIST_OK(qdr_stack_build(stack));
    return stack;
}

/* Each element of the shard is in one run, and each run inside the whole. */
static void check_shard(const qdr_parameter *p, const qdr_parameter_run *runs, int n_runs)
{
    char *seen = calloc((size_t)p->n_elems + 1, 1);
    int64_t n_seen = 0;
    DIST_CHECK(seen, "no memory");
    for (int r = 0; r < n_runs; r++) {
        const qdr_parameter_run *run = &runs[r];
        DIST_CHECK(run->n_rows > 0 && run->n_cols > 0 && run->row >= 0 && run->col >= 0 &&
                       run->row + run->n_rows <= p->n_rows && run->col + run->n_cols <= p->n_cols,
                   "%s: run %d of %dx%d at %d, %d", p->name, r, (int)run->n_rows, (int)run->n_cols, (int)run->row,
                   (int)run->col);
        DIST_CHECK((p->storage == QDR_IN_OUT ? run->row_step : run->col_step) == 1, "%s: run %d", p->name, r);
        for (int64_t i = 0; i < run->n_rows; i++)
            for (int64_t j = 0; j < run->n_cols; j++) {
                const int64_t at = run->offset + i * run->row_step + j * run->col_step;
                DIST_CHECK(at >= 0 && at < p->n_elems && !seen[at], "%s: run %d has element %d", p->name, r, (int)at);
                seen[at] = 1;
                n_seen++;
            }
    }
    DIST_CHECK(n_seen == p->n_elems, "%s: runs have %d of %d elements", p->name, (int)n_seen, (int)p->n_elems);
    free(seen);
}

static double value_of(uint64_t seed, const qdr_parameter *p, int64_t row, int64_t col)
{
    return dist_value(seed, row * p->n_cols + col, 1);
}

/* Puts (or, where `check`, compares) what the runs say this rank has of the whole. */
static void for_shard(const qdr_parameter *p, const qdr_parameter_run *runs, int n_runs, void *data, qdr_dtype dtype,
                      uint64_t seed, int check)
{
    for (int r = 0; r < n_runs; r++)
        for (int64_t i = 0; i < runs[r].n_rows; i++)
            for (int64_t j = 0; j < runs[r].n_cols; j++) {
                const int64_t at = runs[r].offset + i * runs[r].row_step + j * runs[r].col_step;
                const double want = value_of(seed, p, runs[r].row + i, runs[r].col + j);
                if (!check) dist_set(data, dtype, at, want);
                DIST_CHECK(dist_get(data, dtype, at) == want, "%s[%d, %d] is %g", p->name, (int)(runs[r].row + i),
                           (int)(runs[r].col + j), dist_get(data, dtype, at));
            }
}

static void check_whole(const qdr_parameter *p, const void *whole, qdr_dtype dtype, uint64_t seed)
{
    for (int64_t i = 0; i < p->n_global; i++) {
        const double want = value_of(seed, p, i / p->n_cols, i % p->n_cols), got = dist_get(whole, dtype, i);
        DIST_CHECK(got == want, "%s[%d] is %g, not %g", p->name, (int)i, got, want);
    }
}

/* How many ranks of this d count each element. */
static void check_union(qdr_grid *grid, const qdr_parameter *p, const qdr_parameter_run *runs, int n_runs)
{
    qdr_context *ctx = qdr_grid_context(grid);
    double *times = NULL;
    DIST_OK(qdr_mem_alloc(ctx, (size_t)p->n_global * sizeof *times, (void **)&times));
    memset(times, 0, (size_t)p->n_global * sizeof *times);
    for (int r = 0; r < n_runs && p->counted; r++)
        for (int64_t i = 0; i < runs[r].n_rows; i++)
            for (int64_t j = 0; j < runs[r].n_cols; j++) times[(runs[r].row + i) * p->n_cols + runs[r].col + j]++;
    for (int axis = QDR_X; axis <= QDR_Z; axis++)
        DIST_OK(qdr_all_reduce(grid, (qdr_axis)axis, QDR_SUM, times, p->n_global, QDR_F64, NULL));
    dist_synchronize(ctx);
    for (int64_t i = 0; i < p->n_global; i++)
        DIST_CHECK(times[i] == 1, "%s[%d] is counted %g times", p->name, (int)i, times[i]);
    qdr_mem_free(ctx, (void **)&times);
}

static void check_parameter(qdr_stack *stack, int index, uint64_t seed)
{
    const qdr_dtype dtype = qdr_stack_dtype(stack), grad_dtype = dist_sum_type(dtype);
    qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS];
    int n_runs = -1;
    qdr_parameter p = dist_parameter(stack, index);
    DIST_OK(qdr_stack_parameter_runs(stack, index, runs, &n_runs));
    DIST_CHECK(n_runs >= 0 && n_runs <= QDR_MAX_PARAMETER_RUNS, "%s: %d runs", p.name, n_runs);
    DIST_CHECK(p.n_rows * p.n_cols == p.n_global, "%s: %dx%d", p.name, (int)p.n_rows, (int)p.n_cols);
    check_shard(&p, runs, n_runs);
    check_union(qdr_stack_grid(stack), &p, runs, n_runs);
    void *whole = malloc((size_t)p.n_global * sizeof(double));
    DIST_CHECK(whole, "no memory");
    for_shard(&p, runs, n_runs, p.data, dtype, seed, 0);
    DIST_OK(qdr_stack_gather_parameter(stack, index, 0, whole));
    check_whole(&p, whole, dtype, seed);
    for_shard(&p, runs, n_runs, p.gradient, grad_dtype, seed + 1, 0);
    DIST_OK(qdr_stack_gather_parameter(stack, index, 1, whole));
    check_whole(&p, whole, grad_dtype, seed + 1);
    for (int64_t i = 0; i < p.n_global; i++)
        dist_set(whole, dtype, i, value_of(seed + 2, &p, i / p.n_cols, i % p.n_cols));
    DIST_OK(qdr_stack_load_parameter(stack, index, whole));
    for_shard(&p, runs, n_runs, p.data, dtype, seed + 2, 1);
    free(whole);
}

static void check_chain(qdr_grid *grid, void *user)
{
    uint64_t *seed = user;
    const chain c = random_chain(seed);
    qdr_stack *stack = make_stack(grid, &c);
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) check_parameter(stack, i, dist_random(seed));
    qdr_stack_destroy(&stack);
}

DIST_TEST(runs_are_the_shards)
{
    const int n = dist_rounds(6);
    for (int i = 0; i < n; i++) dist_every_grid(ctx, 0, check_chain, &seed);
}

DIST_TEST(wrong_calls_are_named)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS];
    int n = -1;
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 2});
    qdr_edge edge = dist_input(stack, "x", (qdr_edge_desc){.cols = {{4, 1}}, .col_axis = QDR_X}, 0);
    edge = dist_linear(stack, (qdr_linear_desc){.in = {{4, 1}}, .out = {{6, 1}}}, edge, NULL);
    DIST_FAILS(qdr_stack_parameter_runs(stack, 0, runs, &n), QDR_ERR_STATE, "call qdr_stack_build");
    DIST_OK(qdr_stack_build(stack));
    DIST_FAILS(qdr_stack_parameter_runs(stack, 1, runs, &n), QDR_ERR_ARGUMENT, "no number 1");
    DIST_FAILS(qdr_stack_parameter_runs(NULL, 0, runs, &n), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_parameter_runs(stack, 0, NULL, &n), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_parameter_runs(stack, 0, runs, NULL), QDR_ERR_ARGUMENT, "NULL");
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}
