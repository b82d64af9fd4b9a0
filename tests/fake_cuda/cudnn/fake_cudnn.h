/* SPDX-License-Identifier: Apache-2.0 */
/* A cuDNN for tests, a separate library: the backend API, with every call checked, and graphs computed operation by
 * operation on the fake CUDA's streams. An invalid call ends the process. It uses the constants in the plugin's header,
 * which test_numbers.c compares with NVIDIA's.
 *
 * Environment: FAKE_CUDNN="old" (9.15), "none" (no engines), "random" (no deterministic one), "large" (8,192 times the
 * workspace), "handle" (no handle), "execute" (every execution fails). FAKE_CUDNN_RUNS=N: when it ends, the process
 * must have executed N plans or more ("0": none). FAKE_CUDA_FAIL=cudnn_create:N or cudnn_plan:N: there is too little
 * memory for the Nth handle or plan; cudnn_refuse:N: the Nth plan is not supported. */
#ifndef FAKE_CUDNN_H
#define FAKE_CUDNN_H

#include "dev/cuda/cudnn.h"

enum { TENSORS_MOST = 64, OPS_MOST = 32, INPUTS_MOST = 3 };

typedef struct fake_tensor {
    int64_t id;
    int type, alignment, is_virtual, is_value; /* no gaps: they are compared as bytes */
    int64_t dims[4], strides[4];
} fake_tensor;

/* Tensors by their index. */
typedef struct fake_op {
    int kind, mode, axis;
    int x[INPUTS_MOST], y; /* x: -1: none */
} fake_op;

typedef struct fake_graph {
    struct fake_graph *next; /* of all, forever */
    fake_tensor tensors[TENSORS_MOST];
    fake_op ops[OPS_MOST];
    int n_tensors, n_ops;
} fake_graph;

/* A run of a graph: where tensors of memory lie, and the numbers given by value. */
typedef struct fake_run {
    const fake_graph *graph;
    void *data[TENSORS_MOST]; /* addresses of the GPU; NULL: neither */
    float values[TENSORS_MOST];
} fake_run;

/* Ends the process with a sentence. */
void fake_cudnn_wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- compute.c ---- */

/* Computes it, on the fake's thread of the stream. run: a fake_run. */
void fake_cudnn_compute(void *run);
/* Set before. */
extern const struct fake_services *fake_cudnn_cuda;

#endif
