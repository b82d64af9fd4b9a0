/* SPDX-License-Identifier: Apache-2.0 */
/* The part that follows the C blocks of docs/tutorial.md (tutorial_program.py): plain loops for comparison, and
 * main. tutorial_gpt.c follows. */
#include <stdio.h>

#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "tutorial: line %d: %s: ", __LINE__, #condition);                                          \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) EXPECT((call) >= 0, "%s", qdr_last_error())

static float value(int64_t i) { return sinf(1.7f * (float)i + 0.3f) / 3; }
static float value_of(int64_t row, int64_t col) { return value(1000 + row * C + col); }

typedef struct plain {
    float fcw[OC * C], fcb[OC], fcprojw[C * OC], fcprojb[C];
    float x[BT * C], h[BT * OC], act[BT * OC], y[BT * C], dy[BT * C], dact[BT * OC], dh[BT * OC], dx[BT * C];
    float dfcw[OC * C], dfcb[OC];
} plain;

static void matmul(float *out, const float *in, const float *w, const float *b, int n_in, int n_out, int n_rows)
{
    for (int r = 0; r < n_rows; r++)
        for (int o = 0; o < n_out; o++) {
            float sum = b[o];
            for (int i = 0; i < n_in; i++) sum += in[r * n_in + i] * w[o * n_in + i];
            out[r * n_out + o] = sum;
        }
}

static void plain_forward(plain *p, int n_rows)
{
    matmul(p->h, p->x, p->fcw, p->fcb, C, OC, n_rows);
    gelu_forward(p->act, p->h, (int64_t)n_rows * OC);
    matmul(p->y, p->act, p->fcprojw, p->fcprojb, OC, C, n_rows);
}

static void plain_backward(plain *p)
{
    memset(p->dact, 0, sizeof p->dact);
    memset(p->dx, 0, sizeof p->dx);
    for (int r = 0; r < BT; r++)
        for (int o = 0; o < C; o++)
            for (int i = 0; i < OC; i++) p->dact[r * OC + i] += p->dy[r * C + o] * p->fcprojw[o * OC + i];
    gelu_backward(p->dh, p->h, p->dact, BT * OC);
    for (int r = 0; r < BT; r++)
        for (int o = 0; o < OC; o++) {
            p->dfcb[o] += p->dh[r * OC + o];
            for (int i = 0; i < C; i++) {
                p->dx[r * C + i] += p->dh[r * OC + o] * p->fcw[o * C + i];
                p->dfcw[o * C + i] += p->dh[r * OC + o] * p->x[r * C + i];
            }
        }
}

static void compare(const char *what, const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        EXPECT(fabsf(got[i] - want[i]) <= 2e-4f * fmaxf(1, fabsf(want[i])), "%s[%d] is %g, not %g", what, (int)i,
               (double)got[i], (double)want[i]);
}

/* Data-parallel rows of a matrix of n_rows. */
static qdr_range my_rows(qdr_grid *grid, int64_t n_rows)
{
    const qdr_matrix rows = {QDR_INIT(qdr_matrix), .n_rows = n_rows, .cols = {{C, 1}}, .spread = QDR_SPREAD_RANKS};
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    OK(qdr_matrix_owned(grid, &rows, qdr_context_rank(qdr_grid_context(grid)), &owned));
    return owned.rows;
}

static void check_step(mlp *m, plain *p)
{
    const int fc = qdr_linear_weight_index(m->fc);
    const int64_t first = my_rows(m->grid, BT).begin * C, n = my_rows(m->grid, BT).end * C - first;
    static _Thread_local float out[BT * C], din[BT * C], whole[OC * C];
    plain_forward(p, BT);
    memset(p->dfcw, 0, sizeof p->dfcw);
    memset(p->dfcb, 0, sizeof p->dfcb);
    OK(forward(m, out, p->x + first));
    compare("y", out, p->y + first, n);
    for (int micro = 0; micro < 2; micro++) { /* the same rows twice */
        plain_backward(p);
        OK(backward(m, din, p->dy + first, micro == 1));
        compare("dx", din, p->dx + first, n);
    }
    OK(qdr_stack_gather_parameter(m->stack, fc, 1, whole));
    compare("dfcw", whole, p->dfcw, OC * C);
    OK(qdr_stack_gather_parameter(m->stack, fc + 1, 1, whole));
    compare("dfcb", whole, p->dfcb, OC);
    OK(own_step(m, 0.01f));
    OK(save(m, whole));
    for (int i = 0; i < OC * C; i++) p->fcw[i] -= 0.01f * p->dfcw[i];
    compare("fcw", whole, p->fcw, OC * C);
}

/* The other parameters follow the grid's, so that the next step begins equal. */
static void follow(mlp *m, plain *p)
{
    const int fc = qdr_linear_weight_index(m->fc), fcproj = qdr_linear_weight_index(m->fcproj);
    OK(qdr_stack_gather_parameter(m->stack, fc + 1, 0, p->fcb));
    OK(qdr_stack_gather_parameter(m->stack, fcproj, 0, p->fcprojw));
    OK(qdr_stack_gather_parameter(m->stack, fcproj + 1, 0, p->fcprojb));
}

static void check_evaluation(mlp *evaluation, plain *p, int n_rows)
{
    const qdr_range rows = my_rows(evaluation->grid, n_rows);
    static _Thread_local float out[BT * C];
    plain_forward(p, n_rows);
    OK(forward(evaluation, out, p->x + rows.begin * C));
    compare("y of the evaluation", out, p->y + rows.begin * C, (rows.end - rows.begin) * C);
}

static void check_sums(qdr_grid *grid)
{
    const int n = qdr_context_size(qdr_grid_context(grid));
    float *ones = NULL;
    OK(qdr_mem_alloc(qdr_grid_context(grid), sizeof *ones, (void **)&ones));
    *ones = 1;
    OK(sum_over_all_ranks(grid, ones, 1));
    EXPECT(*ones == (float)n, "%g", (double)*ones);
    *ones = 1;
    OK(sum_over_rows(grid, ones, 1));
    EXPECT(*ones == (float)(qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D)), "%g", (double)*ones);
    qdr_mem_free(qdr_grid_context(grid), (void **)&ones);
}

/* x → relu → y, whole: the operation of section 8. */
static void check_relu(qdr_grid *grid)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{C, 1}}, .col_axis = QDR_X};
    qdr_stack *stack = NULL;
    qdr_edge x, y;
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    float *in, *out, *din, *dout;
    OK(qdr_stack_create(grid, &(qdr_stack_opts){QDR_INIT(qdr_stack_opts), .n_rows = BT}, &stack));
    OK(qdr_stack_add_input(stack, "x", &input, 1, &x));
    OK(add_relu(stack, x, &y));
    OK(qdr_stack_build(stack));
    OK(qdr_stack_edge_owned(stack, x, &owned));
    OK(qdr_stack_edge_value(stack, x, (void **)&in));
    OK(qdr_stack_edge_value(stack, y, (void **)&out));
    OK(qdr_stack_edge_gradient(stack, x, (void **)&din));
    OK(qdr_stack_edge_gradient(stack, y, (void **)&dout));
    const int64_t n = owned.n_rows * owned.n_cols;
    for (int64_t i = 0; i < n; i++) in[i] = value(i), dout[i] = value(i + 5);
    OK(qdr_stack_forward(stack));
    OK(qdr_stack_backward(stack, 0, 1));
    OK(qdr_stream_synchronize(qdr_context_stream(qdr_grid_context(grid))));
    for (int64_t i = 0; i < n; i++) {
        EXPECT(out[i] == (in[i] > 0 ? in[i] : 0), "%g", (double)out[i]);
        EXPECT(din[i] == (in[i] > 0 ? dout[i] : 0), "%g", (double)din[i]);
    }
    qdr_stack_destroy(&stack);
}

static void check_gpt(qdr_grid *grid); /* tutorial_gpt.c */

static void run(qdr_grid *grid)
{
    mlp m = {.grid = grid}, evaluation = {0};
    plain *p = calloc(1, sizeof *p);
    EXPECT(p, "no memory");
    for (int i = 0; i < OC * C; i++) p->fcw[i] = value(i), p->fcprojw[i] = value(i + 7);
    for (int i = 0; i < OC; i++) p->fcb[i] = value(i + 11);
    for (int i = 0; i < C; i++) p->fcprojb[i] = value(i + 13);
    for (int i = 0; i < BT * C; i++) p->x[i] = value(i + 17), p->dy[i] = value(i + 19) / BT;
    OK(describe(&m, BT));
    OK(build(&m));
    OK(load(&m, p->fcw, p->fcb, p->fcprojw, p->fcprojb));
    OK(make_evaluation(&m, &evaluation, 5));
    for (int step = 0; step < 3; step++) {
        check_step(&m, p);
        follow(&m, p);
        check_evaluation(&evaluation, p, 5);
    }
    OK(fill(&m, qdr_linear_weight_index(m.fc), value_of));
    OK(save(&m, p->fcw));
    for (int i = 0; i < OC * C; i++) EXPECT(p->fcw[i] == value_of(i / C, i % C), "fcw[%d] is %g", i, (double)p->fcw[i]);
    check_evaluation(&evaluation, p, 5);
    check_sums(grid);
    check_relu(grid);
    check_gpt(grid);
    destroy(&m);
    destroy(&evaluation);
    free(p);
}

static int on_thread(qdr_context *ctx, void *user)
{
    const qdr_grid_opts *shape = user;
    qdr_grid *grid = NULL;
    OK(qdr_grid_create(ctx, shape, &grid));
    run(grid);
    qdr_grid_destroy(&grid);
    return 0;
}

/* Without arguments: one of the processes that mpiexec started. Else as threads, on a grid X Y Z D. */
int main(int argc, char **argv)
{
    int code = 1, provided;
    qdr_context *ctx = NULL;
    qdr_grid *grid = NULL;
    if (argc == 5) {
        qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = atoi(argv[1]), .y = atoi(argv[2]), .z = atoi(argv[3]),
                               .d = atoi(argv[4])};
        OK(qdr_launch(shape.x * shape.y * shape.z * shape.d, NULL, on_thread, &shape, &code));
        return code;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    OK(start(MPI_COMM_WORLD, &ctx, &grid));
    run(grid);
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    MPI_Finalize();
    return 0;
}
