/* SPDX-License-Identifier: Apache-2.0 */
/* Plain writing and reading of one file by many ranks, with which checkpoints are compared. All return 0, or an errno
 * value. */
#ifndef QUADRILLE_SRC_BENCH_CKPT_FILE_H
#define QUADRILLE_SRC_BENCH_CKPT_FILE_H

#include <stdint.h>

/* Makes a file that does not exist yet, and takes room for that many bytes on the disk. */
int ckpt_file_make(const char *path, int64_t n_bytes);
int ckpt_file_open(const char *path, int *descriptor);
/* Writes n bytes from there on in pieces of 1 MiB, and waits for the disk. */
int ckpt_file_write(int descriptor, const char *from, int64_t at, int64_t n);
/* Reads n bytes from there on in pieces of 1 MiB. */
int ckpt_file_read(int descriptor, char *to, int64_t at, int64_t n);

#endif
