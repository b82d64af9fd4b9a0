/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille linear`: one layer forward and backward on a grid, from NumPy files to NumPy files, so that anyone can
 * compare Quadrille with a framework of their own. */
#include <errno.h>
#include <quadrille/linear.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/command.h"
#include "common/files.h"
#include "common/layer_case.h"
#include "common/memory.h"
#include "common/npy.h"
#include "common/ranks.h"

/* ---- the files ---- */

enum { FILE_X, FILE_W, FILE_B, FILE_DY, N_FILES };
static const char *const inputs[N_FILES] = {"--x", "--w", "--b", "--dy"};
static const char *const meanings[N_FILES] = {"[M, K]", "[N, K]", "[N]", "[M, N]"};

typedef struct linear_files {
    npy_array arrays[N_FILES]; /* b is all zero if none was given */
    int64_t m, k, n;
    qdr_dtype dtype;
} linear_files;

static int open_one(int index, const char *path, linear_files *files, failure *why)
{
    npy_array *array = &files->arrays[index];
    char text[64];
    if (npy_open(path, array, why)) return why->code;
    const int wanted = index == FILE_B ? 1 : 2;
    if (array->n_dims != wanted)
        return fail(why, EXIT_USAGE, "%s: %s has shape %s, but %s with %d dimension%s is needed; reshape it", path,
                    inputs[index], npy_shape_text(array, text, sizeof text), meanings[index], wanted, PLURAL(wanted));
    const qdr_dtype dtype = files->arrays[FILE_X].dtype;
    if (array->dtype != dtype)
        return fail(why, EXIT_USAGE, "%s: %s is %s, but --x is %s; save all files in one type, such as a.astype(np.%s)",
                    path, inputs[index], qdr_dtype_name(array->dtype), qdr_dtype_name(dtype),
                    dtype == QDR_F64   ? "float64"
                    : dtype == QDR_F16 ? "float16"
                                       : "float32");
    return EXIT_OK;
}

/* Compares one extent of an array with one extent of another; the message contains both shapes. */
static int check_side(const linear_files *files, int a, int a_dim, int b, int b_dim, const char *side, failure *why)
{
    const npy_array *one = &files->arrays[a], *two = &files->arrays[b];
    char one_text[64], two_text[64];
    if (one->shape[a_dim] == two->shape[b_dim]) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s is %s and %s is %s: %s must agree, as in %s and %s, but %lld is not %lld",
                inputs[a], npy_shape_text(one, one_text, sizeof one_text), inputs[b],
                npy_shape_text(two, two_text, sizeof two_text), side, meanings[a], meanings[b],
                (long long)one->shape[a_dim], (long long)two->shape[b_dim]);
}

static int check_shapes(linear_files *files, int has_bias, failure *why)
{
    const npy_array *w = &files->arrays[FILE_W];
    if (check_side(files, FILE_X, 1, FILE_W, 1, "their columns K", why)) return why->code;
    if (check_side(files, FILE_DY, 0, FILE_X, 0, "their rows M", why)) return why->code;
    if (check_side(files, FILE_DY, 1, FILE_W, 0, "columns of dy and rows of w, N,", why)) return why->code;
    if (has_bias && check_side(files, FILE_B, 0, FILE_W, 0, "elements of b and rows of w, N,", why)) return why->code;
    if (w->shape[0] == 0 || w->shape[1] == 0)
        return fail(why, EXIT_USAGE,
                    "--w is [%lld, %lld]: a layer needs at least one out-feature N and one in-feature K",
                    (long long)w->shape[0], (long long)w->shape[1]);
    files->m = files->arrays[FILE_X].shape[0];
    files->n = w->shape[0];
    files->k = w->shape[1];
    files->dtype = w->dtype;
    return EXIT_OK;
}

/* ---- options ---- */

typedef struct linear_options {
    const char *paths[N_FILES];
    grid_size grid;
    qdr_layout layout;
    int transposed;
    const char *order, *out;
    int64_t n_local; /* 0: ranks are started by mpiexec */
    const char *device;
} linear_options;
#define AT(member) .at = offsetof(linear_options, member)

static const option_spec specs[] = {
    {"x", 0, "FILE", "input X, [M, K]: NumPy, little-endian float16, float32 or float64, C order", OPTION_TEXT,
     AT(paths[FILE_X])},
    {"w", 0, "FILE", "weight W, [N, K], as in PyTorch: Y = X W^T + b", OPTION_TEXT, AT(paths[FILE_W])},
    {"b", 0, "FILE", "bias b, [N]; default: zero", OPTION_TEXT, AT(paths[FILE_B])},
    {"dy", 0, "FILE", "gradient of Y, [M, N]", OPTION_TEXT, AT(paths[FILE_DY])},
    {"grid", 0, "GXxGYxGZxGD", "ranks along x, y, z and d, such as 2x2x1x1", OPTION_GRID, AT(grid), .max = 1024},
    {"layout", 0, "LAYOUT", "rows of X and Y: replicated (default) or scattered", OPTION_CHOICE, AT(layout),
     .words = LAYOUT_WORDS},
    {"transposed", 0, NULL, "swap x and y: K over y, N over x", OPTION_FLAG, AT(transposed)},
    {"order", 0, "ORDER", "axis order, fastest first; default xyzd", OPTION_ORDER, AT(order)},
    {"local", 0, "P", "run P ranks as threads instead of under mpiexec", OPTION_COUNT, AT(n_local), 1, 1024},
    OPTIONS_DEVICE(linear_options, device),
    OPTIONS_TIMEOUT,
    {"out", 0, "DIR", "folder for y.npy, dx.npy, dw.npy and db.npy; created if needed", OPTION_TEXT, AT(out)},
    OPTIONS_END,
};

/* ---- the folder of results ---- */

static const char *const names[N_RESULTS] = {"y.npy", "dx.npy", "dw.npy", "db.npy"};

/* Checks, before any work is done, that DIR can be created or written to. */
static int check_folder(const char *dir, failure *why)
{
    char path[4096];
    struct stat info;
    if (strlen(dir) > 3900)
        return fail(why, EXIT_USAGE, "--out: the folder's name has %zu characters; at most 3,900 are allowed",
                    strlen(dir));
    if (stat(dir, &info) != 0 && errno == ENOENT) return EXIT_OK; /* it will be created */
    if (stat(dir, &info) != 0)
        return fail(why, EXIT_USAGE, "--out %s: cannot be reached (%s); name another folder", dir, strerror(errno));
    if (!S_ISDIR(info.st_mode)) return fail(why, EXIT_USAGE, "--out %s: is not a folder; name another", dir);
    if (access(dir, W_OK | X_OK) != 0)
        return fail(why, EXIT_USAGE, "--out %s: cannot be written to (%s); name another folder", dir, strerror(errno));
    /* Targets that are not regular files, such as devices, are refused: moving a file into place would replace them. */
    for (int i = 0; i < N_RESULTS; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (lstat(path, &info) != 0) continue;
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) continue;
        return fail(why, EXIT_USAGE,
                    "--out %s: %s in it is not a regular file or a link to one; remove it, or name another folder", dir,
                    names[i]);
    }
    return EXIT_OK;
}

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
    return check_folder(options->out, why);
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

/* Collective: the library makes all ranks fail together. */
static qdr_status build(linear_job *job)
{
    const linear_options *options = job->options;
    const qdr_stack_opts stack = {QDR_INIT(qdr_stack_opts), .n_rows = job->files.m, .dtype = job->files.dtype};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{job->files.k, 1}},
                                 .col_axis = options->transposed ? QDR_Y : QDR_X, .layout = options->layout};
    /* Has a bias even if no file gives one: db is always written. */
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),    .name = "layer", .in = {{job->files.k, 1}},
                                  .out = {{job->files.n, 1}},   .bias = 1,       .transposed = options->transposed,
                                  .out_layout = options->layout};
    qdr_edge edges[2];
    TRY(grid_make(job->ctx, options->grid, options->order, &job->grid));
    return layer_build(job->grid, &stack, &input, &desc, &job->stack, edges, &job->layer);
}

/* Copies the rows and columns that this rank owns from the file. */
static void copy_part(const npy_array *array, const qdr_owned *part, void *here)
{
    const size_t each = qdr_dtype_bytes(array->dtype);
    char *to = here;
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
    qdr_owned part = {QDR_INIT(qdr_owned)};
    TRY(qdr_matrix_owned(job->grid, matrix, qdr_context_rank(job->ctx), &part));
    const size_t bytes = (size_t)(part.n_rows * part.n_cols) * qdr_dtype_bytes(array->dtype);
    TRY(qdr_mem_alloc(job->ctx, bytes, given));
    TRY(qdr_mem_alloc(job->ctx, bytes, computed));
    void *here = malloc(bytes + 1);
    if (!here) return QDR_ERR_MEMORY;
    copy_part(array, &part, here);
    const qdr_status status = memory_copy(job->ctx, *given, here, bytes);
    free(here);
    return status;
}

static qdr_status fill(linear_job *job)
{
    const int weight = qdr_linear_weight_index(job->layer);
    TRY(qdr_stack_load_parameter(job->stack, weight, job->files.arrays[FILE_W].data));
    if (job->options->paths[FILE_B])
        TRY(qdr_stack_load_parameter(job->stack, weight + 1, job->files.arrays[FILE_B].data));
    job->in.size = job->out.size = sizeof job->in;
    TRY(qdr_linear_in_matrix(job->layer, &job->in));
    TRY(qdr_linear_out_matrix(job->layer, &job->out));
    TRY(take_part(job, &job->in, &job->files.arrays[FILE_X], &job->x, &job->dx));
    return take_part(job, &job->out, &job->files.arrays[FILE_DY], &job->dy, &job->y);
}

static qdr_status compute(linear_job *job)
{
    TRY(qdr_linear_forward(job->layer, job->x, job->y, 0, NULL));
    TRY(qdr_linear_backward(job->layer, job->dy, job->x, job->dx, 0, NULL));
    return qdr_stream_synchronize(qdr_context_stream(job->ctx));
}

/* ---- results ---- */

/* Moves an activation to rank 0. *full is memory of the host, empty on the other ranks. */
static qdr_status gather(linear_job *job, const qdr_matrix *layout, const void *part, npy_array *array, void **full)
{
    qdr_context *ctx = job->ctx;
    qdr_matrix root = {QDR_INIT(qdr_matrix), .n_rows = layout->n_rows, .spread = QDR_SPREAD_ROOT};
    memcpy(root.cols, layout->cols, sizeof root.cols);
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    void *there = NULL;
    qdr_status status = qdr_matrix_owned(job->grid, &root, qdr_context_rank(ctx), &owned);
    const size_t bytes = (size_t)(owned.n_rows * owned.n_cols) * qdr_dtype_bytes(job->files.dtype);
    if (status == QDR_OK) status = qdr_mem_alloc(ctx, bytes, &there);
    *full = malloc(bytes + 1);
    status = qdr_agree(ctx, status == QDR_OK && !*full ? QDR_ERR_MEMORY : status);
    if (status == QDR_OK) status = qdr_redistribute(job->grid, layout, part, &root, there, job->files.dtype, NULL);
    if (status == QDR_OK) status = memory_copy(ctx, *full, there, bytes);
    qdr_mem_free(ctx, &there);
    *array = (npy_array){.dtype = job->files.dtype, .n_dims = 2, .shape = {owned.n_rows, owned.n_cols}, .data = *full};
    return status;
}

static qdr_status gather_gradient(linear_job *job, int index, npy_array shape, npy_array *array, void **full)
{
    const int is_root = qdr_context_rank(job->ctx) == 0;
    const int64_t n_elems = shape.shape[0] * (shape.n_dims == 2 ? shape.shape[1] : 1);
    const qdr_dtype dtype = job->files.dtype == QDR_F64 ? QDR_F64 : QDR_F32;
    *full = is_root ? malloc((size_t)n_elems * qdr_dtype_bytes(dtype)) : NULL;
    qdr_status status = qdr_agree(job->ctx, is_root && !*full ? QDR_ERR_MEMORY : QDR_OK);
    if (status == QDR_OK) status = qdr_stack_gather_parameter(job->stack, index, 1, *full);
    *array = shape;
    array->dtype = dtype;
    array->data = *full;
    return status;
}

/* On rank 0: writes all files under temporary names, then moves all into place. */
static int write_files(const npy_array arrays[N_RESULTS], const char *dir, failure *why)
{
    qdr_output *outputs[N_RESULTS] = {NULL};
    if (files_make_folder("--out", dir, why)) return why->code;
    for (int i = 0; i < N_RESULTS && !why->code; i++) npy_stage(&outputs[i], dir, names[i], &arrays[i], why);
    for (int i = 0; i < N_RESULTS && !why->code; i++) fail_status(why, qdr_output_commit(&outputs[i]));
    for (int i = 0; i < N_RESULTS; i++) qdr_output_discard(&outputs[i]);
    return why->code;
}

/* ---- one rank ---- */

/* After each step all ranks know whether all of them succeeded. */
static int work(linear_job *job, failure *why)
{
    static qdr_status (*const steps[])(linear_job *) = {build, fill, compute};
    const linear_options *options = job->options;
    grid_check_ranks("linear", options->grid, qdr_context_size(job->ctx), why);
    if (!why->code) {
        /* Local; paths[FILE_B] may be NULL. */
        for (int i = 0; i < N_FILES && !why->code; i++)
            if (options->paths[i]) open_one(i, options->paths[i], &job->files, why);
        if (!why->code) check_shapes(&job->files, options->paths[FILE_B] != NULL, why);
    }
    if (fail_together(why, job->ctx)) return why->code;
    for (int i = 0; i < 3; i++) {
        fail_status(why, steps[i](job));
        if (fail_together(why, job->ctx)) return why->code;
    }
    /* The results; a failure is the same on all ranks and leaves no new files. */
    qdr_context *ctx = job->ctx;
    const int weight = qdr_linear_weight_index(job->layer);
    npy_array arrays[N_RESULTS] = {{0}};
    void *full[N_RESULTS] = {0};
    const npy_array dw = {.n_dims = 2, .shape = {job->files.n, job->files.k}},
                    db = {.n_dims = 1, .shape = {job->files.n}};
    qdr_status status = gather(job, &job->out, job->y, &arrays[RESULT_Y], &full[RESULT_Y]);
    if (status == QDR_OK) status = gather(job, &job->in, job->dx, &arrays[RESULT_DX], &full[RESULT_DX]);
    if (status == QDR_OK) status = gather_gradient(job, weight, dw, &arrays[RESULT_DW], &full[RESULT_DW]);
    if (status == QDR_OK) status = gather_gradient(job, weight + 1, db, &arrays[RESULT_DB], &full[RESULT_DB]);
    fail_status(why, status);
    if (fail_together(why, ctx) == EXIT_OK && qdr_context_rank(ctx) == 0) write_files(arrays, job->options->out, why);
    for (int i = 0; i < N_RESULTS; i++) free(full[i]);
    return fail_together(why, ctx);
}

/* What one launch runs, and its result. */
typedef struct launch {
    linear_options options;
    int code; /* of a failure known to all ranks */
    atomic_int is_told; /* local ranks share one `launch`, and one message is enough */
} launch;

static int run_rank(qdr_context *ctx, void *user)
{
    launch *launched = user;
    linear_job job = {.options = &launched->options, .ctx = ctx};
    failure why = {0};
    work(&job, &why);
    qdr_stack_destroy(&job.stack);
    void **const memory[] = {&job.x, &job.y, &job.dy, &job.dx};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) qdr_mem_free(job.ctx, memory[i]);
    qdr_grid_destroy(&job.grid);
    for (int i = 0; i < N_FILES; i++) npy_close(&job.files.arrays[i]);
    /* A failure known to all ranks is printed by rank 0, and the launcher need not tell the other ranks. Any other
     * failure is printed by the rank where it occurred. */
    const int is_root = qdr_context_rank(ctx) == 0;
    const int is_teller = why.is_shared ? is_root : !why.is_peers;
    if (why.code && is_teller && !atomic_exchange(&launched->is_told, 1)) fail_print(&why);
    if (!why.is_shared) return why.code;
    if (is_root || !launched->options.n_local) launched->code = why.code;
    return EXIT_OK;
}

static int run(int argc, char **argv)
{
    launch launched = {.options = {.order = "xyzd"}};
    failure why = {0};
    if (read_options(argc, argv, &launched.options, &why))
        return launched.options.n_local ? fail_print(&why) : fail_print_once(&why);
    const int code = run_on_ranks(launched.options.n_local, 0, launched.options.device, run_rank, &launched);
    return code ? code : launched.code;
}

const command command_linear = {
    .name = "linear",
    .summary = "run one layer forward and backward on NumPy files",
    .usage = "[mpiexec.mpich -n P] quadrille linear --x FILE --w FILE [--b FILE] --dy FILE\n"
             "         --grid GXxGYxGZxGD --out DIR [OPTION]...",
    .text = "Computes Y = X W^T + b, dX = dY W, dW = dY^T X and db = the column sums of dY on a grid\n"
            "of P = GX*GY*GZ*GD ranks, and writes y.npy, dx.npy, dw.npy and db.npy in the inputs' type.",
    .options = specs,
    .examples = "  mpiexec.mpich -n 4 quadrille linear --x x.npy --w w.npy --b b.npy --dy dy.npy \\\n"
                "      --grid 2x2x1x1 --out result\n"
                "  quadrille linear --x x.npy --w w.npy --dy dy.npy --grid 2x3x2x1 --local 12 \\\n"
                "      --layout scattered --transposed --out result\n"
                "  quadrille linear --x x.npy --w w.npy --dy dy.npy --grid 2x1x1x1 --local 2 \\\n"
                "      --device cuda --out result\n",
    .run = run,
};
