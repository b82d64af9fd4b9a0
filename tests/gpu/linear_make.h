/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer in bf16 on 1x1x1x1, with inputs and gradients, for the benchmarks of its products. */
#ifndef TESTS_GPU_LINEAR_MAKE_H
#define TESTS_GPU_LINEAR_MAKE_H

#include "gpu.h"

typedef struct layer {
    gpu_place *place;
    int64_t m, n, k;
    qdr_stack *stack;
    qdr_linear *linear;
    void *x, *y, *dy, *dx;
} layer;

layer layer_make(gpu_place *place, int64_t m, int64_t n, int64_t k, qdr_product_type products);
void layer_free(layer *l);
void layer_forward(const layer *l);
void layer_backward(const layer *l);

#endif
