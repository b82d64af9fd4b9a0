/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the inputs of one layer: X[M,K], W[N,K], b[N], dY[M,N], all of one type. */
#include "linear/files.h"

#include <string.h>

static const char *const letters[N_FILES] = {"x", "w", "b", "dy"};
static const char *const meanings[N_FILES] = {"[M, K]", "[N, K]", "[N]", "[M, N]"};

static const char *numpy_name(qdr_dtype dtype)
{
    return dtype == QDR_F64 ? "float64" : dtype == QDR_F16 ? "float16" : "float32";
}

static int open_one(int index, const char *path, linear_files *files, failure *why)
{
    npy_array *array = &files->arrays[index];
    char text[64];
    if (npy_open(path, array, why)) return why->code;
    const int wanted = index == FILE_B ? 1 : 2;
    if (array->n_dims != wanted)
        return fail(why, EXIT_USAGE, "%s: --%s has shape %s, but %s with %d dimension%s is needed; reshape it", path,
                    letters[index], npy_shape_text(array, text, sizeof text), meanings[index], wanted, PLURAL(wanted));
    if (array->dtype != files->arrays[FILE_X].dtype)
        return fail(why, EXIT_USAGE,
                    "%s: --%s is %s, but --x is %s; save all files in one type, such as a.astype(np.%s)", path,
                    letters[index], qdr_dtype_name(array->dtype), qdr_dtype_name(files->arrays[FILE_X].dtype),
                    numpy_name(files->arrays[FILE_X].dtype));
    return EXIT_OK;
}

/* Compares one extent of an array with one extent of another; the message contains both shapes. */
static int check_side(const linear_files *files, int a, int a_dim, int b, int b_dim, const char *side, failure *why)
{
    const npy_array *one = &files->arrays[a], *two = &files->arrays[b];
    char one_text[64], two_text[64];
    if (one->shape[a_dim] == two->shape[b_dim]) return EXIT_OK;
    return fail(why, EXIT_USAGE, "--%s is %s and --%s is %s: %s must agree, as in %s and %s, but %lld is not %lld",
                letters[a], npy_shape_text(one, one_text, sizeof one_text), letters[b],
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

int linear_files_open(const char *const paths[N_FILES], linear_files *files, failure *why)
{
    memset(files, 0, sizeof *files);
    for (int i = 0; i < N_FILES && !why->code; i++)
        if (paths[i]) open_one(i, paths[i], files, why);
    if (!why->code) check_shapes(files, paths[FILE_B] != NULL, why);
    if (why->code) linear_files_close(files);
    return why->code;
}

void linear_files_close(linear_files *files)
{
    for (int i = 0; i < N_FILES; i++) npy_close(&files->arrays[i]);
}
