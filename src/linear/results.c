/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers the results of a layer on rank 0 and writes them: all files under temporary names first. */
#include "linear/results.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files.h"
#include "common/npy.h"

enum { RESULT_Y, RESULT_DX, RESULT_DW, RESULT_DB, N_RESULTS };
static const char *const names[N_RESULTS] = {"y.npy", "dx.npy", "dw.npy", "db.npy"};

/* Refuses targets that are not regular files, such as devices: moving a file into place would replace them. */
static int check_places(const char *dir, failure *why)
{
    char path[4096];
    struct stat info;
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

int results_check_folder(const char *dir, failure *why)
{
    struct stat info;
    if (strlen(dir) > 3900)
        return fail(why, EXIT_USAGE, "--out: the folder's name has %zu characters; at most 3,900 are allowed",
                    strlen(dir));
    if (stat(dir, &info) != 0 && errno == ENOENT) return EXIT_OK; /* it will be created */
    if (stat(dir, &info) != 0)
        return fail(why, EXIT_USAGE, "--out %s: cannot be reached (%s); name another folder", dir, strerror(errno));
    if (!S_ISDIR(info.st_mode)) return fail(why, EXIT_USAGE, "--out %s: is not a folder; name another", dir);
    if (access(dir, W_OK | X_OK) == 0) return check_places(dir, why);
    return fail(why, EXIT_USAGE, "--out %s: cannot be written to (%s); name another folder", dir, strerror(errno));
}

/* Moves an activation to rank 0. *full is device memory, empty on the other ranks. */
static qdr_status gather(const layer_results *results, const qdr_matrix *layout, const void *part, npy_array *array,
                         void **full)
{
    qdr_context *ctx = qdr_grid_context(results->grid);
    qdr_matrix root = {QDR_OPTS_INIT, .n_rows = layout->n_rows, .spread = QDR_SPREAD_ROOT};
    memcpy(root.cols, layout->cols, sizeof root.cols);
    qdr_owned owned = {0};
    qdr_status status = qdr_matrix_owned(results->grid, &root, qdr_context_rank(ctx), &owned);
    if (status == QDR_OK)
        status = qdr_mem_alloc(ctx, (size_t)(owned.n_rows * owned.n_cols) * qdr_dtype_bytes(results->dtype), full);
    status = qdr_agree(ctx, status);
    if (status == QDR_OK) status = qdr_redistribute(results->grid, layout, part, &root, *full, results->dtype, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    *array = (npy_array){.dtype = results->dtype, .n_dims = 2, .shape = {owned.n_rows, owned.n_cols}, .data = *full};
    return status;
}

/* Gathers the gradient of a parameter on rank 0. */
static qdr_status gather_gradient(const layer_results *results, int index, npy_array shape, npy_array *array,
                                  void **full)
{
    qdr_context *ctx = qdr_grid_context(results->grid);
    const int is_root = qdr_context_rank(ctx) == 0;
    const int64_t n_elems = shape.shape[0] * (shape.n_dims == 2 ? shape.shape[1] : 1);
    const qdr_dtype dtype = results->dtype == QDR_F64 ? QDR_F64 : QDR_F32;
    qdr_status status = is_root ? qdr_mem_alloc(ctx, (size_t)n_elems * qdr_dtype_bytes(dtype), full) : QDR_OK;
    status = qdr_agree(ctx, status);
    if (status == QDR_OK) status = qdr_stack_gather_parameter(results->stack, index, 1, *full);
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

int results_check_files(const char *const paths[N_FILES], const char *dir, int n_ranks, failure *why)
{
    static const char *const options[N_FILES] = {"--x", "--w", "--b", "--dy"};
    qdr_file_use uses[N_FILES + N_RESULTS];
    char results[N_RESULTS][4096];
    for (int i = 0; i < N_FILES; i++) uses[i] = (qdr_file_use){options[i], paths[i], QDR_FILE_READ};
    for (int i = 0; i < N_RESULTS; i++) {
        snprintf(results[i], sizeof results[i], "%.3900s/%s", dir, names[i]);
        uses[N_FILES + i] = (qdr_file_use){"--out", results[i], QDR_FILE_WRITTEN};
    }
    return fail_status(why, qdr_files_check(uses, N_FILES + N_RESULTS, n_ranks));
}

int results_write(const layer_results *results, const char *dir, failure *why)
{
    qdr_context *ctx = qdr_grid_context(results->grid);
    npy_array arrays[N_RESULTS] = {{0}};
    void *full[N_RESULTS] = {0};
    const npy_array dw = {.n_dims = 2, .shape = {results->n, results->k}}, db = {.n_dims = 1, .shape = {results->n}};
    qdr_status status = gather(results, results->out, results->y, &arrays[RESULT_Y], &full[RESULT_Y]);
    if (status == QDR_OK) status = gather(results, results->in, results->dx, &arrays[RESULT_DX], &full[RESULT_DX]);
    if (status == QDR_OK) status = gather_gradient(results, results->weight, dw, &arrays[RESULT_DW], &full[RESULT_DW]);
    if (status == QDR_OK)
        status = gather_gradient(results, results->weight + 1, db, &arrays[RESULT_DB], &full[RESULT_DB]);
    fail_status(why, status);
    if (fail_together(why, ctx) == EXIT_OK && qdr_context_rank(ctx) == 0) write_files(arrays, dir, why);
    for (int i = 0; i < N_RESULTS; i++) qdr_mem_free(ctx, &full[i]);
    return fail_together(why, ctx);
}
