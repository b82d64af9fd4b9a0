/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of the fake cuDNN, and their attributes. */
#ifndef FAKE_CUDNN_DESCRIPTORS_H
#define FAKE_CUDNN_DESCRIPTORS_H

#include "fake_cudnn.h"

enum { VALUE_BYTES = 8 * OPS_MOST, ATTRIBUTES_MOST = 8 };

typedef struct attribute {
    int name;
    int64_t n; /* 0: not set */
    _Alignas(8) unsigned char values[VALUE_BYTES];
} attribute;

typedef struct descriptor {
    struct descriptor *next; /* of all that ever were */
    int kind, is_final, is_destroyed;
    attribute set[ATTRIBUTES_MOST];
    fake_graph *graph; /* of GRAPH, HEURISTIC, CONFIG, ENGINE, PLAN */
    int rank; /* of CONFIG, ENGINE: which proposal it is */
} descriptor;

/* NULL: not set. */
const attribute *fake_cudnn_find(const descriptor *d, int name);
int64_t fake_cudnn_word(const descriptor *d, int name, int otherwise); /* an int, or a bool */
int64_t fake_cudnn_long(const descriptor *d, int name);
descriptor *fake_cudnn_desc(const descriptor *d, int name); /* NULL: not set */
/* A descriptor that there is, of this kind (-1: any). */
descriptor *fake_cudnn_check(const void *handle, int kind, const char *call);

/* ---- graphs.c ---- */

/* Copies what the operations say, and checks it. */
fake_graph *fake_cudnn_read_graph(const descriptor *graph);

#endif
