/* SPDX-License-Identifier: Apache-2.0 */
/* The four inputs of `quadrille linear`, checked against each other. */
#ifndef QUADRILLE_SRC_LINEAR_FILES_H
#define QUADRILLE_SRC_LINEAR_FILES_H

#include "common/npy.h"

enum { FILE_X, FILE_W, FILE_B, FILE_DY, N_FILES };

typedef struct linear_files {
    npy_array arrays[N_FILES]; /* b is all zero if none was given */
    int64_t m, k, n;
    qdr_dtype dtype;
} linear_files;

/* Opens the files (paths[FILE_B] may be NULL) and checks types and shapes. Local. On failure nothing stays open. */
int linear_files_open(const char *const paths[N_FILES], linear_files *files, failure *why);
void linear_files_close(linear_files *files);

#endif
