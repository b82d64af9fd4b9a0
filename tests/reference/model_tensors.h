/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors of a model of Hugging Face's transformers a parameter of a stack consists of, and what oracle.py has
 * put into them. Shares nothing with the maps by which checkpoints are converted. */
#ifndef TESTS_REFERENCE_MODEL_TENSORS_H
#define TESTS_REFERENCE_MODEL_TENSORS_H

#include "quadrille/network.h"

/* A tensor, and where its elements are in the parameter: as they are, transposed, or head by head (GPT-NeoX, whose rows
 * are a head's query, key and value, then the next head's). */
typedef struct tensor {
    char name[96];
    int64_t n_rows, n_cols; /* of the tensor; a vector has one row */
    int64_t first; /* where it begins in the parameter */
    int is_matrix, is_transposed;
    int64_t heads; /* 0: not head by head */
    double base; /* what a vector's elements begin as */
} tensor;

typedef struct tensor_list {
    int n;
    tensor of[3];
} tensor_list;

/* @return 0: the parameter is in no tensor */
int tensors_of(const qdr_network *network, const char *parameter, tensor_list *list);
/* The place of element i of the tensor in the parameter. */
int64_t tensor_place(const tensor *t, int64_t i);
/* Its initial value. */
double tensor_value(const tensor *t, int64_t i);
/* Number i of a name, uniform in [-1, 1): splitmix64 of crc32(name) · 2^32 + i, its upper 53 bits. */
double tensor_number(const char *name, int64_t i);

#endif
