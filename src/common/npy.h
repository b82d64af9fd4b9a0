/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy files: read by mapping them, written under a temporary name first. Read: little-endian float16, float32 and
 * float64, and what quadrille_private/npy.h says. Written: version 1. */
#ifndef QUADRILLE_SRC_COMMON_NPY_H
#define QUADRILLE_SRC_COMMON_NPY_H

#include <quadrille_private/npy.h>
#include <quadrille_private/output.h>

#include "common/failure.h"

typedef struct npy_array {
    qdr_dtype dtype; /* QDR_F16, QDR_F32 or QDR_F64 */
    int n_dims; /* 1 or 2 */
    int64_t shape[QDR_NPY_MAX_DIMS];
    const void *data; /* row-major, aligned to its elements; valid until npy_close() */
    void *map; /* the file, or NULL */
    size_t map_bytes;
    void *copy; /* of data that were unaligned in the file, or NULL */
} npy_array;

/* Reads the array from the bytes of a file; `data` points into them, or to a copy if it would be unaligned. Error
 * messages begin with `name`. Safe for arbitrary bytes. Returns 0 or an exit code. */
int npy_parse(const void *bytes, size_t n_bytes, const char *name, npy_array *array, failure *why);
/* Maps a file and parses it. */
int npy_open(const char *path, npy_array *array, failure *why);
/* Frees what npy_open() or npy_parse() allocated; accepts a zeroed array. */
void npy_close(npy_array *array);

/* "[3, 4]" */
const char *npy_shape_text(const npy_array *array, char *text, size_t capacity);

/* Writes the whole array to an output for DIR/NAME, which the caller commits or discards, also after an error. */
int npy_stage(qdr_output **output, const char *dir, const char *name, const npy_array *array, failure *why);

#endif
