/* SPDX-License-Identifier: Apache-2.0 */
/* The dictionary at the beginning of a NumPy file, as Python writes it. */
#ifndef QUADRILLE_SRC_COMMON_NPY_HEADER_H
#define QUADRILLE_SRC_COMMON_NPY_HEADER_H

#include <stddef.h>
#include <stdint.h>

#define NPY_HEADER_MAX_DIMS 32 /* NumPy's own maximum */

typedef struct npy_header {
    char descr[64]; /* "<f4", or the beginning of a list if the elements are records */
    int is_fortran;
    int n_dims;
    int64_t shape[NPY_HEADER_MAX_DIMS];
} npy_header;

/* Parses a dictionary literal with exactly the keys descr, fortran_order and shape, in any order. Returns NULL, or a
 * description of the error; *at is then its position in the text. */
const char *npy_header_parse(const char *text, size_t n_chars, npy_header *header, size_t *at);

#endif
