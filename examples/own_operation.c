/* SPDX-License-Identifier: Apache-2.0 */
/* A custom operation between two layers: SiLU, y = x·sigmoid(x), with its backward pass, added by qdr_stack_add_op().
 * Training works even with a wrong gradient, only less well: so the program compares gradients of each kind with finite
 * differences of a loss, and fails if they differ.
 *
 *   own_operation [GRID]                          ranks as threads; GRID: 2x2x1x1 and the like
 *   mpiexec.mpich -n 4 own_operation --mpi [GRID]
 *   QDR_DEVICE=cuda own_operation_gpu [GRID]      with the kernels of own_operation_kernels.cu, if nvcc was found */
#include <math.h>
#include <quadrille/quadrille.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "own_operation.h"

enum { ROWS = 12, IN = 10, INNER = 14, OUT = 6 };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((status = (call)) < 0) goto out;                                                                           \
    } while (0)

/* ---- the operation ---- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x * sigmoid(x); }
static double silu_slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

/* Work that a stream will do later. Arrays are in host memory. */
typedef struct silu_work {
    const double *x, *dy; /* dy NULL: forward */
    double *result; /* y, or dx */
    int accumulate;
    int64_t n;
    double *copies; /* of arrays on a GPU; freed with the struct */
} silu_work;

static void run_on_host(void *user)
{
    const silu_work *work = user;
    for (int64_t i = 0; i < work->n; i++) {
        const double value = work->dy ? work->dy[i] * silu_slope(work->x[i]) : silu(work->x[i]);
        work->result[i] = work->accumulate ? work->result[i] + value : value;
    }
}

/* The last work that the stream does with it. */
static void free_work(void *user)
{
    silu_work *work = user;
    free(work->copies);
    free(work);
}

/* A CPU stream calls a function with the original arrays, which are in host memory. */
static qdr_status enqueue_on_cpu(const qdr_op_call *call, silu_work *work)
{
    const qdr_status status = qdr_stream_call(call->stream, run_on_host, work);
    return status < 0 ? status : qdr_stream_call(call->stream, free_work, work);
}

#ifdef OWN_OPERATION_KERNELS
/* A GPU stream is a CUDA stream: kernels are launched on it as usual. */
static qdr_status enqueue_on_gpu(const qdr_op_call *call, silu_work *work)
{
    struct CUstream_st *stream = qdr_stream_cuda(call->stream);
    const int failed = work->dy
                           ? silu_backward_on_gpu(stream, work->x, work->dy, work->result, work->accumulate, work->n)
                           : silu_forward_on_gpu(stream, work->x, work->result, work->n);
    free_work(work); /* the launch has copied its arguments */
    return failed ? QDR_ERR_DEVICE : QDR_OK;
}
#else
/* Without a kernel, the host computes the operation, between copies. It has to wait for the stream, because the source
 * of a copy must not change after the copy was enqueued: slow, but sufficient for the surrounding stack. */
static qdr_status enqueue_on_gpu(const qdr_op_call *call, silu_work *work)
{
    const size_t bytes = (size_t)work->n * sizeof(double);
    double *on_gpu = work->result, *x = malloc(3 * bytes + 1), *dy = x + work->n, *result = dy + work->n;
    qdr_status status = QDR_ERR_MEMORY;
    if (!(work->copies = x)) goto out;
    CHECK(qdr_copy(call->ctx, x, work->x, bytes, call->stream));
    if (work->dy) CHECK(qdr_copy(call->ctx, dy, work->dy, bytes, call->stream));
    if (work->accumulate) CHECK(qdr_copy(call->ctx, result, on_gpu, bytes, call->stream));
    CHECK(qdr_stream_synchronize(call->stream));
    work->x = x;
    work->dy = work->dy ? dy : NULL;
    work->result = result;
    run_on_host(work);
    CHECK(qdr_copy(call->ctx, on_gpu, result, bytes, call->stream));
    return qdr_stream_call(call->stream, free_work, work);
out:
    free_work(work);
    return status;
}
#endif

/* Called on the host; enqueues the work on call->stream, and only there. */
static qdr_status enqueue(const qdr_op_call *call, const double *dy, double *result, int accumulate)
{
    silu_work *work = calloc(1, sizeof *work);
    if (!work) return QDR_ERR_MEMORY;
    *work = (silu_work){
        .x = call->in[0], .dy = dy, .result = result, .accumulate = accumulate, .n = call->n_rows * call->out_cols};
    return qdr_stream_cuda(call->stream) ? enqueue_on_gpu(call, work) : enqueue_on_cpu(call, work);
}

static qdr_status silu_forward(const qdr_op_call *call, void *user)
{
    (void)user;
    return enqueue(call, NULL, call->out, 0);
}

/* The gradient of an input may not be wanted, or may have to be added to others. */
static qdr_status silu_backward(const qdr_op_call *call, void *user)
{
    (void)user;
    return call->d_in[0] ? enqueue(call, call->d_out, call->d_in[0], call->accumulate[0]) : QDR_OK;
}

/* ---- a network that uses it ---- */

/* x → up → SiLU → down → y. `down` is transposed: it reads features that `up` has split over y. */
typedef struct network {
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_edge x, y;
    void *on_root; /* device memory of rank 0 for a whole X or Y */
} network;

static qdr_status network_create(qdr_grid *grid, network *net)
{
    qdr_status status;
    qdr_edge inner;
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{IN, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc up = {QDR_INIT(qdr_linear_desc), .name = "up", .in = {{IN, 1}}, .out = {{INNER, 1}},
                                .bias = 1};
    const qdr_linear_desc down = {QDR_INIT(qdr_linear_desc), .name = "down", .in = {{INNER, 1}},
                                  .out = {{OUT, 1}},         .bias = 1,      .transposed = 1};
    qdr_op_desc op = {QDR_INIT(qdr_op_desc), .name = "silu", .n_in = 1, .forward = silu_forward,
                      .backward = silu_backward};
    net->grid = grid;
    CHECK(qdr_stack_create(grid, &(qdr_stack_opts){QDR_INIT(qdr_stack_opts), .n_rows = ROWS, .dtype = QDR_F64},
                           &net->stack));
    CHECK(qdr_stack_add_input(net->stack, "x", &input, 1, &net->x));
    CHECK(qdr_stack_add_linear(net->stack, &up, net->x, &inner, NULL));
    op.in[0] = inner;
    op.forward_flops = 4.0 * ROWS * INNER;
    op.backward_flops = 6.0 * ROWS * INNER;
    CHECK(qdr_stack_add_op(net->stack, &op, &inner));
    CHECK(qdr_stack_add_linear(net->stack, &down, inner, &net->y, NULL));
    CHECK(qdr_stack_build(net->stack));
    CHECK(qdr_stack_init(net->stack, 1, 0.5));
    CHECK(qdr_mem_alloc(qdr_grid_context(grid), (size_t)ROWS * (IN + OUT) * sizeof(double), &net->on_root));
out:
    return status;
}

/* Moves a whole matrix between rank 0's host memory and an edge's value or gradient, which is distributed. */
static qdr_status move(const network *net, qdr_edge edge, void *part, double *whole, int to_grid)
{
    qdr_status status;
    qdr_context *ctx = qdr_grid_context(net->grid);
    qdr_matrix in_grid = {QDR_INIT(qdr_matrix)}, at_root = {QDR_INIT(qdr_matrix)};
    CHECK(qdr_stack_edge_matrix(net->stack, edge, &in_grid));
    at_root = (qdr_matrix){QDR_INIT(qdr_matrix), .n_rows = ROWS, .spread = QDR_SPREAD_ROOT};
    memcpy(at_root.cols, in_grid.cols, sizeof at_root.cols);
    const size_t bytes = qdr_context_rank(ctx) == 0 ? sizeof(double) * ROWS * (size_t)(edge == net->x ? IN : OUT) : 0;
    if (to_grid) {
        CHECK(qdr_copy(ctx, net->on_root, whole, bytes, NULL));
        CHECK(qdr_redistribute(net->grid, &at_root, net->on_root, &in_grid, part, QDR_F64, NULL));
    } else {
        CHECK(qdr_redistribute(net->grid, &in_grid, part, &at_root, net->on_root, QDR_F64, NULL));
        CHECK(qdr_copy(ctx, whole, net->on_root, bytes, NULL));
    }
    CHECK(qdr_stream_synchronize(qdr_context_stream(ctx)));
out:
    return status;
}

/* The loss is Σ c·y, so its gradient with respect to y is c. Rank 0 computes the sum. */
typedef struct problem {
    double x[ROWS * IN], c[ROWS * OUT], dx[ROWS * IN];
    double parameter[INNER * IN], gradient[INNER * IN]; /* the parameters one after the other */
} problem;

static qdr_status loss_of(const network *net, problem *p, double *loss)
{
    qdr_status status;
    double y[ROWS * OUT] = {0};
    void *x_part, *y_part;
    CHECK(qdr_stack_edge_value(net->stack, net->x, &x_part));
    CHECK(qdr_stack_edge_value(net->stack, net->y, &y_part));
    CHECK(move(net, net->x, x_part, p->x, 1));
    CHECK(qdr_stack_forward(net->stack));
    CHECK(move(net, net->y, y_part, y, 0));
    *loss = 0;
    for (int i = 0; i < ROWS * OUT; i++) *loss += p->c[i] * y[i];
    CHECK(qdr_broadcast(qdr_grid_context(net->grid), 0, loss, sizeof *loss));
out:
    return status;
}

static qdr_status backward(const network *net, problem *p)
{
    qdr_status status;
    void *dx_part, *dy_part;
    CHECK(qdr_stack_edge_gradient(net->stack, net->x, &dx_part));
    CHECK(qdr_stack_edge_gradient(net->stack, net->y, &dy_part));
    CHECK(move(net, net->y, dy_part, p->c, 1));
    CHECK(qdr_stack_backward(net->stack, 0, 1));
    CHECK(move(net, net->x, dx_part, p->dx, 0));
    CHECK(qdr_broadcast(qdr_grid_context(net->grid), 0, p->dx, sizeof p->dx));
out:
    return status;
}

/* ---- finite differences ---- */

/* The derivative of the loss with respect to *value, which `apply` passes to the stack; the error of a central
 * difference is of order h². */
static qdr_status slope(const network *net, problem *p, int parameter, double *value, double *result)
{
    const double h = 1e-5, before = *value;
    double losses[2] = {0, 0};
    qdr_status status = QDR_OK;
    for (int i = 0; i < 3; i++) {
        *value = i < 2 ? before + (i ? h : -h) : before;
        if (parameter >= 0) CHECK(qdr_stack_load_parameter(net->stack, parameter, p->parameter));
        if (i < 2) CHECK(loss_of(net, p, &losses[i]));
    }
    *result = (losses[1] - losses[0]) / (2 * h);
out:
    return status;
}

/* Compares `n_tried` of n gradients with the derivatives; *worst is the largest difference so far. */
static qdr_status compare(const network *net, problem *p, int parameter, double *values, const double *gradients,
                          int64_t n, double *worst)
{
    qdr_status status = QDR_OK;
    const int64_t step = n / 7 + 1;
    for (int64_t i = 0; i < n; i += step) {
        double measured = 0;
        CHECK(slope(net, p, parameter, &values[i], &measured));
        const double difference = fabs(measured - gradients[i]) / fmax(1, fabs(measured));
        if (!(difference <= *worst)) *worst = difference;
    }
out:
    return status;
}

static qdr_status check_gradients(const network *net, problem *p, double *worst)
{
    qdr_status status;
    double loss;
    for (int i = 0; i < ROWS * IN; i++) p->x[i] = sin(3.0 * i);
    for (int i = 0; i < ROWS * OUT; i++) p->c[i] = cos(2.0 * i);
    CHECK(loss_of(net, p, &loss));
    CHECK(backward(net, p));
    CHECK(compare(net, p, -1, p->x, p->dx, (int64_t)ROWS * IN, worst));
    for (int i = 0; i < qdr_stack_n_parameters(net->stack); i++) {
        qdr_parameter parameter = {QDR_INIT(qdr_parameter)};
        CHECK(qdr_stack_parameter(net->stack, i, &parameter));
        CHECK(qdr_stack_gather_parameter(net->stack, i, 0, p->parameter));
        CHECK(qdr_stack_gather_parameter(net->stack, i, 1, p->gradient));
        CHECK(compare(net, p, i, p->parameter, p->gradient, parameter.n_global, worst));
    }
out:
    return status;
}

static int run_rank(qdr_context *ctx, void *user)
{
    const qdr_grid_opts *shape = user;
    qdr_status status;
    qdr_grid *grid = NULL;
    network net = {0};
    problem *p = calloc(1, sizeof *p);
    double worst = 0;
    CHECK(qdr_agree(ctx, p ? QDR_OK : QDR_ERR_MEMORY));
    CHECK(qdr_grid_create(ctx, shape, &grid));
    CHECK(qdr_agree(ctx, network_create(grid, &net)));
    CHECK(check_gradients(&net, p, &worst));
    if (qdr_context_rank(ctx) == 0)
        printf("SiLU on %dx%dx%dx%d: gradients differ from finite differences by %.1e at most\n", shape->x, shape->y,
               shape->z, shape->d, worst);
out:
    if (status < 0 && qdr_context_rank(ctx) == 0) fprintf(stderr, "own_operation: %s\n", qdr_last_error());
    qdr_mem_free(ctx, &net.on_root);
    qdr_stack_destroy(&net.stack);
    qdr_grid_destroy(&grid);
    free(p);
    return status < 0 || !(worst < 1e-7);
}

int main(int argc, char **argv)
{
    qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = 2, .y = 2, .z = 1, .d = 1};
    const int mpi = argc > 1 && strcmp(argv[1], "--mpi") == 0, n_words = argc - 1 - mpi;
    const char *grid = n_words == 1 ? argv[1 + mpi] : "2x2x1x1";
    int exit_code = 1, end = 0;
    const int n = sscanf(grid, "%dx%dx%dx%d%n", &shape.x, &shape.y, &shape.z, &shape.d, &end);
    if (n_words > 1 || n != 4 || grid[end] || shape.x < 1 || shape.y < 1 || shape.z < 1 || shape.d < 1) {
        const int help = argc == 2 && strcmp(argv[1], "--help") == 0;
        fprintf(help ? stdout : stderr,
                "usage: %s [GRID]         ranks as threads; GRID: 2x2x1x1, the default, or another\n"
                "       mpiexec.mpich -n 4 %s --mpi [GRID]\n",
                argv[0], argv[0]);
        if (!help) return 2;
        if (fflush(stdout) == 0) return 0;
        perror("own_operation: standard output");
        return 1;
    }
    const qdr_status status = qdr_launch(mpi ? 0 : shape.x * shape.y * shape.z * shape.d, NULL, run_rank, &shape,
                                         &exit_code);
    if (status < 0) fprintf(stderr, "own_operation: %s\n", qdr_last_error());
    if (status == QDR_OK && (fflush(stdout) || ferror(stdout))) {
        perror("own_operation: standard output");
        return 1;
    }
    return status == QDR_ERR_ARGUMENT ? 2 : exit_code;
}
