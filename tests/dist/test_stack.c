/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks on random grids: gradients of a graph with shared edges compared with finite differences, overlap on and off
 * bit for bit, micro-batches, caller's memory, invalid descriptions. */

#include "dist/dist.h"
#include "nodes.h"

enum { HEADS = 6, HEAD_SIZE = 4, HIDDEN = HEADS * HEAD_SIZE, CONTEXT = 4, MAX_FULL = 3 * HIDDEN * HIDDEN };

/* A caller's operation: out = a ∘ b. Arguments live here until the stream has come to them. */
typedef struct product_op {
    const double *a, *b, *d_out;
    const float *fa, *fb, *fd_out;
    double *out, *d_a, *d_b;
    float *fout, *fd_a, *fd_b;
    int64_t n;
    int add_a, add_b, single;
} product_op;

static void multiply(void *user)
{
    const product_op *op = user;
    for (int64_t i = 0; i < op->n; i++) {
        if (op->single)
            op->fout[i] = op->fa[i] * op->fb[i];
        else
            op->out[i] = op->a[i] * op->b[i];
    }
}

static void differentiate(void *user)
{
    const product_op *op = user;
    for (int64_t i = 0; i < op->n; i++) {
        if (op->single) {
            op->fd_a[i] = op->fd_out[i] * op->fb[i] + (op->add_a ? op->fd_a[i] : 0);
            op->fd_b[i] = op->fd_out[i] * op->fa[i] + (op->add_b ? op->fd_b[i] : 0);
        } else {
            op->d_a[i] = op->d_out[i] * op->b[i] + (op->add_a ? op->d_a[i] : 0);
            op->d_b[i] = op->d_out[i] * op->a[i] + (op->add_b ? op->d_b[i] : 0);
        }
    }
}

static void take_call(const qdr_op_call *call, product_op *op)
{
    op->n = call->n_rows * call->out_cols;
    op->a = call->in[0], op->fa = call->in[0];
    op->b = call->in[1], op->fb = call->in[1];
    op->out = call->out, op->fout = call->out;
}

static qdr_status product_forward(const qdr_op_call *call, void *user)
{
    take_call(call, user);
    return qdr_stream_call(call->stream, multiply, user);
}

static qdr_status product_backward(const qdr_op_call *call, void *user)
{
    product_op *op = user;
    take_call(call, op);
    op->d_out = call->d_out, op->fd_out = call->d_out;
    op->d_a = call->d_in[0], op->fd_a = call->d_in[0];
    op->d_b = call->d_in[1], op->fd_b = call->d_in[1];
    op->add_a = call->accumulate[0];
    op->add_b = call->accumulate[1];
    return qdr_stream_call(call->stream, differentiate, op);
}

/* How a graph is made. */
typedef struct variant {
    qdr_layout layout;
    qdr_dtype dtype;
    int overlap, prefetch, panels, drop_gathered, caller_memory;
    size_t prefetch_bytes;
    int batch_parts;
    int key_heads; /* 0: as many as query heads */
    int whole_groups; /* the queries of a key head stay together */
    int turned; /* x for y and y for x: the first layer is transposed, the second is not */
} variant;

typedef struct graph {
    qdr_context *ctx;
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_edge x, y;
    product_op op;
    qdr_dtype dtype;
    void *memory[5];
} graph;

/* qkv is read by two attentions, x by a norm and by both sides of a residual, p by a product and by a GELU. `second` is
 * read by a GELU and by a residual: backward, the GELU adds to a gradient that `first` shares and still needs. */
static void add_nodes(graph *g, const variant *v)
{
    const int key_heads = v->key_heads ? v->key_heads : HEADS;
    const qdr_block features[QDR_MAX_BLOCKS] = {{HIDDEN, HEAD_SIZE}};
    const qdr_block keys = {key_heads * HEAD_SIZE, HEAD_SIZE};
    const qdr_block queries = {HIDDEN, v->whole_groups ? HEADS / key_heads * HEAD_SIZE : HEAD_SIZE};
    qdr_edge normed, qkv, first, second, both, aside, p, q, doubled, product, bent;
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{HIDDEN, HEAD_SIZE}},
                                 .col_axis = v->turned ? QDR_Y : QDR_X, .layout = v->layout};
    DIST_OK(qdr_stack_add_input(g->stack, "x", &input, 1, &g->x));
    DIST_OK(test_add_norm(g->stack, "norm", 0, g->x, &normed));
    qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),        .name = "qkv",           .bias = 1,
                            .transposed = v->turned,          .out_layout = v->layout, .out_row_unit = CONTEXT,
                            .drop_gathered = v->drop_gathered};
    memcpy(desc.in, features, sizeof features);
    desc.out[0] = queries;
    desc.out[1] = desc.out[2] = keys;
    DIST_OK(qdr_stack_add_linear(g->stack, &desc, normed, &qkv, NULL));
    DIST_OK(test_add_attention(g->stack, "first", HEAD_SIZE, CONTEXT, qkv, &first));
    DIST_OK(test_add_attention(g->stack, "second", HEAD_SIZE, CONTEXT, qkv, &second));
    DIST_OK(qdr_stack_add_gelu(g->stack, "aside", second, &aside));
    DIST_OK(qdr_stack_add_residual(g->stack, "both", first, second, &both));
    qdr_linear_desc back = {QDR_INIT(qdr_linear_desc), .name = "proj",          .bias = 1,
                            .transposed = !v->turned,  .out_layout = v->layout, .drop_gathered = v->drop_gathered};
    back.in[0] = queries;
    memcpy(back.out, features, sizeof features);
    DIST_OK(qdr_stack_add_linear(g->stack, &back, both, &p, NULL));
    back.name = "proj aside";
    DIST_OK(qdr_stack_add_linear(g->stack, &back, aside, &q, NULL));
    DIST_OK(qdr_stack_add_residual(g->stack, "projected", p, q, &p));
    DIST_OK(qdr_stack_add_residual(g->stack, "doubled", g->x, g->x, &doubled));
    const qdr_op_desc op = {QDR_INIT(qdr_op_desc), .name = "product",          .n_in = 2,
                            .in = {doubled, p},    .forward = product_forward, .backward = product_backward,
                            .user = &g->op};
    DIST_OK(qdr_stack_add_op(g->stack, &op, &product));
    DIST_OK(qdr_stack_add_gelu(g->stack, "gelu", p, &bent));
    DIST_OK(qdr_stack_add_residual(g->stack, "sum", product, bent, &g->y));
}

static void bind_own_memory(graph *g)
{
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    DIST_OK(qdr_stack_get_sizes(g->stack, &sizes));
    const size_t bytes[5] = {sizes.parameters, sizes.gradients, sizes.activations, sizes.workspace, sizes.feedback};
    for (int i = 0; i < 5; i++) DIST_OK(qdr_mem_alloc(g->ctx, bytes[i], &g->memory[i]));
    void *value;
    DIST_FAILS(qdr_stack_edge_value(g->stack, g->x, &value), QDR_ERR_STATE, "qdr_stack_bind");
    DIST_FAILS(qdr_stack_bind(g->stack,
                              &(qdr_stack_memory){QDR_INIT(qdr_stack_memory), .parameters = (char *)g->memory[0] + 4}),
               QDR_ERR_ARGUMENT, "aligned");
    DIST_OK(qdr_stack_bind(g->stack, &(qdr_stack_memory){QDR_INIT(qdr_stack_memory), g->memory[0], g->memory[1],
                                                         g->memory[2], g->memory[3], g->memory[4]}));
}

/* Two for one cell, one for each of the others; or as many for each as there are parts. */
static int64_t sequences_of(const qdr_grid *grid, const variant *v)
{
    const int n_each = v->batch_parts > 1 ? v->batch_parts : 1;
    return n_each * qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D) + 1;
}

static void open_rows(graph *g, qdr_grid *grid, const variant *v, int64_t n_sequences)
{
    *g = (graph){.ctx = qdr_grid_context(grid), .grid = grid, .dtype = v->dtype};
    g->op.single = v->dtype == QDR_F32;
    g->stack = dist_stack(grid, (qdr_stack_opts){.n_rows = n_sequences * CONTEXT,
                                                 .row_unit = CONTEXT,
                                                 .dtype = v->dtype,
                                                 .overlap = v->overlap,
                                                 .prefetch = v->prefetch,
                                                 .panels = v->panels,
                                                 .caller_memory = v->caller_memory,
                                                 .prefetch_bytes = v->prefetch_bytes,
                                                 .batch_parts = v->batch_parts});
    add_nodes(g, v);
    DIST_OK(qdr_stack_build(g->stack));
    if (v->caller_memory) bind_own_memory(g);
    DIST_OK(qdr_stack_init(g->stack, 5, 0.3));
}

static void open_graph(graph *g, qdr_grid *grid, const variant *v) { open_rows(g, grid, v, sequences_of(grid, v)); }

static void close_graph(graph *g)
{
    qdr_stack_destroy(&g->stack);
    for (int i = 0; i < 5; i++) qdr_mem_free(g->ctx, &g->memory[i]);
}

/* Σ over all ranks of a[i]·value(seed, i), every global element of the edge once. */
static double edge_dot(graph *g, qdr_edge edge, const void *data, uint64_t seed)
{
    qdr_matrix matrix = {QDR_INIT(qdr_matrix)};
    const qdr_owned owned = dist_edge_owned(g->stack, edge);
    DIST_OK(qdr_stack_edge_matrix(g->stack, edge, &matrix));
    const qdr_axis other = matrix.col_axis == QDR_X ? QDR_Y : QDR_X;
    double *sum = dist_memory(g->ctx, 1, QDR_F64);
    *sum = 0;
    int64_t at = 0;
    for (int64_t r = owned.rows.begin; r < owned.rows.end; r++)
        for (int i = 0; i < owned.n_ranges; i++)
            for (int64_t c = owned.cols[i].begin; c < owned.cols[i].end; c++)
                *sum += dist_get(data, g->dtype, at++) * dist_value(seed, r, c);
    if (!matrix.scatter_rows && qdr_grid_coordinate(g->grid, other) > 0) *sum = 0;
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        DIST_OK(qdr_all_reduce(g->grid, (qdr_axis)axis, QDR_SUM, sum, 1, QDR_F64, NULL));
    dist_synchronize(g->ctx);
    const double result = *sum;
    void *memory = sum;
    qdr_mem_free(g->ctx, &memory);
    return result;
}

enum { X_SEED = 11, G_SEED = 12, D_SEED = 13 };

/* The loss: <y, G>, for x = X + step·D. */
static double loss(graph *g, double step)
{
    void *x = dist_edge_value(g->stack, g->x);
    void *y = dist_edge_value(g->stack, g->y);
    dist_fill_edge_along(g->stack, g->x, x, X_SEED, step, D_SEED);
    DIST_OK(qdr_stack_forward(g->stack));
    dist_synchronize(g->ctx);
    return edge_dot(g, g->y, y, G_SEED);
}

static void backward(graph *g, int flags)
{
    void *d_y = dist_edge_gradient(g->stack, g->y);
    dist_fill_edge(g->stack, g->y, d_y, G_SEED);
    DIST_OK(qdr_stack_backward(g->stack, flags, 1));
    dist_synchronize(g->ctx);
}

static void load_moved(graph *g, int index, const double *full, int64_t n, double step)
{
    double moved[MAX_FULL];
    for (int64_t i = 0; i < n; i++) moved[i] = full[i] + step * dist_value(D_SEED, i, index);
    DIST_OK(qdr_stack_load_parameter(g->stack, index, moved));
}

/* Central differences with step 1e-5 of a function of size about 10² with derivatives of the same size: the third
 * derivative contributes some 1e-10·10², rounding 10²·1e-16·(operations, 10³)/1e-5: 1e-6. */
static void check_slope(double slope, double expected, const char *what)
{
    const double bound = 1e-6 * (1 + fabs(expected)) * 10;
    DIST_CHECK(fabs(slope - expected) <= bound, "%s: slope %.12g, gradient %.12g, bound %.1e", what, slope, expected,
               bound);
}

static void check_gradients(graph *g)
{
    static const double step = 1e-5;
    double full[MAX_FULL], gradient[MAX_FULL];
    loss(g, 0);
    backward(g, 0);
    void *d_x = dist_edge_gradient(g->stack, g->x);
    const double expected = edge_dot(g, g->x, d_x, D_SEED);
    check_slope((loss(g, step) - loss(g, -step)) / (2 * step), expected, "x");
    for (int i = 0; i < qdr_stack_n_parameters(g->stack); i++) {
        const qdr_parameter parameter = dist_parameter(g->stack, i);
        DIST_CHECK(parameter.n_global <= MAX_FULL, "%s", parameter.name);
        DIST_OK(qdr_stack_gather_parameter(g->stack, i, 0, full));
        DIST_OK(qdr_stack_gather_parameter(g->stack, i, 1, gradient));
        double dot = 0;
        for (int64_t j = 0; j < parameter.n_global; j++) dot += gradient[j] * dist_value(D_SEED, j, i);
        load_moved(g, i, full, parameter.n_global, step);
        const double above = loss(g, 0);
        load_moved(g, i, full, parameter.n_global, -step);
        const double below = loss(g, 0);
        load_moved(g, i, full, parameter.n_global, 0);
        check_slope((above - below) / (2 * step), dot, parameter.name);
    }
}

/* 16 ranks are 2x2x2x2; any other number a grid at random. */
static qdr_grid *some_grid(qdr_context *ctx, uint64_t *seed)
{
    if (qdr_context_size(ctx) != 16) return dist_random_grid(ctx, seed);
    return dist_grid(ctx, (qdr_grid_opts){.x = 2, .y = 2, .z = 2, .d = 2});
}

/* All ranks on the axis of the heads: more of them than key heads, and with many of them than heads. */
static qdr_grid *tall_grid(qdr_context *ctx, int turned)
{
    const int n = qdr_context_size(ctx);
    return dist_grid(ctx, (qdr_grid_opts){.x = turned ? n : 1, .y = turned ? 1 : n, .z = 1, .d = 1});
}

/* Whole W, gradients in parts: three layers follow one another of which no product is summed before the next. */
static qdr_grid *levels_grid(qdr_context *ctx, int turned)
{
    const int n = qdr_context_size(ctx), fast = n % 4 == 0 ? 2 : 1, d = n / fast;
    return dist_grid(
        ctx, (qdr_grid_opts){.x = turned ? fast : 1, .y = turned ? 1 : fast, .z = 1, .d = d, .gradient_parts = d});
}

DIST_TEST(gradients_are_slopes)
{
    static const int key_heads[] = {0, 0, 0, 0, 1, 2, 2, 3, 0, 0};
    for (int i = 0; i < 10; i++) {
        const int turned = (int)dist_below(&seed, 2);
        qdr_grid *grid = i / 2 == 2   ? tall_grid(ctx, turned)
                         : i / 2 == 4 ? levels_grid(ctx, turned)
                                      : some_grid(ctx, &seed);
        graph g;
        open_graph(&g, grid,
                   &(variant){.layout = i % 2 ? QDR_SCATTERED : QDR_REPLICATED,
                              .dtype = QDR_F64,
                              .panels = 1 + i / 2,
                              .drop_gathered = i / 2 % 2,
                              .batch_parts = 1 + i / 4,
                              .key_heads = key_heads[i],
                              .turned = turned});
        check_gradients(&g);
        close_graph(&g);
        qdr_grid_destroy(&grid);
    }
}

/* Everything one step leaves: y and all gradients, gathered. */
static int64_t outcome(graph *g, float *result)
{
    int64_t n = 0;
    loss(g, 0);
    backward(g, 0);
    void *y = dist_edge_value(g->stack, g->y);
    const qdr_owned owned = dist_edge_owned(g->stack, g->y);
    n += dist_gather_gradients(g->stack, result);
    memcpy(result + n, y, (size_t)(owned.n_rows * owned.n_cols) * sizeof *result);
    return n + owned.n_rows * owned.n_cols;
}

DIST_TEST(overlap_changes_no_bit)
{
    static const variant variants[] = {
        {.overlap = QDR_OVERLAP_ALL},
        {.overlap = QDR_OVERLAP_NONE},
        {.overlap = QDR_OVERLAP_WEIGHTS},
        {.overlap = QDR_OVERLAP_ROWS},
        {.overlap = QDR_OVERLAP_GRADIENTS},
        {.prefetch = 3},
        {.prefetch_bytes = 20000},
        {.caller_memory = 1},
        {.drop_gathered = 1},
    };
    enum { ROOM = 8 * MAX_FULL + 64 * CONTEXT * HIDDEN };
    float *first = malloc(2 * ROOM * sizeof *first), *other = first + ROOM;
    DIST_CHECK(first != NULL, "no memory");
    for (int round = 0; round < 5; round++) {
        qdr_grid *grid = some_grid(ctx, &seed);
        const int layout = round % 2, key_heads = layout ? 0 : 2, turned = (int)dist_below(&seed, 2);
        int64_t n = 0;
        for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
            graph g;
            variant v = variants[i];
            v.layout = layout ? QDR_SCATTERED : QDR_REPLICATED;
            v.key_heads = key_heads;
            v.turned = turned;
            v.panels = round / 2 ? 3 : 1;
            v.batch_parts = round / 4 ? 2 : 1;
            open_graph(&g, grid, &v);
            const int64_t n_other = outcome(&g, i ? other : first);
            n = i ? n : n_other;
            DIST_CHECK(n_other == n && (i == 0 || memcmp(first, other, (size_t)n * sizeof *first) == 0),
                       "variant %zu, layout %d, panels %d", i, layout, v.panels);
            close_graph(&g);
        }
        qdr_grid_destroy(&grid);
    }
    free(first);
}

/* The gradients of all parameters are `times` those in `once`, up to the rounding of a few sums. */
static void check_multiple(graph *g, const double *once, double times, const char *what)
{
    double gradient[MAX_FULL];
    for (int i = 0; i < qdr_stack_n_parameters(g->stack); i++) {
        double largest = 0;
        const qdr_parameter parameter = dist_parameter(g->stack, i);
        DIST_OK(qdr_stack_gather_parameter(g->stack, i, 1, gradient));
        for (int64_t j = 0; j < parameter.n_global; j++) largest = fmax(largest, fabs(once[j]));
        for (int64_t j = 0; j < parameter.n_global; j++)
            DIST_CHECK(fabs(gradient[j] - times * once[j]) <= 1e-13 * (1 + largest),
                       "%s: %s[%d] is %.17g, not %g times %.17g", what, parameter.name, (int)j, gradient[j], times,
                       once[j]);
        once += parameter.n_global;
    }
}

/* The loss, and all gradients as on one process. */
static double keep_gradients(graph *g, double *full)
{
    const double value = loss(g, 0);
    backward(g, 0);
    for (int i = 0; i < qdr_stack_n_parameters(g->stack); i++) {
        const qdr_parameter parameter = dist_parameter(g->stack, i);
        DIST_OK(qdr_stack_gather_parameter(g->stack, i, 1, full));
        full += parameter.n_global;
    }
    return value;
}

/* Key heads are sent only where a rank's queries need them, and then once: two attentions of one head, of which rank 0
 * has all rows. */
static void heads_are_sent_if_needed(qdr_context *ctx, int turned)
{
    qdr_grid *grid = tall_grid(ctx, turned);
    const qdr_channel channel = turned ? QDR_CHANNEL_X_STAT : QDR_CHANNEL_Y_STAT;
    const int p = qdr_context_size(ctx);
    for (int i = 0; i < 3; i++) {
        const variant v = {.dtype = QDR_F64, .key_heads = i ? 1 : 0, .whole_groups = i == 1, .turned = turned};
        const int has_it = i == 2 && qdr_context_rank(ctx) == 0;
        const size_t head_bytes = 2 * CONTEXT * HEAD_SIZE * sizeof(double); /* two sequences */
        const int64_t wanted = has_it ? (int64_t)(2 * 2 * head_bytes) * (p - 1) : 0;
        graph g;
        open_graph(&g, grid, &v);
        qdr_grid_reset_traffic(grid);
        DIST_OK(qdr_stack_forward(g.stack));
        dist_synchronize(ctx);
        const qdr_traffic sent = dist_traffic(grid, channel, QDR_ALL_GATHER);
        /* Of all ranks: on several nodes some pass on what others have. */
        double *bytes = dist_memory(ctx, 2, QDR_F64);
        bytes[0] = (double)sent.bytes_sent;
        bytes[1] = (double)wanted;
        DIST_OK(qdr_all_reduce(grid, qdr_channel_axis(channel), QDR_SUM, bytes, 2, QDR_F64, NULL));
        dist_synchronize(ctx);
        DIST_CHECK(sent.n_calls == (i == 2 && p > 1 ? 2 : 0) && bytes[0] == bytes[1], "%d calls, %g bytes, not %g",
                   (int)sent.n_calls, bytes[0], bytes[1]);
        qdr_mem_free(ctx, (void **)&bytes);
        close_graph(&g);
    }
    qdr_grid_destroy(&grid);
}

/* Grouped queries, split finer than their key heads: as one rank does it that has all heads. A second step takes no
 * more memory. */
DIST_TEST(grouped_as_on_one_rank)
{
    qdr_context *self = NULL;
    for (int turned = 0; turned < 2; turned++) heads_are_sent_if_needed(ctx, turned);
    double *alone = malloc(8 * MAX_FULL * sizeof *alone);
    DIST_CHECK(alone != NULL, "no memory");
    DIST_OK(qdr_context_create_self(NULL, &self));
    for (int i = 0; i < 12; i++) {
        const int turned = i / 2 % 2 != i / 4 % 2;
        qdr_grid *grid = i % 2 ? some_grid(ctx, &seed) : tall_grid(ctx, turned), *one = tall_grid(self, 0);
        const variant v = {.layout = i / 2 % 2 ? QDR_SCATTERED : QDR_REPLICATED,
                           .dtype = QDR_F64,
                           .batch_parts = 1 + i % 3,
                           .key_heads = 1 + i / 4,
                           .turned = turned};
        variant whole = v;
        whole.whole_groups = 1;
        graph g, reference;
        size_t now = 0, peak = 0;
        open_graph(&g, grid, &v);
        open_rows(&reference, one, &whole, sequences_of(grid, &v));
        const double wanted = keep_gradients(&reference, alone), got = loss(&g, 0);
        DIST_CHECK(fabs(got - wanted) <= 1e-12 * (1 + fabs(wanted)), "loss %.17g, alone %.17g", got, wanted);
        qdr_mem_reset_peak(ctx);
        backward(&g, 0);
        qdr_mem_usage(ctx, &now, &peak);
        DIST_CHECK(now == peak, "%zu bytes more than were there before", peak - now);
        check_multiple(&g, alone, 1, "grouped");
        close_graph(&g);
        close_graph(&reference);
        qdr_grid_destroy(&grid);
        qdr_grid_destroy(&one);
    }
    qdr_context_destroy(&self);
    free(alone);
}

/* Adding to gradients that are complete, and to ones whose sums were deferred, counts nothing twice. */
DIST_TEST(micro_batches_add_up)
{
    for (int layout = 0; layout < 2; layout++) {
        qdr_grid *grid = some_grid(ctx, &seed);
        graph g;
        double *once = malloc(8 * MAX_FULL * sizeof *once);
        int64_t n = 0;
        DIST_CHECK(once != NULL, "no memory");
        open_graph(&g, grid,
                   &(variant){.layout = layout ? QDR_SCATTERED : QDR_REPLICATED,
                              .dtype = QDR_F64,
                              .key_heads = layout ? 2 : 0,
                              .turned = (int)dist_below(&seed, 2)});
        loss(&g, 0);
        backward(&g, 0);
        for (int i = 0; i < qdr_stack_n_parameters(g.stack); i++) {
            const qdr_parameter parameter = dist_parameter(g.stack, i);
            DIST_OK(qdr_stack_gather_parameter(g.stack, i, 1, once + n));
            n += parameter.n_global;
        }
        backward(&g, QDR_ACCUMULATE);
        check_multiple(&g, once, 2, "complete + complete");
        backward(&g, QDR_ACCUMULATE | QDR_DEFER_SYNC);
        backward(&g, QDR_ACCUMULATE);
        check_multiple(&g, once, 4, "complete + deferred + last");
        backward(&g, QDR_DEFER_SYNC);
        backward(&g, QDR_ACCUMULATE | QDR_DEFER_SYNC);
        backward(&g, QDR_ACCUMULATE);
        check_multiple(&g, once, 3, "deferred + deferred + last");
        backward(&g, 0);
        check_multiple(&g, once, 1, "overwritten");
        free(once);
        close_graph(&g);
        qdr_grid_destroy(&grid);
    }
}

DIST_TEST(wrong_descriptions_are_named)
{
    qdr_grid *grid = some_grid(ctx, &seed);
    qdr_stack *stack = NULL;
    qdr_edge x, y, z;
    DIST_FAILS(qdr_stack_create(grid, NULL, &stack), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_create(grid, &(qdr_stack_opts){.n_rows = 8}, &stack), QDR_ERR_ARGUMENT, "QDR_INIT");
    DIST_FAILS(qdr_stack_create(grid, &(qdr_stack_opts){QDR_INIT(qdr_stack_opts), .n_rows = -8}, &stack), QDR_ERR_SHAPE,
               "-8");
    DIST_FAILS(qdr_stack_create(grid, &(qdr_stack_opts){QDR_INIT(qdr_stack_opts), .n_rows = 10, .row_unit = 4}, &stack),
               QDR_ERR_SHAPE, "12");
    DIST_FAILS(qdr_stack_create(grid, &(qdr_stack_opts){QDR_INIT(qdr_stack_opts), .dtype = QDR_I32}, &stack),
               QDR_ERR_DTYPE, "bf16");
    DIST_FAILS(qdr_stack_create(grid, &(qdr_stack_opts){QDR_INIT(qdr_stack_opts), .batch_parts = 17}, &stack),
               QDR_ERR_ARGUMENT, "batch_parts 17");
    DIST_CHECK(stack == NULL, "a failed create leaves a stack");
    stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 8, .row_unit = 4, .dtype = QDR_F64});
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{12, 4}}, .col_axis = QDR_X};
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 0, &x));
    qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{12, 4}}, .out = {{5140, 128}}};
    DIST_FAILS(qdr_stack_add_linear(stack, &desc, x, &y, NULL), QDR_ERR_SHAPE, "5140");
    desc.out[0].unit = 20;
    desc.in[0].unit = 3;
    DIST_FAILS(qdr_stack_add_linear(stack, &desc, x, &y, NULL), QDR_ERR_SHAPE, "blocks");
    desc.in[0].unit = 4;
    desc.transposed = 1;
    DIST_FAILS(qdr_stack_add_linear(stack, &desc, x, &y, NULL), QDR_ERR_SHAPE, "transposed = 0");
    desc.transposed = 0;
    DIST_FAILS(qdr_stack_add_linear(stack, &desc, 7, &y, NULL), QDR_ERR_ARGUMENT, "edge 7");
    desc.out_row_unit = 3;
    DIST_FAILS(qdr_stack_add_linear(stack, &desc, x, &y, NULL), QDR_ERR_SHAPE, "out_row_unit 3");
    desc.out_row_unit = 0;
    desc.panels = -1;
    DIST_FAILS(qdr_stack_add_linear(stack, &desc, x, &y, NULL), QDR_ERR_ARGUMENT, "panels -1");
    desc.panels = 0;
    desc.size = 7;
    DIST_FAILS(qdr_stack_add_linear(stack, &desc, x, &y, NULL), QDR_ERR_ARGUMENT, "size is 7");
    desc.size = sizeof desc;
    DIST_FAILS(qdr_stack_add_linear(stack, NULL, x, &y, NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(test_add_attention(stack, "attention", 4, 4, x, &y), QDR_ERR_SHAPE, "three blocks");
    qdr_edge_desc heads = {QDR_INIT(qdr_edge_desc), .cols = {{12, 6}, {4, 4}, {4, 4}}, .col_axis = QDR_Y};
    DIST_OK(qdr_stack_add_input(stack, "uncut", &heads, 0, &z));
    DIST_FAILS(test_add_attention(stack, "a", 4, 4, z, &y), QDR_ERR_SHAPE, "whole heads");
    heads.cols[0] = (qdr_block){16, 4}, heads.cols[1] = (qdr_block){12, 4};
    DIST_OK(qdr_stack_add_input(stack, "odd", &heads, 0, &z));
    DIST_FAILS(test_add_attention(stack, "a", 4, 4, z, &y), QDR_ERR_SHAPE, "4 query heads, 3 key heads, 1 value heads");
    DIST_FAILS(qdr_stack_forward(stack), QDR_ERR_STATE, "qdr_stack_build");
    DIST_OK(qdr_stack_add_linear(stack, &desc, x, &y, NULL));
    DIST_FAILS(qdr_stack_add_residual(stack, "sum", x, y, &z), QDR_ERR_SHAPE, "alike");
    DIST_OK(qdr_stack_build(stack));
    DIST_FAILS(qdr_stack_add_gelu(stack, "late", y, &z), QDR_ERR_STATE, "already built");
    DIST_FAILS(qdr_stack_backward(stack, 64, 1), QDR_ERR_ARGUMENT, "64");
    double sum;
    int64_t n_valid;
    DIST_FAILS(qdr_stack_loss(stack, &sum, &n_valid), QDR_ERR_STATE, "cross-entropy");
    qdr_stack_destroy(&stack);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}
