/* SPDX-License-Identifier: Apache-2.0 */
/* Values of edges last as long as they are read: those that a backward reads, and those that the caller asks for. With
 * either choice, on every grid, results are the same, bit for bit, and memory differs by what passes. */
#include "../nodes.h"
#include "core/size.h"
#include "dist.h"
#include "schedule/buffer.h"

enum { WIDTH = 12, WIDE = 20 };

typedef struct block {
    qdr_stack *stack;
    qdr_edge x, normed, bent, made, sum, last; /* made: by a layer, for the sum alone */
    void *memory;
    qdr_stack_sizes sizes;
} block;

typedef struct variant {
    int64_t n_rows;
    qdr_dtype dtype;
    qdr_layout layout;
    int panels, batch_parts, overlap;
    qdr_recompute recompute;
    uint64_t data_seed;
} variant;

/* x + down(gelu(up(norm(x)))), of which a norm is the last. */
static block describe(qdr_grid *grid, const variant *v)
{
    block b = {.sizes = {QDR_INIT(qdr_stack_sizes)}};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = v->n_rows,           .dtype = v->dtype,
                                 .panels = v->panels,      .batch_parts = v->batch_parts, .overlap = v->overlap,
                                 .caller_memory = 1,       .recompute = v->recompute};
    const qdr_edge_desc input = {.cols = {{WIDTH, 1}}, .col_axis = QDR_X, .layout = v->layout};
    const qdr_linear_desc up = {
        .name = "up", .in = {{WIDTH, 1}}, .out = {{WIDE, 1}}, .bias = 1, .out_layout = v->layout};
    const qdr_linear_desc down = {
        .name = "down", .in = {{WIDE, 1}}, .out = {{WIDTH, 1}}, .bias = 1, .transposed = 1, .out_layout = v->layout};
    DIST_OK(qdr_stack_create(grid, &opts, &b.stack));
    b.x = dist_input(b.stack, "x", input, 1);
    DIST_OK(test_add_norm(b.stack, "first", 0, b.x, &b.normed));
    DIST_OK(qdr_stack_add_gelu(b.stack, "gelu", dist_linear(b.stack, up, b.normed, NULL), &b.bent));
    b.made = dist_linear(b.stack, down, b.bent, NULL);
    DIST_OK(qdr_stack_add_residual(b.stack, "sum", b.x, b.made, &b.sum));
    DIST_OK(test_add_norm(b.stack, "norm", 0, b.sum, &b.last));
    return b;
}

static void run_forward(block *b, const variant *v)
{
    b->memory = dist_build_in_nan(b->stack);
    DIST_OK(qdr_stack_get_sizes(b->stack, &b->sizes));
    if (b->sizes.parameters) DIST_OK(qdr_stack_init(b->stack, v->data_seed, 0.3));
    dist_fill_edge(b->stack, b->x, dist_edge_value(b->stack, b->x), v->data_seed + 1);
    DIST_OK(qdr_stack_forward(b->stack));
    dist_synchronize(qdr_grid_context(qdr_stack_grid(b->stack)));
}

static block make(qdr_grid *grid, const variant *v, int keeps)
{
    block b = describe(grid, v);
    if (keeps) DIST_OK(qdr_stack_keep_value(b.stack, b.made));
    run_forward(&b, v);
    dist_fill_edge(b.stack, b.last, dist_edge_gradient(b.stack, b.last), v->data_seed + 2);
    DIST_OK(qdr_stack_backward(b.stack, 0, 1));
    dist_synchronize(qdr_grid_context(grid));
    return b;
}

static void drop(qdr_grid *grid, block *b)
{
    qdr_stack_destroy(&b->stack);
    qdr_mem_free(qdr_grid_context(grid), &b->memory);
}

static void check_same(const block *a, const block *b, const void *ours, const void *theirs, const char *what)
{
    const qdr_owned owned = dist_edge_owned(a->stack, a->x);
    const size_t bytes = (size_t)(owned.n_rows * owned.n_cols) * qdr_dtype_bytes(qdr_stack_dtype(b->stack));
    DIST_CHECK(memcmp(ours, theirs, bytes) == 0, "%s differs", what);
}

/* What was kept adds up: both addends and their sum are there, and a sum is rounded once. */
static void check_sum(const block *b, const variant *v)
{
    const qdr_owned owned = dist_edge_owned(b->stack, b->made);
    const void *x = dist_edge_value(b->stack, b->x), *made = dist_edge_value(b->stack, b->made),
               *sum = dist_edge_value(b->stack, b->sum);
    void *one = dist_memory(qdr_grid_context(qdr_stack_grid(b->stack)), 1, v->dtype);
    for (int64_t i = 0; i < owned.n_rows * owned.n_cols; i++) {
        dist_set(one, v->dtype, 0, dist_get(x, v->dtype, i) + dist_get(made, v->dtype, i));
        DIST_CHECK(dist_get(sum, v->dtype, i) == dist_get(one, v->dtype, 0), "element %lld", (long long)i);
    }
    qdr_mem_free(qdr_grid_context(qdr_stack_grid(b->stack)), &one);
}

static void check_gradients(const block *again, const block *kept, qdr_dtype dtype)
{
    check_same(again, kept, dist_edge_gradient(again->stack, again->x), dist_edge_gradient(kept->stack, kept->x),
               "the input's gradient");
    for (int i = 0; i < qdr_stack_n_parameters(kept->stack); i++) {
        const qdr_parameter a = dist_parameter(again->stack, i), b = dist_parameter(kept->stack, i);
        const size_t bytes = (size_t)b.n_gradient * qdr_dtype_bytes(dist_sum_type(dtype));
        DIST_CHECK(memcmp(a.gradient, b.gradient, bytes) == 0, "the gradient of %s differs", b.name);
    }
}

static size_t bytes_of(const block *b, qdr_edge edge)
{
    const qdr_owned owned = dist_edge_owned(b->stack, edge);
    const size_t bytes = (size_t)(owned.n_rows * owned.n_cols) * qdr_dtype_bytes(qdr_stack_dtype(b->stack));
    return qdri_align_bytes(bytes, QDRI_BUFFER_ALIGN);
}

static variant random_variant(uint64_t *seed)
{
    static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    return (variant){.n_rows = dist_below(seed, 30),
                     .dtype = types[dist_below(seed, 4)],
                     .layout = dist_below(seed, 2) ? QDR_SCATTERED : QDR_REPLICATED,
                     .panels = 1 + (int)dist_below(seed, 3),
                     .batch_parts = 1 + (int)dist_below(seed, 3),
                     .overlap = dist_below(seed, 2) ? QDR_OVERLAP_NONE : QDR_OVERLAP_ALL,
                     .data_seed = dist_random(seed)};
}

DIST_TEST(values_that_nothing_reads_again_pass)
{
    for (int round = 0, n = dist_rounds(24); round < n; round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const variant v = random_variant(&seed);
        block passes = make(grid, &v, 0), keeps = make(grid, &v, 1);
        void *value = &value;
        DIST_FAILS(qdr_stack_edge_value(passes.stack, passes.made, &value), QDR_ERR_STATE,
                   "'down': its value only lasts");
        DIST_CHECK(!value, "a value after an error");
        DIST_CHECK(keeps.sizes.activations - passes.sizes.activations == bytes_of(&keeps, keeps.made),
                   "%zu and %zu bytes", keeps.sizes.activations, passes.sizes.activations);
        check_sum(&keeps, &v);
        check_same(&passes, &keeps, dist_edge_value(passes.stack, passes.last),
                   dist_edge_value(keeps.stack, keeps.last), "the norm");
        check_same(&passes, &keeps, dist_edge_gradient(passes.stack, passes.x),
                   dist_edge_gradient(keeps.stack, keeps.x), "the input's gradient");
        DIST_FAILS(qdr_stack_keep_value(keeps.stack, keeps.sum), QDR_ERR_STATE, "already built");
        drop(grid, &passes);
        drop(grid, &keeps);
        qdr_grid_destroy(&grid);
    }
}

/* Norms and activations that the backward reads are made again, unless rows were gathered, which are kept. */
DIST_TEST(operations_are_repeated)
{
    for (int round = 0, n = dist_rounds(24); round < n; round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        variant v = random_variant(&seed);
        block kept = make(grid, &v, 0);
        v.recompute = QDR_RECOMPUTE_OPERATIONS;
        block again = make(grid, &v, 0);
        const int over_y = v.layout == QDR_SCATTERED && qdr_grid_size(grid, QDR_Y) > 1,
                  over_x = v.layout == QDR_SCATTERED && qdr_grid_size(grid, QDR_X) > 1;
        const size_t less = (over_y ? 0 : bytes_of(&kept, kept.normed)) + (over_x ? 0 : bytes_of(&kept, kept.bent));
        DIST_CHECK(kept.sizes.activations - again.sizes.activations == less, "%zu and %zu bytes, not %zu less",
                   kept.sizes.activations, again.sizes.activations, less);
        check_same(&again, &kept, dist_edge_value(again.stack, again.last), dist_edge_value(kept.stack, kept.last),
                   "the norm");
        check_gradients(&again, &kept, v.dtype);
        drop(grid, &again);
        drop(grid, &kept);
        qdr_grid_destroy(&grid);
    }
}

/* ---- segments ---- */

/* The caller's: out = 2 · in. What it saves says that its forward has run. */
typedef struct doubled {
    qdr_dtype dtype;
    const void *in;
    void *out;
    unsigned char *saved;
    int64_t n;
    int is_backward, adds;
} doubled;

static void compute_doubled(void *user)
{
    doubled *d = user;
    if (d->is_backward)
        DIST_CHECK(*d->saved == 7, "a backward before what it needs was saved");
    else
        *d->saved = 7;
    for (int64_t i = 0; i < d->n; i++)
        dist_set(d->out, d->dtype, i, 2 * dist_get(d->in, d->dtype, i) + (d->adds ? dist_get(d->out, d->dtype, i) : 0));
    free(d);
}

static qdr_status enqueue_doubled(const qdr_op_call *call, const qdr_dtype *dtype, int is_backward)
{
    doubled *d = malloc(sizeof *d);
    DIST_CHECK(d, "no memory");
    *d = (doubled){*dtype, call->in[0], call->out, call->saved, call->n_rows * call->out_cols, is_backward, 0};
    if (is_backward) d->in = call->d_out, d->out = call->d_in[0], d->adds = call->accumulate[0];
    return qdr_stream_call(call->stream, compute_doubled, d);
}

static qdr_status doubled_forward(const qdr_op_call *call, void *user) { return enqueue_doubled(call, user, 0); }

static qdr_status doubled_backward(const qdr_op_call *call, void *user) { return enqueue_doubled(call, user, 1); }

/* A chain of random pieces, WIDTH features over x between two of them, some of which begin or end a segment. */
static qdr_edge add_piece(qdr_stack *stack, variant *v, int number, uint64_t *seed, qdr_edge in)
{
    const int drop_gathered = (int)dist_below(seed, 4) == 0;
    const qdr_linear_desc up = {.in = {{WIDTH, 1}},
                                .out = {{WIDE, 1}},
                                .bias = (int)dist_below(seed, 2),
                                .out_layout = v->layout,
                                .drop_gathered = drop_gathered,
                                .name = "up"};
    const qdr_linear_desc down = {.in = {{WIDE, 1}},
                                  .out = {{WIDTH, 1}},
                                  .bias = (int)dist_below(seed, 2),
                                  .out_layout = v->layout,
                                  .transposed = 1,
                                  .name = "down"};
    const qdr_op_desc op = {QDR_INIT(qdr_op_desc),
                            .name = "doubled",
                            .n_in = 1,
                            .in = {in},
                            .saved_bytes = 1,
                            .forward = doubled_forward,
                            .backward = doubled_backward,
                            .user = &v->dtype,
                            .may_repeat = (int)dist_below(seed, 2)};
    char name[16];
    qdr_edge out = in, normed;
    snprintf(name, sizeof name, "norm%d", number);
    switch (dist_below(seed, 5)) {
    case 0: DIST_OK(test_add_norm(stack, name, 0, in, &out)); break;
    case 1: DIST_OK(qdr_stack_add_op(stack, &op, &out)); break;
    case 2: DIST_OK(qdr_stack_add_residual(stack, "twice", in, in, &out)); break;
    case 3: out = dist_linear(stack, down, dist_linear(stack, up, in, NULL), NULL); break;
    default:
        DIST_OK(test_add_norm(stack, name, 0, in, &normed));
        if (dist_below(seed, 3) == 0) DIST_OK(qdr_stack_begin_segment(stack));
        DIST_OK(qdr_stack_add_gelu(stack, "gelu", dist_linear(stack, up, normed, NULL), &out));
        DIST_OK(qdr_stack_add_residual(stack, "sum", in, dist_linear(stack, down, out, NULL), &out));
    }
    if (dist_below(seed, 3) == 0) DIST_OK(qdr_stack_begin_segment(stack));
    if (dist_below(seed, 6) == 0) DIST_OK(qdr_stack_end_segment(stack));
    return out;
}

static block make_chain(qdr_grid *grid, variant *v, uint64_t seed)
{
    const qdr_edge_desc input = {.cols = {{WIDTH, 1}}, .col_axis = QDR_X, .layout = v->layout};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts),
                                 .n_rows = v->n_rows,
                                 .dtype = v->dtype,
                                 .panels = v->panels,
                                 .batch_parts = v->batch_parts,
                                 .prefetch = 1 + (int)dist_below(&seed, 5),
                                 .overlap = v->overlap,
                                 .caller_memory = 1,
                                 .recompute = v->recompute};
    block b = {.sizes = {QDR_INIT(qdr_stack_sizes)}};
    const int n_pieces = 2 + (int)dist_below(&seed, 6);
    DIST_OK(qdr_stack_create(grid, &opts, &b.stack));
    b.x = dist_input(b.stack, "x", input, 1);
    DIST_OK(qdr_stack_begin_segment(b.stack));
    DIST_OK(test_add_norm(b.stack, "first", 0, b.x, &b.last)); /* is repeated for its neighbour */
    b.last = dist_linear(
        b.stack, (qdr_linear_desc){.name = "square", .in = {{WIDTH, 1}}, .out = {{WIDTH, 1}}, .out_layout = v->layout},
        b.last, NULL);
    b.last = dist_linear(
        b.stack,
        (qdr_linear_desc){
            .name = "back", .in = {{WIDTH, 1}}, .out = {{WIDTH, 1}}, .transposed = 1, .out_layout = v->layout},
        b.last, NULL);
    for (int i = 0; i < n_pieces; i++) b.last = add_piece(b.stack, v, i, &seed, b.last);
    run_forward(&b, v);
    for (int adds = 0; adds < 2; adds++) {
        dist_fill_edge(b.stack, b.last, dist_edge_gradient(b.stack, b.last), v->data_seed + 2);
        if (adds) DIST_OK(qdr_stack_forward(b.stack));
        DIST_OK(qdr_stack_backward(b.stack, adds ? QDR_ACCUMULATE : 0, 1));
        dist_synchronize(qdr_grid_context(grid));
    }
    return b;
}

/* Whatever is repeated, results are the same, bit for bit. */
DIST_TEST(segments_are_repeated)
{
    for (int round = 0, n = dist_rounds(40); round < n; round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        variant v = random_variant(&seed);
        const uint64_t pieces = dist_random(&seed);
        block kept = make_chain(grid, &v, pieces);
        v.recompute = round % 4 ? QDR_RECOMPUTE_FULL : QDR_RECOMPUTE_OPERATIONS;
        block again = make_chain(grid, &v, pieces);
        check_same(&again, &kept, dist_edge_value(again.stack, again.last), dist_edge_value(kept.stack, kept.last),
                   "the last edge");
        check_gradients(&again, &kept, v.dtype);
        DIST_CHECK(again.sizes.activations <= kept.sizes.activations, "%zu and %zu bytes", again.sizes.activations,
                   kept.sizes.activations);
        drop(grid, &again);
        drop(grid, &kept);
        qdr_grid_destroy(&grid);
    }
}

/* Without segments there is nothing to repeat, which is no plan but a mistake. */
DIST_TEST(without_segments_nothing_is_repeated)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    variant v = random_variant(&seed);
    qdr_stack *stack = NULL;
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = 8, .recompute = (qdr_recompute)5};
    v.recompute = QDR_RECOMPUTE_FULL;
    block b = describe(grid, &v);
    DIST_FAILS(qdr_stack_build(b.stack), QDR_ERR_ARGUMENT, "qdr_stack_begin_segment()");
    qdr_stack_destroy(&b.stack);
    DIST_FAILS(qdr_stack_create(grid, &opts, &stack), QDR_ERR_ARGUMENT, "recompute 5");
    qdr_grid_destroy(&grid);
}

/* A copy that only runs forward keeps its input and its last edge. */
DIST_TEST(a_forward_keeps_nothing_between)
{
    for (int round = 0, n = dist_rounds(12); round < n; round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const variant v = {.n_rows = dist_below(&seed, 30),
                           .dtype = QDR_F32,
                           .panels = 1,
                           .batch_parts = 1,
                           .layout = dist_below(&seed, 2) ? QDR_SCATTERED : QDR_REPLICATED,
                           .data_seed = dist_random(&seed)};
        block owner = make(grid, &v, 0), copy = describe(grid, &v);
        void *value;
        DIST_OK(qdr_stack_share_parameters(copy.stack, owner.stack));
        run_forward(&copy, &v);
        check_same(&owner, &copy, dist_edge_value(owner.stack, owner.last), dist_edge_value(copy.stack, copy.last),
                   "the norm");
        DIST_FAILS(qdr_stack_edge_value(copy.stack, copy.sum, &value), QDR_ERR_STATE, "'sum': its value only lasts");
        drop(grid, &copy);
        drop(grid, &owner);
        qdr_grid_destroy(&grid);
    }
}
