/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `quadrille ckpt` share: files of tensors that are read in pieces. */
#ifndef QUADRILLE_SRC_CKPT_CKPT_H
#define QUADRILLE_SRC_CKPT_CKPT_H

#include <jansson.h>
#include <quadrille/safetensors.h>

#include "common/command.h"

enum { CKPT_CHUNK = 1 << 16 /* elements that are read at once */ };

extern const command ckpt_ls, ckpt_verify, ckpt_diff, ckpt_convert;

/* Text from a file for messages and tables: control characters become '?', and a long one ends in "...". */
typedef struct ckpt_text {
    char text[164];
} ckpt_text;
ckpt_text ckpt_show(const char *text);
/* "[2, 3]". */
ckpt_text ckpt_list(const int64_t *numbers, int n);
json_t *ckpt_json_list(const int64_t *numbers, int n);
/* "[]": a single element. */
ckpt_text ckpt_shape(const qdr_tensor *tensor);
/* Prints text, and blanks up to a number of columns. */
void ckpt_print_padded(const char *text, int columns);
/* The columns that text takes, if each character takes one. */
int ckpt_columns(const char *text);

/* Names for one sentence: the first, and how many more there are. */
enum { CKPT_NAMED = 5 };
typedef struct ckpt_names {
    char text[CKPT_NAMED * 68 + 24];
    int n;
} ckpt_names;
void ckpt_names_add(ckpt_names *names, const char *name);
/* Completes the text. */
const char *ckpt_names_end(ckpt_names *names);

/* Opens a file for reading. A file that cannot be read is the user's fault. */
int ckpt_open(const char *path, qdr_safetensors **file, failure *why);
/* 1: F32, F64, BF16 or F16. */
int ckpt_is_real(const qdr_tensor *tensor);
/* Of all tensors of a file, or of those that are real. */
int64_t ckpt_bytes(const qdr_safetensors *file, int only_real);
/* 1: both have the same extents. */
int ckpt_same_shape(const qdr_tensor *a, const qdr_tensor *b);
/* Rows and columns of a tensor: those of a vector are its elements, with one column. INT64_MAX: columns that cannot be
 * counted, of a tensor without rows. */
int64_t ckpt_rows(const qdr_tensor *tensor);
int64_t ckpt_columns_of(const qdr_tensor *tensor);

/* How far a long command is, on a terminal. */
typedef struct ckpt_progress {
    const char *what; /* "converted" */
    int64_t done, total; /* bytes */
    double next_secs;
    int is_terminal, is_shown;
} ckpt_progress;
ckpt_progress ckpt_progress_begin(const char *what, int64_t total);
void ckpt_progress_add(ckpt_progress *progress, int64_t bytes);
/* Clears the line. */
void ckpt_progress_end(ckpt_progress *progress);

#endif
