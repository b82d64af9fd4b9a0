/* SPDX-License-Identifier: Apache-2.0 */
/* The shortest useful program: a layer Y = X·Wᵀ + b on a 2x2x1x1 grid, forward and backward. Started directly, it runs
 * its four ranks as threads; `mpiexec.mpich -n 4 linear --mpi` runs them as processes. */
#include <quadrille/quadrille.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 8, IN = 6, OUT = 4 };

/* Prints what went wrong, once, and leaves with the status. */
#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((status = (call)) < 0) goto out;                                                                           \
    } while (0)

static int run_rank(qdr_context *ctx, void *user)
{
    (void)user;
    qdr_status status;
    qdr_grid *grid = NULL;
    qdr_stack *net = NULL;
    if (qdr_context_size(ctx) != 4) {
        if (qdr_context_rank(ctx) == 0)
            fprintf(stderr, "linear: needs 4 processes but has %d; start it with mpiexec.mpich -n 4 linear --mpi\n",
                    qdr_context_size(ctx));
        return 2;
    }

    /* Four ranks: x splits the layer's inputs, y its outputs. */
    CHECK(qdr_grid_create(ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 2, .y = 2, .z = 1, .d = 1}, &grid));
    CHECK(qdr_stack_create(grid, &(qdr_stack_opts){QDR_INIT(qdr_stack_opts), .n_rows = ROWS, .dtype = QDR_F32}, &net));

    /* An input whose columns are split over x, and a layer that reads it and whose output is split over y. */
    qdr_edge x, y;
    qdr_linear *layer;
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{IN, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {{IN, 1}}, .out = {{OUT, 1}},
                                  .bias = 1};
    CHECK(qdr_stack_add_input(net, "x", &input, 1, &x));
    CHECK(qdr_stack_add_linear(net, &desc, x, &y, &layer));
    CHECK(qdr_stack_build(net));
    CHECK(qdr_linear_init(layer, 1, 0.5));

    /* Each rank fills the part it owns: X[i,j] = i + 1. */
    qdr_owned x_part = {QDR_INIT(qdr_owned)}, y_part = {QDR_INIT(qdr_owned)};
    void *x_value, *y_value, *dy;
    CHECK(qdr_stack_edge_owned(net, x, &x_part));
    CHECK(qdr_stack_edge_owned(net, y, &y_part));
    CHECK(qdr_stack_edge_value(net, x, &x_value));
    CHECK(qdr_stack_edge_value(net, y, &y_value));
    CHECK(qdr_stack_edge_gradient(net, y, &dy));
    for (int64_t i = 0; i < x_part.n_rows * x_part.n_cols; i++) {
        const int64_t row = x_part.rows.begin + i / x_part.n_cols;
        ((float *)x_value)[i] = (float)(row + 1);
    }

    /* Forward; then backward from dY = 1, so that db is the number of rows. */
    CHECK(qdr_stack_forward(net));
    CHECK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    for (int64_t i = 0; i < y_part.n_rows * y_part.n_cols; i++) ((float *)dy)[i] = 1;
    CHECK(qdr_stack_backward(net, 0, 1));
    CHECK(qdr_stream_synchronize(qdr_context_stream(ctx)));

    /* The same gradient as on one process, gathered from all ranks. */
    float db[OUT];
    CHECK(qdr_stack_gather_parameter(net, qdr_linear_weight_index(layer) + 1, 1, db));
    printf("rank %d of %d owns Y[%d:%d, %d:%d]; its first element is %.4f; db[0] = %g\n", qdr_context_rank(ctx),
           qdr_context_size(ctx), (int)y_part.rows.begin, (int)y_part.rows.end, (int)y_part.cols[0].begin,
           (int)y_part.cols[0].end, (double)((float *)y_value)[0], (double)db[0]);
out:
    if (status < 0 && qdr_context_rank(ctx) == 0) fprintf(stderr, "linear: %s\n", qdr_last_error());
    qdr_stack_destroy(&net);
    qdr_grid_destroy(&grid);
    return status < 0;
}

int main(int argc, char **argv)
{
    /* The ranks access their memory directly, which is not possible with a GPU's. */
    const qdr_context_opts on_cpu = {QDR_INIT(qdr_context_opts), .device = "cpu"};
    const int mpi = argc == 2 && strcmp(argv[1], "--mpi") == 0;
    const int help = argc == 2 && strcmp(argv[1], "--help") == 0;
    int exit_code = help ? 0 : 1;
    if (argc > 1 && !mpi) {
        fputs("usage: linear         four ranks as threads\n"
              "       mpiexec.mpich -n 4 linear --mpi\n",
              help ? stdout : stderr);
        if (!help) return 2;
    }
    const qdr_status status = help ? QDR_OK : qdr_launch(mpi ? 0 : 4, &on_cpu, run_rank, NULL, &exit_code);
    if (status < 0) fprintf(stderr, "linear: %s\n", qdr_last_error());
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("linear: standard output cannot be written\n", stderr);
        return 1;
    }
    return status == QDR_ERR_ARGUMENT ? 2 : exit_code;
}
