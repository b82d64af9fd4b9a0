/* SPDX-License-Identifier: Apache-2.0 */
/* Layers whose products round their operands to fp8, on every grid of the ranks. The values are multiples of 2^-6 below
 * 1, so that their roundings do not depend on a scale, and sums in F32 are exact: the results have the same bits on all
 * grids, those of a serial sum of rounded numbers. */
#include <pthread.h>

#include "dist.h"
#include "fp8.h"

enum { K = 18, N = 14, UNIT = 2, UNITS = 9, M = UNIT * UNITS };
enum { X_SEED = 3, DY_SEED = 5, W_SEED = 7 };

typedef struct layer_case {
    qdr_dtype dtype;
    int transposed, is_stored, panels, batch_parts;
    qdr_layout layout;
    qdr_storage storage;
} layer_case;

/* A sum of products, and of their sizes. */
typedef struct sum {
    double value, size;
} sum;

static double rounded(const layer_case *c, qdri_rounding rounding, double x)
{
    const double scale = rounding == QDRI_E4M3 ? 0x1p8 : 0x1p15;
    return c->is_stored ? x : fp8_nearest(rounding, scale * x) / scale;
}

static double x_at(const layer_case *c, int64_t row, int64_t k)
{
    return rounded(c, QDRI_E4M3, dist_value(X_SEED, row, k));
}

static double w_at(const layer_case *c, int64_t n, int64_t k)
{
    return rounded(c, QDRI_E4M3, dist_value(W_SEED, n, k));
}

static double dy_at(const layer_case *c, int64_t row, int64_t n)
{
    return rounded(c, QDRI_E5M2, dist_value(DY_SEED, row, n));
}

static void add(sum *s, double product)
{
    s->value += product;
    s->size += fabs(product);
}

/* What a serial run gives, [0] with FP8 products and [1] without: the same for all grids. */
static struct reference {
    sum y[M][N], dx[M][K], dw[N][K];
} references[2];

static void make_reference(struct reference *r, const layer_case *c)
{
    for (int64_t row = 0; row < M; row++)
        for (int64_t n = 0; n < N; n++)
            for (int64_t k = 0; k < K; k++) {
                const double x = x_at(c, row, k), w = w_at(c, n, k), dy = dy_at(c, row, n);
                add(&r->y[row][n], x * w);
                add(&r->dx[row][k], dy * w);
                add(&r->dw[n][k], dy * x);
            }
}

static void make_references(void)
{
    make_reference(&references[0], &(layer_case){.dtype = QDR_F32});
    make_reference(&references[1], &(layer_case){.is_stored = 1});
}

static const struct reference *reference_of(const layer_case *c)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* ranks may be threads */
    pthread_once(&once, make_references);
    return &references[c->is_stored];
}

/* Activations of BF16 are rounded once before they are sent and once after the sum. */
static void check(const layer_case *c, const char *what, double got, sum want, int is_activation)
{
    const double bound = is_activation && c->dtype == QDR_BF16 ? 3 * dist_roundoff(QDR_BF16) * want.size : 0;
    DIST_CHECK(fabs(got - want.value) <= bound,
               "%s of %s is %.9g, not %.9g; transposed %d, layout %d, storage %d, panels %d", what,
               qdr_dtype_name(c->dtype), got, want.value, c->transposed, (int)c->layout, (int)c->storage, c->panels);
}

static void check_edge(const layer_case *c, const qdr_stack *stack, qdr_edge edge, int is_dx)
{
    void *data;
    int64_t at = 0;
    const qdr_owned owned = dist_edge_owned(stack, edge);
    DIST_OK(is_dx ? qdr_stack_edge_gradient(stack, edge, &data) : qdr_stack_edge_value(stack, edge, &data));
    const struct reference *want = reference_of(c);
    for (int64_t r = owned.rows.begin; r < owned.rows.end; r++)
        for (int i = 0; i < owned.n_ranges; i++)
            for (int64_t col = owned.cols[i].begin; col < owned.cols[i].end; col++)
                check(c, is_dx ? "dX" : "Y", dist_get(data, c->dtype, at++), is_dx ? want->dx[r][col] : want->y[r][col],
                      1);
}

static void load_weight(qdr_stack *stack, qdr_linear *layer, qdr_dtype dtype)
{
    float full[N * K];
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) dist_set(full, dtype, n * K + k, dist_value(W_SEED, n, k));
    DIST_OK(qdr_stack_load_parameter(stack, qdr_linear_weight_index(layer), full));
}

static qdr_stack *make_stack(qdr_grid *grid, const layer_case *c, qdr_edge *x, qdr_edge *y)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{K, 1}}, .col_axis = c->transposed ? QDR_Y : QDR_X,
                                 .layout = c->layout};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),
                                  .name = "layer",
                                  .in = {{K, 1}},
                                  .out = {{N, 1}},
                                  .transposed = c->transposed,
                                  .out_layout = c->layout,
                                  .storage = c->storage,
                                  .product_type = c->is_stored ? QDR_PRODUCT_AS_STORED : QDR_PRODUCT_DEFAULT};
    qdr_linear *layer;
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = M,
                                                         .row_unit = UNIT,
                                                         .dtype = c->dtype,
                                                         .panels = c->panels,
                                                         .batch_parts = c->batch_parts,
                                                         .product_type = QDR_PRODUCT_FP8});
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 1, x));
    DIST_OK(qdr_stack_add_linear(stack, &desc, *x, y, &layer));
    DIST_OK(qdr_stack_build(stack));
    load_weight(stack, layer, c->dtype);
    return stack;
}

static void run_case(qdr_grid *grid, const layer_case *c)
{
    float dw[N * K];
    qdr_edge x, y;
    qdr_stack *stack = make_stack(grid, c, &x, &y);
    dist_step(stack, x, X_SEED, y, DY_SEED, 0);
    check_edge(c, stack, y, 0);
    check_edge(c, stack, x, 1);
    DIST_CHECK(dist_gather_gradients(stack, dw) == N * K, "not one gradient");
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) check(c, "dW", (double)dw[n * K + k], reference_of(c)->dw[n][k], 0);
    qdr_stack_destroy(&stack);
}

static void cases_of_grid(qdr_grid *grid, void *user)
{
    uint64_t *seed = user;
    for (int i = 0; i < 8; i++) {
        const layer_case c = {.dtype = i % 2 ? QDR_BF16 : QDR_F32,
                              .transposed = i / 2 % 2,
                              .layout = (qdr_layout)(i / 4),
                              .is_stored = dist_below(seed, 8) == 0,
                              .panels = (int)dist_below(seed, 4),
                              .batch_parts = (int)dist_below(seed, 3),
                              .storage = dist_below(seed, 2) ? QDR_IN_OUT : QDR_OUT_IN};
        run_case(grid, &c);
    }
}

DIST_TEST(every_grid)
{
    const struct reference *fp8 = reference_of(&(layer_case){.dtype = QDR_F32}),
                           *stored = reference_of(&(layer_case){.is_stored = 1});
    DIST_CHECK(fp8->y[0][0].value != stored->y[0][0].value && fp8->dx[0][0].value != stored->dx[0][0].value &&
                   fp8->dw[0][0].value != stored->dw[0][0].value,
               "roundings would not show");
    dist_every_grid(ctx, 0, cases_of_grid, &seed);
}

/* ---- what is said, and refused ---- */

/* Lines of the schedule with these words. */
static int count_lines(const qdr_stack *stack, qdr_list list, const char *words)
{
    char *text = NULL, *at;
    size_t bytes;
    int n = 0;
    FILE *file = open_memstream(&text, &bytes);
    DIST_CHECK(file != NULL, "no memory");
    DIST_OK(qdr_stack_print(stack, list, file));
    (void)fclose(file);
    for (at = text; (at = strstr(at, words)) != NULL; at++) n++;
    free(text);
    return n;
}

static qdr_grid *plain_grid(qdr_context *ctx)
{
    return dist_grid(ctx, (qdr_grid_opts){.x = 1, .y = 1, .z = 1, .d = qdr_context_size(ctx)});
}

DIST_TEST(schedules_say_so)
{
    qdr_grid *grid = plain_grid(ctx);
    for (int is_stored = 0; is_stored < 2; is_stored++) {
        const layer_case c = {.dtype = QDR_BF16, .is_stored = is_stored};
        qdr_edge x, y;
        qdr_stack *stack = make_stack(grid, &c, &x, &y);
        DIST_CHECK(count_lines(stack, QDR_LIST_FORWARD, " NT fp8 ") == !is_stored, "Y");
        DIST_CHECK(count_lines(stack, QDR_LIST_BACKWARD, " NN fp8 ") == !is_stored, "dX");
        DIST_CHECK(count_lines(stack, QDR_LIST_BACKWARD, " TN fp8 ") == !is_stored, "dW");
        qdr_stack_destroy(&stack);
    }
    qdr_grid_destroy(&grid);
}

DIST_TEST(other_types_are_refused)
{
    qdr_grid *grid = plain_grid(ctx);
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{K, 1}}, .col_axis = QDR_X};
    qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {{K, 1}}, .out = {{N, 1}}};
    qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = M, .dtype = QDR_F16, .product_type = QDR_PRODUCT_FP8};
    qdr_stack *stack;
    qdr_edge x, y;
    DIST_FAILS(qdr_stack_create(grid, &opts, &stack), QDR_ERR_DTYPE, "f16");
    opts.product_type = (qdr_product_type)7;
    DIST_FAILS(qdr_stack_create(grid, &opts, &stack), QDR_ERR_ARGUMENT, "7");
    opts.dtype = QDR_F64;
    opts.product_type = QDR_PRODUCT_DEFAULT;
    DIST_OK(qdr_stack_create(grid, &opts, &stack));
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 1, &x));
    desc.product_type = QDR_PRODUCT_FP8;
    DIST_FAILS(qdr_stack_add_linear(stack, &desc, x, &y, NULL), QDR_ERR_DTYPE, "f64");
    desc.product_type = QDR_PRODUCT_AS_STORED;
    DIST_OK(qdr_stack_add_linear(stack, &desc, x, &y, NULL));
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}
