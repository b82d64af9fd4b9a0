/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille linear`: one layer forward and backward on a grid, from NumPy files to NumPy files, so that anyone can
 * compare Quadrille with a framework of their own. */
#include <quadrille/linear.h>
#include <stdatomic.h>
#include <string.h>

#include "common/command.h"
#include "linear/files.h"
#include "linear/results.h"

typedef struct linear_options {
    const char *paths[N_FILES];
    grid_size grid;
    qdr_layout layout;
    int transposed;
    const char *order, *out;
    int64_t n_local; /* 0: ranks are started by mpiexec */
} linear_options;
#define AT(member) .at = offsetof(linear_options, member)

static const option_spec specs[] = {
    {"x", 0, "FILE", "input X, [M, K]: NumPy, little-endian float16, float32 or float64, C order", OPTION_INPUT,
     AT(paths[FILE_X])},
    {"w", 0, "FILE", "weight W, [N, K], as in PyTorch: Y = X W^T + b", OPTION_INPUT, AT(paths[FILE_W])},
    {"b", 0, "FILE", "bias b, [N]; default: zero", OPTION_INPUT, AT(paths[FILE_B])},
    {"dy", 0, "FILE", "gradient of Y, [M, N]", OPTION_INPUT, AT(paths[FILE_DY])},
    {"grid", 0, "GXxGYxGZxGD", "ranks along x, y, z and d, such as 2x2x1x1", OPTION_GRID, AT(grid), .max = 1024},
    {"layout", 0, "LAYOUT", "rows of X and Y: replicated (default) or scattered", OPTION_CHOICE, AT(layout),
     .words = LAYOUT_WORDS},
    {"transposed", 0, NULL, "swap x and y: K over y, N over x", OPTION_FLAG, AT(transposed)},
    {"order", 0, "ORDER", "axis order, fastest first; default xyzd", OPTION_ORDER, AT(order)},
    {"local", 0, "P", "run P ranks as threads instead of under mpiexec", OPTION_COUNT, AT(n_local), 1, 1024},
    {"out", 0, "DIR", "folder for y.npy, dx.npy, dw.npy and db.npy; created if needed", OPTION_TEXT, AT(out)},
    OPTIONS_END,
};

static int read_options(int argc, char **argv, linear_options *options, failure *why)
{
    if (options_read(argc, argv, specs, options, NULL, why)) return why->code;
    const struct {
        int is_given;
        const char *name;
    } needed[] = {{options->paths[FILE_X] != NULL, "x"},
                  {options->paths[FILE_W] != NULL, "w"},
                  {options->paths[FILE_DY] != NULL, "dy"},
                  {options->grid.x > 0, "grid"},
                  {options->out != NULL, "out"}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!needed[i].is_given)
            return fail(why, EXIT_USAGE, "linear: --%s is missing; see quadrille linear --help", needed[i].name);
    const int n_ranks = grid_ranks(options->grid);
    if (options->n_local && options->n_local != n_ranks)
        return fail(why, EXIT_USAGE, "linear: --local %lld does not match grid %s: use --local %d",
                    (long long)options->n_local, grid_words(options->grid).text, n_ranks);
    return results_check_folder(options->out, why);
}

/* The state of one rank. */
typedef struct linear_job {
    const linear_options *options;
    qdr_context *ctx;
    linear_files files;
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_linear *layer;
    qdr_matrix in, out;
    void *x, *y, *dy, *dx;
} linear_job;

static qdr_status add_layer(linear_job *job)
{
    const qdr_layout layout = job->options->layout;
    const int transposed = job->options->transposed;
    qdr_edge in, out;
    const qdr_edge_desc edge = {QDR_OPTS_INIT, .cols = {{job->files.k, 1}}, .col_axis = transposed ? QDR_Y : QDR_X,
                                .layout = layout};
    const qdr_status status = qdr_stack_add_input(job->stack, "x", &edge, 1, &in);
    if (status != QDR_OK) return status;
    /* Has a bias even if no file gives one: db is always written. */
    const qdr_linear_desc desc = {
        QDR_OPTS_INIT, .name = "layer",          .in = {{job->files.k, 1}}, .out = {{job->files.n, 1}},
        .bias = 1,     .transposed = transposed, .out_layout = layout};
    return qdr_stack_add_linear(job->stack, &desc, in, &out, &job->layer);
}

/* Collective: the library makes all ranks fail together. */
static qdr_status build(linear_job *job)
{
    const grid_size size = job->options->grid;
    const qdr_grid_opts grid = {QDR_OPTS_INIT, .x = size.x, .y = size.y,
                                .z = size.z,   .d = size.d, .order = job->options->order};
    const qdr_stack_opts stack = {QDR_OPTS_INIT, .n_rows = job->files.m, .dtype = job->files.dtype};
    qdr_status status = qdr_grid_create(job->ctx, &grid, &job->grid);
    if (status == QDR_OK) status = qdr_stack_create(job->grid, &stack, &job->stack);
    if (status == QDR_OK) status = qdr_agree(job->ctx, add_layer(job)); /* adding is local */
    return status == QDR_OK ? qdr_stack_build(job->stack) : status;
}

/* Copies the rows and columns that this rank owns from the file. */
static void copy_part(const npy_array *array, const qdr_owned *part, void *memory)
{
    const size_t each = qdr_dtype_bytes(array->dtype);
    char *to = memory;
    for (int64_t row = part->rows.begin; row < part->rows.end; row++)
        for (int i = 0; i < part->n_ranges; i++) {
            const size_t bytes = (size_t)(part->cols[i].end - part->cols[i].begin) * each;
            const size_t from = (size_t)(row * array->shape[1] + part->cols[i].begin) * each;
            memcpy(to, (const char *)array->data + from, bytes);
            to += bytes;
        }
}

/* Allocates this rank's part of an edge, filled from the file, and a matrix of the same layout for the result. */
static qdr_status take_part(linear_job *job, const qdr_matrix *matrix, const npy_array *array, void **given,
                            void **computed)
{
    qdr_owned part;
    qdr_status status = qdr_matrix_owned(job->grid, matrix, qdr_context_rank(job->ctx), &part);
    if (status != QDR_OK) return status;
    const size_t bytes = (size_t)(part.n_rows * part.n_cols) * qdr_dtype_bytes(array->dtype);
    status = qdr_mem_alloc(job->ctx, bytes, given);
    if (status == QDR_OK) status = qdr_mem_alloc(job->ctx, bytes, computed);
    if (status == QDR_OK) copy_part(array, &part, *given);
    return status;
}

static qdr_status fill(linear_job *job)
{
    const int weight = qdr_linear_weight_index(job->layer);
    qdr_status status = qdr_stack_load_parameter(job->stack, weight, job->files.arrays[FILE_W].data);
    if (status == QDR_OK && job->options->paths[FILE_B])
        status = qdr_stack_load_parameter(job->stack, weight + 1, job->files.arrays[FILE_B].data);
    if (status == QDR_OK) status = qdr_linear_in_matrix(job->layer, &job->in);
    if (status == QDR_OK) status = qdr_linear_out_matrix(job->layer, &job->out);
    if (status == QDR_OK) status = take_part(job, &job->in, &job->files.arrays[FILE_X], &job->x, &job->dx);
    return status == QDR_OK ? take_part(job, &job->out, &job->files.arrays[FILE_DY], &job->dy, &job->y) : status;
}

static qdr_status compute(linear_job *job)
{
    qdr_status status = qdr_linear_forward(job->layer, job->x, job->y, 0, NULL);
    if (status == QDR_OK) status = qdr_linear_backward(job->layer, job->dy, job->x, job->dx, 0, NULL);
    return status == QDR_OK ? qdr_stream_synchronize(qdr_context_stream(job->ctx)) : status;
}

/* After each step all ranks know whether all of them succeeded. */
static int work(linear_job *job, failure *why)
{
    static qdr_status (*const steps[])(linear_job *) = {build, fill, compute};
    const linear_options *options = job->options;
    const int n_ranks = qdr_context_size(job->ctx);
    grid_check_ranks("linear", options->grid, n_ranks, why);
    if (!why->code && qdr_context_rank(job->ctx) == 0) results_check_files(options->paths, options->out, n_ranks, why);
    if (!why->code) linear_files_open(options->paths, &job->files, why);
    if (fail_together(why, job->ctx)) return why->code;
    for (int i = 0; i < 3; i++) {
        fail_status(why, steps[i](job));
        if (fail_together(why, job->ctx)) return why->code;
    }
    const layer_results results = {job->grid,        job->stack, qdr_linear_weight_index(job->layer),
                                   job->files.dtype, &job->in,   &job->out,
                                   job->dx,          job->y,     job->files.n,
                                   job->files.k};
    return results_write(&results, job->options->out, why);
}

static void release(linear_job *job)
{
    qdr_stack_destroy(&job->stack);
    void **const memory[] = {&job->x, &job->y, &job->dy, &job->dx};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) qdr_mem_free(job->ctx, memory[i]);
    qdr_grid_destroy(&job->grid);
    linear_files_close(&job->files);
}

/* What one launch runs, and its result. */
typedef struct launch {
    linear_options options;
    int code; /* of a failure known to all ranks */
    atomic_int is_told; /* local ranks share one `launch`, and one message is enough */
} launch;

/* A failure known to all ranks is printed by rank 0, and the launcher need not tell the other ranks. Any other failure
 * is printed by the rank where it occurred. */
static int end_rank(qdr_context *ctx, launch *launched, const failure *why)
{
    const int is_root = qdr_context_rank(ctx) == 0;
    const int is_teller = why->is_shared ? is_root : !why->is_peers;
    if (why->code && is_teller && !atomic_exchange(&launched->is_told, 1)) fail_print(why);
    if (!why->is_shared) return why->code;
    if (is_root || !launched->options.n_local) launched->code = why->code;
    return EXIT_OK;
}

static int run_rank(qdr_context *ctx, void *user)
{
    launch *launched = user;
    linear_job job = {.options = &launched->options, .ctx = ctx};
    failure why = {0};
    work(&job, &why);
    release(&job);
    return end_rank(ctx, launched, &why);
}

static int run(int argc, char **argv)
{
    launch launched = {.options = {.order = "xyzd"}};
    failure why = {0};
    if (read_options(argc, argv, &launched.options, &why))
        return launched.options.n_local ? fail_print(&why) : fail_print_once(&why);
    const int code = run_on_ranks(launched.options.n_local, 0, run_rank, &launched);
    return code ? code : launched.code;
}

const command command_linear = {
    .name = "linear",
    .summary = "run one layer forward and backward on NumPy files",
    .usage = "[mpiexec.mpich -n P] quadrille linear --x FILE --w FILE [--b FILE] --dy FILE\n"
             "         --grid GXxGYxGZxGD --out DIR [OPTION]...",
    .text = "Computes Y = X W^T + b, dX = dY W, dW = dY^T X and db = the column sums of dY on a grid\n"
            "of P = GX*GY*GZ*GD ranks, and writes y.npy, dx.npy, dw.npy and db.npy in the inputs' "
            "type.",
    .options = specs,
    .examples = "  mpiexec.mpich -n 4 quadrille linear --x x.npy --w w.npy --b b.npy --dy dy.npy \\\n"
                "      --grid 2x2x1x1 --out result\n"
                "  quadrille linear --x x.npy --w w.npy --dy dy.npy --grid 2x3x2x1 --local 12 \\\n"
                "      --layout scattered --transposed --out result\n",
    .run = run,
};
