/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file, open for reading or being written. */
#ifndef QDRI_CHECKPOINT_INTERNAL_H
#define QDRI_CHECKPOINT_INTERNAL_H

#include "checkpoint/spans.h"
#include "core/input.h"
#include "core/named.h"
#include "core/safetensors.h"
#include "quadrille_private/output.h"

enum { QDRI_FILE_CHUNK = 1 << 20 /* bytes */ };

/* One of the files that are read. */
typedef struct qdri_tensor_file {
    char *path;
    int descriptor;
    int64_t data_at; /* byte of the file at which elements begin */
    qdri_tensors *header;
} qdri_tensor_file;

/* Reads bytes of a file, whatever the system returns.
 * @retval QDR_ERR_IO  it cannot be read, or is shorter */
QDR_NODISCARD qdr_status qdri_tensor_file_read(const qdri_tensor_file *file, int64_t at, size_t n_bytes, void *to);

/* A tensor, and the file that has it. */
typedef struct qdri_tensor_entry {
    const qdr_tensor *tensor;
    const qdri_tensor_file *file;
} qdri_tensor_entry;

/* A file that is being written. */
typedef struct qdri_tensor_output {
    qdr_output *output; /* NULL: the file is read */
    int descriptor, has_failed, is_finished;
    qdr_tensor *tensors; /* whose strings follow the list in its memory */
    char **strings; /* names, types, keys and values of the metadata, NULL at the end */
    const char **metadata;
    uint32_t *shares; /* of checksums, by tensor */
    qdri_spans *spans; /* what was written, by tensor; n of them */
    int64_t *written; /* bytes, by tensor */
    int n;
    int64_t data_at;
} qdri_tensor_output;

struct qdr_safetensors {
    char *path;
    qdri_tensor_entry *entries;
    qdri_named *by_name; /* their numbers, sorted */
    qdri_named *keys; /* of the metadata of the files that are read */
    int n, n_files, n_keys;
    qdri_tensor_file *files;
    qdri_tensor_output out;
};

/* 1: the tensor has these elements. */
int qdri_tensor_has(const qdr_tensor *tensor, int64_t first, int64_t n);
/* Sorts the entries by name. */
QDR_NODISCARD qdr_status qdri_safetensors_sort(qdr_safetensors *file);
/* Opens a file, and reads its header. *capacity: of the list of files, 0 at first. */
QDR_NODISCARD qdr_status qdri_safetensors_add_file(qdr_safetensors *self, const char *path, int *capacity);
/* All tensors of the files, file by file, also sorted by name. */
QDR_NODISCARD qdr_status qdri_safetensors_list(qdr_safetensors *self);

/* Of "model-00002-of-00003.safetensors". */
typedef struct qdri_file_number {
    int number, n, n_stem; /* 2, 3; n_stem: bytes before the number */
} qdri_file_number;

/* Whether the name, without a folder, has one. */
int qdri_read_file_number(const char *name, qdri_file_number *number);
/* Opens the index at self->path, and all of its files.
 * @retval QDR_ERR_ARGUMENT  it is no index, or the files have other tensors than it says */
QDR_NODISCARD qdr_status qdri_safetensors_open_index(qdr_safetensors *self);
/* The checksum of a header in which its own digits, at crc_at, are zeros. */
uint32_t qdri_header_crc(const char *text, size_t n_bytes, size_t crc_at);
/* What a file begins with: the length of the header, and the header of placed tensors, with its checksum. Its length
 * does not depend on checksums. bytes: to be freed with free(). Errors are those of qdri_tensors_print(). */
QDR_NODISCARD qdr_status qdri_header_make(const qdr_tensor *tensors, int n, const char *const *metadata, char **bytes,
                                          size_t *n_bytes);
/* Bytes of the elements of placed tensors. */
static inline int64_t qdri_tensors_bytes(const qdr_tensor *tensors, int n)
{
    return n ? tensors[n - 1].begin + tensors[n - 1].bytes : 0;
}
/* Completes what was written, unless that was done, and moves it into place. */
QDR_NODISCARD qdr_status qdri_tensor_output_commit(qdr_safetensors *file);

#endif
