/* SPDX-License-Identifier: Apache-2.0 */
/* The dictionary at the beginning of a NumPy file, as Python writes it. */
#ifndef QUADRILLE_SRC_NPY_HEADER_H
#define QUADRILLE_SRC_NPY_HEADER_H

#include <stddef.h>
#include <stdint.h>

#define NPY_HEADER_MAX_DIMS 32 /* as many as NumPy itself can make */

typedef struct npy_header {
    char descr[64]; /* "<f4", or the beginning of a list where the elements are records */
    int is_fortran;
    int n_dims;
    int64_t shape[NPY_HEADER_MAX_DIMS];
} npy_header;

/* Reads a dictionary literal with exactly the keys descr, fortran_order and shape, in any order. Returns NULL, or what
 * was wrong, in words; *at is then the place in the text. */
const char *npy_header_parse(const char *text, size_t n_chars, npy_header *header, size_t *at);

#endif
