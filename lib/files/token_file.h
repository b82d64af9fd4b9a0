/* SPDX-License-Identifier: Apache-2.0 */
/* One file of tokens: what its layout is, its tokens, where documents begin. No file stays open between calls, so that
 * there can be any number; each call looks whether it still has the length that it had. */
#ifndef QDRI_FILES_TOKEN_FILE_H
#define QDRI_FILES_TOKEN_FILE_H

#include "core/status.h"
#include "quadrille/tokens.h"

enum { QDRI_TOKEN_NAME_BYTES = 96 };

typedef struct qdri_token_file {
    char *path; /* or a name, where there is `text`; freed by qdri_token_file_close() */
    char name[QDRI_TOKEN_NAME_BYTES]; /* the same as sentences have it */
    const char *text; /* NULL, or the bytes in the place of a file */
    char *index; /* the .idx; NULL: there is none */
    int64_t bytes, index_bytes; /* their lengths */
    int64_t begin; /* byte of the first token */
    int64_t at; /* of its first token in its source */
    int64_t n; /* tokens */
    int token_bytes, is_signed, is_text;
    int64_t n_sequences, n_documents; /* of the .idx */
    uint64_t device, node; /* which file it is */
} qdri_token_file;

/* file->path is set, and text with its bytes; the others become what the file says.
 * @retval QDR_ERR_ARGUMENT, QDR_ERR_UNSUPPORTED, QDR_ERR_IO, QDR_ERR_MEMORY  as qdr_tokens_open() */
QDR_NODISCARD qdr_status qdri_token_file_open(qdri_token_file *file, qdr_token_format format);
void qdri_token_file_close(qdri_token_file *file);
/* Tokens first … first + n - 1, which it has. limit: each is less. */
QDR_NODISCARD qdr_status qdri_token_file_read(const qdri_token_file *file, int64_t limit, int64_t first, int64_t n,
                                              int32_t *to);
/* Where the first document of the .idx, which there is, begins at or after a token; file->n: there is none. */
QDR_NODISCARD qdr_status qdri_token_file_document(const qdri_token_file *file, int64_t from, int64_t *begin);

#endif
