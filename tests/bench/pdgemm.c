/* SPDX-License-Identifier: Apache-2.0 */
/* PDGEMM of ScaLAPACK, for comparison: C[m,n] = A[m,k] · B[n,k]ᵀ on a grid of processes. mpiexec -n P pdgemm M N K
 * f32|f64 PROCESS_ROWS BLOCK ITERATIONS; prints the seconds of each iteration on the slowest process, after one warm-up
 * iteration. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void Cblacs_get(int context, int what, int *value);
void Cblacs_gridinit(int *context, const char *order, int rows, int cols);
void Cblacs_gridinfo(int context, int *rows, int *cols, int *row, int *col);
int numroc_(const int *n, const int *block, const int *place, const int *first, const int *places);
void descinit_(int *desc, const int *m, const int *n, const int *block_m, const int *block_n, const int *first_row,
               const int *first_col, const int *context, const int *stride, int *info);
void psgemm_(const char *trans_a, const char *trans_b, const int *m, const int *n, const int *k, const float *alpha,
             const float *a, const int *ia, const int *ja, const int *desc_a, const float *b, const int *ib,
             const int *jb, const int *desc_b, const float *beta, float *c, const int *ic, const int *jc,
             const int *desc_c);
void pdgemm_(const char *trans_a, const char *trans_b, const int *m, const int *n, const int *k, const double *alpha,
             const double *a, const int *ia, const int *ja, const int *desc_a, const double *b, const int *ib,
             const int *jb, const int *desc_b, const double *beta, double *c, const int *ic, const int *jc,
             const int *desc_c);

typedef struct matrix {
    int desc[9];
    void *data;
} matrix;

typedef struct place {
    int context, rows, cols, row, col;
} place;

static matrix make(const place *at, int m, int n, int block, size_t bytes_each)
{
    const int zero = 0, local_m = numroc_(&m, &block, &at->row, &zero, &at->rows);
    const int local_n = numroc_(&n, &block, &at->col, &zero, &at->cols);
    const int stride = local_m > 0 ? local_m : 1;
    const size_t n_elems = (size_t)stride * (size_t)(local_n > 0 ? local_n : 1);
    matrix made = {.data = malloc(n_elems * bytes_each)};
    int info;
    if (!made.data) exit(1);
    for (size_t i = 0; i < n_elems; i++) {
        const double value = (double)(i % 7 + 1) * 0.125;
        if (bytes_each == sizeof(double)) ((double *)made.data)[i] = value;
        if (bytes_each == sizeof(float)) ((float *)made.data)[i] = (float)value;
    }
    descinit_(made.desc, &m, &n, &block, &block, &zero, &zero, &at->context, &stride, &info);
    if (info) exit(1);
    return made;
}

static void multiply(int m, int n, int k, int is_double, const matrix *a, const matrix *b, matrix *c)
{
    const int one = 1;
    const float alpha = 1, beta = 0;
    const double wide_alpha = 1, wide_beta = 0;
    if (is_double)
        pdgemm_("N", "T", &m, &n, &k, &wide_alpha, a->data, &one, &one, a->desc, b->data, &one, &one, b->desc,
                &wide_beta, c->data, &one, &one, c->desc);
    else
        psgemm_("N", "T", &m, &n, &k, &alpha, a->data, &one, &one, a->desc, b->data, &one, &one, b->desc, &beta,
                c->data, &one, &one, c->desc);
}

static void measure(const place *at, char **argv, int n_iterations)
{
    const int m = atoi(argv[1]), n = atoi(argv[2]), k = atoi(argv[3]), block = atoi(argv[6]);
    const int is_double = strcmp(argv[4], "f64") == 0;
    const size_t bytes = is_double ? sizeof(double) : sizeof(float);
    const matrix a = make(at, m, k, block, bytes), b = make(at, n, k, block, bytes);
    matrix c = make(at, m, n, block, bytes);
    for (int i = -1; i < n_iterations; i++) {
        double secs, slowest;
        MPI_Barrier(MPI_COMM_WORLD);
        secs = MPI_Wtime();
        multiply(m, n, k, is_double, &a, &b, &c);
        secs = MPI_Wtime() - secs;
        MPI_Allreduce(&secs, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (i >= 0 && at->row == 0 && at->col == 0) printf("%.9g\n", slowest);
    }
}

int main(int argc, char **argv)
{
    place at;
    int n_ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    at.rows = argc == 8 ? atoi(argv[5]) : 0;
    if (at.rows < 1 || n_ranks % at.rows || atoi(argv[6]) < 1 || atoi(argv[7]) < 1) {
        fputs("usage: pdgemm M N K f32|f64 PROCESS_ROWS BLOCK ITERATIONS; the rows divide the "
              "processes\n",
              stderr);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    Cblacs_get(-1, 0, &at.context);
    Cblacs_gridinit(&at.context, "Row-major", at.rows, n_ranks / at.rows);
    Cblacs_gridinfo(at.context, &at.rows, &at.cols, &at.row, &at.col);
    measure(&at, argv, atoi(argv[7]));
    MPI_Finalize();
    return 0;
}
