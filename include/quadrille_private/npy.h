/* SPDX-License-Identifier: Apache-2.0 */
/** @file npy.h  The headers of NumPy files: versions 1 to 3, C order, one or two dimensions, elements of any type.
 *
 * Private (private.h). Part of libquadrille_perf. The format:
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#ifndef QUADRILLE_PRIVATE_NPY_H
#define QUADRILLE_PRIVATE_NPY_H

#include "private.h"

#define QDR_NPY_MAX_DIMS 2

typedef struct qdr_npy {
    char type[64]; /**< as the file writes it: "<f4", "|u1"; of a structure its JSON */
    int n_dims; /**< 1 or 2 */
    int64_t shape[QDR_NPY_MAX_DIMS]; /**< not negative */
    size_t begin; /**< byte of the first element */
} qdr_npy;

/** Reads the header at the beginning of `n_bytes` bytes; safe for arbitrary ones. Sentences begin with `name`. Local,
 * thread-safe.
 *  @retval QDR_ERR_ARGUMENT  it is no such file, damaged or truncated, or has another order or number of dimensions
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_npy_read_header(const void *bytes, size_t n_bytes, const char *name,
                                                             qdr_npy *header);
/** Whether exactly the elements of this shape follow the header of a file of `file_bytes` bytes. type: for sentences.
 *  @retval QDR_ERR_ARGUMENT  they do not */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_npy_check_length(const qdr_npy *header, size_t file_bytes,
                                                              size_t element_bytes, const char *type, const char *name);
/** "[3, 4]" */
QDR_PRIVATE_API const char *qdr_npy_shape_text(const qdr_npy *header, char *text, size_t capacity);

#endif
