/* SPDX-License-Identifier: Apache-2.0 */
/* How a data-parallel training program replaces one matmul: every rank has its own rows and needs its own rows of the
 * result. The library moves them into the grid, multiplies there with a weight that no rank holds as a whole, and moves
 * the result back. The result is compared with that of a plain loop. docs/tutorial.md continues from here. */
#include <math.h>
#include <quadrille/quadrille.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BT = 64, C = 48, OC = 80 }; /* rows in total, in-features, out-features, named as in llm.c */
enum { N_INP = BT * C, N_OUT = BT * OC, N_WEIGHT = OC * C };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((status = (call)) < 0) goto out;                                                                           \
    } while (0)

/* The original code: out[n,OC] = inp[n,C] · weight[OC,C]ᵀ + bias. */
static void plain_forward(float *out, const float *inp, const float *weight, const float *bias, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int o = 0; o < OC; o++) {
            float sum = bias[o];
            for (int c = 0; c < C; c++) sum += inp[i * C + c] * weight[o * C + c];
            out[i * OC + o] = sum;
        }
}

/* All results must be zero initially. */
static void plain_backward(float *dinp, float *dweight, float *dbias, const float *dout, const float *inp,
                           const float *weight, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int o = 0; o < OC; o++) {
            const float d = dout[i * OC + o];
            for (int c = 0; c < C; c++) dinp[i * C + c] += d * weight[o * C + c];
            for (int c = 0; c < C; c++) dweight[o * C + c] += d * inp[i * C + c];
            dbias[o] += d;
        }
}

/* One matmul in the grid, and the layouts on both sides of it. */
typedef struct matmul {
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_linear *layer;
    qdr_matrix rows_in, rows_out; /* the caller's: rows over all ranks, all columns */
    qdr_matrix grid_in, grid_out;
    void *x, *y, *dx, *dy; /* this rank's parts in the grid */
} matmul;

static qdr_status matmul_create(qdr_grid *grid, matmul *mm)
{
    qdr_status status;
    qdr_edge in, out;
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{C, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "matmul", .in = {{C, 1}}, .out = {{OC, 1}},
                                  .bias = 1};
    mm->grid = grid;
    CHECK(qdr_stack_create(grid, &(qdr_stack_opts){QDR_INIT(qdr_stack_opts), .n_rows = BT, .dtype = QDR_F32},
                           &mm->stack));
    CHECK(qdr_stack_add_input(mm->stack, "inp", &input, 1, &in));
    CHECK(qdr_stack_add_linear(mm->stack, &desc, in, &out, &mm->layer));
    CHECK(qdr_stack_build(mm->stack));
    mm->grid_in.size = mm->grid_out.size = sizeof(qdr_matrix);
    CHECK(qdr_linear_in_matrix(mm->layer, &mm->grid_in));
    CHECK(qdr_linear_out_matrix(mm->layer, &mm->grid_out));
    mm->rows_in = (qdr_matrix){QDR_INIT(qdr_matrix), .n_rows = BT, .cols = {{C, 1}}, .spread = QDR_SPREAD_RANKS};
    mm->rows_out = (qdr_matrix){QDR_INIT(qdr_matrix), .n_rows = BT, .cols = {{OC, 1}}, .spread = QDR_SPREAD_RANKS};
    CHECK(qdr_stack_edge_value(mm->stack, in, &mm->x));
    CHECK(qdr_stack_edge_gradient(mm->stack, in, &mm->dx));
    CHECK(qdr_stack_edge_value(mm->stack, out, &mm->y));
    CHECK(qdr_stack_edge_gradient(mm->stack, out, &mm->dy));
out:
    return status;
}

/* Replaces matmul_forward(out, inp, weight, bias, …): this rank's rows in, this rank's rows out. */
static qdr_status matmul_forward(matmul *mm, float *out, const float *inp)
{
    qdr_status status = qdr_redistribute(mm->grid, &mm->rows_in, inp, &mm->grid_in, mm->x, QDR_F32, NULL);
    if (status == QDR_OK) status = qdr_linear_forward(mm->layer, mm->x, mm->y, 0, NULL);
    if (status == QDR_OK) status = qdr_redistribute(mm->grid, &mm->grid_out, mm->y, &mm->rows_out, out, QDR_F32, NULL);
    return status;
}

/* Replaces matmul_backward(dinp, dweight, dbias, dout, …). The gradients of weight and bias are summed over all ranks:
 * the program's own all-reduce of them is no longer needed. */
static qdr_status matmul_backward(matmul *mm, float *dinp, const float *dout)
{
    qdr_status status = qdr_redistribute(mm->grid, &mm->rows_out, dout, &mm->grid_out, mm->dy, QDR_F32, NULL);
    if (status == QDR_OK) status = qdr_linear_backward(mm->layer, mm->dy, mm->x, mm->dx, 0, NULL);
    if (status == QDR_OK) status = qdr_redistribute(mm->grid, &mm->grid_in, mm->dx, &mm->rows_in, dinp, QDR_F32, NULL);
    return status;
}

static double largest_difference(const float *a, const float *b, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]);
        if (!(difference <= largest)) largest = difference;
    }
    return largest;
}

/* A number in [-1, 1) that depends on its position. */
static float value_at(int64_t i) { return (float)((i * 2654435761u) % 2000u) / 1000.0f - 1.0f; }

/* The results for comparison: a plain loop over the rows of all ranks. A real program has no such loop, and has
 * gradients of the weight only after its own all-reduce. */
typedef struct plain_results {
    float inp[N_INP], weight[N_WEIGHT], bias[OC], dout[N_OUT];
    float out[N_OUT], dinp[N_INP], dweight[N_WEIGHT], dbias[OC];
} plain_results;

static void plain_run(plain_results *plain)
{
    for (int64_t i = 0; i < N_INP; i++) plain->inp[i] = value_at(i);
    for (int64_t i = 0; i < N_OUT; i++) plain->dout[i] = value_at(7 + i);
    for (int64_t i = 0; i < N_WEIGHT; i++) plain->weight[i] = value_at(13 + i);
    for (int64_t i = 0; i < OC; i++) plain->bias[i] = value_at(17 + i);
    plain_forward(plain->out, plain->inp, plain->weight, plain->bias, BT);
    plain_backward(plain->dinp, plain->dweight, plain->dbias, plain->dout, plain->inp, plain->weight, BT);
}

/* This rank's rows, and the gradients of the parameters, which are the same on all ranks. */
typedef struct grid_results {
    float out[N_OUT], dinp[N_INP], dweight[N_WEIGHT], dbias[OC];
} grid_results;

/* Prints how much this rank's results differ from those of the plain loop; returns 1 if too much. */
static int differ(int rank, const qdr_owned *rows, const grid_results *ours, const plain_results *plain)
{
    const int64_t first = rows->rows.begin, n = rows->n_rows;
    const double out = largest_difference(ours->out, plain->out + first * OC, n * OC);
    const double dinp = largest_difference(ours->dinp, plain->dinp + first * C, n * C);
    const double dweight = largest_difference(ours->dweight, plain->dweight, N_WEIGHT);
    const double dbias = largest_difference(ours->dbias, plain->dbias, OC);
    printf("rank %d: rows %d to %d; differs from the plain loop by at most %.1e in out, %.1e in "
           "dinp, %.1e in dweight, %.1e in dbias\n",
           rank, (int)first, (int)rows->rows.end, out, dinp, dweight, dbias);
    /* Sums of at most 81 terms below 1 in fp32: both sides are within 81²·2⁻²⁴ of the exact value. */
    return !(out < 1e-3 && dinp < 1e-3 && dweight < 1e-3 && dbias < 1e-3);
}

static qdr_status compare(qdr_context *ctx, matmul *mm, plain_results *plain, grid_results *ours, int *wrong)
{
    qdr_status status;
    qdr_owned rows = {QDR_INIT(qdr_owned)};
    const int weight = qdr_linear_weight_index(mm->layer), bias = weight + 1;
    CHECK(qdr_matrix_owned(mm->grid, &mm->rows_in, qdr_context_rank(ctx), &rows));
    plain_run(plain);
    CHECK(qdr_stack_load_parameter(mm->stack, weight, plain->weight));
    CHECK(qdr_stack_load_parameter(mm->stack, bias, plain->bias));
    CHECK(matmul_forward(mm, ours->out, plain->inp + rows.rows.begin * C));
    CHECK(matmul_backward(mm, ours->dinp, plain->dout + rows.rows.begin * OC));
    CHECK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    CHECK(qdr_stack_gather_parameter(mm->stack, weight, 1, ours->dweight));
    CHECK(qdr_stack_gather_parameter(mm->stack, bias, 1, ours->dbias));
    *wrong = differ(qdr_context_rank(ctx), &rows, ours, plain);
out:
    return status;
}

static int run_rank(qdr_context *ctx, void *user)
{
    if (qdr_context_size(ctx) != 4) {
        if (qdr_context_rank(ctx) == 0)
            fprintf(
                stderr,
                "replace_matmul: needs 4 processes but has %d; start it with mpiexec.mpich -n 4 replace_matmul --mpi\n",
                qdr_context_size(ctx));
        return 2;
    }
    qdr_status status;
    qdr_grid *grid = NULL;
    matmul mm = {0};
    plain_results *plain = calloc(1, sizeof *plain);
    grid_results *ours = calloc(1, sizeof *ours);
    int wrong = 0;
    (void)user;
    CHECK(qdr_agree(ctx, plain && ours ? QDR_OK : QDR_ERR_MEMORY));
    CHECK(qdr_grid_create(ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 2, .y = 2, .z = 1, .d = 1}, &grid));
    CHECK(matmul_create(grid, &mm));
    CHECK(compare(ctx, &mm, plain, ours, &wrong));
out:
    if (status < 0 && qdr_context_rank(ctx) == 0) fprintf(stderr, "replace_matmul: %s\n", qdr_last_error());
    qdr_stack_destroy(&mm.stack);
    qdr_grid_destroy(&grid);
    free(plain);
    free(ours);
    return status < 0 || wrong;
}

/* Returns the exit code. */
static int show_usage(int is_wanted)
{
    fputs("usage: replace_matmul         four ranks as threads\n"
          "       mpiexec.mpich -n 4 replace_matmul --mpi\n",
          is_wanted ? stdout : stderr);
    return is_wanted ? 0 : 2;
}

/* n_ranks: threads of this process; 0: this process is one of mpiexec's */
static int launch(int n_ranks)
{
    /* The ranks access their memory directly, which is not possible with a GPU's. */
    const qdr_context_opts on_cpu = {QDR_INIT(qdr_context_opts), .device = "cpu"};
    int exit_code = 1;
    const qdr_status status = qdr_launch(n_ranks, &on_cpu, run_rank, NULL, &exit_code);
    if (status < 0) fprintf(stderr, "replace_matmul: %s\n", qdr_last_error());
    return status == QDR_ERR_ARGUMENT ? 2 : exit_code;
}

int main(int argc, char **argv)
{
    const int is_mpi = argc == 2 && strcmp(argv[1], "--mpi") == 0;
    const int is_help = argc == 2 && strcmp(argv[1], "--help") == 0;
    const int exit_code = argc > 1 && !is_mpi ? show_usage(is_help) : launch(is_mpi ? 0 : 4);
    if (fflush(stdout) == 0 && !ferror(stdout)) return exit_code;
    fputs("replace_matmul: standard output cannot be written\n", stderr);
    return 1;
}
