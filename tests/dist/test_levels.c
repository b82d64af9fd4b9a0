/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients and optimizer state in more parts than weights. A GPT trains as it does without levels (test_gpt.c compares
 * it with a serial one); here: copies of each parameter have the same bits after each forward, whichever stack runs it;
 * bits do not depend on overlap, nor on whether backward and AdamW are one list, and are the same twice; bytes and
 * memory equal closed forms; optimizers of the caller's own, layers run alone, gradients added to complete ones. */
#include <quadrille/coll.h>

#include "../support/gpt_fill.h"
#include "dist.h"
#include "narrow.h"
#include "reference/layer_cost.h"

/* ---- training ---- */

enum { CONTEXT = 4, TEXT = 512, STEPS = 4, MOST_PER_FORWARD = 64 };

typedef struct run_opts {
    gpt_config config;
    int n_micro, validates;
    double clip_norm;
    int joins; /* the last backward of a step and AdamW */
    uint64_t data;
} run_opts;

static gpt_config random_config(uint64_t *seed, const qdr_grid *grid)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    const int64_t cells = (int64_t)qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D);
    const int64_t n_heads = 1 + dist_below(seed, 4);
    return (gpt_config){.network = gpt_network((qdr_network){.layers = 1 + dist_below(seed, 2),
                                                             .hidden = n_heads * (1 + dist_below(seed, 9)),
                                                             .heads = n_heads,
                                                             .vocab = 3 + dist_below(seed, 40),
                                                             .tied = (int)dist_below(seed, 2),
                                                             .context = CONTEXT}),
                        .context = CONTEXT,
                        .n_sequences = dist_below(seed, 2) ? cells : 1 + dist_below(seed, 2 * cells),
                        .layout = dist_below(seed, 2) ? QDR_SCATTERED : QDR_REPLICATED,
                        .dtype = dtypes[dist_below(seed, 4)],
                        .panels = 1,
                        .batch_parts = 1};
}

/* joined: the optimizer whose step the backward includes; NULL: none */
static double pass(gpt *model, qdr_adamw *joined, uint64_t data, int flags, double scale)
{
    static const int64_t last = TEXT - CONTEXT - 1;
    uint8_t text[TEXT];
    int64_t starts[MOST_PER_FORWARD], n = 0;
    double loss = 0;
    for (int i = 0; i < TEXT; i++) text[i] = (uint8_t)(i * i % (int)model->config.network.vocab);
    for (int i = 0; i < MOST_PER_FORWARD; i++) starts[i] = dist_below(&data, last);
    DIST_OK(gpt_fill(model, text, starts));
    DIST_OK(qdr_stack_forward(model->stack));
    dist_check_copies(model->stack, "after a forward");
    if (joined)
        DIST_OK(qdr_adamw_backward(joined, flags, scale));
    else if (scale > 0)
        DIST_OK(qdr_stack_backward(model->stack, flags, scale));
    DIST_OK(qdr_stack_loss(model->stack, &loss, &n));
    return loss;
}

/* From now on gradients are sent as bf16. */
static void code_gradients(qdr_stack *stack)
{
    qdr_codecs codecs;
    DIST_OK(qdr_codecs_parse("none,d.gradient=bf16,z.gradient=bf16,least=1,inside", &codecs));
    DIST_OK(qdr_stack_set_codecs(stack, &codecs));
}

static void step_once(const run_opts *opts, gpt *model, qdr_adamw *optimizer, uint64_t data, double *loss)
{
    DIST_OK(qdr_adamw_set_rate(optimizer, 0.02));
    for (int micro = 0; micro < opts->n_micro; micro++) {
        const int is_last = micro == opts->n_micro - 1;
        const int flags = (micro ? QDR_ACCUMULATE : 0) | (is_last ? 0 : QDR_DEFER_SYNC);
        *loss += pass(model, is_last && opts->joins ? optimizer : NULL, data + (uint64_t)micro, flags, 0.1);
    }
    if (!opts->joins) DIST_OK(qdr_adamw_step_as_set(optimizer));
}

/* Some steps; a digest of all losses and norms and of the final parameters. Between steps a forward without a backward,
 * if it validates: then that one returns what the step has updated. */
static double train(qdr_grid *grid, const run_opts *opts)
{
    const qdr_adamw_opts adamw = {QDR_INIT(qdr_adamw_opts), .weight_decay = 0.1, .clip_norm = opts->clip_norm};
    double numbers[3 * STEPS + 128] = {0};
    gpt model;
    qdr_adamw *optimizer = NULL;
    int n = 0;
    DIST_OK(gpt_create(grid, &opts->config, &model));
    DIST_OK(gpt_init(&model, 11, 0.2));
    DIST_OK(qdr_adamw_create(model.stack, &adamw, &optimizer));
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS - 1 && opts->config.dtype == QDR_F32) code_gradients(model.stack);
        step_once(opts, &model, optimizer, opts->data + (uint64_t)(step * 10), &numbers[n++]);
        DIST_OK(qdr_adamw_norm(optimizer, &numbers[n++]));
        if (opts->validates && step % 2 == 0) numbers[n++] = pass(&model, NULL, 1, 0, 0);
    }
    for (int i = 0; i < qdr_stack_n_parameters(model.stack); i++) {
        const qdr_parameter p = dist_parameter(model.stack, i);
        const size_t bytes = (size_t)p.n_global * qdr_dtype_bytes(opts->config.dtype);
        void *whole = malloc(bytes);
        DIST_CHECK(whole, "no memory");
        DIST_CHECK(p.stale == (dist_has_levels(grid) && p.decay), "%s: stale is %d", p.name, p.stale);
        DIST_OK(qdr_stack_gather_parameter(model.stack, i, 0, whole));
        numbers[n++] = dist_digest(whole, bytes);
        free(whole);
    }
    gpt_destroy(&model); /* while it is stale */
    qdr_adamw_destroy(&optimizer);
    return dist_digest(numbers, sizeof numbers);
}

/* Levels with both near and far come first where there are ranks enough: four, of which two are near. Every third grid
 * has any shape, and mostly no levels. */
static qdr_grid *grid_of_round(qdr_context *ctx, int round, uint64_t *seed)
{
    const int p = qdr_context_size(ctx);
    if (round % 3 == 2) return dist_random_grid(ctx, seed);
    if (round > 0 || p % 4) return dist_levels_grid(ctx, seed);
    qdr_grid *grid = dist_grid(
        ctx, (qdr_grid_opts){.x = p / 4, .y = 1, .z = 1, .d = 4, .gradient_parts = 2, .optimizer_parts = 4});
    return grid;
}

DIST_TEST(bits_are_the_same)
{
    for (int round = 0; round < dist_rounds(6); round++) {
        qdr_grid *grid = grid_of_round(ctx, round, &seed);
        run_opts opts = {.config = random_config(&seed, grid),
                         .n_micro = 1 + (int)dist_below(&seed, 3),
                         .validates = (int)dist_below(&seed, 2),
                         .clip_norm = (double)dist_below(&seed, 2),
                         .data = dist_random(&seed)};
        const double all = train(grid, &opts), again = train(grid, &opts);
        opts.config.overlap = QDR_OVERLAP_NONE;
        const double none = train(grid, &opts);
        opts.joins = 1;
        const double joined_alone = train(grid, &opts);
        opts.config.overlap = QDR_OVERLAP_GRADIENTS;
        const double some = train(grid, &opts);
        opts.config.overlap = QDR_OVERLAP_ALL;
        const double joined = train(grid, &opts);
        DIST_CHECK(all == again, "round %d: two runs differ", round);
        DIST_CHECK(all == none && joined == some, "round %d: overlap changes bits", round);
        DIST_CHECK(all == joined && all == joined_alone, "round %d: a step joined to the backward changes bits", round);
        qdr_grid_destroy(&grid);
    }
}

/* ---- bytes and memory of one layer ---- */

typedef struct layer {
    qdr_stack *stack;
    qdr_linear *linear;
    qdr_edge in, out;
    reference_layer shape;
} layer;

static layer layer_create(qdr_grid *grid, const reference_layer *shape)
{
    const qdr_axis in_axis = shape->transposed ? QDR_Y : QDR_X;
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{(int64_t)shape->k, 1}}, .col_axis = in_axis,
                                 .layout = shape->in_layout};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),
                                  .name = "fc",
                                  .in = {{(int64_t)shape->k, 1}},
                                  .out = {{(int64_t)shape->n, 1}},
                                  .bias = shape->bias,
                                  .transposed = shape->transposed,
                                  .out_layout = shape->out_layout,
                                  .drop_gathered = shape->drop_gathered};
    layer made = {.shape = *shape};
    made.stack = dist_stack(
        grid, (qdr_stack_opts){.n_rows = (int64_t)shape->m, .dtype = shape->dtype, .panels = 1, .batch_parts = 1});
    DIST_OK(qdr_stack_add_input(made.stack, "x", &input, !shape->no_dx, &made.in));
    DIST_OK(qdr_stack_add_linear(made.stack, &desc, made.in, &made.out, &made.linear));
    DIST_OK(qdr_stack_build(made.stack));
    DIST_OK(qdr_stack_init(made.stack, 3, 0.1));
    return made;
}

/* A layer whose extents the grid divides, and whose parts need no padding. */
static reference_layer even_layer(const qdr_grid *grid, uint64_t *seed)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    const int p = qdr_context_size(qdr_grid_context(grid));
    return (reference_layer){.m = p * p * (1.0 + (double)dist_below(seed, 3)),
                             .k = 4.0 * p * (1 + (double)dist_below(seed, 3)),
                             .n = 8.0 * p * (1 + (double)dist_below(seed, 3)),
                             .x = qdr_grid_size(grid, QDR_X),
                             .y = qdr_grid_size(grid, QDR_Y),
                             .z = qdr_grid_size(grid, QDR_Z),
                             .d = qdr_grid_size(grid, QDR_D),
                             .gradient_parts = qdr_grid_parts(grid, QDR_LEVEL_GRADIENTS),
                             .optimizer_parts = qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER),
                             .transposed = (int)dist_below(seed, 2),
                             .bias = (int)dist_below(seed, 2),
                             .in_layout = dist_below(seed, 2) ? QDR_SCATTERED : QDR_REPLICATED,
                             .out_layout = dist_below(seed, 2) ? QDR_SCATTERED : QDR_REPLICATED,
                             .drop_gathered = (int)dist_below(seed, 2),
                             .no_dx = (int)dist_below(seed, 2),
                             .dtype = dtypes[dist_below(seed, 4)]};
}

static void add(reference_cost *sum, reference_layer shape, int defer)
{
    shape.defer_sync = defer;
    const reference_cost forward = reference_forward_cost(&shape), backward = reference_backward_cost(&shape);
    reference_add_cost(sum, &forward);
    reference_add_cost(sum, &backward);
}

static void fill(const layer *l, uint64_t seed)
{
    dist_synchronize(qdr_grid_context(qdr_stack_grid(l->stack)));
    void *x = dist_edge_value(l->stack, l->in);
    void *dy = dist_edge_gradient(l->stack, l->out);
    dist_fill_edge(l->stack, l->in, x, seed);
    dist_fill_edge(l->stack, l->out, dy, seed + 1);
}

/* A step: what was counted while copying is what the closed forms say, channel by channel. */
static void check_step(const layer *l, int n_micro, int is_stale)
{
    qdr_grid *grid = qdr_stack_grid(l->stack);
    reference_cost expected = {.flops = 0};
    if (is_stale) {
        expected = reference_return_cost(&l->shape);
        DIST_OK(qdr_stack_mark_updated(l->stack));
    }
    dist_synchronize(qdr_grid_context(grid));
    qdr_grid_reset_traffic(grid);
    for (int i = 0; i < n_micro; i++) {
        const int defer = i < n_micro - 1;
        add(&expected, l->shape, defer);
        DIST_OK(qdr_stack_forward(l->stack));
        DIST_OK(qdr_stack_backward(l->stack, (i ? QDR_ACCUMULATE : 0) | (defer ? QDR_DEFER_SYNC : 0), 1));
    }
    dist_synchronize(qdr_grid_context(grid));
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
            const double bytes = expected.bytes[channel][kind],
                         sent = (double)dist_traffic(grid, (qdr_channel)channel, (qdr_coll_kind)kind).bytes_sent;
            DIST_CHECK(fabs(sent - bytes) < 0.5, "%s, %s: %g bytes, %.17g in closed form",
                       qdr_channel_name((qdr_channel)channel), qdr_coll_kind_name((qdr_coll_kind)kind), sent, bytes);
        }
}

DIST_TEST(bytes_are_those_of_the_table)
{
    for (int round = 0; round < dist_rounds(18); round++) {
        qdr_grid *grid = grid_of_round(ctx, round, &seed);
        const reference_layer shape = even_layer(grid, &seed);
        layer l = layer_create(grid, &shape);
        fill(&l, seed);
        check_step(&l, 1, 0);
        check_step(&l, 1, 1);
        check_step(&l, 4, 1);
        qdr_stack_destroy(&l.stack);
        qdr_grid_destroy(&grid);
    }
}

static size_t aligned(double bytes) { return ((size_t)bytes + 63) / 64 * 64; }

/* Elements of this rank's (x, y) block of W[n, k]; of the largest one. */
static int64_t block_elems(const qdr_grid *grid, int64_t k, int64_t n)
{
    const int64_t x = qdr_grid_size(grid, QDR_X), y = qdr_grid_size(grid, QDR_Y);
    const int64_t at_x = qdr_grid_coordinate(grid, QDR_X), at_y = qdr_grid_coordinate(grid, QDR_Y);
    return (k / x + (at_x < k % x)) * (n / y + (at_y < n % y));
}
static int64_t largest_block(const qdr_grid *grid, int64_t k, int64_t n)
{
    const int64_t x = qdr_grid_size(grid, QDR_X), y = qdr_grid_size(grid, QDR_Y);
    return (k + x - 1) / x * ((n + y - 1) / y);
}

/* A part of the state, with padding: whole 16 bytes. */
static int64_t state_elems(const qdr_grid *grid, int64_t block, qdr_dtype dtype)
{
    const int64_t state = qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER);
    const int64_t unit = 16 / (int64_t)qdr_dtype_bytes(dtype), each = (block + state - 1) / state;
    return (each + unit - 1) / unit * unit;
}

/* Layers without rows, of blocks of one size: k to n and n to k in turn. Only weights and their gradients need
 * workspace. */
static size_t workspace_of(qdr_grid *grid, int n_layers, int64_t k, int64_t n, qdr_dtype dtype, size_t prefetch_bytes)
{
    qdr_linear *linear;
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    qdr_stack *stack = dist_stack(
        grid, (qdr_stack_opts){.dtype = dtype, .panels = 1, .batch_parts = 1, .prefetch_bytes = prefetch_bytes});
    qdr_edge edge = dist_input(stack, "x", (qdr_edge_desc){.cols = {{k, 1}}, .col_axis = QDR_X}, 0);
    for (int i = 0; i < n_layers; i++) {
        const char name[] = {'l', (char)('0' + i), 0};
        const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = name, .in = {{i % 2 ? n : k, 1}},
                                      .out = {{i % 2 ? k : n, 1}}, .transposed = i % 2};
        DIST_OK(qdr_stack_add_linear(stack, &desc, edge, &edge, &linear));
    }
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_get_sizes(stack, &sizes));
    qdr_stack_destroy(&stack);
    return sizes.workspace;
}

/* Whole weights where z parts them, two at a time, or three if these fit; two whole gradients where z or near ranks sum
 * them; and what z ranks have summed, before it is summed again or added. In a single layer dW takes the place of W if
 * dX comes first, so that its sum over y overlaps with the product of dW. */
static void check_workspace(qdr_grid *grid, int64_t k, int64_t n, qdr_dtype dtype)
{
    const int64_t z = qdr_grid_parts(grid, QDR_LEVEL_WEIGHTS), state = qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER);
    const size_t each = qdr_dtype_bytes(dtype), each_gradient = dtype == QDR_F64 ? 8 : 4;
    const size_t whole = (size_t)(state_elems(grid, block_elems(grid, k, n), dtype) * state),
                 largest = (size_t)(state_elems(grid, largest_block(grid, k, n), dtype) * state) * each;
    const size_t w = z > 1 ? aligned((double)(whole * each)) : 0,
                 dw = qdr_grid_parts(grid, QDR_LEVEL_GRADIENTS) > 1 ? aligned((double)(whole * each_gradient)) : 0,
                 shard = z > 1 ? aligned((double)(whole / (size_t)z * each_gradient)) : 0;
    const struct {
        int n_layers;
        size_t prefetch_bytes, wanted;
    } cases[] = {{1, 0, qdr_grid_size(grid, QDR_Y) > 1 ? dw + shard : w + dw + shard},
                 {9, 3 * largest - 1, 2 * w + 2 * dw + shard},
                 {9, 3 * largest, 3 * w + 2 * dw + shard}};
    for (int i = 0; i < 3; i++) {
        const size_t got = workspace_of(grid, cases[i].n_layers, k, n, dtype, cases[i].prefetch_bytes);
        DIST_CHECK(got == cases[i].wanted, "%d layers, %zu bytes of W ahead: workspace %zu, not %zu", cases[i].n_layers,
                   cases[i].prefetch_bytes, got, cases[i].wanted);
    }
}

/* Of one W, in (x, y) blocks of the largest size, with padding: shards of equal parts of whole 16 bytes. */
static void check_memory(qdr_grid *grid, int64_t k, int64_t n, qdr_dtype dtype)
{
    const int64_t z = qdr_grid_parts(grid, QDR_LEVEL_WEIGHTS), gradients = qdr_grid_parts(grid, QDR_LEVEL_GRADIENTS),
                  state = qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER);
    const int64_t block = block_elems(grid, k, n), n_state = state_elems(grid, block, dtype);
    const double gradient_bytes = dtype == QDR_F64 ? 8 : 4;
    const reference_layer shape = {
        .m = (double)(z * qdr_grid_size(grid, QDR_D)), .k = (double)k, .n = (double)n, .dtype = dtype};
    layer l = layer_create(grid, &shape);
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    size_t optimizer;
    DIST_OK(qdr_stack_get_sizes(l.stack, &sizes));
    const qdr_parameter p = dist_parameter(l.stack, 0);
    DIST_OK(qdr_adamw_size(l.stack, &optimizer));
    const size_t wanted[] = {aligned((double)(n_state * (state / z)) * (double)qdr_dtype_bytes(dtype)),
                             aligned((double)(n_state * (state / gradients)) * gradient_bytes)};
    DIST_CHECK(sizes.parameters == wanted[0], "parameters %zu, not %zu", sizes.parameters, wanted[0]);
    DIST_CHECK(sizes.gradients == wanted[1], "gradients %zu, not %zu", sizes.gradients, wanted[1]);
    const int64_t begin = n_state * qdr_grid_part(grid, QDR_LEVEL_OPTIMIZER);
    const int64_t left = block - begin, mine = left < 0 ? 0 : left < n_state ? left : n_state;
    const int n_arrays = is_narrow(dtype) ? 3 : 2;
    const int copies = (int)(z * qdr_grid_size(grid, QDR_D) / state);
    DIST_CHECK(p.n_copies == copies && p.copy == qdr_grid_coordinate(grid, QDR_D) / (int)(state / z), "copy %d of %d",
               p.copy, p.n_copies);
    DIST_CHECK(p.n_state == mine, "%s: %lld elements of state, not %lld", p.name, (long long)p.n_state,
               (long long)mine);
    DIST_CHECK(optimizer == 128 + (size_t)n_arrays * aligned((double)mine * gradient_bytes), "state %zu", optimizer);
    qdr_stack_destroy(&l.stack);
}

DIST_TEST(memory_is_that_of_the_formulas)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    for (int round = 0; round < dist_rounds(24); round++) {
        qdr_grid *grid = grid_of_round(ctx, round, &seed);
        const int64_t k = 1 + dist_below(&seed, 60), n = 1 + dist_below(&seed, 60);
        check_memory(grid, k, n, dtypes[round % 4]);
        check_workspace(grid, k, n, dtypes[round % 4]);
        qdr_grid_destroy(&grid);
    }
}

/* ---- a caller's own optimizer, and layers alone ---- */

/* Subtracts the gradient of what this rank updates. */
static void descend(qdr_stack *stack, double rate)
{
    dist_synchronize(qdr_grid_context(qdr_stack_grid(stack)));
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        DIST_CHECK(p.copy >= 0 && p.copy < p.n_copies, "copy %d of %d", p.copy, p.n_copies);
        double *data = p.data;
        const double *gradient = p.gradient;
        for (int64_t j = p.state_begin; j < p.state_begin + p.n_state; j++)
            data[j] -= rate * gradient[j - p.gradient_begin];
    }
    DIST_OK(qdr_stack_mark_updated(stack));
}

/* Whole gradients, and then whole parameters. Numbers are multiples of 2^-12 and sums are exact, in any order. */
static void check_serial(const layer *l, const double *w, const double *b, const double *dw, const double *db)
{
    const int64_t n = (int64_t)l->shape.n, k = (int64_t)l->shape.k;
    const double *wanted[2][2] = {{w, b}, {dw, db}};
    double *full = malloc((size_t)(n * k) * sizeof *full);
    DIST_CHECK(full, "no memory");
    for (int which = 0; which < 2; which++)
        for (int i = 0; i < qdr_stack_n_parameters(l->stack); i++) {
            DIST_OK(qdr_stack_gather_parameter(l->stack, i, (qdr_parameter_data)which, full));
            for (int64_t j = 0; j < (i ? n : n * k); j++)
                DIST_CHECK(full[j] == wanted[which][i][j], "%s %d, element %lld: %.17g, not %.17g",
                           which ? "gradient" : "parameter", i, (long long)j, full[j], wanted[which][i][j]);
        }
    free(full);
}

/* The layer as a stack, or by itself. */
static void pass_layer(const layer *l, int flags, int alone)
{
    void *x = dist_edge_value(l->stack, l->in);
    void *dx = dist_edge_gradient(l->stack, l->in);
    void *y = dist_edge_value(l->stack, l->out);
    void *dy = dist_edge_gradient(l->stack, l->out);
    DIST_OK(alone ? qdr_linear_forward(l->linear, x, y, 0, NULL) : qdr_stack_forward(l->stack));
    dist_check_copies(l->stack, alone ? "after a layer's forward" : "after a forward");
    DIST_OK(alone ? qdr_linear_backward(l->linear, dy, x, dx, flags, NULL) : qdr_stack_backward(l->stack, flags, 1));
}

/* What one process adds to the gradients, or sets them to. */
static void serial_gradients(const layer *l, uint64_t data, int adds, double *dw, double *db)
{
    const int64_t m = (int64_t)l->shape.m, n = (int64_t)l->shape.n, k = (int64_t)l->shape.k;
    for (int64_t i = 0; i < n; i++) {
        if (!adds) db[i] = 0;
        for (int64_t r = 0; r < m; r++) db[i] += dist_value(data + 1, r, i);
        for (int64_t j = 0; j < k; j++) {
            double sum = adds ? dw[i * k + j] : 0;
            for (int64_t r = 0; r < m; r++) sum += dist_value(data + 1, r, i) * dist_value(data, r, j);
            dw[i * k + j] = sum;
        }
    }
}

/* One step after the other of plain descent with a rate of 1/4; each adds to the gradients of the one before if `adds`,
 * which are complete. Every number is known from the seeds. */
static void check_descent(qdr_grid *grid, uint64_t *seed, int adds, int alone)
{
    reference_layer shape = even_layer(grid, seed);
    shape.dtype = QDR_F64;
    shape.bias = 1;
    shape.no_dx = 0;
    shape.m = 1 + (double)dist_below(seed, 40);
    shape.k = 1 + (double)dist_below(seed, 20);
    shape.n = 1 + (double)dist_below(seed, 20);
    layer l = layer_create(grid, &shape);
    const int64_t n = (int64_t)shape.n, k = (int64_t)shape.k;
    double *w = calloc((size_t)(n * k), sizeof *w), *dw = calloc((size_t)(n * k), sizeof *dw);
    double b[64] = {0}, db[64] = {0};
    DIST_CHECK(w && dw, "no memory");
    for (int64_t j = 0; j < n * k; j++) w[j] = dist_value(1, j, 0);
    DIST_OK(qdr_stack_load_parameter(l.stack, 0, w));
    DIST_OK(qdr_stack_load_parameter(l.stack, 1, b));
    for (int step = 0; step < 3; step++) {
        const uint64_t data = dist_random(seed);
        const int flags = adds && step ? QDR_ACCUMULATE : 0;
        fill(&l, data);
        pass_layer(&l, flags, alone);
        serial_gradients(&l, data, flags, dw, db);
        descend(l.stack, 0.25);
        for (int64_t j = 0; j < n * k; j++) w[j] -= 0.25 * dw[j];
        for (int64_t i = 0; i < n; i++) b[i] -= 0.25 * db[i];
        check_serial(&l, w, b, dw, db);
    }
    free(w);
    free(dw);
    qdr_stack_destroy(&l.stack);
}

DIST_TEST(own_optimizers)
{
    for (int round = 0; round < dist_rounds(24); round++) {
        qdr_grid *grid = grid_of_round(ctx, round, &seed);
        check_descent(grid, &seed, round % 2, round / 2 % 2);
        qdr_grid_destroy(&grid);
    }
}
