/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of one attention whose heads are split over x or y, of all kinds and in all types, on random grids: compared
 * with plain loops in f64 (tests/reference/serial_ops.c), whose variances of rounding errors are in units of f64's
 * roundoff. Those that are computed in f32 are larger by the ratio of the roundoffs; what is stored is rounded once
 * more, and keys' gradients as often as ranks add to them. */
#include "../reference/serial_ops.h"
#include "dist.h"

enum { MOST_CONTEXT = 12, MOST_SIZE = 8, MOST_HEADS = 12, SIGMAS = 8 };

static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};

typedef struct attention_case {
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_dtype dtype;
    qdr_attention_desc desc;
    attention_shape shape;
    double frequencies[MOST_SIZE / 2], gammas[2 * MOST_SIZE], sinks[MOST_HEADS];
    int n_backwards;
    qdr_edge x, y;
    uint64_t data_seed;
    void *memory;
} attention_case;

static int below(uint64_t *seed, int n) { return (int)dist_below(seed, n); }

/* Half of the time none, else one of [1, n]. */
static int some(uint64_t *seed, int n) { return below(seed, 2) ? 0 : 1 + below(seed, n); }

static void choose(attention_case *c, uint64_t *seed)
{
    const int key_heads = 1 + below(seed, 4), heads = key_heads * (1 + below(seed, 3)),
              size = 1 + below(seed, MOST_SIZE);
    const int context = 1 + below(seed, MOST_CONTEXT);
    for (int i = 0; i < MOST_SIZE / 2; i++) c->frequencies[i] = 1.5 / (1 + i);
    c->desc = (qdr_attention_desc){QDR_INIT(qdr_attention_desc),
                                   .name = "attention",
                                   .head_size = size,
                                   .context = context,
                                   .window = some(seed, context),
                                   .scale = 0.25 * some(seed, 3),
                                   .cap = some(seed, 3),
                                   .rotary_columns = below(seed, size / 2 + 1) * 2,
                                   .interleaved = below(seed, 2),
                                   .frequencies = c->frequencies,
                                   .magnitude = 0.75 * some(seed, 2)};
    c->shape = (attention_shape){.rows = context * below(seed, 7),
                                 .heads = heads,
                                 .key_heads = key_heads,
                                 .context = context,
                                 .size = size,
                                 .window = (int)c->desc.window,
                                 .scale = c->desc.scale,
                                 .cap = c->desc.cap,
                                 .rotary_columns = (int)c->desc.rotary_columns,
                                 .interleaved = c->desc.interleaved,
                                 .magnitude = c->desc.magnitude};
}

static void choose_parameters(attention_case *c, uint64_t *seed)
{
    c->desc.head_norm = below(seed, 3) == 0;
    c->desc.sinks = below(seed, 2);
    c->desc.one_plus = below(seed, 2);
    c->desc.epsilon = 0.5 * below(seed, 2);
    c->n_backwards = 1 + below(seed, 2);
    for (int i = 0; i < 2 * MOST_SIZE; i++) c->gammas[i] = 1.5 + dist_value(c->data_seed + 2, i, 0);
    for (int i = 0; i < MOST_HEADS; i++) c->sinks[i] = dist_value(c->data_seed + 3, i, 0);
    for (int i = 0; i < c->shape.size; i++) c->gammas[c->shape.size + i] = c->gammas[MOST_SIZE + i];
    c->shape.epsilon = c->desc.epsilon > 0 ? c->desc.epsilon : 1e-5;
}

/* The attention's parameters are q_gamma and k_gamma, and then sinks. */
static int is_sinks(const attention_case *c, int parameter) { return parameter == 2 * c->desc.head_norm; }

static void load_parameters(const attention_case *c)
{
    const int n = qdr_stack_n_parameters(c->stack), shift = c->desc.head_norm && c->desc.one_plus;
    qdr_context *ctx = qdr_grid_context(c->grid);
    void *full = dist_memory(ctx, MOST_HEADS + MOST_SIZE, c->dtype);
    DIST_CHECK(n == 2 * c->desc.head_norm + c->desc.sinks, "%d parameters", n);
    for (int i = 0; i < n; i++) {
        const double *values = is_sinks(c, i) ? c->sinks : c->gammas + i * c->shape.size;
        const int n_values = is_sinks(c, i) ? c->shape.heads : c->shape.size;
        for (int k = 0; k < n_values; k++) dist_set(full, c->dtype, k, values[k] - (is_sinks(c, i) ? 0 : shift));
        DIST_OK(qdr_stack_load_parameter(c->stack, i, full));
    }
    qdr_mem_free(ctx, &full);
}

static attention_case case_make(qdr_context *ctx, uint64_t *seed, qdr_dtype dtype)
{
    attention_case c = {.grid = dist_random_grid(ctx, seed), .dtype = dtype};
    choose(&c, seed);
    c.data_seed = dist_random(seed);
    choose_parameters(&c, seed);
    const attention_shape *a = &c.shape;
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = a->rows,  .row_unit = a->context,
                                 .dtype = dtype,           .caller_memory = 1, .batch_parts = 1 + below(seed, 3)};
    const int queries_per_unit = below(seed, 2) ? 1 : a->heads / a->key_heads;
    const qdr_block keys = {a->key_heads * a->size, a->size};
    const qdr_edge_desc input = {
        QDR_INIT(qdr_edge_desc), .cols = {{a->heads * a->size, queries_per_unit * a->size}, keys, keys},
        .col_axis = (qdr_axis)below(seed, 2), .layout = (qdr_layout)below(seed, 2), .scatter_unit = a->context};
    DIST_OK(qdr_stack_create(c.grid, &opts, &c.stack));
    DIST_OK(qdr_stack_add_input(c.stack, "x", &input, 1, &c.x));
    DIST_OK(qdr_stack_add_attention(c.stack, &c.desc, c.x, &c.y));
    c.memory = dist_build_in_nan(c.stack);
    load_parameters(&c);
    return c;
}

static void case_free(qdr_context *ctx, attention_case *c)
{
    qdr_stack_destroy(&c->stack);
    qdr_mem_free(ctx, &c->memory);
    qdr_grid_destroy(&c->grid);
}

/* ---- the reference ---- */

static array array_make(int64_t n)
{
    array a = {calloc((size_t)n + 1, sizeof *a.v), calloc((size_t)n + 1, sizeof *a.e)};
    DIST_CHECK(a.v && a.e, "no memory");
    return a;
}

static void array_free(array *a)
{
    free(a->v);
    free(a->e);
}

static array filled(int64_t n_rows, int64_t n_cols, uint64_t seed)
{
    array a = array_make(n_rows * n_cols);
    for (int64_t i = 0; i < n_rows * n_cols; i++) a.v[i] = dist_value(seed, i / n_cols, i % n_cols);
    return a;
}

/* This rank's part of an edge, or of its gradient, is near `want`. */
static void check_edge(const attention_case *c, qdr_edge edge, const void *got, const array *want, int64_t n_cols,
                       double n_stored, const char *what)
{
    const qdr_owned owned = dist_edge_owned(c->stack, edge);
    const double ratio = dist_roundoff(dist_sum_type(c->dtype)) / 0x1p-53, stored = n_stored * dist_roundoff(c->dtype);
    double most = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < c->shape.rows * n_cols; i++) most = fmax(most, fabs(want->v[i]));
    for (int64_t row = owned.rows.begin; row < owned.rows.end; row++)
        for (int64_t i = 0; i < owned.n_cols; i++, at++) {
            const int64_t col = dist_column(&owned, i), k = row * n_cols + col;
            const double value = dist_get(got, c->dtype, at), size = n_stored > 1 ? most : fabs(want->v[k]);
            const double bound = SIGMAS * ratio * sqrt(want->e[k]) + stored * size + n_stored * dist_least(c->dtype);
            DIST_CHECK(fabs(value - want->v[k]) <= bound, "%s[%d,%d] of %s is %.17g, not %.17g ± %g", what, (int)row,
                       (int)col, qdr_dtype_name(c->dtype), value, want->v[k], bound);
        }
}

static void check_near(const attention_case *c, double got, double want, double variance, const char *what, int i)
{
    const double bound = SIGMAS * dist_roundoff(dist_sum_type(c->dtype)) / 0x1p-53 * sqrt(variance);
    DIST_CHECK(fabs(got - want) <= bound, "%s[%d] of %s is %.17g, not %.17g ± %g", what, i, qdr_dtype_name(c->dtype),
               got, want, bound);
}

/* Gradients of parameters, which are sums over several passes. */
static void check_parameters(const attention_case *c, const array *d_gammas, const array *d_sinks)
{
    double full[MOST_HEADS + MOST_SIZE];
    const qdr_dtype dtype = dist_sum_type(c->dtype);
    for (int i = 0; i < qdr_stack_n_parameters(c->stack); i++) {
        const array *want = is_sinks(c, i) ? d_sinks : d_gammas;
        const int n = is_sinks(c, i) ? c->shape.heads : c->shape.size, first = is_sinks(c, i) ? 0 : i * c->shape.size;
        DIST_OK(qdr_stack_gather_parameter(c->stack, i, QDR_PARAMETER_GRADIENT, full));
        for (int k = 0; k < n; k++)
            check_near(c, dist_get(full, dtype, k), c->n_backwards * want->v[first + k],
                       c->n_backwards * c->n_backwards * want->e[first + k], dist_parameter(c->stack, i).name, k);
    }
}

static void run_and_check(const attention_case *c)
{
    attention_shape shape = c->shape;
    const attention_shape *a = &shape;
    shape.sinks = c->desc.sinks ? c->sinks : NULL;
    shape.gammas = c->desc.head_norm ? c->gammas : NULL;
    shape.frequencies = c->frequencies;
    const int64_t n_in = (a->heads + 2 * a->key_heads) * a->size, n_out = a->heads * a->size;
    array qkv = filled(a->rows, n_in, c->data_seed), dy = filled(a->rows, n_out, c->data_seed + 1);
    array y = array_make(a->rows * n_out), d_qkv = array_make(a->rows * n_in), room = array_make(a->context + 1);
    array scores = array_make((int64_t)a->rows * a->heads * (a->context + 1));
    array turned = array_make(a->rows * n_in), d_gammas = array_make(2 * MOST_SIZE), d_sinks = array_make(MOST_HEADS);
    serial_head_norm(a, qkv, turned);
    serial_turn(a, 0, turned);
    serial_attention(a, turned, scores, y);
    serial_attention_backward(a, turned, scores, dy, d_qkv, d_sinks, room);
    serial_turn(a, 1, d_qkv);
    serial_head_norm_backward(a, qkv, d_qkv, d_gammas);
    dist_step(c->stack, c->x, c->data_seed, c->y, c->data_seed + 1, 0);
    for (int i = 1; i < c->n_backwards; i++)
        dist_step(c->stack, c->x, c->data_seed, c->y, c->data_seed + 1, QDR_ACCUMULATE);
    check_edge(c, c->y, dist_edge_value(c->stack, c->y), &y, n_out, 1, "y");
    check_edge(c, c->x, dist_edge_gradient(c->stack, c->x), &d_qkv, n_in, 2 + a->heads, "dqkv");
    check_parameters(c, &d_gammas, &d_sinks);
    array *const all[] = {&qkv, &dy, &y, &d_qkv, &room, &scores, &turned, &d_gammas, &d_sinks};
    for (int i = 0; i < 9; i++) array_free(all[i]);
}

DIST_TEST(against_reference)
{
    for (int round = 0, n = dist_rounds(60); round < n; round++) {
        attention_case c = case_make(ctx, &seed, types[round % 4]);
        run_and_check(&c);
        case_free(ctx, &c);
    }
}

static void refused_as(qdr_status status, qdr_stack *stack, qdr_edge x, qdr_attention_desc desc, const char *words)
{
    qdr_edge y;
    desc.size = sizeof desc;
    desc.name = "a";
    desc.head_size = desc.context = 4;
    DIST_FAILS(qdr_stack_add_attention(stack, &desc, x, &y), status, words);
}

static void refused(qdr_stack *stack, qdr_edge x, qdr_attention_desc desc, const char *words)
{
    refused_as(QDR_ERR_ARGUMENT, stack, x, desc, words);
}

DIST_TEST(refusals)
{
    static const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{12, 4}, {4, 4}, {4, 4}}};
    const double nan = (double)NAN, frequencies[] = {1, nan};
    const qdr_edge nowhere = 7;
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 4, .row_unit = 4});
    const qdr_edge x = dist_input(stack, "x", input, 0);
    refused(stack, x, (qdr_attention_desc){.scale = -1}, "a: scale -1, cap 0; use numbers");
    refused(stack, x, (qdr_attention_desc){.scale = (double)INFINITY}, "scale inf");
    refused(stack, x, (qdr_attention_desc){.cap = nan}, "cap nan");
    refused(stack, x, (qdr_attention_desc){.window = -3}, "a: window -3; use at least 1");
    refused(stack, x, (qdr_attention_desc){.rotary_columns = 3, .frequencies = frequencies},
            "3 rotary columns; use an");
    refused(stack, x, (qdr_attention_desc){.rotary_columns = 6, .frequencies = frequencies}, "head size 4");
    refused(stack, x, (qdr_attention_desc){.rotary_columns = 2}, "2 rotary columns, but no frequencies");
    refused(stack, x, (qdr_attention_desc){.rotary_columns = 4, .frequencies = frequencies}, "frequency 1");
    refused(stack, x, (qdr_attention_desc){.magnitude = -1}, "magnitude -1");
    refused(stack, x, (qdr_attention_desc){.interleaved = 2}, "interleaved");
    refused(stack, x, (qdr_attention_desc){.head_norm = 3}, "head_norm");
    refused(stack, x, (qdr_attention_desc){.epsilon = nan}, "epsilon nan");
    refused(stack, x, (qdr_attention_desc){.first_keys = &nowhere}, "a: edge 7 does not exist");
    refused_as(QDR_ERR_DTYPE, stack, x, (qdr_attention_desc){.first_keys = &x}, "a: the input 'x' must hold the first");
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}
