/* SPDX-License-Identifier: Apache-2.0 */
/* A network whose embedding, residual and logits have factors, and whose logits have a soft cap, on random grids: its
 * loss and its gradients, that of a table with two uses included, compared with the serial reference, whose gradients
 * are compared with differences of its loss. */
#include "../reference/serial_ops.h"
#include "dist.h"
#include "nodes.h"

enum { CONTEXT = 4, MOST_ROWS = 24, VOCAB = 11, HIDDEN = 6, WIDE = 10 };
enum { E, P, UP, DOWN, N_WEIGHTS };
#define CONFIDENCE 8 /* errors are below this many standard deviations */

static const struct {
    const char *name;
    int rows, cols;
} shapes[N_WEIGHTS] = {{"embedding.weight", VOCAB, HIDDEN},
                       {"embedding.positions", CONTEXT, HIDDEN},
                       {"up.weight", WIDE, HIDDEN},
                       {"down.weight", HIDDEN, WIDE}};
enum { MOST = VOCAB * HIDDEN };

typedef struct factors {
    double embedding, residual, logits, cap; /* 0: none */
} factors;

/* One pass over `rows` rows: values, gradients of them, and weights with their gradients. */
typedef struct pass {
    int rows;
    int32_t tokens[MOST_ROWS], targets[MOST_ROWS];
    double weight[N_WEIGHTS][MOST], loss;
    array gradient[N_WEIGHTS];
    array x, u, d, r, logits, d_logits, d_r, d_d, d_u, d_x, d_up;
} pass;

static double or_1(double factor) { return factor == 0 ? 1 : factor; }

static array take(double **room, int n)
{
    const array taken = {*room, *room + n};
    *room += 2 * (ptrdiff_t)n;
    return taken;
}

static void forward(pass *p, const factors *f)
{
    const int m = p->rows;
    const double valid = m ? m : 1;
    serial_embed(m, HIDDEN, CONTEXT, p->tokens, or_1(f->embedding), p->weight[E], p->weight[P], p->x);
    serial_linear(m, WIDE, HIDDEN, p->x, p->weight[UP], NULL, p->u);
    serial_linear(m, HIDDEN, WIDE, p->u, p->weight[DOWN], NULL, p->d);
    serial_add((int64_t)m * HIDDEN, p->x, p->d, or_1(f->residual), p->r);
    serial_linear(m, VOCAB, HIDDEN, p->r, p->weight[E], NULL, p->logits);
    p->loss = 0;
    for (int row = 0; row < m; row++) {
        const int at = row * VOCAB;
        p->loss += serial_cross_entropy(VOCAB, p->logits.v + at, p->logits.e + at, p->targets[row], or_1(f->logits),
                                        f->cap, valid, p->d_logits.v + at, p->d_logits.e + at);
    }
}

static void backward(pass *p, const factors *f)
{
    const int m = p->rows;
    const array none = {NULL, NULL};
    serial_linear_dx(m, VOCAB, HIDDEN, p->d_logits, p->weight[E], p->d_r);
    serial_linear_dw(m, VOCAB, HIDDEN, p->d_logits, p->r, p->gradient[E], none);
    memset(p->d_d.v, 0, (size_t)m * HIDDEN * sizeof(double)); /* d_d = factor · d_r */
    memset(p->d_d.e, 0, (size_t)m * HIDDEN * sizeof(double));
    serial_add((int64_t)m * HIDDEN, p->d_d, p->d_r, or_1(f->residual), p->d_d);
    serial_linear_dx(m, HIDDEN, WIDE, p->d_d, p->weight[DOWN], p->d_u);
    serial_linear_dw(m, HIDDEN, WIDE, p->d_d, p->u, p->gradient[DOWN], none);
    serial_linear_dx(m, WIDE, HIDDEN, p->d_u, p->weight[UP], p->d_up);
    serial_linear_dw(m, WIDE, HIDDEN, p->d_u, p->x, p->gradient[UP], none);
    serial_add((int64_t)m * HIDDEN, p->d_r, p->d_up, 1, p->d_x);
    serial_embed_backward(m, HIDDEN, CONTEXT, p->tokens, or_1(f->embedding), p->d_x, p->gradient[E], p->gradient[P]);
}

/* Weights, tokens and targets from a seed. @return memory to be freed */
static void *make_pass(pass *p, int rows, uint64_t seed)
{
    double *room = calloc((size_t)(2 * (N_WEIGHTS * MOST + MOST_ROWS * (2 * VOCAB + 7 * HIDDEN + 2 * WIDE))),
                          sizeof *room);
    void *memory = room;
    DIST_CHECK(room, "no memory");
    p->rows = rows;
    for (int i = 0; i < N_WEIGHTS; i++) {
        p->gradient[i] = take(&room, MOST);
        for (int j = 0; j < shapes[i].rows * shapes[i].cols; j++) p->weight[i][j] = dist_value(seed, i, j);
    }
    for (int row = 0; row < rows; row++) {
        p->tokens[row] = (int32_t)dist_below(&seed, VOCAB);
        p->targets[row] = (int32_t)dist_below(&seed, VOCAB);
    }
    array *const narrow[] = {&p->x, &p->d, &p->r, &p->d_r, &p->d_d, &p->d_x, &p->d_up};
    for (int i = 0; i < 7; i++) *narrow[i] = take(&room, rows * HIDDEN);
    p->u = take(&room, rows * WIDE);
    p->d_u = take(&room, rows * WIDE);
    p->logits = take(&room, rows * VOCAB);
    p->d_logits = take(&room, rows * VOCAB);
    return memory;
}

/* ---- the stack ---- */

static qdr_stack *describe(qdr_grid *grid, const factors *f, const qdr_stack_opts *opts, qdr_layout layout,
                           qdr_edge *tokens, qdr_edge *targets)
{
    const qdr_block hidden = {HIDDEN, 1}, wide = {WIDE, 1};
    const qdr_embedding_desc embedding = {QDR_INIT(qdr_embedding_desc), .name = "embedding", .vocab = {VOCAB, 1},
                                          .features = hidden,           .context = CONTEXT,  .layout = layout,
                                          .factor = f->embedding};
    const qdr_residual_desc residual = {QDR_INIT(qdr_residual_desc), .name = "residual", .factor = f->residual};
    const qdr_cross_entropy_desc loss = {QDR_INIT(qdr_cross_entropy_desc), .name = "loss", .factor = f->logits,
                                         .cap = f->cap};
    qdr_stack *stack = dist_stack(grid, *opts);
    qdr_edge x, u, d, r, logits;
    qdr_linear *table;
    DIST_OK(qdr_stack_add_tokens(stack, "tokens", tokens));
    DIST_OK(qdr_stack_add_embedding(stack, &embedding, *tokens, &x, &table));
    u = dist_linear(stack, (qdr_linear_desc){.name = "up", .in = {hidden}, .out = {wide}, .out_layout = layout}, x,
                    NULL);
    d = dist_linear(
        stack, (qdr_linear_desc){.name = "down", .in = {wide}, .out = {hidden}, .out_layout = layout, .transposed = 1},
        u, NULL);
    DIST_OK(qdr_stack_add_residual_with(stack, &residual, x, d, &r));
    DIST_OK(test_add_tied_head(stack, "head", table, layout, r, &logits));
    DIST_OK(qdr_stack_add_cross_entropy_with(stack, &loss, logits, targets));
    DIST_OK(qdr_stack_build(stack));
    return stack;
}

static void load(const qdr_stack *stack, qdr_stack *to, const pass *p)
{
    double full[MOST];
    float full_f32[MOST];
    for (int i = 0; i < N_WEIGHTS; i++) {
        const int n = shapes[i].rows * shapes[i].cols;
        const qdr_parameter parameter = dist_parameter(stack, i);
        DIST_CHECK(strcmp(parameter.name, shapes[i].name) == 0, "parameter %d is %s", i, parameter.name);
        for (int j = 0; j < n; j++) full_f32[j] = (float)(full[j] = p->weight[i][j]);
        DIST_OK(qdr_stack_load_parameter(to, i, qdr_stack_dtype(stack) == QDR_F64 ? (void *)full : (void *)full_f32));
    }
}

static void fill(const qdr_stack *stack, qdr_edge edge, const int32_t *ids)
{
    const qdr_owned owned = dist_edge_owned(stack, edge);
    int32_t *here = dist_edge_value(stack, edge);
    for (int64_t row = 0; row < owned.n_rows; row++) here[row] = ids[owned.rows.begin + row];
}

/* Weights are exact in F32, too, and its errors are 2^29 times those of F64. */
static void check(qdr_stack *stack, const pass *p)
{
    const int is_f32 = qdr_stack_dtype(stack) == QDR_F32;
    const double unit = is_f32 ? 0x1p29 : 1;
    double loss, full[MOST];
    int64_t n_valid;
    DIST_OK(qdr_stack_loss(stack, &loss, &n_valid));
    DIST_CHECK(n_valid == p->rows && fabs(loss - p->loss) <= unit * 0x1p-43 * (p->rows + p->loss),
               "loss %.17g, not %.17g", loss, p->loss);
    for (int i = 0; i < N_WEIGHTS; i++) {
        DIST_OK(qdr_stack_gather_parameter(stack, i, QDR_PARAMETER_GRADIENT, full));
        for (int j = 0; j < shapes[i].rows * shapes[i].cols; j++) {
            const double got = dist_get(full, is_f32 ? QDR_F32 : QDR_F64, j), want = p->gradient[i].v[j];
            const double bound = unit * CONFIDENCE * sqrt(2 * p->gradient[i].e[j]);
            DIST_CHECK(fabs(got - want) <= bound, "%s[%d] is %.17g, not %.17g ± %g", shapes[i].name, j, got, want,
                       bound);
        }
    }
}

static factors random_factors(uint64_t *seed)
{
    const factors f = {(double)dist_below(seed, 8) / 4, (double)(dist_below(seed, 8) - 4) / 4,
                       (double)dist_below(seed, 4) / 2, (double)dist_below(seed, 3) * 1.5};
    return f;
}

DIST_TEST(against_reference)
{
    for (int round = 0, n = dist_rounds(40); round < n; round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const int rows = CONTEXT * (int)dist_below(&seed, MOST_ROWS / CONTEXT + 1);
        const factors f = random_factors(&seed);
        const qdr_stack_opts opts = {.n_rows = rows,
                                     .row_unit = CONTEXT,
                                     .dtype = round % 2 ? QDR_F32 : QDR_F64,
                                     .batch_parts = 1 + (int)dist_below(&seed, 3),
                                     .panels = (int)dist_below(&seed, 3)};
        const qdr_layout layout = dist_below(&seed, 2) ? QDR_SCATTERED : QDR_REPLICATED;
        qdr_edge tokens, targets;
        pass p;
        void *memory = make_pass(&p, rows, dist_random(&seed));
        forward(&p, &f);
        backward(&p, &f);
        qdr_stack *stack = describe(grid, &f, &opts, layout, &tokens, &targets);
        load(stack, stack, &p);
        fill(stack, tokens, p.tokens);
        fill(stack, targets, p.targets);
        DIST_OK(qdr_stack_forward(stack));
        DIST_OK(qdr_stack_backward(stack, 0, rows ? 1.0 / rows : 1));
        dist_synchronize(ctx);
        check(stack, &p);
        qdr_stack_destroy(&stack);
        free(memory);
        qdr_grid_destroy(&grid);
    }
}

/* Of the mean loss: h² times its third derivative, which is below 2^10, and 2^-53·4/h from roundoff, 2^-27 together. */
DIST_TEST(gradients_of_the_reference)
{
    const double h = 0x1p-20;
    for (int round = 0; round < 10; round++) {
        const factors f = random_factors(&seed);
        pass p;
        void *memory = make_pass(&p, MOST_ROWS, dist_random(&seed));
        forward(&p, &f);
        backward(&p, &f);
        for (int i = 0; i < N_WEIGHTS; i++) {
            const int64_t at = dist_below(&seed, shapes[i].rows * shapes[i].cols);
            double *w = &p.weight[i][at], losses[2];
            *w += h;
            forward(&p, &f);
            losses[1] = p.loss;
            *w -= 2 * h;
            forward(&p, &f);
            losses[0] = p.loss;
            *w += h;
            const double slope = (losses[1] - losses[0]) / (2 * h * MOST_ROWS);
            DIST_CHECK(fabs(slope - p.gradient[i].v[at]) < 0x1p-27, "%s[%d]: %.17g, not %.17g", shapes[i].name, (int)at,
                       p.gradient[i].v[at], slope);
        }
        free(memory);
    }
}

DIST_TEST(refusals)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 4});
    qdr_embedding_desc embedding = {QDR_INIT(qdr_embedding_desc), .name = "embedding", .vocab = {VOCAB, 1},
                                    .features = {HIDDEN, 1}, .factor = (double)NAN};
    qdr_residual_desc residual = {QDR_INIT(qdr_residual_desc), .name = "residual", .factor = (double)INFINITY};
    qdr_cross_entropy_desc loss = {QDR_INIT(qdr_cross_entropy_desc), .name = "loss", .cap = -30};
    qdr_edge tokens, out;
    const qdr_edge x = dist_input(stack, "x", (qdr_edge_desc){.cols = {{VOCAB, 1}}, .col_axis = QDR_Y}, 0);
    DIST_OK(qdr_stack_add_tokens(stack, "tokens", &tokens));
    DIST_FAILS(qdr_stack_add_embedding(stack, &embedding, tokens, &out, NULL), QDR_ERR_ARGUMENT, "factor is nan");
    DIST_FAILS(qdr_stack_add_residual_with(stack, &residual, x, x, &out), QDR_ERR_ARGUMENT, "factor is inf");
    DIST_FAILS(qdr_stack_add_cross_entropy_with(stack, &loss, x, &out), QDR_ERR_ARGUMENT, "cap of logits is -30");
    loss.cap = (double)NAN;
    DIST_FAILS(qdr_stack_add_cross_entropy_with(stack, &loss, x, &out), QDR_ERR_ARGUMENT, "cap of logits is nan");
    loss.cap = 0, loss.factor = (double)NAN;
    DIST_FAILS(qdr_stack_add_cross_entropy_with(stack, &loss, x, &out), QDR_ERR_ARGUMENT, "factor is nan");
    residual.size = loss.size = 0;
    DIST_FAILS(qdr_stack_add_residual_with(stack, &residual, x, x, &out), QDR_ERR_ARGUMENT, "QDR_INIT");
    DIST_FAILS(qdr_stack_add_cross_entropy_with(stack, &loss, x, &out), QDR_ERR_ARGUMENT, "QDR_INIT");
    DIST_FAILS(qdr_stack_add_residual_with(stack, NULL, x, x, &out), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_add_cross_entropy_with(stack, NULL, x, &out), QDR_ERR_ARGUMENT, "NULL");
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}
